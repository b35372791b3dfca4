"""From a request to an answer: order, clocks, what a failed page costs, and what fits."""

import asyncio
import json
import time
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_web_search as aws
from tests.fakes import FakeFetch, FakeSearch, found, make_hits, page_text, pages_of
from tests.virtual_time import run_in_virtual_time

REQUEST = aws.SearchRequest("python asyncio")
SETTINGS = aws.Settings()
BOUNDS = (4_000, aws.ANSWER_BYTES, 200_000)

pytestmark = pytest.mark.anyio


async def search(
    outcome: aws.SearchOutcome,
    fetch: FakeFetch,
    request: aws.SearchRequest = REQUEST,
    settings: aws.Settings = SETTINGS,
    report: aws.Report | None = None,
) -> aws.Answer:
    with anyio.fail_after(10):  # a fault must fail, not hang
        return await aws.web_search(
            request, settings, search=FakeSearch(outcome), read_page=aws.PageReader(fetch), report=report
        )


def summaries(answer: aws.Answer) -> list[str]:
    return [result["summary"] for result in answer.results]


# The whole way


async def test_results_keep_the_order_of_the_hits() -> None:
    answer = await search(found(10), FakeFetch(pages_of(make_hits(10))))
    assert [result["title"] for result in answer.results] == [f"Title {n}" for n in range(1, 11)]


async def test_the_first_three_results_carry_their_page_and_the_rest_their_snippet() -> None:
    answer = await search(found(10), FakeFetch(pages_of(make_hits(10))))
    assert summaries(answer) == [page_text(n) for n in (1, 2, 3)] + [f"Snippet {n} of the engine" for n in range(4, 11)]
    assert answer.page_notes == ("extract",) * 3


async def test_only_the_first_three_pages_are_asked_for() -> None:
    fetch = FakeFetch()
    await search(found(10), fetch)
    assert sorted(fetch.urls) == sorted(hit.url for hit in make_hits(3))


async def test_no_more_than_ten_results_are_shown() -> None:
    assert len((await search(found(30), FakeFetch())).results) == 10


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
async def test_fewer_hits_give_fewer_results(count: int) -> None:
    answer = await search(found(count), FakeFetch(pages_of(make_hits(count))))
    assert (len(answer.results), len(answer.page_notes)) == (count, min(count, 3))


async def test_hits_from_other_sites_are_dropped_before_pages_are_read() -> None:
    fetch = FakeFetch()
    request = aws.SearchRequest("q", sites=aws.parse_sites("site2.example site7.example"))
    answer = await search(found(10), fetch, request)
    assert [result["site_name"] for result in answer.results] == ["site2.example", "site7.example"]
    assert sorted(fetch.urls) == ["https://site2.example/page", "https://site7.example/page"]


async def test_denied_sites_make_room_for_the_next_hits() -> None:
    settings = aws.Settings(deny_domains=aws.parse_sites("site1.example"))
    answer = await search(found(11), FakeFetch(), settings=settings)
    assert [result["site_name"] for result in answer.results] == [f"site{n}.example" for n in range(2, 12)]


@pytest.mark.parametrize("location", ["cn", "us"])
async def test_pages_are_asked_for_in_the_language_of_the_location(location: aws.Location) -> None:
    fetch = FakeFetch()
    await search(found(3), fetch, aws.SearchRequest("q", location=location))
    assert set(fetch.languages) == {aws.LANGUAGES_BY_LOCATION[location]}


@pytest.mark.parametrize("size", ["medium", "high"])
async def test_an_extract_has_the_words_that_the_content_size_grants(size: aws.ContentSize) -> None:
    fetch = FakeFetch({make_hits(1)[0].url: page_text(1, words=5_000)})
    answer = await search(found(1), fetch, aws.SearchRequest("q", content_size=size))
    assert aws.count_words(summaries(answer)[0]) == {"medium": 500, "high": 2_500}[size]
    assert summaries(answer)[0].endswith(" …")


async def test_the_answer_tells_how_the_search_went() -> None:
    attempts = (aws.Attempt("duckduckgo", "rate limited", 12), aws.Attempt("brave", "ok", 34))
    outcome = found(1, engine="brave", attempts=attempts, is_cached=True)
    answer = await search(outcome, FakeFetch())
    assert (answer.engine, answer.attempts, answer.is_cached) == ("brave", attempts, True)
    assert answer.elapsed_ms >= 0


