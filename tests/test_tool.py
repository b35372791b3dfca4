"""The tool as a host calls it: through the SDK's own client, over both seams' stand-ins."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, Implementation, TextContent

import agent_web_search as aws
from tests.fakes import FakeFetch, FakeSearch, found, make_hits, page_text, pages_of

pytestmark = pytest.mark.anyio

SECRET = "hunter2"
REGION = aws.BadSetting('Bad setting --region: got "x"; accepted: a region such as de-de.', guards=False)
DENY_LIST = aws.BadSetting('Bad setting --deny-domains: got "x"; accepted: sites such as example.com.', guards=True)


@pytest.fixture(params=["legacy", "auto"], ids=["initialize", "envelope"])
def era(request: pytest.FixtureRequest) -> str:
    """How the host speaks: with a handshake, or with what it is in each request."""
    return str(request.param)


async def call(
    arguments: Mapping[str, Any] | None = None,
    *,
    search: FakeSearch | None = None,
    fetch: FakeFetch | None = None,
    settings: aws.Settings | None = None,
    bad_settings: tuple[aws.BadSetting, ...] = (),
    mode: str = "legacy",
    host: str = "a-host",
    meta: Mapping[str, Any] | None = None,
) -> CallToolResult:
    server = aws.create_server(search or FakeSearch(found()), fetch or FakeFetch(), settings, bad_settings)
    arguments = {"search_query": "python asyncio"} if arguments is None else dict(arguments)
    with anyio.fail_after(20):  # a fault must fail, not hang
        async with Client(server, mode=mode, client_info=Implementation(name=host, version="1")) as client:
            return await client.call_tool("web_search_prime", dict(arguments), meta=dict(meta or {}))  # type: ignore[arg-type]


def texts(result: CallToolResult) -> list[str]:
    assert all(isinstance(block, TextContent) for block in result.content)
    return [block.text for block in result.content if isinstance(block, TextContent)]


def rows(result: CallToolResult) -> list[dict[str, str]]:
    assert not result.is_error
    parsed: list[dict[str, str]] = json.loads(texts(result)[0])
    return parsed


def diagnostics(result: CallToolResult) -> dict[str, Any]:
    assert result.meta is not None
    told: dict[str, Any] = result.meta["agent-web-search/diagnostics"]
    return told


# What an answer looks like


async def test_the_server_offers_tools_and_nothing_else(era: str) -> None:
    async with Client(aws.create_server(FakeSearch(found()), FakeFetch()), mode=era) as client:
        assert client.server_capabilities.model_dump(exclude_none=True, by_alias=True).keys() == {"tools"}
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("web-search-prime", aws.__version__)
        assert client.instructions == aws.INSTRUCTIONS


async def test_an_answer_is_one_text_block_with_ten_results_of_five_strings(era: str) -> None:
    result = await call(mode=era)
    assert len(result.content) == 1
    assert len(rows(result)) == 10
    for row in rows(result):
        assert list(row) == ["title", "url", "summary", "site_name", "favicon"]
        assert all(isinstance(value, str) and value for value in row.values())


async def test_the_json_is_compact_and_not_ascii_escaped() -> None:
    hit = aws.SearchHit("标题 é", "https://a.example/", "摘要")
    text = texts(await call(search=FakeSearch(aws.SearchOutcome((hit,)))))[0]
    assert text == (
        '[{"title":"标题 é","url":"https://a.example/","summary":"摘要","site_name":"a.example",'
        '"favicon":"https://a.example/favicon.ico"}]'
    )


async def test_there_is_no_structured_content_and_no_output_schema(era: str) -> None:
    async with Client(aws.create_server(FakeSearch(found()), FakeFetch()), mode=era) as client:
        (tool,) = (await client.list_tools()).tools
        result = await client.call_tool(tool.name, {"search_query": "q"})
    assert tool.output_schema is None
    assert result.structured_content is None
    assert "structuredContent" not in result.model_dump(by_alias=True, exclude_none=True)


async def test_three_results_carry_their_page_and_seven_their_snippet(era: str) -> None:
    result = await call(fetch=FakeFetch(pages_of(make_hits(10))), mode=era)
    expected = [page_text(n) for n in (1, 2, 3)] + [f"Snippet {n} of the engine" for n in range(4, 11)]
    assert [row["summary"] for row in rows(result)] == expected


async def test_every_page_may_fail_and_the_answer_is_still_one() -> None:
    result = await call(fetch=FakeFetch())
    assert [row["summary"] for row in rows(result)] == [f"Snippet {n} of the engine" for n in range(1, 11)]


async def test_the_arguments_reach_the_engine_and_the_pages() -> None:
    search, fetch = FakeSearch(found()), FakeFetch()
    arguments = {
        "search_query": "httpx timeouts",
        "search_domain_filter": "https://www.site1.example/",
        "search_recency_filter": "one_week",
        "content_size": "HIGH",
        "location": "CN",
    }
    await call(arguments, search=search, fetch=fetch, settings=aws.Settings(engines=("duckduckgo",)))
    assert search.queries == [aws.EngineQuery("httpx timeouts site:site1.example", "cn-zh", "w", ("duckduckgo",))]
    assert (fetch.urls, fetch.languages) == (["https://site1.example/page"], [aws.LANGUAGES_BY_LOCATION["cn"]])


async def test_diagnostics_travel_in_meta_and_cost_the_model_nothing(era: str) -> None:
    attempts = (aws.Attempt("duckduckgo", "rate limited", 12), aws.Attempt("brave", "ok", 34))
    outcome = found(4, engine="brave", attempts=attempts, is_cached=True)
    result = await call(search=FakeSearch(outcome), fetch=FakeFetch(pages_of(make_hits(2))), mode=era)
    told = diagnostics(result)
    assert isinstance(told.pop("elapsed_ms"), int)
    assert told == {
        "engine": "brave",
        "cached": True,
        "attempts": [
            {"engine": "duckduckgo", "outcome": "rate limited", "elapsed_ms": 12},
            {"engine": "brave", "outcome": "ok", "elapsed_ms": 34},
        ],
        "pages": ["extract", "extract", "http 404"],
    }
    assert "brave" not in texts(result)[0]


async def test_progress_is_sent_to_a_host_that_asks_for_it(era: str) -> None:
    told: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total))

    server = aws.create_server(FakeSearch(found()), FakeFetch())
    async with Client(server, mode=era) as client:
        await client.call_tool("web_search_prime", {"search_query": "q"}, progress_callback=progress)
    assert told == [(0, 4), (2, 4), (3, 4), (4, 4)]


# Size


@pytest.mark.parametrize(
    ("host", "settings", "max_bytes"),
    [
        pytest.param("a-host", aws.Settings(), 40_000, id="any host"),
        pytest.param("codex-mcp-client", aws.Settings(), 40_000, id="a host that cuts"),
        pytest.param("claude-code", aws.Settings(), 200_000, id="a host that takes more"),
        pytest.param("a-host", aws.Settings(answer_bytes=60_000), 60_000, id="a setting"),
        pytest.param("claude-code", aws.Settings(answer_bytes=5_000), 5_000, id="a setting against the host"),
    ],
)
async def test_the_answer_is_as_large_as_the_host_takes(
    host: str, settings: aws.Settings, max_bytes: int, era: str
) -> None:
    fetch = FakeFetch({hit.url: "documentation-of-thirty-signs, " * 5_000 for hit in make_hits(3)})
    arguments = {"search_query": "q", "content_size": "high"}
    result = await call(arguments, fetch=fetch, settings=settings, host=host, mode=era)
    assert len(rows(result)) == 10
    pages_bytes = 3 * aws.WORD_LIMIT_BY_CONTENT_SIZE["high"] * aws.MAX_BYTES_PER_WORD
    assert 0.9 * min(max_bytes, pages_bytes) < len(texts(result)[0].encode()) <= max_bytes


async def test_notes_count_towards_the_size() -> None:
    pages = dict.fromkeys(pages_of(make_hits(3)), '"quoted" ' * 5_000)
    settings = aws.Settings(answer_bytes=4_000)
    result = await call(fetch=FakeFetch(pages), settings=settings, bad_settings=(REGION,) * 3)
    assert len(result.content) == 4
    assert sum(len(text.encode()) for text in texts(result)) <= 4_000


# Nothing found, and failures


@pytest.mark.parametrize("outcome", [found(0), found(3)], ids=["no hits", "hits from elsewhere only"])
async def test_nothing_found_is_a_success_with_a_hint(outcome: aws.SearchOutcome, era: str) -> None:
    arguments = {"search_query": "q", "search_domain_filter": "nowhere.example"}
    result = await call(arguments, search=FakeSearch(outcome), mode=era)
    assert not result.is_error
    assert texts(result) == ["[]", aws.NO_RESULTS_HINT]
    assert diagnostics(result)["pages"] == []


def test_the_hint_says_what_to_try() -> None:
    for advice in ("No results", "fewer or other keywords", "search_domain_filter", "search_recency_filter"):
        assert advice in aws.NO_RESULTS_HINT


async def test_a_failed_search_is_an_error_with_the_text_of_the_search(era: str) -> None:
    attempts = (aws.Attempt("duckduckgo", "rate limited", 7),)
    text = "Search failed: the engines refuse for now. Try again in 60 seconds."
    error = aws.SearchError("rate limited", text, retry_after_seconds=60, attempts=attempts)
    result = await call(search=FakeSearch(error), mode=era)
    assert result.is_error
    assert texts(result) == [text]
    assert diagnostics(result) == {
        "attempts": [{"engine": "duckduckgo", "outcome": "rate limited", "elapsed_ms": 7}],
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Bad argument search_query: got nothing; accepted: text of 1 to 500 characters."),
        (
            {"search_query": "q", "content_size": "huge"},
            'Bad argument content_size: got "huge"; accepted: medium, high.',
        ),
        ({"search_query": "q", "location": 7}, "Bad argument location: got 7; accepted: cn, us."),
    ],
)
async def test_bad_arguments_are_an_error_that_names_them(arguments: dict[str, Any], text: str, era: str) -> None:
    search = FakeSearch(found())
    result = await call(arguments, search=search, mode=era)
    assert result.is_error
    assert texts(result) == [text]
    assert search.queries == []


@pytest.mark.parametrize("name", ["web_search", "webSearchPrime", "", "x" * 10_000, "\x1b[31m\u202ename"])
async def test_another_tool_is_a_protocol_error(name: str, era: str) -> None:
    async with Client(aws.create_server(FakeSearch(found()), FakeFetch()), mode=era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(name, {"search_query": "q"})
    assert caught.value.error.code == -32602
    assert caught.value.error.message == f"Unknown tool: {aws.clean_line(name)[:80]}"


FOREIGN_ERRORS = [
    ValueError(SECRET),
    KeyError(SECRET),
    OSError(13, SECRET, f"/{SECRET}"),
    TimeoutError(SECRET),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, SECRET),
    RecursionError(SECRET),
    MemoryError(SECRET),
    AssertionError(SECRET),
    StopAsyncIteration(SECRET),
    NotImplementedError(SECRET),
    RuntimeError(SECRET),
    aws.PageError(SECRET),  # type: ignore[arg-type]
    aws.WebSearchError(SECRET),
    MCPError(-32000, SECRET),
]


@pytest.mark.parametrize("error", FOREIGN_ERRORS, ids=lambda error: type(error).__name__)
async def test_no_text_of_an_exception_reaches_the_model(error: Exception, era: str) -> None:
    result = await call(search=FakeSearch(error), mode=era)
    assert result.is_error
    assert texts(result) == [aws.INTERNAL_ERROR_TEXT]
    assert SECRET not in result.model_dump_json()


@pytest.mark.parametrize("error", FOREIGN_ERRORS, ids=lambda error: type(error).__name__)
async def test_no_text_of_a_pages_exception_reaches_the_model(error: Exception) -> None:
    if isinstance(error, aws.PageError):
        error = aws.PageError("http", 500)
    result = await call(fetch=FakeFetch({hit.url: error for hit in make_hits(3)}))
    assert len(rows(result)) == 10
    assert SECRET not in result.model_dump_json()


async def test_a_search_that_is_given_up_from_inside_is_answered_too(era: str) -> None:
    result = await call(search=FakeSearch(asyncio.CancelledError(SECRET)), mode=era)
    assert result.is_error
    assert texts(result) == [aws.OVERDUE_TEXT]


async def test_a_cancelled_call_stops_the_search_and_the_server_goes_on(era: str) -> None:
    started, stopped = anyio.Event(), anyio.Event()

    class Endless(FakeSearch):
        async def __call__(self, query: aws.EngineQuery) -> aws.SearchOutcome:
            if self.queries:
                return await super().__call__(query)
            self.queries.append(query)
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()
            raise AssertionError

    server = aws.create_server(Endless(found()), FakeFetch())
    with anyio.fail_after(20):
        async with Client(server, mode=era) as client, anyio.create_task_group() as tasks:

            async def ask() -> None:
                await client.call_tool("web_search_prime", {"search_query": "q"})

            tasks.start_soon(ask)
            await started.wait()
            tasks.cancel_scope.cancel()
        await stopped.wait()
        async with Client(server, mode=era) as client:
            assert len(rows(await client.call_tool("web_search_prime", {"search_query": "q"}))) == 10


async def test_a_row_that_could_not_be_sent_is_sent_without_what_could_not() -> None:
    rows_of_engine = [
        ("half \ud83d a character", "https://a.example/\udfff", "\x00 snippet \u2028 two"),
        ("no address", "http://[::1", "snippet"),
    ]
    result = await call(search=FakeSearch(aws.SearchOutcome(tuple(aws.parse_hits(rows_of_engine)))))
    assert rows(result) == [
        {
            "title": "half a character",
            "url": "https://a.example/",
            "summary": "snippet two",
            "site_name": "a.example",
            "favicon": "https://a.example/favicon.ico",
        },
        {"title": "no address", "url": "http://[::1", "summary": "snippet", "site_name": "", "favicon": ""},
    ]


async def test_hits_of_any_backend_are_sent_without_what_cannot_be_sent_or_seen() -> None:
    hit = aws.SearchHit("half \ud83d\x1b[31m", "https://a.example/\udfff", "sn\u200bip\ud800pet \U000e0041")
    result = await call(search=FakeSearch(aws.SearchOutcome((hit,))))
    (row,) = rows(result)
    assert (row["title"], row["url"], row["summary"]) == ("half", "https://a.example/", "snippet ")


async def test_a_call_that_failed_does_not_spoil_the_next_one() -> None:
    search = FakeSearch(ValueError(SECRET), found())
    async with Client(aws.create_server(search, FakeFetch()), mode="legacy") as client:
        first, second = [await client.call_tool("web_search_prime", {"search_query": "q"}) for _ in range(2)]
    assert first.is_error
    assert len(rows(second)) == 10


async def test_calls_side_by_side_get_each_their_own_answer() -> None:
    class Echo(FakeSearch):
        async def __call__(self, query: aws.EngineQuery) -> aws.SearchOutcome:
            await anyio.lowlevel.checkpoint()
            return aws.SearchOutcome((aws.SearchHit(query.text, "https://a.example/", "snippet"),))

    titles: dict[str, str] = {}
    async with Client(aws.create_server(Echo(found()), FakeFetch()), mode="legacy") as client:

        async def ask(query: str) -> None:
            titles[query] = rows(await client.call_tool("web_search_prime", {"search_query": query}))[0]["title"]

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(ask, f"query {n}")
    assert titles == {f"query {n}": f"query {n}" for n in range(8)}


# Settings


async def test_an_ignored_setting_is_told_in_each_answer() -> None:
    result = await call(bad_settings=(REGION,))
    assert len(rows(result)) == 10
    assert texts(result)[1:] == [f"Note: a setting of this search server was ignored. {REGION.sentence}"]


@pytest.mark.parametrize("failure", [aws.SearchError("unreachable", "Search failed: x"), ValueError("x")])
async def test_an_ignored_setting_is_told_when_the_search_fails_too(failure: Exception) -> None:
    result = await call(search=FakeSearch(failure), bad_settings=(REGION,))
    assert result.is_error
    assert REGION.sentence in texts(result)[1]


async def test_a_bad_setting_that_guards_fails_each_call_and_asks_no_engine(era: str) -> None:
    search = FakeSearch(found())
    result = await call(search=search, bad_settings=(REGION, DENY_LIST), mode=era)
    assert result.is_error
    failure, note = texts(result)
    assert failure == (
        f"Search failed: a setting of this search server is wrong. {DENY_LIST.sentence} A retry cannot help."
    )
    assert REGION.sentence in note
    assert search.queries == []


# Pins of a single call


@pytest.mark.parametrize(
    ("pins", "settings", "sites"),
    [
        pytest.param({}, aws.Settings(), 4, id="none"),
        pytest.param({"allow_domains": "site2.example"}, aws.Settings(), 1, id="allow-list"),
        pytest.param({"deny_domains": "site2.example, site3.example"}, aws.Settings(), 2, id="deny-list"),
        pytest.param(
            {"deny_domains": "site2.example"},
            aws.Settings(deny_domains=aws.parse_sites("site3.example")),
            2,
            id="deny-lists unite",
        ),
        pytest.param(
            {"allow_domains": "site2.example site9.example"},
            aws.Settings(allow_domains=aws.parse_sites("site2.example site3.example")),
            1,
            id="allow-lists intersect",
        ),
        pytest.param(
            {"allow_domains": ".example"},
            aws.Settings(allow_domains=aws.parse_sites("site2.example site3.example")),
            2,
            id="a wider allow-list widens nothing",
        ),
        pytest.param({"allow_domains": None}, aws.Settings(), 4, id="null"),
    ],
)
async def test_a_host_narrows_a_single_call(pins: object, settings: aws.Settings, sites: int, era: str) -> None:
    result = await call(search=FakeSearch(found(4)), settings=settings, meta={aws.SETTINGS_META_KEY: pins}, mode=era)
    assert len(rows(result)) == sites


async def test_pins_choose_region_and_engines_within_the_settings() -> None:
    search = FakeSearch(found())
    pins = {"region": "fr-fr", "engines": "brave,mojeek"}
    settings = aws.Settings(engines=("mojeek", "duckduckgo"))
    await call(search=search, settings=settings, meta={aws.SETTINGS_META_KEY: pins})
    await call(search=search, settings=aws.Settings(region="de-de"), meta={aws.SETTINGS_META_KEY: pins})
    assert [(query.region, query.engines) for query in search.queries] == [
        ("fr-fr", ("mojeek",)),
        ("de-de", ("brave", "mojeek")),
    ]


@pytest.mark.parametrize(
    "pins",
    [
        pytest.param({"allow_domains": "intranet"}, id="no site"),
        pytest.param({"allow_domains": ""}, id="empty allow-list"),
        pytest.param({"deny_domains": ["a.example"]}, id="list"),
        pytest.param({"deny_domains": 0}, id="number"),
        pytest.param({"region": "france"}, id="region that is none"),
        pytest.param({"engines": "google"}, id="engine that is none"),
        pytest.param({"proxy": "http://proxy.example"}, id="setting that cannot be pinned"),
        pytest.param({"allow_domain": "a.example"}, id="misspelt"),
        pytest.param({"allow_domains": "\ud800" * 10_000}, id="what cannot be sent"),
        pytest.param("docs.python.org", id="no table"),
        pytest.param(["docs.python.org"], id="list of sites"),
        pytest.param(None, id="null"),
    ],
)
async def test_a_pin_that_cannot_be_read_fails_the_call_since_it_guards(pins: object) -> None:
    search = FakeSearch(found())
    result = await call_directly(search, pins)
    assert result.is_error
    (text,) = result.texts
    assert text.startswith("Search failed: ")
    assert text.endswith(" A retry cannot help.")
    assert text == aws.clean_line(text)
    assert len(text) < 350
    assert search.queries == []


async def call_directly(search: FakeSearch, pins: object) -> aws.Reply:
    async def report(progress: float, total: float, message: str) -> None:
        pass

    tool = aws.SearchTool(search, FakeFetch(), aws.Settings())
    return await tool.answer_call({"search_query": "q"}, report=report, pins=pins)


async def test_pins_that_leave_nothing_fail_the_call() -> None:
    settings = aws.Settings(allow_domains=aws.parse_sites("a.example"))
    result = await call(settings=settings, meta={aws.SETTINGS_META_KEY: {"allow_domains": "b.example"}})
    assert result.is_error
    assert "leave nothing" in texts(result)[0]
