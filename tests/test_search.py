"""Search: what an engine's response means, who is asked when, and what the model is told when nobody answers."""

import asyncio
import dataclasses
import gc
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import primp
import pytest
from ddgs.engines import ENGINES as DDGS_ENGINES
from ddgs.exceptions import DDGSException

import agent_web_search as aws
from tests.simulated_engines import ENGINES as SIMULATED_ENGINES
from tests.simulated_engines import Fault, Search, answer_search
from tests.simulated_web import Hit, SimulatedWeb
from tests.virtual_time import run_in_virtual_time

QUERY = aws.EngineQuery("sorting", "us-en")
ALONE = aws.EngineQuery("sorting", "us-en", engines=("duckduckgo",))
HANG_SECONDS = 3600.0

each_engine = pytest.mark.parametrize("engine", aws.ENGINES)


def hits_of(engine: str, count: int = 2) -> list[aws.SearchHit]:
    return [aws.SearchHit(f"{engine} {n}", f"https://{engine}{n}.example/", "A snippet") for n in range(1, count + 1)]


def refusal(retry_after_seconds: float | None = None) -> aws.SearchError:
    return aws.SearchError("rate limited", "it refuses", retry_after_seconds=retry_after_seconds)


class FakeEngines:
    """An EngineBackend by plan: for each engine what it answers, after how many seconds; keeps who was asked, and when.

    A plan is hits, an error, seconds (then hits come after them), seconds and an error, or a function that makes a plan
    of the query's text; an engine without a plan has hits at once.
    """

    def __init__(self, **plans: Any) -> None:
        self.plans = plans
        self.asked: list[tuple[str, float]] = []
        self.cancelled: list[str] = []

    async def __call__(self, engine: str, query: aws.EngineQuery) -> list[aws.SearchHit]:
        self.asked.append((engine, round(asyncio.get_running_loop().time(), 1)))
        plan = self.plans.get(engine, 0.0)
        if callable(plan):
            plan = plan(query.text)
        if isinstance(plan, tuple):
            await asyncio.sleep(plan[0])
            plan = plan[1]
        if isinstance(plan, (float, int)):
            try:
                await asyncio.sleep(plan)
            except asyncio.CancelledError:
                self.cancelled.append(engine)
                raise
            return hits_of(engine)
        if isinstance(plan, aws.SearchError):
            raise aws.SearchError(plan.outcome, str(plan), retry_after_seconds=plan.retry_after_seconds)
        return list(plan)

    @property
    def names(self) -> list[str]:
        return [engine for engine, _ in self.asked]


class LimitedEngines(FakeEngines):
    """Every engine blocks an address for 60 s once 8 requests came within 10 s."""

    async def __call__(self, engine: str, query: aws.EngineQuery) -> list[aws.SearchHit]:
        now = asyncio.get_running_loop().time()
        recent = [at for name, at in self.asked if name == engine and at > now - 10]
        if len(recent) >= 8:
            raise refusal()
        return await super().__call__(engine, query)


def search_once(engines: aws.EngineBackend, query: aws.EngineQuery = QUERY) -> aws.SearchOutcome:
    return run_in_virtual_time(aws.EngineSearch(aws.Settings(), engines)(query))


def search_error(engines: aws.EngineBackend, query: aws.EngineQuery = ALONE) -> aws.SearchError:
    with pytest.raises(aws.SearchError) as caught:
        search_once(engines, query)
    return caught.value


def among(*engines: str) -> aws.EngineQuery:
    return aws.EngineQuery("sorting", "us-en", engines=engines)


def outcomes(outcome: aws.SearchOutcome | aws.SearchError) -> list[tuple[str, str]]:
    return [(attempt.engine, attempt.outcome) for attempt in outcome.attempts]


# -- Rows become hits --------------------------------------------------------------------------------------------------


LONGEST_URL = "https://a.example/".ljust(aws.MAX_URL_CHARACTERS, "a")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://en.example.org/wiki/C%2B%2B?a=%26%3F#x%23", "https://en.example.org/wiki/C%2B%2B?a=%26%3F#x%23"),
        ("//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2FC%252B%252B%3Fb%3D1%26c&rut=9", "https://a.example/C%2B%2B?b=1&c"),
        ("https://duckduckgo.com/l/?kh=-1&uddg=https%3A%2F%2Fa.example%2F", "https://a.example/"),
        ("https://duckduckgo.com/y.js?ad_domain=x", None),
        ("//duckduckgo.com/l/?uddg=https%3A%2F%2Fduckduckgo.com%2Fy.js%3Fad_domain%3Dx", None),
        ("https://www.bing.com/aclick?ld=x", None),
        ("", None),
        ("javascript:void(0)", None),
        ("/relative", None),
        (LONGEST_URL, LONGEST_URL),
        (LONGEST_URL + "a", None),
    ],
)  # fmt: skip
def test_a_url_is_handed_on_as_the_engine_gave_it_and_advertisements_are_not(url: str, expected: str | None) -> None:
    hits = aws.parse_hits([("Title", url, "Snippet")])
    assert [hit.url for hit in hits] == ([expected] if expected else [])


@pytest.mark.parametrize("unseen", ["\x1b[31m", "\x00", "\u202e", "\u200b", "\ud83d", "\U000e0041"])
def test_a_hit_holds_nothing_that_cannot_be_seen_or_sent(unseen: str) -> None:
    (hit,) = aws.parse_hits([(f"Ti{unseen}tle\n", f"https://a.example/{unseen}page", f"\u2028 snip{unseen}pet ")])
    assert hit == aws.SearchHit("Title", "https://a.example/page", "snippet")


def test_a_row_of_empty_fields_is_no_hit() -> None:
    assert aws.parse_hits([("", "", ""), ("", "https://a.example/", "no title")]) == []


@pytest.mark.parametrize(
    "other",
    [
        "http://docs.example.org/guide?a=1&b=2",
        "https://www.docs.example.org/guide?a=1&b=2",
        "https://DOCS.example.org:443/guide?a=1&b=2",
        "http://docs.example.org:80/guide?a=1&b=2",
        "https://docs.example.org/guide/?a=1&b=2",
        "https://docs.example.org/guide?b=2&a=1",
        "https://docs.example.org/guide?a=1&b=2#part",
        "https://docs.example.org/guide?a=1&utm_source=x&b=2&fbclid=y&gclid=z",
    ],
)
def test_the_same_page_is_shown_once_under_its_best_ranked_address(other: str) -> None:
    first = "https://docs.example.org/guide?a=1&b=2"
    hits = aws.parse_hits([("One", first, ""), ("Two", other, "")])
    assert [hit.url for hit in hits] == [first]


