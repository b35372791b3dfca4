"""The real process over real pipes, against the simulated web: nothing here is replaced by a fake."""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent_web_search import ENGINES, HttpPageFetcher, PageError, Settings
from tests.direct_sockets import DirectSockets
from tests.simulated_engines import Search
from tests.simulated_pages import (
    CHARSET_CASES,
    CHARSET_SAMPLES,
    CODE_SAMPLE,
    DEFAULT_HITS,
    HIDDEN_TEXT,
    PRIVATE_URLS,
    SECRET,
    Hit,
    charset_url,
)
from tests.simulated_web import Authority, SimulatedWeb
from tests.stdio_client import (
    BINARY_VARIABLE,
    LEGACY_VERSIONS,
    TOOL_NAME,
    ServerProcess,
    ToolAnswer,
    modern_meta,
    run_program,
)

ONLY_DUCKDUCKGO = {"AGENT_WEB_SEARCH_ENGINES": "duckduckgo"}
HITS = [hit for hit in DEFAULT_HITS if hit.form != "ad"]
OTHER_HITS = [Hit(f"Row {number}", f"https://rows.example.net/{number}", f"Snippet {number}.") for number in range(10)]
STATUS, WALLS, HOSTILE = "https://status.example.org", "https://walls.example.com", "https://hostile.example.net"
FILES, REDIRECT = "https://files.example.org", "https://redirect.example.net"
CHINESE = re.compile("[\u4e00-\u9fff]")
WORDS_OF_A_CRASH = re.compile(r"Traceback|File \"|/[a-z]+/\S+\.py|Error\(|Exception|\bddgs\b|\bprimp\b|0x[0-9a-f]{6}")


def search_once(
    web: SimulatedWeb, env: dict[str, str] | None = None, *, scheme: str = "http", **arguments: Any
) -> ToolAnswer:
    """One call to a process of its own, which reaches the web by a proxy of `scheme`, with `env` added."""
    with ServerProcess(env={**web.env(scheme), **(env or {})}) as server:
        server.initialize()
        return server.call(**{"search_query": "sort a list", **arguments})


def page_hits(*urls: str) -> list[Hit]:
    """Ten hits, of which the first (three at most) lead to `urls` and the others to hosts that do not resolve."""
    first = [Hit(f"Page {number}", url, f"Snippet of page {number}.") for number, url in enumerate(urls)]
    return [*first, *OTHER_HITS[: 10 - len(urls)]]


# -- The answer --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answered(authority: Authority) -> ToolAnswer:
    """The answer to a plain call, with nothing wrong anywhere."""
    with SimulatedWeb(authority) as web:
        return search_once(web)


def test_an_answer_has_ten_results_in_the_engine_s_order(answered: ToolAnswer) -> None:
    assert not answered.is_error
    assert len(answered.texts) == 1
    assert [result["title"] for result in answered.results] == [f"{hit.title} - sort a list" for hit in HITS]


def test_a_result_has_exactly_five_strings(answered: ToolAnswer) -> None:
    for result in answered.results:
        assert list(result) == ["title", "url", "summary", "site_name", "favicon"]
        assert all(isinstance(value, str) and value for value in result.values())


def test_addresses_are_those_of_the_engine_with_their_percent_signs(answered: ToolAnswer) -> None:
    assert [result["url"] for result in answered.results] == [hit.url for hit in HITS]


def test_the_first_three_summaries_are_extracts_and_seven_are_snippets(answered: ToolAnswer) -> None:
    assert answered.diagnostics["pages"] == ["extract"] * 3
    summaries = [result["summary"] for result in answered.results]
    assert summaries[0].count("Part ") > 5
    assert [summary for summary in summaries[:3] if "(sort a list)" in summary] == []
    assert summaries[3:] == [f"{hit.snippet} (sort a list)" for hit in HITS[3:]]


