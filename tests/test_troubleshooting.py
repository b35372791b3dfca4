"""Every heading of docs/troubleshooting.md is a text that the program says in the situation it stands for."""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

import agent_web_search as aws
from tests.fakes import FakeFetch, FakeSearch, found
from tests.simulated_web import SimulatedWeb

PAGE = Path(__file__).parent.parent / "docs" / "troubleshooting.md"
HEADINGS = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

QUERY = {"search_query": "sorting"}
DUCKDUCKGO_ONLY = {"AGENT_WEB_SEARCH_ENGINES": "duckduckgo"}


def answer(
    arguments: Mapping[str, object],
    search: aws.SearchBackend | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    tool: str = aws.TOOL_NAME,
    unknown_flags: Sequence[aws.BadSetting] = (),
    pins: Mapping[str, str] | None = None,
) -> list[str]:
    """The text blocks of a call's answer, or a protocol error's text, from a server set up by `environ`."""
    settings, bad_settings = aws.load_settings({}, environ or {})
    bad_settings += unknown_flags
    meta: Any = {aws.SETTINGS_META_KEY: pins} if pins else None

    async def call() -> list[str]:
        async with Client(aws.create_server(search, FakeFetch(), settings, bad_settings)) as client:
            try:
                result = await client.call_tool(tool, dict(arguments), meta=meta)
            except MCPError as error:
                return [str(error)]
            return [block.text for block in result.content]

    return asyncio.run(call())


def search_with(fault: str) -> Callable[[SimulatedWeb], str]:
    """What a search answers when DuckDuckGo, the only engine, has a fault."""

    def run(web: SimulatedWeb) -> str:
        web.set_engine("duckduckgo", fault)
        return answer(QUERY, environ=DUCKDUCKGO_ONLY)[0]

    return run


def search_twice_with_a_refusal(web: SimulatedWeb) -> str:
    web.set_engine("duckduckgo", "429")
    search = aws.EngineSearch(aws.Settings(engines=("duckduckgo",)))
    answer(QUERY, search, DUCKDUCKGO_ONLY)
    return answer({"search_query": "sorting again"}, search, DUCKDUCKGO_ONLY)[0]


def search_more_than_an_engine_takes(web: SimulatedWeb) -> str:
    """Each engine search that is under way keeps its turn; the one that is told comes after all turns are taken."""

    async def burst() -> list[object]:
        search = aws.EngineSearch(aws.Settings(engines=("duckduckgo",)))
        queries = [
            aws.EngineQuery(f"sorting {number}", "us-en", None, ("duckduckgo",))
            for number in range(2 * aws.PACE_SEARCHES + 1)
        ]
        searches = [asyncio.create_task(search(query)) for query in queries]
        done, waiting = await asyncio.wait(searches, return_when=asyncio.FIRST_EXCEPTION)
        for task in waiting:
            task.cancel()
        return [error for task in done if (error := task.exception())]

    return str(asyncio.run(burst())[0])


def search_through(proxy: Callable[[SimulatedWeb], str]) -> Callable[[SimulatedWeb], str]:
    return lambda web: answer(QUERY, environ={**DUCKDUCKGO_ONLY, "AGENT_WEB_SEARCH_PROXY": proxy(web)})[0]


def search_through_a_proxy_without_its_password(web: SimulatedWeb) -> str:
    web.credentials = ("name", "password")
    return answer(QUERY, environ={**DUCKDUCKGO_ONLY, "AGENT_WEB_SEARCH_PROXY": web.proxy_url(credentials=False)})[0]


def search_with_another_ddgs(web: SimulatedWeb) -> str:
    from ddgs.engines import ENGINES

    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ENGINES["text"], "duckduckgo")
        return answer(QUERY, environ=DUCKDUCKGO_ONLY)[0]


def search_that_fails_with(failure: Exception) -> Callable[[SimulatedWeb], str]:
    """What a search answers when a request ends so; for what the simulated web cannot bring about."""

    async def ask(engine: str, query: aws.EngineQuery) -> list[aws.SearchHit]:
        raise aws.explain_failure(engine, failure, "http://127.0.0.1:3128")

    return lambda web: answer(QUERY, aws.EngineSearch(aws.Settings(), ask), DUCKDUCKGO_ONLY)[0]


def search_with_stuck_requests(web: SimulatedWeb) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws, "MAX_ENGINE_THREADS", 0)  # as if all that are allowed were under way
        return answer(QUERY, environ=DUCKDUCKGO_ONLY)[0]


def search_with_an_unknown_flag(web: SimulatedWeb) -> str:
    """The process would serve from here on, so what it would serve with is taken and served by the test."""
    bad_settings: list[aws.BadSetting] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws, "leave_on_signals", lambda: None)
        patch.setattr(aws, "serve", lambda settings, bad: bad_settings.extend(bad) or sys.exit())
        with pytest.raises(SystemExit):
            aws.main(["--alow-domains"])
    return answer(QUERY, FakeSearch(found()), unknown_flags=bad_settings)[0]


def search_pinned_to(environ: Mapping[str, str], **pins: str) -> Callable[[SimulatedWeb], str]:
    return lambda web: answer(QUERY, FakeSearch(found()), environ, pins=pins)[0]