@pytest.mark.parametrize(
    "other",
    [
        "https://docs.example.org/guide?a=2&b=1",
        "https://docs.example.org/Guide?a=1&b=2",
        "https://docs.example.org:8443/guide?a=1&b=2",
        "https://docs.example.org/guide",
        "https://example.org/guide?a=1&b=2",
        "https://docs.example.org/guide?a=1&b=2&utmost=1",
        "https://docs.example.org:port/guide",
    ],
)
def test_different_pages_stay_apart(other: str) -> None:
    hits = aws.parse_hits([("One", "https://docs.example.org/guide?a=1&b=2", ""), ("Two", other, "")])
    assert len(hits) == 2


def test_addresses_that_cannot_be_taken_apart_are_compared_as_they_are() -> None:
    rows = [("One", "https://a.example:port/", ""), ("Two", "https://b.example:port/", "")]
    assert [hit.title for hit in aws.parse_hits([*rows, *rows])] == ["One", "Two"]


def test_the_hits_of_two_engines_are_merged_by_rank() -> None:
    one, two = hits_of("one", 3), hits_of("two", 2)
    two[0] = aws.SearchHit("Same", one[1].url + "?utm_source=two", "")
    assert [hit.url for hit in aws.merge_hits([one, two])] == [one[0].url, two[0].url, two[1].url, one[2].url]


# -- A response becomes an outcome, an outcome a text ------------------------------------------------------------------


CHALLENGE = "refuses to search for now (it wants proof that a person is searching)"
UNREADABLE = "sent a page that holds neither results nor word of none"
ADVICE = {
    "rate limited": "A retry can help in {} seconds, not before.",
    "engine error": "A retry may help in {} seconds.",
    "timed out": "A retry may help in 10 seconds.",
    "unreachable": "A retry cannot help before the connection works again.",
    "certificate refused": "A retry cannot help before that is put right.",
}


def response(fault: str, engine: str = "duckduckgo") -> aws.EngineResponse:
    """What the observing engine hands over for a fault of the simulated web, without rows."""
    answer = answer_search(Search(engine, "sorting", "us-en", "", fault), Fault.parse(fault), [])
    body = answer.body if isinstance(answer.body, bytes) else b""
    headers = {name.lower(): value for name, value in answer.headers}
    return aws.EngineResponse(answer.status, body.decode("latin-1"), headers.get("retry-after", ""), (("", "", ""),))


class RespondingEngines:
    """An EngineBackend whose engines all give one response."""

    def __init__(self, answer: aws.EngineResponse) -> None:
        self.answer = answer

    async def __call__(self, engine: str, query: aws.EngineQuery) -> list[aws.SearchHit]:
        return aws.read_response(engine, self.answer)


@pytest.mark.parametrize(
    ("fault", "outcome", "retry_after_seconds", "text"),
    [
        ("202", "rate limited", 60, CHALLENGE),
        ("200-challenge", "rate limited", 60, CHALLENGE),
        ("403", "rate limited", 60, "refuses to search for now (HTTP 403)"),
        ("429", "rate limited", 60, "refuses to search for now (HTTP 429)"),
        ("429:30", "rate limited", 30, "refuses to search for now (HTTP 429)"),
        ("500", "engine error", 30, "answered HTTP 500"),
        ("503:45", "engine error", 45, "answered HTTP 503"),
        ("garbage", "engine error", 30, UNREADABLE),
        ("empty", "engine error", 30, UNREADABLE),
    ],
)
def test_a_failing_response_is_told_with_when_to_retry(
    fault: str, outcome: str, retry_after_seconds: float, text: str
) -> None:
    error = search_error(RespondingEngines(response(fault)))
    assert str(error) == f"Search failed: DuckDuckGo {text}. {ADVICE[outcome].format(retry_after_seconds)}"
    assert (error.outcome, error.retry_after_seconds) == (outcome, retry_after_seconds)
    assert outcomes(error) == [("duckduckgo", outcome)]


@pytest.mark.parametrize("fault", ["no-hits", "no-hits-202"])
@each_engine
def test_no_match_is_a_success_when_the_engine_says_so_itself(engine: str, fault: str) -> None:
    outcome = search_once(RespondingEngines(response(fault, engine)), among(engine))
    assert outcome.hits == ()
    assert outcomes(outcome) == [(engine, "no match")]


@each_engine
def test_a_page_without_rows_or_a_word_about_it_is_no_match_of_no_engine(engine: str) -> None:
    style = "<style>.no-results, .noresults { color: red }</style><script>'there are no results'</script>"
    with pytest.raises(aws.SearchError, match="holds neither"):
        aws.read_response(engine, aws.EngineResponse(200, f"<html>{style}<p>Welcome to the hotel's network</p></html>"))