def test_an_extract_has_nothing_of_the_page_around_the_text(answered: ToolAnswer) -> None:
    text = "".join(result["summary"] for result in answered.results[:3])
    for chrome in ("NAV-HOME", "SIDEBAR-LINKS", "FOOTER-TEXT", "SCRIPT-TEXT", "Accept all", "color: red"):
        assert chrome not in text


def test_code_keeps_its_lines_and_indentation_in_a_fence(answered: ToolAnswer) -> None:
    assert re.search(r"^```\w*\n" + re.escape(CODE_SAMPLE) + r"\n```$", answered.results[1]["summary"], re.M)


def test_table_rows_stay_apart(answered: ToolAnswer) -> None:
    lines = answered.results[1]["summary"].splitlines()
    assert [line for line in lines if "|" in line] == ["Rows | Comparisons", "10 | 45", "100 | 4950"]


@pytest.mark.parametrize(("size", "least", "most"), [("medium", 450, 500), ("high", 2400, 2500)])
def test_chinese_text_is_cut_at_the_limit(web: SimulatedWeb, size: str, least: int, most: int) -> None:
    summary = search_once(web, content_size=size).results[2]["summary"]
    assert least <= len(CHINESE.findall(summary)) <= most
    assert summary.endswith("…")


@pytest.mark.parametrize(("size", "most"), [("medium", 500), ("high", 2500)])
def test_english_text_is_cut_at_the_limit(web: SimulatedWeb, size: str, most: int) -> None:
    web.results(page_hits("https://files.example.org/many-words"))
    summary = search_once(web, content_size=size).results[0]["summary"]
    assert most - 50 <= len(summary.split()) <= most + 1
    assert summary.endswith("…")


def test_an_answer_stays_under_the_hosts_limit(web: SimulatedWeb) -> None:
    web.results(page_hits(f"{FILES}/endless-word", f"{FILES}/many-words", f"{FILES}/many-words?again"))
    answer = search_once(web, content_size="high")
    assert len(answer.texts[0].encode()) <= 40_000
    assert len(answer.results) == 10


def test_pages_that_are_text_already_are_used_as_they_are(web: SimulatedWeb) -> None:
    files = "https://files.example.org"
    web.results(page_hits(f"{files}/notes.txt", f"{files}/README.md", f"{files}/data.json"))
    notes, readme, data = (result["summary"] for result in search_once(web).results[:3])
    assert "      Sorted rows are easier to read." in notes
    assert "```python\nif rows:\n    rows.sort()\n```" in readme
    assert json.loads(data) == {"rows": [3, 1, 2], "sorted": False}


# -- What is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, Search("duckduckgo", "sort a list", "us-en", "", "ok")),
        ({"location": "cn"}, Search("duckduckgo", "sort a list", "cn-zh", "", "ok")),
        ({"search_query": "排序算法"}, Search("duckduckgo", "排序算法", "cn-zh", "", "ok")),
        ({"search_recency_filter": "oneDay"}, Search("duckduckgo", "sort a list", "us-en", "d", "ok")),
        ({"search_recency_filter": "one_week"}, Search("duckduckgo", "sort a list", "us-en", "w", "ok")),
        ({"search_recency_filter": "oneMonth"}, Search("duckduckgo", "sort a list", "us-en", "m", "ok")),
        ({"search_recency_filter": "oneYear"}, Search("duckduckgo", "sort a list", "us-en", "y", "ok")),
    ],
    ids=["defaults", "cn", "chinese", "day", "week", "month", "year"],
)
def test_arguments_reach_the_engine(web: SimulatedWeb, arguments: dict[str, Any], expected: Search) -> None:
    assert not search_once(web, **arguments).is_error
    assert web.searches == [expected]


def test_a_domain_filter_is_asked_for_and_enforced(web: SimulatedWeb) -> None:
    web.results(DEFAULT_HITS)  # an engine that ignores `site:`
    answer = search_once(web, search_domain_filter="https://docs.example.org/")
    assert {result["site_name"] for result in answer.results} == {"docs.example.org"}
    assert len(answer.results) == 4
    assert web.searches[0].query == "sort a list site:docs.example.org"