async def test_progress_is_told_for_the_search_and_each_page() -> None:
    told: list[tuple[float, float, str]] = []

    async def report(progress: float, total: float, message: str) -> None:
        told.append((progress, total, message))

    await search(found(10), FakeFetch(pages_of(make_hits(2))), report=report)
    assert [(progress, total) for progress, total, _ in told] == [(0, 4), (2, 4), (3, 4), (4, 4)]
    assert told[0][2] == "Searching"
    assert sorted(message for _, _, message in told[1:]) == [f"Read site{n}.example" for n in (1, 2, 3)]


# What a page costs


@pytest.mark.parametrize(
    ("page", "note"),
    [
        pytest.param(aws.PageError("http", 503), "http 503", id="page error"),
        pytest.param(ValueError("secret"), "unexpected error", id="error of a library"),
        pytest.param(RecursionError("secret"), "unexpected error", id="too deep"),
        pytest.param(MemoryError(), "unexpected error", id="too large"),
        pytest.param(TimeoutError("secret"), "unexpected error", id="a clock of a library"),
        pytest.param(asyncio.CancelledError(), "timed out", id="given up from inside"),
        pytest.param("", "no text", id="nothing"),
        pytest.param(" \n\t\u200b ", "no text", id="blanks"),
        pytest.param("three words only", "less text than the snippet", id="less than the snippet"),
    ],
)
async def test_a_page_that_fails_costs_its_own_extract_only(page: str | BaseException, note: str) -> None:
    hits = make_hits(10)
    answer = await search(found(10), FakeFetch({**pages_of(hits), hits[1].url: page}))
    assert summaries(answer)[:3] == [page_text(1), "Snippet 2 of the engine", page_text(3)]
    assert answer.page_notes == ("extract", note, "extract")
    assert len(answer.results) == 10


async def test_a_page_as_long_as_its_snippet_is_shown() -> None:
    text = "exactly five words of text"
    assert summaries(await search(found(1), FakeFetch({make_hits(1)[0].url: text}))) == [text]


async def test_a_long_page_beats_a_snippet_of_more_words_than_the_limit() -> None:
    hit = aws.SearchHit("Title", "https://a.example/", "字" * 700)
    answer = await search(aws.SearchOutcome((hit,)), FakeFetch({hit.url: "文" * 5_000}))
    assert summaries(answer) == ["文" * 500 + " …"]


async def test_pages_are_read_together() -> None:
    everyone_waits = asyncio.Event()
    fetch = FakeFetch(pages_of(make_hits(3)))

    class TogetherOnly(FakeFetch):
        async def __call__(self, url: str, language: str) -> aws.Page:
            self.urls.append(url)
            if len(self.urls) == 3:
                everyone_waits.set()
            await everyone_waits.wait()
            return await fetch(url, language)

    answer = await search(found(3), TogetherOnly())
    assert answer.page_notes == ("extract",) * 3


async def test_only_one_page_at_a_time_is_extracted(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    async def call_in_thread(extract_page: Any, page: aws.Page) -> str:
        events.append("begins")
        await asyncio.sleep(0)  # the other pages have been fetched and get their chance
        events.append("ends")
        return page.text

    monkeypatch.setattr(aws, "call_in_thread", call_in_thread)
    answer = await search(found(3), FakeFetch(pages_of(make_hits(3))))
    assert answer.page_notes == ("extract",) * 3
    assert events == ["begins", "ends"] * 3


async def test_results_keep_their_order_when_the_first_page_is_the_last_to_come() -> None:
    hits = make_hits(3)
    fetch = FakeFetch(pages_of(hits))
    first = fetch.hold(hits[0].url)

    async def report(progress: float, total: float, message: str) -> None:
        if progress == 3:  # two pages are read
            first.set()

    assert summaries(await search(found(3), fetch, report=report)) == [page_text(n) for n in (1, 2, 3)]


async def test_a_late_page_loses_its_extract_and_nothing_else() -> None:
    hits = make_hits(3)
    never = asyncio.Event()

    async def read_page(url: str, *_: object) -> aws.Page:
        if url == hits[0].url:
            await never.wait()
        return aws.Page(url, "text/plain", pages_of(hits)[url])

    told: list[float] = []

    async def report(progress: float, total: float, message: str) -> None:
        told.append(progress)

    readings = await aws.read_extracts(
        hits,
        REQUEST,
        SETTINGS,
        read_page,  # type: ignore[arg-type]
        report,
        budget_seconds=0,
    )
    assert readings == [("", "timed out"), (page_text(2), "extract"), (page_text(3), "extract")]
    assert told == [2, 3]


async def test_when_the_search_took_the_whole_clock_the_results_come_without_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aws, "CALL_TIMEOUT_SECONDS", 0)
    fetch = FakeFetch(pages_of(make_hits(10)))
    for hit in make_hits(3):
        fetch.hold(hit.url)
    answer = await search(found(10), fetch)
    assert summaries(answer) == [f"Snippet {n} of the engine" for n in range(1, 11)]
    assert answer.page_notes == ("timed out",) * 3


