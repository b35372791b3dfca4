"""The real process under engines that refuse, crawl and hang: it answers, it is polite, and it says what went wrong."""

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent_web_search as aws
from tests.simulated_engines import ENGINES
from tests.simulated_web import Authority, SimulatedWeb
from tests.stdio_client import ServerProcess, ToolAnswer, run_program

LIMITER = "limit:8/10/60"
PASSWORD = "hunter2"


@pytest.fixture
def server(web: SimulatedWeb) -> Iterator[ServerProcess]:
    with ServerProcess(env=web.env()) as process:
        process.initialize()
        yield process


def attempts(answer: ToolAnswer) -> list[tuple[str, str]]:
    return [(attempt["engine"], attempt["outcome"]) for attempt in answer.diagnostics["attempts"]]


def engines_asked(web: SimulatedWeb) -> list[str]:
    return [search.engine for search in web.searches]


def start_searches(server: ServerProcess, count: int) -> list[ToolAnswer]:
    """Different searches, all at once."""
    calls = [server.start_call(search_query=f"sorting {number}") for number in range(count)]
    return [server.answer(call) for call in calls]


@pytest.mark.parametrize("fault", ["202", "403", "429:300"])
def test_when_duckduckgo_refuses_a_stand_in_answers_and_duckduckgo_is_left_alone(
    fault: str, web: SimulatedWeb, server: ServerProcess
) -> None:
    web.set_engine("duckduckgo", fault)
    first, second = server.call(search_query="sorting"), server.call(search_query="searching")
    assert (len(first.results), len(second.results)) == (10, 10)
    assert attempts(first) == [("duckduckgo", "rate limited"), ("brave", "ok")]
    assert attempts(second) == [("brave", "ok")]
    assert engines_asked(web) == ["duckduckgo", "brave", "brave"]


def test_a_stand_in_that_ignores_the_recency_filter_is_not_asked(web: SimulatedWeb, server: ServerProcess) -> None:
    for engine in ("duckduckgo", "brave"):
        web.set_engine(engine, "403")
    assert server.call(search_query="sorting", search_recency_filter="oneWeek").diagnostics["engine"] == "startpage"
    assert "mojeek" not in engines_asked(web)


def test_when_duckduckgo_is_slow_the_hedge_answers(web: SimulatedWeb, server: ServerProcess) -> None:
    web.set_engine("duckduckgo", "slow:4")
    answer = server.call(search_query="sorting")
    assert len(answer.results) == 10
    assert attempts(answer) == [("duckduckgo", "timed out"), ("brave", "ok")]
    duckduckgo, brave = (attempt["elapsed_ms"] for attempt in answer.diagnostics["attempts"])
    assert duckduckgo - brave >= aws.HEDGE_SECONDS * 1000


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_fifty_calls_to_engines_that_hang_are_answered_and_leave_a_bounded_number_of_threads(
    web: SimulatedWeb, server: ServerProcess
) -> None:
    def thread_count() -> int:
        return len(os.listdir(f"/proc/{server.process.pid}/task"))

    server.call(search_query="warm up")
    threads_before = thread_count()
    for engine in ENGINES:
        web.set_engine(engine, "hang")
    answers = start_searches(server, 50)
    assert all(answer.is_error for answer in answers)
    assert all(answer.texts[0].startswith("Search failed: ") for answer in answers)
    assert thread_count() - threads_before <= aws.MAX_ENGINE_THREADS
    for engine in ENGINES:
        web.set_engine(engine, "ok")


def test_the_process_answers_twenty_searches_at_once_under_a_limiter(web: SimulatedWeb, server: ServerProcess) -> None:
    for engine in ENGINES:
        web.set_engine(engine, LIMITER)
    assert [len(answer.results) for answer in start_searches(server, 20)] == [10] * 20
    assert max(Counter(engines_asked(web)).values()) <= 7


def test_the_same_search_ten_times_at_once_asks_one_engine_once(web: SimulatedWeb, server: ServerProcess) -> None:
    calls = [server.start_call(search_query="sorting") for _ in range(10)]
    texts = {server.answer(call).texts[0] for call in calls}
    assert len(texts) == 1
    assert engines_asked(web) == ["duckduckgo"]