def test_a_202_with_rows_is_an_answer() -> None:
    rows = (("Title", "https://a.example/", "Snippet"),)
    assert len(aws.read_response("duckduckgo", aws.EngineResponse(202, "<html>", "", rows))) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("0", 1),
        ("999999", aws.MAX_RETRY_AFTER_SECONDS),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 1),
        ("", None),
        ("soon", None),
        ("nan", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(text: str, seconds: float | None) -> None:
    assert aws.parse_retry_after(text, now_unix_seconds=100.0) == seconds


PROXY = "http://user:hunter2@proxy.example:3128"
SENDING = "error sending request for url (https://html.duckduckgo.com/html/) > "
RESOLVING = SENDING + "error resolving DNS > DNS error: no records found for "
CONNECTING = SENDING + "proxy CONNECT failed: "
VERIFYING = SENDING + "invalid peer certificate: "

DIRECT_FAILURES = [
    (primp.TimeoutError(SENDING + "operation timed out"), "timed out", "DuckDuckGo did not answer in time"),
    (primp.DNSTimeoutError(SENDING + "no idea"), "unreachable", "the name of html.duckduckgo.com does not resolve"),
    (
        primp.DNSError(RESOLVING + 'Query { name: Name("html.duckduckgo.com."), query_type: A }'),
        "unreachable",
        "the name html.duckduckgo.com does not resolve",
    ),
    (primp.DNSError(SENDING + "no idea"), "unreachable", "the name of html.duckduckgo.com does not resolve"),
    (
        primp.ConnectError(SENDING + "Connection refused (os error 111)"),
        "unreachable",
        "html.duckduckgo.com refused the connection",
    ),
    (
        primp.ConnectError(SENDING + "Network is unreachable (os error 101)"),
        "unreachable",
        "the connection to html.duckduckgo.com broke off",
    ),
    (
        primp.RequestError(SENDING + "Connection reset by peer (os error 104)"),
        "unreachable",
        "the connection to html.duckduckgo.com broke off",
    ),
    (
        primp.RequestError(VERIFYING + "UnknownIssuer"),
        "certificate refused",
        "the certificate of html.duckduckgo.com is signed by an unknown authority; give its CA with --ca-file",
    ),
    (
        primp.RequestError(VERIFYING + 'certificate not valid for name "html.duckduckgo.com"'),
        "certificate refused",
        "the certificate of html.duckduckgo.com is for another name",
    ),
    (
        primp.RequestError(VERIFYING + "certificate expired: verification time 1"),
        "certificate refused",
        "the certificate of html.duckduckgo.com has expired",
    ),
    (
        primp.RequestError(VERIFYING + "BadSignature"),
        "certificate refused",
        "the certificate of html.duckduckgo.com cannot be verified",
    ),
    *(
        (failure("error", None), "engine error", "DuckDuckGo sent an answer that cannot be read")
        for failure in (primp.DecodeError, primp.BodyError, primp.RedirectError)
    ),
]
PROXY_FAILURES = [
    (
        primp.DNSError(RESOLVING + 'Query { name: Name("proxy.example."), query_type: A }'),
        "the name proxy.example does not resolve",
    ),
    (primp.DNSError(SENDING + "no idea"), "the name of the proxy at proxy.example:3128 does not resolve"),
    *(
        (primp.ConnectError(SENDING + refused), "the proxy at proxy.example:3128 refused the connection")
        for refused in ("(os error 111)", "(os error 61)", "actively refused it. (os error 10061)")
    ),
    (
        primp.RequestError(CONNECTING + "HTTP/1.1 407 Proxy Authentication Required"),
        "the proxy at proxy.example:3128 asks for a user name and a password",
    ),
    (
        primp.RequestError(CONNECTING + "HTTP/1.1 502 Bad Gateway"),
        "the proxy at proxy.example:3128 cannot reach html.duckduckgo.com (HTTP 502)",
    ),
    (
        primp.RequestError(CONNECTING + "hello"),
        "the proxy at proxy.example:3128 does not answer as a proxy does",
    ),
    (
        primp.BuilderError("builder error > unsupported proxy scheme 'foo'", None),
        "the proxy at proxy.example:3128 has an address that cannot be used",
    ),
]


@pytest.mark.parametrize(
    ("failure", "proxy", "outcome", "text"),
    [
        *((failure, "", outcome, text) for failure, outcome, text in DIRECT_FAILURES),
        *((failure, PROXY, "unreachable", text) for failure, text in PROXY_FAILURES),
    ],
)
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["primp", "ddgs"])
def test_a_failing_request_is_told_by_its_cause(
    failure: Exception, proxy: str, outcome: str, text: str, is_wrapped: bool
) -> None:
    raised: Exception = failure
    if is_wrapped:
        raised = DDGSException(f"{type(failure).__name__}: {failure!r}")
        raised.__cause__ = failure
    clause = aws.explain_failure("duckduckgo", raised, proxy)
    error = search_error(FakeEngines(duckduckgo=clause))
    assert str(error) == f"Search failed: {text}. {ADVICE[outcome].format(30)}"
    assert error.outcome == outcome


def test_every_failure_that_primp_knows_has_its_row() -> None:
    """A class that only a new primp has must not pass for a changed ddgs."""
    unexplained = [
        name
        for name in dir(primp)
        if name.endswith("Error")
        and name not in ("StatusError", "JSONDecodeError", "UpgradeError")  # of methods that ddgs does not call
        and "ddgs" in str(aws.explain_failure("duckduckgo", getattr(primp, name)("text", None)))
    ]
    assert unexplained == []


def test_when_all_engines_fail_each_kind_of_failure_is_told_once() -> None:
    engines = FakeEngines(
        duckduckgo=aws.SearchError("rate limited", "DuckDuckGo refuses", retry_after_seconds=40.0),
        brave=HANG_SECONDS,
        mojeek=aws.SearchError("engine error", "Mojeek answered HTTP 500"),
        startpage=HANG_SECONDS,
        yahoo=aws.SearchError("rate limited", "Yahoo refuses"),
    )
    error = search_error(engines, QUERY)
    assert error.outcome == "rate limited"
    assert str(error).startswith(
        "Search failed: DuckDuckGo refuses (also rate limited: Yahoo); "
        "Brave did not answer in time (also timed out: Startpage); Mojeek answered HTTP 500. "
    )
    assert error.retry_after_seconds is not None
    assert str(error).endswith(f"A retry can help in {error.retry_after_seconds:.0f} seconds, not before.")
    assert outcomes(error) == [
        ("duckduckgo", "rate limited"),
        ("brave", "timed out"),
        ("mojeek", "engine error"),
        ("startpage", "timed out"),
        ("yahoo", "rate limited"),
    ]


# -- Who is asked, and when --------------------------------------------------------------------------------------------


def test_duckduckgo_is_asked_first_whatever_the_order() -> None:
    engines = FakeEngines()
    outcome = search_once(engines, among("brave", "duckduckgo"))
    assert (outcome.engine, engines.names) == ("duckduckgo", ["duckduckgo"])


def test_a_query_does_not_widen_the_engines_of_the_settings() -> None:
    engines = FakeEngines(duckduckgo=refusal())
    search = aws.EngineSearch(aws.Settings(engines=("duckduckgo",)), engines)
    with pytest.raises(aws.SearchError):
        run_in_virtual_time(search(QUERY))
    assert engines.names == ["duckduckgo"]


def test_no_match_of_duckduckgo_is_an_answer() -> None:
    engines = FakeEngines(duckduckgo=[])
    outcome = search_once(engines)
    assert (outcome.hits, outcome.engine, engines.names) == ((), "duckduckgo", ["duckduckgo"])


def test_a_failed_engine_is_followed_at_once_in_the_order_of_the_settings() -> None:
    engines = FakeEngines(duckduckgo=refusal(), mojeek=aws.SearchError("unreachable", "gone"))
    outcome = search_once(engines, among("mojeek", "brave", "duckduckgo", "yahoo"))
    assert outcome.engine == "brave"
    assert engines.asked == [("duckduckgo", 0.0), ("mojeek", 0.0), ("brave", 0.0)]
    assert outcomes(outcome) == [("duckduckgo", "rate limited"), ("mojeek", "unreachable"), ("brave", "ok")]