@pytest.mark.parametrize(
    ("search_seconds", "answer_seconds"),
    [
        pytest.param(0.0, aws.PAGE_TIMEOUT_SECONDS, id="by the clock of the pages"),
        pytest.param(
            aws.SEARCH_TIMEOUT_SECONDS,
            aws.CALL_TIMEOUT_SECONDS - aws.ANSWER_RESERVE_SECONDS,
            id="by the clock of the call, with time to put the answer together",
        ),
        pytest.param(aws.CALL_TIMEOUT_SECONDS - 0.1, aws.CALL_TIMEOUT_SECONDS - 0.1, id="not at all, the call is over"),
    ],
)
def test_pages_that_never_come_are_waited_for_no_longer_than_their_clock_and_the_calls(
    search_seconds: float, answer_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search_slowly(query: aws.EngineQuery) -> aws.SearchOutcome:
        await asyncio.sleep(search_seconds)
        return found(3)

    async def main() -> tuple[aws.Answer, float]:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(time, "monotonic", loop.time)
        await asyncio.sleep(100)  # no clock counts from the start of the process
        fetch = FakeFetch()
        for hit in make_hits(3):
            fetch.hold(hit.url)
        answer = await aws.web_search(REQUEST, SETTINGS, search=search_slowly, read_page=aws.PageReader(fetch))
        return answer, loop.time() - 100

    answer, seconds = run_in_virtual_time(main())
    assert answer.page_notes == ("timed out",) * 3
    assert seconds == pytest.approx(answer_seconds)
    assert answer.elapsed_ms == round(answer_seconds * 1000)


async def test_a_late_page_is_given_up_and_told_of_no_more() -> None:
    """Progress behind the answer would speak of a call that the host has forgotten."""
    given_up = asyncio.Event()
    told: list[str] = []

    async def read_page(url: str, *_: object) -> aws.Page:
        try:
            await asyncio.Event().wait()
            return aws.Page(url, "text/plain", "")
        finally:
            given_up.set()

    async def report(progress: float, total: float, message: str) -> None:
        told.append(message)

    await aws.read_extracts(
        make_hits(1),
        REQUEST,
        SETTINGS,
        read_page,  # type: ignore[arg-type]
        report,
        budget_seconds=0,
    )
    with anyio.fail_after(10):
        await given_up.wait()
    await anyio.wait_all_tasks_blocked()
    assert told == []


async def test_a_cancelled_call_gives_its_pages_up() -> None:
    fetch = FakeFetch()
    fetch.hold(make_hits(1)[0].url)
    tasks_before = asyncio.all_tasks()
    call = asyncio.create_task(search(found(1), fetch))
    await anyio.wait_all_tasks_blocked()
    assert fetch.urls
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await anyio.wait_all_tasks_blocked()
    assert asyncio.all_tasks() == tasks_before


async def test_a_search_that_fails_is_not_hidden() -> None:
    error = aws.SearchError("timed out", "Search failed: x")
    with pytest.raises(aws.SearchError) as caught:
        await aws.web_search(REQUEST, SETTINGS, search=FakeSearch(error), read_page=aws.PageReader(FakeFetch()))
    assert caught.value is error


async def test_a_search_without_an_end_meets_the_clock_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "CALL_TIMEOUT_SECONDS", 0)
    given_up = asyncio.Event()

    async def search_for_ever(query: aws.EngineQuery) -> aws.SearchOutcome:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return found()

    with anyio.fail_after(10), pytest.raises(aws.SearchError, match="no engine answered in time") as caught:
        await aws.web_search(REQUEST, SETTINGS, search=search_for_ever, read_page=aws.PageReader(FakeFetch()))
    assert caught.value.outcome == "timed out"
    with anyio.fail_after(10):
        await given_up.wait()


