"""An event loop whose clock jumps: when everyone waits, time is at once what the first of them waits for.

Tests of clocks (hedges, rests, lifetimes) so take no time, and their figures are exact. Nothing real may be waited for
on such a loop: no socket, no thread.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: what the loop would wait for has passed when `select` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everyone waits for something that never comes"
        self.now_seconds += timeout
        return super().select(0)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a loop whose clock starts at 0 and jumps."""
    selector = JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_seconds  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