def test_only_the_first_three_pages_are_asked_for_and_say_who_asks(web: SimulatedWeb) -> None:
    search_once(web, location="cn")
    pages = [request for request in web.requests if request.host != "html.duckduckgo.com"]
    assert sorted(request.url for request in pages) == sorted(hit.url for hit in HITS[:3])
    for request in pages:
        assert "agent-web-search" in request.headers["user-agent"]
        assert request.headers["accept-language"].startswith("zh-CN")


# -- A search that fails -----------------------------------------------------------------------------------------------

OUTCOME_BY_FAULT = {
    "202": "rate limited",
    "200-challenge": "rate limited",
    "403": "rate limited",
    "429": "rate limited",
    "500": "engine error",
    "503": "engine error",
    "garbage": "engine error",
    "empty": "engine error",
    "dns": "unreachable",
    "refused": "unreachable",
    "reset": "unreachable",
    "certificate": "certificate refused",
    "misnamed": "certificate refused",
    "hang": "timed out",
    "drip": "timed out",
}
TELLING_WORDS = {
    "rate limited": r"(?i)rate.?limit|block|refus|too many",
    "engine error": r"HTTP 50[03]|sent a page that",
    "unreachable": r"(?i)reach|connect|proxy|resolve",
    "certificate refused": r"(?i)certificate",
    "timed out": r"(?i)time|in time|slow|second",
}


@pytest.mark.parametrize("fault", OUTCOME_BY_FAULT)
def test_a_failed_search_is_an_error_that_says_why_and_whether_to_retry(web: SimulatedWeb, fault: str) -> None:
    web.set_engine("duckduckgo", fault)
    answer = search_once(web, ONLY_DUCKDUCKGO)
    outcome = OUTCOME_BY_FAULT[fault]
    assert answer.is_error
    assert len(answer.texts) == 1
    (text,) = answer.texts
    assert text.startswith("Search failed: ")
    assert re.search(TELLING_WORDS[outcome], text)
    assert re.search(r"(?i)\bretry|again|once more", text)
    assert not WORDS_OF_A_CRASH.search(text)
    assert [attempt["outcome"] for attempt in answer.diagnostics["attempts"]] == [outcome]


def test_the_engine_s_own_waiting_time_is_told(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "429:137")
    assert re.search(r"\b13[0-9] s", search_once(web, ONLY_DUCKDUCKGO).texts[0])


def test_the_process_names_a_proxy_that_is_not_there_without_its_password(web: SimulatedWeb) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    proxy = {"HTTPS_PROXY": f"http://ada:pa55word@127.0.0.1:{port}"}
    answer = search_once(web, {**proxy, "ALL_PROXY": "", **ONLY_DUCKDUCKGO})
    assert answer.is_error
    assert f"127.0.0.1:{port}" in answer.texts[0]
    assert "proxy" in answer.texts[0]
    assert "pa55word" not in json.dumps(answer.raw)


@pytest.mark.parametrize("fault", ["no-hits", "no-hits-202"])
def test_no_hits_is_an_empty_list_and_a_hint(web: SimulatedWeb, fault: str) -> None:
    web.set_engine("duckduckgo", fault)
    answer = search_once(web, ONLY_DUCKDUCKGO)
    assert not answer.is_error
    assert answer.texts[0] == "[]"
    assert re.search(r"(?i)no results.*(fewer|other) ", answer.texts[1])


def test_refused_arguments_are_an_error_that_names_them(web: SimulatedWeb) -> None:
    answer = search_once(web, search_recency_filter="lastFortnight")
    assert answer.is_error
    for word in ("search_recency_filter", "lastFortnight", "oneDay", "noLimit"):
        assert word in answer.texts[0]
    assert web.requests == []


# -- Pages that fail ---------------------------------------------------------------------------------------------------