def test_no_match_of_a_stand_in_is_the_answer_only_when_no_other_has_results() -> None:
    engines = FakeEngines(duckduckgo=refusal(), brave=[])
    assert search_once(engines).engine == "mojeek"
    engines = FakeEngines(duckduckgo=refusal(), brave=[], mojeek=refusal())
    outcome = search_once(engines, among("duckduckgo", "brave", "mojeek"))
    assert (outcome.hits, outcome.engine) == ((), "brave")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (QUERY, ["duckduckgo", "brave", "mojeek", "startpage", "yahoo"]),
        (aws.EngineQuery("x", "us-en", "w"), ["duckduckgo", "brave", "startpage", "yahoo"]),
        (aws.EngineQuery("x", "cn-zh"), ["duckduckgo", "brave", "mojeek", "startpage"]),
        (aws.EngineQuery("x", "cn-zh", "d"), ["duckduckgo", "brave", "startpage"]),
    ],
)
def test_only_engines_that_honour_the_filters_stand_in(query: aws.EngineQuery, expected: list[str]) -> None:
    assert aws.engines_for(query) == expected


def test_an_engine_that_ignores_a_filter_is_asked_when_there_is_no_other() -> None:
    assert aws.engines_for(aws.EngineQuery("x", "us-en", "d", ("mojeek",))) == ["mojeek"]


def test_a_slow_engine_is_hedged_and_the_first_answer_wins() -> None:
    engines = FakeEngines(duckduckgo=4.0, brave=0.5)
    outcome = search_once(engines)
    assert outcome.engine == "brave"
    assert engines.asked == [("duckduckgo", 0.0), ("brave", aws.HEDGE_SECONDS)]
    assert engines.cancelled == ["duckduckgo"]
    assert outcome.attempts == (aws.Attempt("duckduckgo", "timed out", 2000), aws.Attempt("brave", "ok", 500))


def test_an_engine_that_lost_is_not_waited_for_behind_the_answer() -> None:
    engines = FakeEngines(duckduckgo=HANG_SECONDS)

    async def main() -> list[str]:
        await aws.EngineSearch(aws.Settings(), engines)(QUERY)
        await asyncio.sleep(0.1)
        return list(engines.cancelled)

    assert run_in_virtual_time(main()) == ["duckduckgo"]


def test_a_slow_engine_may_win_against_its_hedge() -> None:
    engines = FakeEngines(duckduckgo=2.0, brave=3.0)
    outcome = search_once(engines)
    assert (outcome.engine, outcome.attempts[0]) == ("duckduckgo", aws.Attempt("duckduckgo", "ok", 2000))


def test_a_hedge_without_results_does_not_end_the_search() -> None:
    engines = FakeEngines(duckduckgo=2.5, brave=[], mojeek=HANG_SECONDS)
    assert search_once(engines).engine == "duckduckgo"


def test_answers_that_come_together_are_merged() -> None:
    engines = FakeEngines(duckduckgo=2.0, brave=0.5)
    outcome = search_once(engines)
    assert outcome.engine == "duckduckgo+brave"
    assert [hit.title for hit in outcome.hits] == ["duckduckgo 1", "brave 1", "duckduckgo 2", "brave 2"]


def test_every_engine_hanging_ends_within_the_clock_of_the_search() -> None:
    async def main() -> float:
        with pytest.raises(aws.SearchError, match="did not answer in time"):
            await aws.EngineSearch(aws.Settings(), FakeEngines(**dict.fromkeys(aws.ENGINES, HANG_SECONDS)))(QUERY)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) <= aws.SEARCH_TIMEOUT_SECONDS


def test_each_engine_in_turn_is_hedged_after_the_same_patience_whenever_the_search_begins() -> None:
    engines = FakeEngines(**dict.fromkeys(aws.ENGINES, HANG_SECONDS))

    async def main() -> float:
        search = aws.EngineSearch(aws.Settings(), engines)
        await asyncio.sleep(100)
        with pytest.raises(aws.SearchError):
            await search(QUERY)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) <= 100 + aws.SEARCH_TIMEOUT_SECONDS
    assert engines.asked == [(engine, 100 + n * aws.HEDGE_SECONDS) for n, engine in enumerate(aws.ENGINES)]


def test_one_engine_alone_is_given_up_after_its_own_clock() -> None:
    error = search_error(FakeEngines(duckduckgo=HANG_SECONDS))
    assert error.attempts == (aws.Attempt("duckduckgo", "timed out", round(aws.ENGINE_TIMEOUT_SECONDS * 1000)),)


# -- Rest and pace -----------------------------------------------------------------------------------------------------


def query(number: int, *engines: str) -> aws.EngineQuery:
    return aws.EngineQuery(f"query {number}", "us-en", engines=engines or aws.ENGINES)


def test_a_refused_engine_is_not_asked_while_it_rests() -> None:
    engines = FakeEngines(duckduckgo=refusal())

    async def main() -> None:
        search = aws.EngineSearch(aws.Settings(), engines)
        await search(query(1))
        await search(query(2))
        engines.plans.clear()
        await asyncio.sleep(aws.FIRST_REST_SECONDS)
        await search(query(3))

    run_in_virtual_time(main())
    assert engines.names == ["duckduckgo", "brave", "brave", "duckduckgo"]


def test_the_rest_doubles_up_to_its_bound_and_a_success_resets_it() -> None:
    engines = FakeEngines(duckduckgo=refusal())

    async def rest_after_a_refusal(search: aws.EngineSearch, number: int) -> float:
        with pytest.raises(aws.SearchError) as caught:
            await search(query(number, "duckduckgo"))
        seconds = caught.value.retry_after_seconds or 0.0
        await asyncio.sleep(seconds)
        return seconds

    async def main() -> list[float]:
        search = aws.EngineSearch(aws.Settings(), engines)
        rests = [await rest_after_a_refusal(search, number) for number in range(6)]
        engines.plans["duckduckgo"] = 0.0
        await search(query(6, "duckduckgo"))
        engines.plans["duckduckgo"] = refusal()
        return [*rests, await rest_after_a_refusal(search, 7)]

    assert run_in_virtual_time(main()) == [60, 120, 240, 480, 900, 900, 60]