SITUATIONS: dict[str, Callable[[SimulatedWeb], str]] = {
    "Search failed: … refuses to search for now (HTTP": search_with("429"),
    "Search failed: … refuses to search for now (it wants": search_with("202"),
    "Search failed: … refused an earlier search": search_twice_with_a_refusal,
    "Search failed: … was just asked": search_more_than_an_engine_takes,
    "Search failed: the name … does not resolve": search_through(lambda web: "http://proxy.invalid:3128"),
    "Search failed: … refused the connection": search_through(lambda web: "http://127.0.0.1:9"),
    "Search failed: the proxy at … cannot reach": search_with("dns"),
    "Search failed: the proxy at … asks": search_through_a_proxy_without_its_password,
    "Search failed: the connection to … broke off": search_with("reset"),
    "Search failed: … did not answer in time": search_with("hang"),
    "Search failed: the certificate of … is signed": search_with("certificate"),
    "Search failed: the certificate of … is for another": search_with("misnamed"),
    "Search failed: the proxy at … does not answer as": search_that_fails_with(
        RuntimeError("CONNECT failed: bad response")
    ),
    "Search failed: … has an address": search_that_fails_with(RuntimeError("BuilderError: no URL")),
    "Search failed: the certificate of … has expired": search_that_fails_with(
        RuntimeError("peer certificate: it has expired")
    ),
    "Search failed: the certificate of … cannot": search_that_fails_with(
        RuntimeError("peer certificate: a critical extension")
    ),
    "Search failed: … sent an answer": search_that_fails_with(RuntimeError("DecodeError: end of input")),
    "Search failed: … answered HTTP": search_with("500"),
    "Search failed: … sent a page": search_with("empty"),
    "Search failed: … could not be asked": search_that_fails_with(MemoryError()),
    "Search failed: the engine … of ddgs": search_with_another_ddgs,
    "No results": lambda web: answer(QUERY, FakeSearch(found(0)))[1],
    "Bad argument": lambda web: answer({**QUERY, "content_size": "huge"}, FakeSearch(found()))[0],
    "Unknown tool": lambda web: answer(QUERY, FakeSearch(found()), tool="webSearchPrime")[0],
    "Search failed: … earlier requests": search_with_stuck_requests,
    "Search failed: no engine answered": lambda web: answer(QUERY, FakeSearch(asyncio.CancelledError()))[0],
    "Search failed: a setting of this search server is wrong. Bad setting …: there": search_with_an_unknown_flag,
    "Search failed: Bad pin": search_pinned_to({}, region="nonsense"),
    "Search failed: agent-web-search/settings takes": search_pinned_to({}, proxy="http://127.0.0.1:9"),
    "Search failed: The pins": search_pinned_to(DUCKDUCKGO_ONLY, engines="mojeek"),
    "Search failed: a setting of this search server is wrong. Bad setting …: got": lambda web: answer(
        QUERY, environ={"AGENT_WEB_SEARCH_DENY_DOMAINS": "nonsense"}
    )[0],
    "Note: a setting": lambda web: answer(QUERY, FakeSearch(found()), {"AGENT_WEB_SEARCH_REGION": "nonsense"})[-1],
    "Search failed: an unexpected error": lambda web: answer(QUERY, FakeSearch(RuntimeError("details")))[0],
}


def matches(heading: str, text: str) -> bool:
    return re.fullmatch(".+".join(map(re.escape, heading.split("…"))), text) is not None


@pytest.mark.parametrize("heading", [heading for heading in HEADINGS if not heading.startswith("agent-web-search:")])
def test_the_answer_is_the_heading(heading: str, through_web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "ENGINE_TIMEOUT_SECONDS", 1.0)
    (situation,) = [run for beginning, run in SITUATIONS.items() if heading.startswith(beginning)]
    text = situation(through_web)
    assert matches(heading, text), text


COMMAND_LINES = {
    "agent-web-search: Bad setting": (["--region", "nonsense", "search", "sorting"], aws.EXIT_USAGE),
    "agent-web-search: bad …": (["search", "sorting", "--size", "huge"], aws.EXIT_USAGE),
}


def command_line_headings() -> list[str]:
    return [heading for heading in HEADINGS if heading.startswith("agent-web-search:")]


@pytest.mark.parametrize(("beginning", "arguments", "status"), [(key, *value) for key, value in COMMAND_LINES.items()])
def test_the_command_line_says_what_the_heading_says(
    beginning: str, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (heading,) = [heading for heading in command_line_headings() if heading.startswith(beginning)]
    assert aws.main(arguments) == status
    assert matches(heading, capsys.readouterr().err.strip())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_the_command_line_says_that_it_cannot_write(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert aws.main(["config", "codex"]) == aws.EXIT_FAILED
    assert capsys.readouterr().err.splitlines()[-1] in command_line_headings()


@pytest.mark.parametrize("failure", aws.PRIMP_FAILURES, ids=lambda failure: failure[0])
def test_every_failed_request_is_told_by_a_text_with_a_heading(failure: tuple[str, aws.Outcome, str]) -> None:
    _, outcome, template = failure
    clause = template.format("502", title="DuckDuckGo", host="html.duckduckgo.com", peer="the proxy at 127.0.0.1:3128")
    text = str(aws.combine_failures({"duckduckgo": aws.SearchError(outcome, clause)}))
    assert any(matches(heading, text) for heading in HEADINGS), text