def test_a_repeated_search_is_answered_from_memory(web: SimulatedWeb, server: ServerProcess) -> None:
    first, second = server.call(search_query="sorting"), server.call(search_query="  sorting ")
    assert second.texts == first.texts
    assert (first.diagnostics["cached"], second.diagnostics["cached"]) == (False, True)
    assert engines_asked(web) == ["duckduckgo"]


def test_no_match_is_no_failure(web: SimulatedWeb, server: ServerProcess) -> None:
    web.set_engine("duckduckgo", "no-hits")
    answer = server.call(search_query="sorting")
    assert (answer.is_error, answer.texts[0]) == (False, "[]")
    assert engines_asked(web) == ["duckduckgo"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            "202",
            r"DuckDuckGo refuses to search for now \(.*\) \(also rate limited: .*\)\. A retry can help in 60 seconds.*",
        ),
        (
            "429:30",
            r"DuckDuckGo refuses to search for now \(HTTP 429\) .* A retry can help in 30 seconds, not before\.",
        ),
        ("500", r"DuckDuckGo answered HTTP 500 \(also engine error: .*\)\. A retry may help in 30 seconds\."),
        ("garbage", r"DuckDuckGo sent a page that holds neither results .* A retry may help in 30 seconds\."),
        ("hang", r"DuckDuckGo did not answer in time \(also timed out: .*\)\. A retry may help in 10 seconds\."),
        (
            "reset",
            r"the connection to html\.duckduckgo\.com broke off .* A retry cannot help before the connection works.*",
        ),
        ("dns", r"the proxy at 127\.0\.0\.1:\d+ cannot reach html\.duckduckgo\.com \(HTTP 502\) .*"),
        (
            "certificate",
            r"the certificate of html\.duckduckgo\.com is signed by an unknown authority; give its CA with .*",
        ),
    ],
)
def test_when_every_engine_fails_the_answer_says_how_and_what_a_retry_can_do(
    fault: str, text: str, authority: object
) -> None:
    with SimulatedWeb(authority, credentials=("user", PASSWORD)) as web:  # type: ignore[arg-type]
        for engine in ENGINES:
            web.set_engine(engine, fault)
        with ServerProcess(env=web.env()) as server:
            server.initialize()
            answer = server.call(search_query="sorting")
            stderr = server.stderr
    assert answer.is_error
    assert re.fullmatch(f"Search failed: {text}", answer.texts[0]), answer.texts[0]
    assert {outcome for _, outcome in attempts(answer)} != {"ok"}
    for leak in (PASSWORD, "Traceback", str(Path.home()), ".py", "primp", "os error"):
        assert leak not in "".join(answer.texts)
    assert PASSWORD not in stderr


def test_engines_can_be_pinned_to_duckduckgo(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "429")
    with ServerProcess(env=web.env(), arguments=["--engines", "duckduckgo"]) as server:
        server.initialize()
        answer = server.call(search_query="sorting")
        again = server.call(search_query="searching")
    assert answer.texts[0] == (
        "Search failed: DuckDuckGo refuses to search for now (HTTP 429). A retry can help in 60 seconds, not before."
    )
    assert again.texts[0].startswith("Search failed: DuckDuckGo refused an earlier search and is left alone.")
    assert engines_asked(web) == ["duckduckgo"]


def test_a_certificate_file_of_the_settings_adds_to_ssl_cert_file(web: SimulatedWeb, tmp_path: Path) -> None:
    """In processes of their own: primp reads the variables once and for all."""
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(Authority().ca.cert_pem.bytes())
    web_file = web.env()["SSL_CERT_FILE"]
    query = ("search", "sorting", "--engines", "duckduckgo", "--json")
    refused = run_program(*query, env={**web.env(), "SSL_CERT_FILE": str(stranger)})
    assert refused.returncode == 1
    assert b"unknown authority" in refused.stderr
    for variable, setting in ((stranger, web_file), (web_file, stranger)):
        trusted = run_program(*query, "--ca-file", str(setting), env={**web.env(), "SSL_CERT_FILE": str(variable)})
        assert len(json.loads(trusted.stdout)) == 10