async def test_a_page_is_read_from_the_fragment_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def extract_page(page: aws.Page) -> str:
        read.append(page.url)
        return page.text

    monkeypatch.setattr(aws, "extract_page", extract_page)
    url = "https://a.example/old#usage"
    fetch = FakeFetch({url: aws.Page("https://a.example/new#top", "text/html", "text")})
    assert await aws.PageReader(fetch)(url, "en", keep_seconds=0) == aws.Page(read[0], "text/html", "text")
    assert read == ["https://a.example/new#usage"]


@pytest.mark.parametrize(
    ("request_", "settings"),
    [
        pytest.param(REQUEST, aws.Settings(deny_domains=aws.parse_sites("elsewhere.example")), id="denied"),
        pytest.param(REQUEST, aws.Settings(allow_domains=aws.parse_sites("site1.example")), id="not allowed"),
        pytest.param(aws.SearchRequest("x", aws.parse_sites("site1.example")), SETTINGS, id="not asked for"),
    ],
)
async def test_a_redirect_to_a_site_that_is_left_out_costs_the_extract(
    request_: aws.SearchRequest, settings: aws.Settings
) -> None:
    (hit,) = make_hits(1)
    fetch = FakeFetch({hit.url: aws.Page("https://elsewhere.example/", "text/plain", page_text(1))})
    answer = await search(aws.SearchOutcome((hit,), "duckduckgo"), fetch, request_, settings)
    assert summaries(answer) == [hit.snippet]
    assert answer.page_notes == ("another site",)


