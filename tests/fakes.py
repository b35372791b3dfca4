"""Stand-ins for the two seams, and the hits, pages and servers that tests share."""

import asyncio
from collections.abc import Mapping
from typing import Any

import agent_web_search as aws


class FakeSearch:
    """A SearchBackend that gives the queued outcomes in turn, the last one again and again; keeps the queries."""

    def __init__(self, *outcomes: aws.SearchOutcome | BaseException) -> None:
        self.queries: list[aws.EngineQuery] = []
        self._outcomes = list(outcomes)

    async def __call__(self, query: aws.EngineQuery) -> aws.SearchOutcome:
        self.queries.append(query)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class FakeFetch:
    """A PageFetcher that serves pages by URL: a text (plain), a Page, or an exception to raise; keeps what was asked.

    A URL without a page fails like a page that is gone. `hold(url)` makes a page wait for the event it returns.
    """

    def __init__(self, pages: Mapping[str, aws.Page | str | BaseException] | None = None) -> None:
        self.urls: list[str] = []
        self.languages: list[str] = []
        self._pages = dict(pages or {})
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, url: str) -> asyncio.Event:
        return self._held.setdefault(url, asyncio.Event())

    async def __call__(self, url: str, language: str) -> aws.Page:
        self.urls.append(url)
        self.languages.append(language)
        if url in self._held:
            await self._held[url].wait()
        page = self._pages.get(url, aws.PageError("http", 404))
        if isinstance(page, BaseException):
            raise page
        return page if isinstance(page, aws.Page) else aws.Page(url, "text/plain", page)

    async def aclose(self) -> None:
        """There is nothing to close."""


def make_hits(count: int, site: str = "https://site{}.example/page") -> tuple[aws.SearchHit, ...]:
    """Hits numbered from 1, each on a site of its own."""
    return tuple(aws.SearchHit(f"Title {n}", site.format(n), f"Snippet {n} of the engine") for n in range(1, count + 1))


def found(count: int = 10, **fields: Any) -> aws.SearchOutcome:
    """An outcome with `count` hits from DuckDuckGo."""
    return aws.SearchOutcome(make_hits(count), **{"engine": "duckduckgo", **fields})


def page_text(number: int, words: int = 40) -> str:
    """The text of page `number`: longer than its snippet, and told from every other."""
    return " ".join([f"Page{number}", "says", *("word" for _ in range(words - 2))])


def pages_of(hits: tuple[aws.SearchHit, ...]) -> dict[str, str]:
    """A page for each hit."""
    return {hit.url: page_text(number) for number, hit in enumerate(hits, start=1)}