FAILING_PAGES = {
    "client errors": (f"{STATUS}/400", f"{STATUS}/403", f"{STATUS}/404"),
    "server errors": (f"{STATUS}/500", f"{STATUS}/503", f"{STATUS}/429"),
    "no content": (f"{STATUS}/204", f"{STATUS}/304", f"{STATUS}/empty"),
    "other types": (f"{FILES}/paper.pdf", f"{FILES}/photo.png", f"{HOSTILE}/wrong-type"),
    "challenges": (f"{WALLS}/challenge", f"{WALLS}/challenge-403", f"{WALLS}/mitigated"),
    "walls": (f"{WALLS}/captcha", f"{WALLS}/login", f"{WALLS}/consent"),
    "redirects": (f"{REDIRECT}/loop", f"{REDIRECT}/chain/6", f"{REDIRECT}/no-location"),
    "schemes": (f"{REDIRECT}/file", f"{REDIRECT}/user", f"{REDIRECT}/meta-refresh"),
    "breaking off": (f"{HOSTILE}/reset", f"{HOSTILE}/truncated", f"{HOSTILE}/no-http"),
    "never ending": (f"{HOSTILE}/drip", f"{HOSTILE}/stall", f"{HOSTILE}/silence"),
    "bombs": (f"{HOSTILE}/bomb/gzip", f"{HOSTILE}/bomb/deflate", f"{HOSTILE}/bomb/nested"),
    "encodings": (f"{HOSTILE}/not-gzip", f"{HOSTILE}/bomb/br", f"{STATUS}/401"),
    "headers": (f"{HOSTILE}/endless-header", f"{HOSTILE}/huge-headers", f"{WALLS}/script-only"),
    "not there": ("https://gone.example.net/", f"{FILES}/no-such-page", f"{STATUS}/451"),
}


@pytest.mark.parametrize("group", FAILING_PAGES)
def test_a_page_that_fails_costs_its_extract_and_nothing_else(web: SimulatedWeb, group: str) -> None:
    urls = FAILING_PAGES[group]
    web.results(page_hits(*urls))
    answer = search_once(web)
    assert not answer.is_error
    assert [result["summary"] for result in answer.results[:3]] == [f"Snippet of page {n}." for n in range(3)]
    assert [result["url"] for result in answer.results] == [*urls, *(hit.url for hit in OTHER_HITS[:7])]
    assert "extract" not in answer.diagnostics["pages"]


READABLE_PAGES = {
    "redirected": (f"{REDIRECT}/chain/5", f"{REDIRECT}/relative", "http://upgrade.example.net/page"),
    "statuses": (f"{REDIRECT}/status/301", f"{REDIRECT}/status/307", f"{REDIRECT}/status/308"),
    "types": (f"{FILES}/page.xhtml", f"{HOSTILE}/gzip", "http://plain.example.org/"),
    "cookies": ("https://cookies.example.com/start", f"{HOSTILE}/cookie-wall", f"{HOSTILE}/no-type"),
}


@pytest.mark.parametrize("group", READABLE_PAGES)
def test_a_page_that_is_odd_but_honest_is_read(web: SimulatedWeb, group: str) -> None:
    web.results(page_hits(*READABLE_PAGES[group]))
    answer = search_once(web)
    assert answer.diagnostics["pages"] == ["extract"] * 3
    for result in answer.results[:3]:
        assert "Part 2 looks at sorting from another side." in result["summary"]


HEAVY_PAGES = {
    "large": (f"{HOSTILE}/large", f"{HOSTILE}/one-line", f"{HOSTILE}/nul-bytes"),
    "malformed": (f"{HOSTILE}/deep", f"{HOSTILE}/attributes", f"{HOSTILE}/cells"),
    "strange": (f"{HOSTILE}/entities", f"{HOSTILE}/binary-as-html", "https://charsets.example.org/invalid-utf-8"),
}