@pytest.mark.parametrize("log_queries", [False, True])
async def test_a_query_is_in_the_log_only_when_that_was_asked_for(
    log_queries: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        await search(found(3), FakeFetch(), settings=aws.Settings(log_queries=log_queries))
    assert (REQUEST.query in caplog.text) is log_queries


async def test_the_log_says_why_a_page_keeps_its_snippet_and_nothing_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hits = make_hits(3)
    with caplog.at_level("INFO", logger=aws.logger.name):
        await search(found(3), FakeFetch({**pages_of(hits), hits[1].url: aws.PageError("http", 503)}))
    assert caplog.messages == ["A page keeps its snippet: http 503"]


async def test_a_fault_of_the_program_in_the_reading_of_a_page_is_in_the_log_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await search(found(1), FakeFetch({make_hits(1)[0].url: ValueError("no such codec")}))
    assert "Traceback" in caplog.text
    assert "no such codec" in caplog.text


# The fields


@pytest.mark.parametrize(
    ("url", "site_name", "favicon"),
    [
        ("https://docs.python.org/3/library/", "docs.python.org", "https://docs.python.org/favicon.ico"),
        ("http://www.example.com/?q=1#a", "example.com", "http://www.example.com/favicon.ico"),
        ("https://example.com:8443/a", "example.com", "https://example.com:8443/favicon.ico"),
        ("https://EXAMPLE.com", "example.com", "https://EXAMPLE.com/favicon.ico"),
        ("https://wwwhat.example/", "wwwhat.example", "https://wwwhat.example/favicon.ico"),
        ("https://user:secret@example.com/", "example.com", "https://example.com/favicon.ico"),
        ("https://example.com\\@evil.example/", "example.com", "https://example.com/favicon.ico"),
        ("http://192.0.2.1:80/", "192.0.2.1", "http://192.0.2.1:80/favicon.ico"),
        ("http://[2001:db8::1]:8080/", "2001:db8::1", "http://[2001:db8::1]:8080/favicon.ico"),
        ("https://bücher.example/", "bücher.example", "https://bücher.example/favicon.ico"),
        ("https://example.com:99999/", "example.com", "https://example.com:99999/favicon.ico"),
        ("https://example.com:port/", "example.com", "https://example.com:port/favicon.ico"),
        ("http://[::1", "", ""),
        ("https://", "", ""),
        ("not an address", "", ""),
        ("https://exa℀mple.com/", "", ""),
        ("", "", ""),
    ],
)
async def test_site_name_and_favicon_come_from_the_url_alone(url: str, site_name: str, favicon: str) -> None:
    assert (aws.site_name(url), aws.favicon_url(url)) == (site_name, favicon)


async def test_a_result_has_five_fields() -> None:
    result = aws.assemble_result(make_hits(1)[0], "the extract")
    assert result == {
        "title": "Title 1",
        "url": "https://site1.example/page",
        "summary": "the extract",
        "site_name": "site1.example",
        "favicon": "https://site1.example/favicon.ico",
    }


async def test_the_url_is_handed_on_as_the_engine_gave_it() -> None:
    url = "https://en.wikipedia.org/wiki/C%2B%2B?a=%26&b=%23%3F#%C3%A9"
    assert aws.assemble_result(aws.SearchHit("t", url, "s"))["url"] == url


# The size

WORST_TEXTS = {
    "plain": "ordinary words of a page ",
    "quotes": '"\\',
    "line breaks": "\n",
    "controls": "\x01",
    "Chinese": "中文搜索引擎，",
    "emoji": "😀",
    "endless": "x",
    "code": "```\n    if x:\n        return '\\n'\n```\n",
    "backticks": "`" * 50 + "\n",
    "tabs": "\t\tx",
}


def answer_of(extracts: list[str], snippets: list[str], hits: tuple[aws.SearchHit, ...]) -> aws.Answer:
    hits = tuple(aws.SearchHit(hit.title, hit.url, snippet) for hit, snippet in zip(hits, snippets, strict=True))
    plain = [aws.assemble_result(hit) for hit in hits]
    results = [aws.assemble_result(hit, extract) for hit, extract in zip(hits, extracts, strict=False)]
    return aws.Answer(results=(*results, *plain[len(results) :]), snippets=tuple(result["summary"] for result in plain))


def check_whole(answer: aws.Answer, max_bytes: int) -> list[dict[str, Any]]:
    """What was rendered within the bound, as a host reads it: whole, every title, URL and snippet in its place."""
    text = aws.render_results(answer, max_bytes)
    assert len(text.encode()) <= max_bytes
    rendered: list[dict[str, Any]] = json.loads(text)
    assert [(row["title"], row["url"]) for row in rendered] == [(row["title"], row["url"]) for row in answer.results]
    return rendered


@pytest.mark.parametrize("max_bytes", BOUNDS)
@pytest.mark.parametrize("unit", WORST_TEXTS.values(), ids=WORST_TEXTS)
async def test_the_answer_stays_whole_and_within_its_bound(unit: str, max_bytes: int) -> None:
    snippets = [f"Snippet {n}" for n in range(1, 11)]
    rendered = check_whole(answer_of([unit * (100_000 // len(unit))] * 3, snippets, make_hits(10)), max_bytes)
    assert [row["summary"] for row in rendered[3:]] == snippets[3:]
    assert all(len(row["summary"]) >= len(snippet) for row, snippet in zip(rendered, snippets, strict=True))


@pytest.mark.parametrize(("extracts", "snippet"), [(["a " * 100, "b " * 100], "s"), (["字字字字"] * 3, "snippet")])
async def test_an_answer_that_fits_is_not_touched(extracts: list[str], snippet: str) -> None:
    answer = answer_of(extracts, [snippet] * 10, make_hits(10))
    whole = aws.render_results(answer, 1_000_000)
    assert aws.render_results(answer, len(whole.encode())) == whole
    assert json.loads(whole) == list(answer.results)


async def test_one_byte_too_many_cuts_the_last_extract_only() -> None:
    answer = answer_of(["alpha " * 100, "beta " * 100, "gamma " * 100], ["s"] * 10, make_hits(10))
    rendered = check_whole(answer, len(aws.render_results(answer, 1_000_000).encode()) - 1)
    kept = [row["summary"] for row in rendered]
    assert kept[:2] == [row["summary"] for row in answer.results[:2]]
    assert kept[2].endswith("gamma …")
    assert len(kept[2]) > 580


async def test_one_byte_too_many_costs_no_more_than_the_mark_takes() -> None:
    answer = answer_of(["x" * 100], ["s"], make_hits(1))
    rendered = check_whole(answer, len(aws.render_results(answer, 1_000_000).encode()) - 1)
    assert rendered[0]["summary"] == "x" * 94 + " …"


async def test_a_snippet_as_long_as_what_is_left_of_an_extract_takes_its_place() -> None:
    answer = answer_of(["x" * 100], ["s" * 96], make_hits(1))
    rendered = check_whole(answer, len(aws.render_results(answer, 1_000_000).encode()) - 1)
    assert rendered[0]["summary"] == "s" * 96


async def test_the_first_extract_is_the_last_to_be_cut() -> None:
    snippets = [f"Snippet {n} of the engine" for n in range(1, 11)]
    answer = answer_of(["alpha " * 1_000, "beta " * 1_000, "gamma " * 1_000], snippets, make_hits(10))
    kept = [row["summary"] for row in check_whole(answer, 7_000)]
    assert kept[0].endswith("alpha …")
    assert kept[1:] == snippets[1:]


async def test_what_is_cut_uses_the_room_there_is_though_escapes_take_more() -> None:
    answer = answer_of(['"quoted"\n' * 10_000], ["s"] * 10, make_hits(10))
    assert len(aws.render_results(answer, aws.ANSWER_BYTES).encode()) > 0.99 * aws.ANSWER_BYTES


async def test_a_cut_never_makes_a_summary_longer() -> None:
    hits = tuple(aws.SearchHit("t" * 300, hit.url, "") for hit in make_hits(10))
    answer = answer_of(["four short words here"] * 3, ["\n\n" * 40] * 10, hits)
    rendered = check_whole(answer, len(aws.render_results(answer, 1_000_000).encode()) - 1)
    assert [row["summary"] for row in rendered[:3]] == ["four short words here"] * 3


async def test_titles_urls_and_snippets_of_any_engine_fit_the_smallest_bound_a_host_has() -> None:
    hits = tuple(
        aws.SearchHit("t" * aws.MAX_TITLE_CHARACTERS, hit.url + "/" + "u" * (aws.MAX_URL_CHARACTERS - 40), "")
        for hit in make_hits(10)
    )
    snippets = ["s" * aws.MAX_SNIPPET_CHARACTERS] * 10
    rendered = check_whole(answer_of(["x " * 50_000] * 3, snippets, hits), aws.ANSWER_BYTES)
    assert [row["summary"] for row in rendered[3:]] == snippets[3:]


async def test_where_even_snippets_are_too_long_the_last_are_cut_before_any_result_goes() -> None:
    answer = answer_of([], ["字" * aws.MAX_SNIPPET_CHARACTERS] * 10, make_hits(10))
    kept = [row["summary"] for row in check_whole(answer, 20_000)]
    assert kept[0] == "字" * aws.MAX_SNIPPET_CHARACTERS
    assert kept[-1] == ""


async def test_no_result_goes_where_all_fit_without_their_snippets() -> None:
    bare = aws.render_results(answer_of([], [""] * 10, make_hits(10)), 1_000_000)
    assert aws.render_results(answer_of([], ["s"] * 10, make_hits(10)), len(bare.encode())) == bare


async def test_where_even_titles_and_urls_are_too_long_the_last_results_go() -> None:
    hits = tuple(aws.SearchHit("字" * aws.MAX_TITLE_CHARACTERS, hit.url, "") for hit in make_hits(10))
    rendered = json.loads(aws.render_results(answer_of([], ["s"] * 10, hits), 4_000))
    assert [row["title"] for row in rendered] == [hit.title for hit in hits[: len(rendered)]]
    assert rendered


async def test_line_separators_are_escaped_in_json() -> None:
    result = aws.SearchResult(title="a\u2028b\u2029c\x85d", url="u", summary="s", site_name="n", favicon="f")
    text = aws.render_results(aws.Answer((result,), ("s",)), 10_000)
    assert "a\\u2028b\\u2029c\\u0085d" in text
    assert json.loads(text)[0]["title"] == "a\u2028b\u2029c\x85d"


any_text = st.text(st.characters(exclude_categories=()), max_size=60)
large_text = st.builds(lambda text, times: text * times, any_text, st.sampled_from([1, 10, 1_000]))
any_row = st.tuples(any_text, any_text | any_text.map("https://".__add__), large_text)
any_hits = st.lists(any_row, max_size=10).map(aws.parse_hits)
any_extracts = st.lists(large_text.map(aws.extract_plain_text), max_size=3)


@given(any_hits, any_extracts, st.sampled_from([0, 2, 500, *BOUNDS]))
async def test_whatever_rows_and_pages_hold_the_answer_is_json_within_its_bound(
    hits: list[aws.SearchHit], extracts: list[str], max_bytes: int
) -> None:
    answer = answer_of(extracts[: len(hits)], [hit.snippet for hit in hits], tuple(hits))
    text = aws.render_results(answer, max_bytes)
    assert len(text.encode()) <= max(2, max_bytes)  # "[]" is the least there is
    assert all(
        list(row) == ["title", "url", "summary", "site_name", "favicon"]
        and all(isinstance(value, str) and aws.clean_text(value) == value for value in row.values())
        for row in json.loads(text)
    )