@pytest.mark.parametrize(
    ("failure", "rest_seconds"),
    [
        pytest.param(refusal(5.0), 5.0, id="a refusal"),
        pytest.param(
            aws.SearchError("engine error", "it is down", retry_after_seconds=45.0), 45.0, id="trouble of its own"
        ),
    ],
)
def test_an_engine_rests_as_long_as_it_asks_for(failure: aws.SearchError, rest_seconds: float) -> None:
    engines = FakeEngines(duckduckgo=failure)

    async def main() -> None:
        search = aws.EngineSearch(aws.Settings(), engines)
        await search(query(1))
        await asyncio.sleep(rest_seconds - 0.1)
        await search(query(2))
        await asyncio.sleep(0.2)
        await search(query(3))

    run_in_virtual_time(main())
    assert engines.names == ["duckduckgo", "brave", "brave", "duckduckgo", "brave"]


def test_searches_under_way_that_are_refused_together_count_once() -> None:
    async def main() -> float | None:
        engines = FakeEngines(duckduckgo=refusal())
        search = aws.EngineSearch(aws.Settings(), engines)
        await asyncio.gather(*(search(query(number, "duckduckgo")) for number in range(7)), return_exceptions=True)
        with pytest.raises(aws.SearchError) as caught:
            await search(query(8, "duckduckgo"))
        assert len(engines.asked) == 7
        return caught.value.retry_after_seconds

    assert run_in_virtual_time(main()) == aws.FIRST_REST_SECONDS


def test_a_search_that_waits_for_its_turn_is_not_asked_of_an_engine_that_was_refused_meanwhile() -> None:
    engines = FakeEngines(duckduckgo=(5.0, refusal()))

    async def main() -> aws.SearchError:
        search = aws.EngineSearch(aws.Settings(), engines)
        under_way = [asyncio.ensure_future(search(query(number, "duckduckgo"))) for number in range(7)]
        await asyncio.sleep(1)
        with pytest.raises(aws.SearchError) as caught:
            await search(query(8, "duckduckgo"))
        await asyncio.gather(*under_way, return_exceptions=True)
        return caught.value

    error = run_in_virtual_time(main())
    assert len(engines.asked) == 7
    assert "DuckDuckGo refused an earlier search and is left alone" in str(error)


def test_an_answer_to_a_search_from_before_the_rest_does_not_end_it() -> None:
    engines = FakeEngines(duckduckgo=lambda text: 2.0 if text == "query 1" else (1.0, refusal()))

    async def main() -> float | None:
        search = aws.EngineSearch(aws.Settings(), engines)
        both = (search(query(number, "duckduckgo")) for number in (1, 2))
        answered, refused = await asyncio.gather(*both, return_exceptions=True)
        assert (type(answered), type(refused)) == (aws.SearchOutcome, aws.SearchError)
        await asyncio.sleep(aws.FIRST_REST_SECONDS)
        with pytest.raises(aws.SearchError) as caught:
            await search(query(3, "duckduckgo"))
        return caught.value.retry_after_seconds

    assert run_in_virtual_time(main()) == 2 * aws.FIRST_REST_SECONDS


def test_when_all_engines_rest_a_call_fails_at_once_and_says_until_when() -> None:
    engines = FakeEngines(**{name: refusal(60.0 + number) for number, name in enumerate(aws.ENGINES)})

    async def main() -> aws.SearchError:
        search = aws.EngineSearch(aws.Settings(), engines)
        with pytest.raises(aws.SearchError):
            await search(query(1))
        await asyncio.sleep(20)
        started_at = asyncio.get_running_loop().time()
        with pytest.raises(aws.SearchError) as caught:
            await search(query(2))
        assert asyncio.get_running_loop().time() == started_at
        return caught.value

    error = run_in_virtual_time(main())
    assert len(engines.asked) == len(aws.ENGINES)
    assert error.attempts == ()
    assert str(error) == (
        "Search failed: DuckDuckGo refused an earlier search and is left alone (also rate limited: Brave, Mojeek, "
        "Startpage, Yahoo). A retry can help in 40 seconds, not before."
    )


@pytest.mark.parametrize("timelimit", [None, "w"])
def test_twenty_searches_at_once_are_all_answered_under_a_limiter(timelimit: str | None) -> None:
    engines = LimitedEngines()

    async def main() -> list[aws.SearchOutcome]:
        search = aws.EngineSearch(aws.Settings(), engines)
        queries = [aws.EngineQuery(f"query {number}", "us-en", timelimit) for number in range(20)]
        return await asyncio.gather(*map(search, queries))

    assert all(outcome.hits for outcome in run_in_virtual_time(main()))
    assert max(Counter(engines.names).values()) <= 7


def test_a_search_waits_for_its_turn_if_the_turn_comes_within_its_clock() -> None:
    engines = LimitedEngines()

    async def main() -> list[aws.SearchOutcome | BaseException]:
        search = aws.EngineSearch(aws.Settings(), engines)
        return await asyncio.gather(
            *(search(query(number, "duckduckgo")) for number in range(20)), return_exceptions=True
        )

    outcomes_ = run_in_virtual_time(main())
    assert [at for _, at in engines.asked] == [0.0] * 7 + [10.5] * 7
    errors = [outcome for outcome in outcomes_ if isinstance(outcome, aws.SearchError)]
    assert len(errors) == 6
    assert str(errors[0]) == (
        "Search failed: DuckDuckGo was just asked as often as it takes. A retry can help in 10 seconds, not before."
    )


def test_a_search_waits_for_no_more_than_its_turn_and_the_wait_is_none_of_the_engines() -> None:
    engines = LimitedEngines()

    async def main() -> aws.SearchOutcome:
        search = aws.EngineSearch(aws.Settings(), engines)
        await asyncio.gather(*(search(query(number, "duckduckgo")) for number in range(7)))
        await asyncio.sleep(10)
        waited = await search(query(8, "duckduckgo"))
        await asyncio.sleep(20)
        await search(query(9, "duckduckgo"))
        return waited

    assert run_in_virtual_time(main()).attempts == (aws.Attempt("duckduckgo", "ok", 0),)
    assert [at for _, at in engines.asked] == [0.0] * 7 + [10.5, 30.5]


@pytest.mark.parametrize(
    ("asked_at", "next_at", "turn_at"),
    [
        pytest.param([0, 1, 2, 3, 4, 5, 6], 7, 10.5, id="one at a time"),
        pytest.param([0] * 7 + [11.5] * 7, 21.5, 22, id="later than they might have been"),
    ],
)
def test_a_turn_comes_when_the_oldest_of_the_searches_that_count_was_long_enough_ago(
    asked_at: list[float], next_at: float, turn_at: float
) -> None:
    engines = LimitedEngines()

    async def main() -> None:
        search = aws.EngineSearch(aws.Settings(), engines)
        for number, at in enumerate([*asked_at, next_at]):
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            await search(query(number, "duckduckgo"))

    run_in_virtual_time(main())
    assert [at for _, at in engines.asked] == [*asked_at, turn_at]