@pytest.mark.parametrize("group", HEAVY_PAGES)
def test_a_page_that_is_heavy_or_malformed_is_survived(web: SimulatedWeb, group: str) -> None:
    web.results(page_hits(*HEAVY_PAGES[group]))
    answer = search_once(web)
    assert len(answer.results) == 10
    assert all(result["summary"] for result in answer.results)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]|root:", "".join(result["summary"] for result in answer.results))


def test_the_process_reads_a_page_in_its_charset_however_it_says_so(web: SimulatedWeb) -> None:
    unread = []
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        for start in range(0, len(CHARSET_CASES), 3):
            cases = CHARSET_CASES[start : start + 3]
            web.results(page_hits(*(charset_url(*case) for case in cases)))
            results = server.call(search_query=f"charsets from {start}").results
            unread += [
                (*case, result["summary"][:40])
                for case, result in zip(cases, results, strict=False)
                if CHARSET_SAMPLES[case[0]] not in result["summary"]
            ]
    assert unread == []


def test_what_a_reader_cannot_see_is_in_no_answer(web: SimulatedWeb) -> None:
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in HIDDEN_TEXT)
    hits = page_hits(f"{HOSTILE}/injection")
    hits[1] = Hit(f"Title{tags}\u202e", "https://rows.example.net/tagged", f"Snip{tags}pet\u200b of a row")
    web.results(hits)
    answer = search_once(web)
    text = answer.texts[0]
    assert answer.diagnostics["pages"][0] == "extract"
    assert HIDDEN_TEXT not in text
    assert not re.search(
        "[\U000e0000-\U000e007f\u200b\u202a-\u202e\x00-\x08\x1b]", json.dumps(answer.results, ensure_ascii=False)
    )
    assert (answer.results[1]["title"], answer.results[1]["summary"]) == ("Title", "Snippet of a row")


@pytest.mark.parametrize("way", ["result", "redirect"])
def test_a_private_address_is_never_asked_for(web: SimulatedWeb, way: str) -> None:
    urls = PRIVATE_URLS if way == "result" else [f"{REDIRECT}/private/{n}" for n in range(len(PRIVATE_URLS))]
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        for start in range(0, len(urls), 3):
            web.results(page_hits(*urls[start : start + 3]))
            answer = server.call(search_query=f"private pages from {start}")
            assert len(answer.results) == 10
            assert SECRET not in answer.texts[0]
    assert {urlsplit(url).hostname for url in PRIVATE_URLS}.isdisjoint(tunnel.host for tunnel in web.tunnels)
    assert len(web.requests_to("redirect.example.net")) == (0 if way == "result" else len(PRIVATE_URLS))


# -- Ways to the web ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "socks5h"])  # primp resolves names itself for socks5
def test_a_proxy_with_a_password_carries_the_whole_call(authority: Authority, scheme: str) -> None:
    with SimulatedWeb(authority, credentials=("ada", "pa55word")) as web:
        answer = search_once(web, scheme=scheme)
        assert answer.diagnostics["pages"] == ["extract"] * 3
        assert {tunnel.via for tunnel in web.tunnels} == {"connect" if scheme == "http" else "socks5"}
        assert "pa55word" not in json.dumps(answer.raw)


INTERNAL_ADDRESSES = {
    "loopback.example.net": [["127.0.0.1"]],
    "mixed.example.net": [["93.184.216.34", "10.0.0.7"]],
    "six.example.net": [["::1"]],
    "mapped.example.net": [["::ffff:192.168.1.1"]],
    "nat64.example.net": [["64:ff9b::a9fe:a9fe"]],
    "linklocal.example.net": [["169.254.169.254"]],
}


