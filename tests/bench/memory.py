"""How much memory the server takes: at its peak with three hostile pages at once, and after hundreds of searches.

    python -m tests.bench.memory [--searches 300]

Linux only (it reads `/proc`); prints one line a figure, exit status 1 if one is above its limit. Not part of the suite:
figures belong to a machine.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.simulated_pages import CHARSET_CASES, Hit, charset_url
from tests.simulated_web import SimulatedWeb
from tests.stdio_client import ServerProcess

PEAK_LIMIT_MB = 200
GROWTH_LIMIT_MB = 20
SETTLE_SEARCHES = 40  # the first calls fill the caches and the allocator's pools
HOST = "https://hostile.example.net"
ATTACKS = {
    "100 MB": ("large",) * 3,
    "bombs": ("bomb/gzip", "bomb/deflate", "bomb/nested"),
    "deep": ("deep",) * 3,
    "attributes": ("attributes",) * 3,
    "cells": ("cells",) * 3,
    "one line": ("one-line",) * 3,
    "entities and NUL bytes": ("entities", "nul-bytes", "binary-as-html"),
    "deep, attributes, cells": ("deep", "attributes", "cells"),
    "endless": ("drip", "stall", "silence"),
    "headers": ("huge-headers", "endless-header", "cookie-wall"),
}
GOOD_URLS = [charset_url(*case) for case in CHARSET_CASES]


def memory_mb(server: ServerProcess, key: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the peak so far) of the process."""
    status = Path(f"/proc/{server.process.pid}/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(key)) / 1024


@contextmanager
def running_server(web: SimulatedWeb) -> Iterator[ServerProcess]:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        yield server


def search(web: SimulatedWeb, server: ServerProcess, number: int, urls: Sequence[str]) -> int:
    """One search that finds these pages; returns its milliseconds."""
    fillers = [f"https://filler.example.com/{number}/{n}" for n in range(10 - len(urls))]
    web.results([Hit(f"Result {number}", url, "What the engine says of it.") for url in [*urls, *fillers]])
    answer = server.call(search_query=f"search number {number}", content_size="high")
    assert len(answer.results) == 10, answer.texts
    elapsed_ms: int = answer.diagnostics["elapsed_ms"]
    return elapsed_ms


def measure_attacks(web: SimulatedWeb) -> float:
    """The highest peak of a fresh process each, over every kind of attack."""
    peaks = []
    for number, (name, paths) in enumerate(ATTACKS.items()):
        with running_server(web) as server:
            search(web, server, 0, GOOD_URLS[:3])
            before_mb = memory_mb(server, "VmRSS")
            elapsed_ms = search(web, server, 1 + number, [f"{HOST}/{path}?{n}" for n, path in enumerate(paths)])
            peaks.append(memory_mb(server, "VmHWM"))
            print(f"{name:26} before {before_mb:6.1f} MB, peak {peaks[-1]:6.1f} MB, {elapsed_ms:6} ms", flush=True)
    return max(peaks)


def measure_growth(web: SimulatedWeb, searches: int) -> float:
    """What one process has grown by after `searches` different searches, good and hostile pages in turn."""
    hostile = [path for paths in ATTACKS.values() for path in paths if paths != ATTACKS["endless"]]
    with running_server(web) as server:
        settled_mb = 0.0
        for number in range(SETTLE_SEARCHES + searches):
            good = [GOOD_URLS[(2 * number + n) % len(GOOD_URLS)] + f"?{number}" for n in range(2)]
            search(web, server, number, [f"{HOST}/{hostile[number % len(hostile)]}?{number}", *good])
            if number == SETTLE_SEARCHES - 1:
                settled_mb = memory_mb(server, "VmRSS")
        end_mb = memory_mb(server, "VmRSS")
        print(f"after {SETTLE_SEARCHES} searches {settled_mb:.1f} MB, after {searches} more {end_mb:.1f} MB")
        return end_mb - settled_mb


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=300, help="default: %(default)s; 0: attacks only")
    options = parser.parse_args(argv)
    started = time.monotonic()
    with SimulatedWeb() as web:
        peak_mb = measure_attacks(web)
        growth_mb = measure_growth(web, options.searches) if options.searches else 0.0
    print(f"peak {peak_mb:.1f} MB (limit {PEAK_LIMIT_MB}), growth {growth_mb:.1f} MB (limit {GROWTH_LIMIT_MB})")
    print(f"took {time.monotonic() - started:.0f} s")
    return int(peak_mb > PEAK_LIMIT_MB or growth_mb > GROWTH_LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