def test_an_engine_that_takes_two_requests_for_a_search_has_half_as_many_turns() -> None:
    engines = LimitedEngines()

    async def main() -> None:
        search = aws.EngineSearch(aws.Settings(), engines)
        await asyncio.gather(*(search(query(number, "startpage")) for number in range(4)))

    run_in_virtual_time(main())
    assert [at for _, at in engines.asked] == [0.0] * 3 + [10.5]


def test_a_search_whose_turn_would_leave_the_engine_too_little_time_fails_at_once() -> None:
    engines = LimitedEngines()

    async def main() -> tuple[float, float | None]:
        search = aws.EngineSearch(aws.Settings(), engines)
        earlier = [asyncio.ensure_future(search(query(number, "duckduckgo"))) for number in range(14)]
        await asyncio.sleep(9.5)  # the next turn is at 21.0, and this search would end at 21.5
        with pytest.raises(aws.SearchError, match="just asked as often as it takes") as caught:
            await search(query(15, "duckduckgo"))
        failed_at = asyncio.get_running_loop().time()
        await asyncio.gather(*earlier)
        return failed_at, caught.value.retry_after_seconds

    assert run_in_virtual_time(main()) == (9.5, 1.0)


def test_a_slow_engine_is_hedged_only_by_one_that_may_be_asked_at_once() -> None:
    engines = FakeEngines(duckduckgo=HANG_SECONDS)

    async def main() -> None:
        search = aws.EngineSearch(aws.Settings(), engines)
        await asyncio.gather(*(search(query(number, "brave")) for number in range(7)))
        await asyncio.sleep(8.5)
        await search(query(8, "duckduckgo", "brave"))

    run_in_virtual_time(main())
    assert engines.asked[7:] == [("duckduckgo", 8.5), ("brave", 8.5 + aws.ENGINE_TIMEOUT_SECONDS)]


def test_sixty_searches_one_after_another_are_all_answered_under_a_limiter() -> None:
    engines = LimitedEngines(**dict.fromkeys(aws.ENGINES, 0.05))

    async def main() -> list[aws.SearchOutcome]:
        search = aws.EngineSearch(aws.Settings(), engines)
        return [await search(query(number)) for number in range(60)]

    assert all(outcome.hits for outcome in run_in_virtual_time(main()))


# -- Memory ------------------------------------------------------------------------------------------------------------


def test_the_same_search_ten_times_at_once_asks_an_engine_once() -> None:
    engines = FakeEngines(duckduckgo=0.5)

    async def main() -> list[aws.SearchOutcome]:
        search = aws.EngineSearch(aws.Settings(), engines)
        return await asyncio.gather(*(search(QUERY) for _ in range(10)))

    assert len(set(run_in_virtual_time(main()))) == 1
    assert engines.names == ["duckduckgo"]


@pytest.mark.parametrize(("timelimit", "seconds"), list(aws.KEEP_SECONDS_BY_TIMELIMIT.items()))
def test_an_answer_is_kept_for_a_while_and_says_so(timelimit: str | None, seconds: float) -> None:
    engines = FakeEngines()
    asked = aws.EngineQuery("sorting", "us-en", timelimit)

    async def main() -> list[aws.SearchOutcome]:
        search = aws.EngineSearch(aws.Settings(), engines)
        first = await search(asked)
        await asyncio.sleep(seconds - 1)
        second = await search(asked)
        await asyncio.sleep(2)
        return [first, second, await search(asked)]

    first, second, third = run_in_virtual_time(main())
    assert [outcome.is_cached for outcome in (first, second, third)] == [False, True, False]
    assert (second.hits, second.engine, second.attempts) == (first.hits, first.engine, ())
    assert len(engines.asked) == 2


def test_answers_for_today_are_kept_shortest() -> None:
    assert min(aws.KEEP_SECONDS_BY_TIMELIMIT, key=lambda key: aws.KEEP_SECONDS_BY_TIMELIMIT[key]) == "d"


def test_a_failure_is_not_kept() -> None:
    engines = FakeEngines(duckduckgo=aws.SearchError("engine error", "broken"))

    async def main() -> aws.SearchOutcome:
        search = aws.EngineSearch(aws.Settings(), engines)
        results = await asyncio.gather(search(ALONE), search(ALONE), return_exceptions=True)
        assert [type(result) for result in results] == [aws.SearchError, aws.SearchError]
        engines.plans.clear()
        return await search(ALONE)

    assert run_in_virtual_time(main()).engine == "duckduckgo"
    assert len(engines.asked) == 2


def test_who_leaves_a_shared_search_does_not_end_it_for_the_others_but_the_last_does() -> None:
    engines = FakeEngines(duckduckgo=1.0)

    async def main() -> list[str]:
        search = aws.EngineSearch(aws.Settings(), engines)
        one, two = asyncio.ensure_future(search(QUERY)), asyncio.ensure_future(search(QUERY))
        await asyncio.sleep(0.5)
        one.cancel()
        assert (await two).engine == "duckduckgo"
        three, four = asyncio.ensure_future(search(query(2))), asyncio.ensure_future(search(query(2)))
        await asyncio.sleep(0.5)
        three.cancel()
        four.cancel()
        await asyncio.gather(three, four, return_exceptions=True)
        await asyncio.sleep(0.1)
        return list(engines.cancelled)  # before the loop ends, which cancels whatever is left

    assert run_in_virtual_time(main()) == ["duckduckgo"]


def test_memory_is_bounded_in_entries_and_in_bytes_and_forgets_the_longest_unused() -> None:
    made: list[str] = []

    async def remember(memory: aws.Memory[str, str], keys: str) -> list[str]:
        """Gets every key in turn; returns those that had to be made."""
        made.clear()

        async def make(key: str) -> str:
            made.append(key)
            return key

        for key in keys:
            await memory.get(key, partial(make, key), 60.0)
        return list(made)

    async def main() -> None:
        by_entries = aws.Memory[str, str](3, 1000, len)
        assert await remember(by_entries, "abcad") == ["a", "b", "c", "d"]
        assert await remember(by_entries, "acd") == []
        by_bytes = aws.Memory[str, str](100, 100, {"a": 40, "b": 40, "c": 40, "x": 101, "y": 100}.__getitem__)
        assert await remember(by_bytes, "abaxc") == ["a", "b", "x", "c"]
        assert await remember(by_bytes, "ac") == []
        assert await remember(by_bytes, "b") == ["b"]
        assert await remember(by_bytes, "yy") == ["y"]

    run_in_virtual_time(main())