@pytest.mark.skipif(BINARY_VARIABLE in os.environ, reason="the sockets of a binary cannot be replaced")
def test_a_name_that_resolves_to_an_internal_address_is_never_connected_to(web: SimulatedWeb) -> None:
    for name in INTERNAL_ADDRESSES:
        web.add_page(f"https://{name}/", f"<p>{SECRET}</p>" * 50)
    names = list(INTERNAL_ADDRESSES)
    with ServerProcess(env=web.direct_env(INTERNAL_ADDRESSES)) as server:
        server.initialize()
        assert server.call(search_query="pages on public addresses").diagnostics["pages"] == ["extract"] * 3
        for start in range(0, len(names), 3):
            web.results(page_hits(*(f"https://{name}/" for name in names[start : start + 3])))
            answer = server.call(search_query=f"pages on internal addresses from {start}")
            assert "extract" not in answer.diagnostics["pages"]
            assert SECRET not in answer.texts[0]
    assert not [request.url for request in web.requests if request.host in INTERNAL_ADDRESSES]


@pytest.mark.anyio
async def test_a_page_is_fetched_from_the_address_that_was_checked(direct_sockets: DirectSockets) -> None:
    direct_sockets.addresses["blog.example.com"] = [["93.184.216.200"], ["127.0.0.1"]]
    fetch = HttpPageFetcher(Settings())
    try:
        page = await fetch("https://blog.example.com/posts/sorting", "en")
    finally:
        await fetch.aclose()
    assert "How sorting works" in page.text
    assert direct_sockets.looked_up == ["blog.example.com"]
    assert direct_sockets.connected == [("93.184.216.200", 443)]


@pytest.mark.anyio
async def test_each_redirect_is_looked_up_and_checked_again(web: SimulatedWeb, direct_sockets: DirectSockets) -> None:
    direct_sockets.addresses["redirect.example.net"] = [["93.184.216.200"], ["192.168.1.1"]]
    fetch = HttpPageFetcher(Settings())
    try:
        with pytest.raises(PageError):
            await fetch("https://redirect.example.net/chain/1", "en")
    finally:
        await fetch.aclose()
    assert {address for address, _ in direct_sockets.connected} == {"93.184.216.200"}


# -- The protocol ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_every_version_with_a_handshake_is_spoken(web: SimulatedWeb, version: str) -> None:
    with ServerProcess(env=web.env()) as server:
        greeting = server.initialize(version)
        assert greeting["protocolVersion"] == version
        assert list(greeting["capabilities"]) == ["tools"]
        assert [tool["name"] for tool in server.request("tools/list")["result"]["tools"]] == [TOOL_NAME]
        assert len(server.call(search_query="x").results) == 10


@pytest.mark.parametrize("discovers", [True, False])
def test_the_version_without_a_handshake_is_spoken(web: SimulatedWeb, discovers: bool) -> None:
    with ServerProcess(env=web.env()) as server:
        if discovers:
            found = server.request("server/discover", {"_meta": modern_meta()})
            assert "2026-07-28" in found["result"]["supportedVersions"]
        listed = server.request("tools/list", {"_meta": modern_meta()})
        assert [tool["name"] for tool in listed["result"]["tools"]] == [TOOL_NAME]
        answer = server.answer(server.start_call(meta=modern_meta(), request_id="a-string", search_query="x"))
        assert len(answer.results) == 10


def test_a_probe_before_the_handshake_is_survived(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.start("server/discover", {}, request_id="server-discover-probe-1")
        server.reply("server-discover-probe-1")
        assert server.initialize()["serverInfo"]["name"]
        assert len(server.call(search_query="x").results) == 10


def test_an_unknown_tool_is_an_error_of_the_protocol(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        reply = server.request("tools/call", {"name": "no_such_tool", "arguments": {}})
        assert reply["error"]["code"] == -32602


@pytest.mark.parametrize(
    "line", [b"{nonsense\n", b"\n", b"[]\n", b"null\n", b'"x"\n', b"\xff\xfe\n", b'{"jsonrpc":"2.0"}\n']
)
def test_a_bad_line_does_not_stop_the_server(web: SimulatedWeb, line: bytes) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        server.send_raw(line)
        assert len(server.call(search_query="x").results) == 10


def test_a_line_of_a_mebibyte_is_read(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        assert len(server.call(search_query="x", ignored="y" * (1 << 20)).results) == 10


def test_progress_is_told_to_a_caller_that_gave_a_token(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        server.answer(server.start_call(meta={"progressToken": "mark"}, search_query="x"))
        told = server.notifications("notifications/progress")
    assert [note["progressToken"] for note in told] == ["mark"] * len(told)
    amounts = [note["progress"] for note in told]
    assert len(amounts) >= 4
    assert amounts == sorted(set(amounts))


def test_eight_different_calls_at_once_are_all_answered(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        ids = [server.start_call(search_query=f"query number {number}") for number in range(8)]
        for number, request_id in enumerate(ids):
            assert server.answer(request_id).results[0]["title"].endswith(f"query number {number}")


def test_a_cancelled_call_gets_no_reply_and_the_server_goes_on(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "hang")
    with ServerProcess(env={**web.env(), **ONLY_DUCKDUCKGO}) as server:
        server.initialize()
        cancelled = server.start_call(search_query="a query that hangs")
        web.wait_for_request("html.duckduckgo.com")
        server.notify("notifications/cancelled", {"requestId": cancelled, "reason": "the user pressed escape"})
        web.set_engine("duckduckgo", "ok")
        assert len(server.call(search_query="another query").results) == 10
        web.release()
        assert server.request("ping")["result"] is not None
        server.close_stdin()
        server.wait()
        assert server.replies(cancelled) == []


# -- The process -------------------------------------------------------------------------------------------------------


def test_the_end_of_input_ends_an_idle_server(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        server.close_stdin()
        assert (server.wait(), server.stderr) == (0, "")


def test_calls_in_flight_are_answered_before_the_end_of_input_ends_the_server(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "hang")
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        request_id = server.start_call(search_query="x")
        web.wait_for_request("html.duckduckgo.com")
        server.close_stdin()
        web.release()
        assert len(server.answer(request_id).results) == 10
        assert server.wait() == 0


def test_a_whole_conversation_can_be_piped_in(web: SimulatedWeb) -> None:
    initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "1"}}
    call = {"name": TOOL_NAME, "arguments": {"search_query": "x"}}
    lines: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    done = run_program(env=web.env(), stdin=b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    assert len(ToolAnswer(replies[2]["result"]).results) == 10


def test_it_starts_in_an_empty_environment(web: SimulatedWeb, tmp_path: Path) -> None:
    with ServerProcess(env=web.env(), bare=True, cwd=tmp_path) as server:
        server.initialize()
        assert len(server.call(search_query="x").results) == 10
        server.close_stdin()
        assert server.wait() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", ["info", "debug"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_is_in_no_log(engine: str, level: str, web: SimulatedWeb) -> None:
    with ServerProcess(web.env(), ["--log-level", level, "--engines", engine]) as server:
        server.initialize()
        assert server.call(search_query="zebrafish").results
        server.close_stdin()
        server.wait()
    assert "zebrafish" not in server.stderr


# -- The command line --------------------------------------------------------------------------------------------------


def test_a_search_from_a_shell_prints_json_for_a_script(web: SimulatedWeb) -> None:
    done = run_program("search", "sort a list", "--json", env=web.env())
    assert done.returncode == 0
    results = json.loads(done.stdout)
    assert [result["url"] for result in results] == [hit.url for hit in HITS]


def test_a_search_from_a_shell_prints_text_for_a_person(web: SimulatedWeb) -> None:
    done = run_program("search", "sort", "a", "list", env=web.env())
    text = done.stdout.decode()
    assert done.returncode == 0
    for hit in HITS:
        assert hit.title in text
        assert hit.url in text
    assert CODE_SAMPLE.splitlines()[0] in text


def test_a_failed_search_from_a_shell_is_one_sentence_and_exit_1(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "dns")
    done = run_program("search", "x", env={**web.env(), **ONLY_DUCKDUCKGO})
    assert (done.returncode, done.stdout) == (1, b"")
    told = [line for line in done.stderr.decode().splitlines() if not line.startswith("Searching")]
    assert len(told) == 1
    assert "Search failed: " in told[0]