def test_memory_lets_go_of_a_value_that_it_does_not_keep() -> None:
    class Value:
        pass

    async def make() -> Value:
        return Value()

    async def main() -> None:
        memory = aws.Memory[str, Value](1, 0, lambda _: 1)
        value = weakref.ref((await memory.get("a", make, 60.0))[0])
        await asyncio.sleep(0.1)
        gc.collect()
        assert value() is None

    run_in_virtual_time(main())


# -- The real ddgs and primp, on the simulated web ---------------------------------------------------------------------


def ask(engine: str, settings: aws.Settings | None = None, query: aws.EngineQuery = QUERY) -> list[aws.SearchHit]:
    async def main() -> list[aws.SearchHit]:
        return await aws.ddgs_backend(settings or aws.Settings())(engine, query)

    return asyncio.run(main())


@each_engine
def test_the_installed_ddgs_is_as_this_program_relies_on(engine: str) -> None:
    observer = aws.observing_engine(engine)(proxy=None, timeout=6.0, verify=True)
    assert callable(observer.http_client.client.request)
    assert SIMULATED_ENGINES[engine].host == aws.TRAITS_BY_ENGINE[engine].host
    assert aws.TRAITS_BY_ENGINE[engine].host in observer.search_url


@each_engine
def test_the_table_of_traits_says_what_build_payload_does(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def payload(region: str, timelimit: str | None) -> Any:
        asked = DDGS_ENGINES["text"][engine]()
        monkeypatch.setattr(asked, "get_sc", lambda: "token", raising=False)
        body = asked.build_payload("sorting", region, "moderate", timelimit, 1)
        cookies = asked.http_client.client.get_cookies(f"https://{aws.TRAITS_BY_ENGINE[engine].host}/")
        return body, cookies

    traits = aws.TRAITS_BY_ENGINE[engine]
    assert (payload("us-en", "d") != payload("us-en", None)) == traits.honours_recency
    assert (payload("us-en", None) != payload("cn-zh", None)) == (not traits.regions)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("elements_xpath", {"title": "x"}),
        ("search", lambda self, query: []),
        ("result_type", dict),
        ("request", lambda self: None),
        ("extract_results", None),
    ],
)
def test_a_changed_ddgs_is_told_with_its_version(
    attribute: str, value: Any, through_web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DDGS_ENGINES["text"]["duckduckgo"], attribute, value)
    if attribute == "request":  # ddgs asks without `request`: nothing was observed
        monkeypatch.setattr(DDGS_ENGINES["text"]["duckduckgo"], "search", lambda self, query, region, timelimit: [])
    with pytest.raises(aws.SearchError) as caught:
        ask("duckduckgo")
    assert caught.value.outcome == "engine error"
    assert f"ddgs {version('ddgs')}" in str(caught.value)


def test_a_page_that_ddgs_cannot_parse_is_judged_by_its_text_and_the_log_says_why(
    through_web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def extract_results(self: Any, html_text: str) -> Any:
        raise ValueError("no such row")

    monkeypatch.setattr(DDGS_ENGINES["text"]["duckduckgo"], "extract_results", extract_results)
    through_web.set_engine("duckduckgo", "200-challenge")
    with caplog.at_level("INFO"), pytest.raises(aws.SearchError) as caught:
        ask("duckduckgo")
    assert caught.value.outcome == "rate limited"
    assert "The page of duckduckgo could not be parsed" in caplog.text
    assert "ValueError: no such row" in caplog.text


@pytest.mark.parametrize("failure", [AttributeError("no more"), TypeError("no more"), KeyError("no more")])
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["raised", "wrapped"])
def test_a_failure_of_changed_code_points_at_ddgs(failure: Exception, is_wrapped: bool) -> None:
    raised = failure
    if is_wrapped:
        raised = DDGSException(str(failure))
        raised.__cause__ = failure
    error = aws.explain_failure("duckduckgo", raised)
    assert f"ddgs {version('ddgs')}" in str(error)


@pytest.mark.parametrize("failure", [OSError(28, "No space left"), MemoryError(), RuntimeError("about my query")])
def test_a_failure_of_this_program_does_not_point_at_ddgs(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    error = aws.explain_failure("duckduckgo", failure)
    assert str(error) == "DuckDuckGo could not be asked, by a fault of the search server"
    assert error.outcome == "engine error"
    assert caplog.messages == [f"An unexpected {type(failure).__name__} ended a request to duckduckgo"]


def test_an_engine_that_ddgs_dropped_is_told_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(DDGS_ENGINES["text"], "brave")
    with pytest.raises(aws.SearchError, match="the engine brave of ddgs"):
        ask("brave")


@each_engine
def test_an_engine_answers_with_the_rows_as_they_are(engine: str, through_web: SimulatedWeb) -> None:
    urls = ["https://en.example.org/C%2B%2B", "https://en.example.org/?q=a%26b%23c", "https://en.example.org/a%2520b"]
    ad = Hit("Buy", "https://shop.example.com/", "Cheap", form="ad")
    through_web.results([ad, *(Hit("How to use <div> & Co", url, "A <b> in C++") for url in urls)], engine)
    hits = ask(engine)
    assert [hit.url for hit in hits] == urls
    assert hits[0].title.startswith("How to use <div> & Co")
    assert "A <b> in C++" in hits[0].snippet


def test_duckduckgos_redirects_are_unwrapped(through_web: SimulatedWeb) -> None:
    through_web.results([Hit("Title", "https://en.example.org/C%2B%2B?a=b%26c", "Snippet", form="redirect")])
    assert [hit.url for hit in ask("duckduckgo")] == ["https://en.example.org/C%2B%2B?a=b%26c"]


@each_engine
def test_filters_reach_the_engine(engine: str, through_web: SimulatedWeb) -> None:
    ask(engine, query=aws.EngineQuery("sorting site:docs.example.org", "cn-zh", "w"))
    search = through_web.searches[0]
    assert search.query == "sorting site:docs.example.org"
    assert bool(search.timelimit) == aws.TRAITS_BY_ENGINE[engine].honours_recency
    assert ("cn" in search.region.lower()) == (not aws.TRAITS_BY_ENGINE[engine].regions)


def test_duckduckgo_is_told_the_region_by_the_name_its_page_reads(through_web: SimulatedWeb) -> None:
    ask("duckduckgo", query=dataclasses.replace(QUERY, region="cn-zh"))
    (request,) = [request for request in through_web.requests if request.host == "html.duckduckgo.com"]
    assert request.params["kl"] == "cn-zh"


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("202", "rate limited"),
        ("200-challenge", "rate limited"),
        ("403", "rate limited"),
        ("429", "rate limited"),
        ("500", "engine error"),
        ("garbage", "engine error"),
        ("empty", "engine error"),
        ("reset", "unreachable"),
    ],
)
@each_engine
def test_each_engines_faults_are_told_apart(engine: str, fault: str, outcome: str, through_web: SimulatedWeb) -> None:
    through_web.set_engine(engine, fault)
    with pytest.raises(aws.SearchError) as caught:
        ask(engine)
    assert caught.value.outcome == outcome


@pytest.mark.parametrize("fault", ["no-hits", "no-hits-202"])
@each_engine
def test_each_engines_own_word_for_no_results_is_known(engine: str, fault: str, through_web: SimulatedWeb) -> None:
    through_web.set_engine(engine, fault)
    assert ask(engine) == []


@pytest.mark.parametrize(
    ("fault", "outcome", "text"),
    [
        ("dns", "unreachable", r"the proxy at 127\.0\.0\.1:\d+ cannot reach html\.duckduckgo\.com \(HTTP 502\)"),
        ("refused", "unreachable", r"the proxy at 127\.0\.0\.1:\d+ cannot reach html\.duckduckgo\.com \(HTTP 503\)"),
        ("certificate", "certificate refused", r"signed by an unknown authority; give its CA with --ca-file"),
        ("misnamed", "certificate refused", r"the certificate of html\.duckduckgo\.com is for another name"),
    ],
)
def test_what_hinders_the_connection_is_named(fault: str, outcome: str, text: str, through_web: SimulatedWeb) -> None:
    through_web.set_host("html.duckduckgo.com", fault)
    with pytest.raises(aws.SearchError, match=text) as caught:
        ask("duckduckgo")
    assert caught.value.outcome == outcome


def test_a_proxy_that_is_not_there_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@127.0.0.1:9")
    with pytest.raises(aws.SearchError) as caught:
        ask("duckduckgo")
    assert str(caught.value) == "the proxy at 127.0.0.1:9 refused the connection"


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])  # the proxy resolves names in any case
def test_the_proxy_of_the_settings_and_their_certificates_are_used(
    scheme: str, web: SimulatedWeb, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(Path(web.env()["SSL_CERT_FILE"]).read_bytes())
    settings = aws.Settings(proxy=web.proxy_url(scheme), ca_file=str(ca_file))
    assert len(ask("duckduckgo", settings)) > 0


def test_ddgs_proxy_wins_for_engines(web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", web.env()["SSL_CERT_FILE"])
    monkeypatch.setenv("DDGS_PROXY", web.proxy_url())
    assert len(ask("duckduckgo", aws.Settings(proxy="http://127.0.0.1:9"))) > 0


def test_nothing_stays_on_disk_of_the_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for platform in (sys.platform, "darwin"):
        monkeypatch.setattr(sys, "platform", platform)
        with aws.ca_path(b"certificates") as path:
            assert Path(path).read_bytes() == b"certificates"
        assert not Path(path).exists()
    assert list(tmp_path.iterdir()) == []


def test_requests_that_never_return_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def ask_ddgs(*arguments: Any) -> list[aws.SearchHit]:
        released.wait()
        return []

    async def main() -> list[list[aws.SearchHit] | BaseException]:
        backend = aws.ddgs_backend(aws.Settings())
        pending = [asyncio.ensure_future(backend("duckduckgo", QUERY)) for _ in range(aws.MAX_ENGINE_THREADS)]
        await asyncio.sleep(0)
        for task in pending:
            task.cancel()
        results = await asyncio.gather(*pending, return_exceptions=True)
        with pytest.raises(aws.SearchError, match="earlier requests have not returned yet") as caught:
            await backend("duckduckgo", QUERY)
        assert caught.value.outcome == "timed out"
        released.set()
        return results

    monkeypatch.setattr(aws, "ask_ddgs", ask_ddgs)
    assert all(isinstance(result, asyncio.CancelledError) for result in asyncio.run(main()))


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    root = Path(aws.__file__).parent
    return subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )


ONE_SEARCH = """
import asyncio
import agent_web_search as aws

try:
    asyncio.run(aws.ddgs_backend(aws.Settings())("duckduckgo", aws.EngineQuery("sorting", "us-en")))
except aws.SearchError as error:
    print(error)
"""


def test_engines_are_verified_where_no_further_certificates_are_set(
    web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: primp reads the store that `SSL_CERT_FILE` names once, and other tests name one."""
    monkeypatch.setenv("HTTPS_PROXY", web.proxy_url())
    assert "the certificate of html.duckduckgo.com" in run_script(ONE_SEARCH).stdout


# -- The watchdog ------------------------------------------------------------------------------------------------------

FROZEN_CALL = """
import asyncio, ctypes, sys
import agent_web_search as aws

aws.FREEZE_SECONDS = 1.5
watchdog = aws.FreezeWatchdog()

def hold_the_interpreter_lock():
    ctypes.PyDLL(None).sleep(3600)  # unlike CDLL, PyDLL keeps the lock

async def main():
    with watchdog.watch():
        await asyncio.sleep(2)  # the loop runs: nothing happens, for longer than the limit
        print("alive", flush=True)
        await aws.call_in_thread(hold_the_interpreter_lock)

asyncio.run(main())
"""
IDLE_AFTER_A_CALL = """
import asyncio, time
import agent_web_search as aws

aws.FREEZE_SECONDS = 0.2
watchdog = aws.FreezeWatchdog()

async def main():
    with watchdog.watch():
        with watchdog.watch():
            pass
    time.sleep(1)  # stopped, but no call runs

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the C library's sleep is named otherwise there")
def test_a_native_call_that_keeps_the_interpreters_lock_ends_the_process() -> None:
    done = run_script(FROZEN_CALL)
    assert (done.returncode, done.stdout) == (1, "alive\n")
    assert "hold_the_interpreter_lock" in done.stderr


def test_a_process_that_stands_still_between_calls_is_left_alone() -> None:
    done = run_script(IDLE_AFTER_A_CALL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
