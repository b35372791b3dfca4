"""The simulated web, seen by the real ddgs, primp and httpx: shapes, faults and pages are what the other tests take for
granted."""

import ipaddress
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import lxml.html
import pytest
from ddgs import DDGS
from ddgs.engines import ENGINES
from ddgs.exceptions import DDGSException, TimeoutException

from tests.direct_sockets import DirectSockets
from tests.simulated_engines import ENGINES as SIMULATED_ENGINES
from tests.simulated_engines import Search
from tests.simulated_pages import (
    BOMB_BYTES,
    CHARSET_CASES,
    CHARSET_SAMPLES,
    PRIVATE_URLS,
    SECRET,
    Hit,
    charset_url,
    default_pages,
)
from tests.simulated_web import Authority, SimulatedWeb, Tunnel

ARTICLE = "https://blog.example.com/posts/sorting"
FIRST_THREE = [ARTICLE, "https://docs.example.org/guide/sorting.html", "https://zh.example.cn/wiki/paixu"]
SHORT_SECONDS = 0.3  # for answers that must never come
TEST_FILE_DIRECTORY = Path(__file__).parent

each_engine = pytest.mark.parametrize("engine", SIMULATED_ENGINES)


def ask(engine: str, query: str = "sort a list", timeout: float = 10.0, timelimit: str | None = None) -> Any:
    """The engine's HTTP response to ddgs's own request."""
    asked = ENGINES["text"][engine](timeout=timeout)  # type: ignore[arg-type]
    payload = asked.build_payload(query, "us-en", "moderate", timelimit, 1)
    field = "data" if asked.search_method == "POST" else "params"
    return asked.http_client.request(asked.search_method, asked.search_url, **{field: payload})


def rows(engine: str, response: Any) -> list[Any]:
    return ENGINES["text"][engine]().extract_results(response.text)


# -- Engines -----------------------------------------------------------------------------------------------------------


@each_engine
def test_ddgs_reads_ten_results_of_every_engine(through_web: SimulatedWeb, engine: str) -> None:
    found = DDGS().text("sort a list", backend=engine, region="us-en", max_results=10)
    assert [row["href"] for row in found][:3] == FIRST_THREE
    assert len(found) == 10
    assert found[0]["title"] == "How sorting works - sort a list"
    assert found[0]["body"] == "From the smallest case to the second pass. (sort a list)"


@pytest.mark.parametrize(
    "expected",
    [
        Search("duckduckgo", "sort a list", "us-en", "w", "ok"),
        Search("brave", "sort a list", "us", "pw", "ok"),
        Search("mojeek", "sort a list", "us-en", "", "ok"),
        Search("startpage", "sort a list", "en_US", "w", "ok"),
        Search("yahoo", "sort a list", "", "w", "ok"),
    ],
    ids=lambda search: search.engine,
)
def test_what_an_engine_was_asked_is_noted_in_its_own_spelling(through_web: SimulatedWeb, expected: Search) -> None:
    DDGS().text("sort a list", backend=expected.engine, region="us-en", timelimit="w")
    assert through_web.searches == [expected]


def test_advertisements_are_on_the_page_and_ddgs_drops_them(through_web: SimulatedWeb) -> None:
    assert "duckduckgo.com/y.js?" in ask("duckduckgo").text
    assert not [row for row in DDGS().text("x", backend="duckduckgo") if "ads.example.com" in row["href"]]


def test_duckduckgo_links_keep_their_percent_signs_on_the_page(through_web: SimulatedWeb) -> None:
    links: Any = lxml.html.fromstring(ask("duckduckgo").text).xpath("//a[@class='result__snippet']/@href")
    assert "https://docs.example.org/c%2B%2B/sort" in links
    assert "https://docs.example.org/faq%23sorting" in links
    assert "//duckduckgo.com/l/?uddg=https%3A%2F%2Fwww.example.com%2F&rut=0123456789abcdef" in links


def test_the_redirector_of_duckduckgo_leads_to_the_page(through_web: SimulatedWeb) -> None:
    response = httpx.get(
        "https://duckduckgo.com/l/?uddg=https%3A%2F%2Fwww.example.com%2F&rut=0123456789abcdef", follow_redirects=True
    )
    assert (str(response.url), response.status_code) == ("https://www.example.com/", 200)


def test_the_default_hits_honour_a_site_filter(through_web: SimulatedWeb) -> None:
    found = DDGS().text("sort site:docs.example.org", backend="duckduckgo")
    assert len(found) == 4
    assert all(row["href"].startswith("https://docs.example.org/") for row in found)


def test_hits_of_a_test_are_served_exactly(through_web: SimulatedWeb) -> None:
    through_web.results([Hit("This & that", "https://one.example.org/?a=1&b=2", "A snippet")], "duckduckgo")
    assert DDGS().text("x", backend="duckduckgo") == [
        {"title": "This & that", "href": "https://one.example.org/?a=1&b=2", "body": "A snippet"}
    ]
    assert len(DDGS().text("x", backend="brave")) == 10


# -- Engine faults -----------------------------------------------------------------------------------------------------


@each_engine
@pytest.mark.parametrize(
    ("fault", "status", "row_count"),
    [
        ("no-hits", 200, 0),
        ("no-hits-202", 202, 0),
        ("202", 202, 0),
        ("200-challenge", 200, 0),
        ("403", 403, 0),
        ("429", 429, 0),
        ("500", 500, 0),
        ("503", 503, 0),
        ("garbage", 200, 0),
        ("slow:0.01", 200, 10),
    ],
)
def test_an_engine_answers_as_its_fault_says(
    through_web: SimulatedWeb, engine: str, fault: str, status: int, row_count: int
) -> None:
    through_web.set_engine(engine, fault)
    response = ask(engine)
    assert response.status_code == status
    found = [row for row in rows(engine, response) if row.href]
    assert len(found) >= row_count if row_count else found == []


@each_engine
def test_ddgs_itself_calls_every_refusal_no_results(through_web: SimulatedWeb, engine: str) -> None:
    for fault in ("202", "403", "429", "500"):
        through_web.set_engine(engine, fault)
        with pytest.raises(DDGSException, match=r"No results found\."):
            DDGS().text("x", backend=engine)


def test_duckduckgo_without_hits_is_read_as_one_result_of_empty_fields(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "no-hits")
    assert DDGS().text("x", backend="duckduckgo") == [{"title": "", "href": "", "body": ""}]


def test_the_challenge_is_a_page_of_about_14_kilobytes(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "202")
    response = ask("duckduckgo")
    assert 13_000 < len(response.content) < 16_000
    assert "anomaly-modal" in response.text


def test_retry_after_is_sent_when_the_fault_names_it(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "429:30")
    assert ask("duckduckgo")._resp.headers["retry-after"] == "30"


def test_an_empty_answer_has_no_body(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "empty")
    assert (ask("duckduckgo").status_code, ask("duckduckgo").content) == (200, b"")


@pytest.mark.parametrize("fault", ["hang", "drip", "connect-hang"])
def test_an_engine_that_never_ends_its_answer_times_out(through_web: SimulatedWeb, fault: str) -> None:
    through_web.set_engine("duckduckgo", fault)
    with pytest.raises(TimeoutException):
        ask("duckduckgo", timeout=SHORT_SECONDS)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("dns", "502 Bad Gateway"),
        ("refused", "503 Service Unavailable"),
        ("reset", "Connection reset"),
        ("certificate", "UnknownIssuer"),
        ("misnamed", "certificate not valid for name"),
    ],
)
def test_a_connection_fault_reaches_ddgs_with_its_cause(through_web: SimulatedWeb, fault: str, cause: str) -> None:
    through_web.set_engine("duckduckgo", fault)
    with pytest.raises(DDGSException, match=cause):
        ask("duckduckgo")


def test_waiting_for_a_request_that_does_not_come_is_an_error(web: SimulatedWeb) -> None:
    with pytest.raises(TimeoutError, match=r"www\.example\.com had 0 requests, not 1"):
        web.wait_for_request("www.example.com", timeout_seconds=0.01)


def test_a_hanging_engine_answers_after_all_when_it_is_released(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "hang")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(DDGS(timeout=30).text("x", backend="duckduckgo")))
    thread.start()
    through_web.wait_for_request("html.duckduckgo.com")
    assert found == []
    through_web.release()
    thread.join(30)
    assert len(found) == 10


def test_faults_follow_one_another_and_the_last_one_stays(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "202", "500", "ok")
    assert [ask("duckduckgo").status_code for _ in range(4)] == [202, 500, 200, 200]


def test_a_host_fault_ends_with_the_next_setting(through_web: SimulatedWeb) -> None:
    through_web.set_engine("duckduckgo", "dns")
    through_web.set_engine("duckduckgo", "ok")
    assert ask("duckduckgo").status_code == 200


def test_the_limiter_blocks_after_a_burst_and_forgives_by_the_clock(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    with SimulatedWeb(authority, clock=lambda: now[0]) as web:
        for name, value in web.env().items():
            monkeypatch.setenv(name, value)
        web.set_engine("duckduckgo", "limit:3/10/60")
        assert [ask("duckduckgo").status_code for _ in range(5)] == [200, 200, 200, 202, 202]
        now[0] += 59.0
        assert ask("duckduckgo").status_code == 202
        now[0] += 2.0
        assert ask("duckduckgo").status_code == 200


def test_startpage_asks_for_a_token_before_it_answers(through_web: SimulatedWeb) -> None:
    DDGS().text("x", backend="startpage")
    assert [(request.method, request.path) for request in through_web.requests_to("www.startpage.com")] == [
        ("GET", "/"),
        ("POST", "/sp/search"),
    ]
    wrong = httpx.post("https://www.startpage.com/sp/search", data={"query": "x", "sc": "wrong"})
    assert "challenge" in wrong.text


@pytest.mark.parametrize(
    "setting", [("altavista", "ok"), ("brave", "418"), ("brave", "slow:long"), ("brave", "limit:1")]
)
def test_a_setting_that_makes_no_sense_is_refused(web: SimulatedWeb, setting: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        web.set_engine(*setting)


# -- Proxies and certificates ------------------------------------------------------------------------------------------


def test_plain_http_goes_through_the_proxy_in_absolute_form(through_web: SimulatedWeb) -> None:
    assert "How sorting works" in httpx.get("http://plain.example.org/").text
    (request,) = through_web.requests
    assert (request.url, request.tunnel) == ("http://plain.example.org/", Tunnel("http", "plain.example.org", 80))


def test_https_goes_through_connect(through_web: SimulatedWeb) -> None:
    assert httpx.get(ARTICLE, headers={"X-Mark": "1"}).status_code == 200
    (request,) = through_web.requests
    assert (request.host, request.path, request.headers["x-mark"]) == ("blog.example.com", "/posts/sorting", "1")
    assert through_web.tunnels == [Tunnel("connect", "blog.example.com", 443)]


@pytest.mark.parametrize("url", [ARTICLE, "http://plain.example.org/"])
def test_socks5_leads_to_the_same_web_by_name(web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in web.env("socks5").items():
        monkeypatch.setenv(name, value)
    assert "How sorting works" in httpx.get(url).text
    assert [tunnel.via for tunnel in web.tunnels] == ["socks5"]


def test_socks5_carries_ddgs(web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in web.env("socks5h").items():
        monkeypatch.setenv(name, value)
    assert len(DDGS().text("x", backend="duckduckgo")) == 10
    assert web.tunnels == [Tunnel("socks5", "html.duckduckgo.com", 443)]


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_an_address_leads_to_the_host_that_the_client_names(web: SimulatedWeb, scheme: str) -> None:
    web.add_page("https://192.0.2.10/", "an address")
    context = ssl.create_default_context(cafile=web.ca_file)
    with httpx.Client(proxy=web.proxy_url(scheme), verify=context) as client:
        response = client.get(
            "https://192.0.2.10/posts/sorting",
            headers={"Host": "blog.example.com"},
            extensions={"sni_hostname": "blog.example.com"},
        )
        assert "How sorting works" in response.text
        assert client.get("https://192.0.2.10/").text == "an address"
    assert {(tunnel.host, tunnel.port) for tunnel in web.tunnels} == {("192.0.2.10", 443)}


def socks_replies(web: SimulatedWeb, host: bytes) -> tuple[bytes, bytes]:
    """What the SOCKS front says to a client without credentials, and to its wish for a host. (httpcore would do, but
    leaves its socket open when it is refused.)"""
    with socket.create_connection(("127.0.0.1", web.socks_port)) as connection:
        connection.sendall(b"\x05\x01\x00")
        method = connection.recv(2)
        if method == b"\x05\xff":
            return method, connection.recv(1)
        connection.sendall(b"\x05\x01\x00\x03" + bytes([len(host)]) + host + b"\x01\xbb")
        return method, connection.recv(10)[:2]


@pytest.mark.parametrize(("fault", "code"), [("dns", 4), ("refused", 5), ("ok", 0)])
def test_socks5_names_why_it_cannot_connect(web: SimulatedWeb, fault: str, code: int) -> None:
    web.set_host("blog.example.com", fault)
    assert socks_replies(web, b"blog.example.com") == (b"\x05\x00", bytes([5, code]))


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_with_credentials_lets_in_who_has_them(authority: Authority, scheme: str) -> None:
    with SimulatedWeb(authority, credentials=("ada", "secret")) as web:
        context = ssl.create_default_context(cafile=web.ca_file)
        with httpx.Client(proxy=web.proxy_url(scheme), verify=context) as client:
            assert client.get(ARTICLE).status_code == 200
            assert client.get("http://plain.example.org/").status_code == 200
        assert len(web.requests) == 2


def test_a_proxy_with_credentials_keeps_out_who_has_none(authority: Authority) -> None:
    with SimulatedWeb(authority, credentials=("ada", "secret")) as web:
        with (
            httpx.Client(proxy=web.proxy_url(credentials=False)) as client,
            pytest.raises(httpx.ProxyError, match="407"),
        ):
            client.get(ARTICLE)
        assert socks_replies(web, b"blog.example.com") == (b"\x05\xff", b"")
        assert web.tunnels == []


def test_plain_http_without_the_proxy_credentials_is_a_407(authority: Authority) -> None:
    with (
        SimulatedWeb(authority, credentials=("ada", "secret")) as web,
        httpx.Client(proxy=web.proxy_url(credentials=False)) as client,
    ):
        assert client.get("http://plain.example.org/").status_code == 407
        assert web.tunnels == []


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("certificate", "unable to get local issuer certificate|self.signed"), ("misnamed", "Hostname mismatch")],
)
def test_a_certificate_fault_is_one_for_httpx_too(through_web: SimulatedWeb, fault: str, cause: str) -> None:
    through_web.set_host("blog.example.com", fault)
    with pytest.raises(httpx.ConnectError, match=cause):
        httpx.get(ARTICLE)
    assert through_web.requests == []


def test_without_the_authority_no_certificate_is_trusted(web: SimulatedWeb) -> None:
    with httpx.Client(proxy=web.proxy_url()) as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY"):
        client.get(ARTICLE)


def test_a_host_without_pages_does_not_resolve(through_web: SimulatedWeb) -> None:
    with pytest.raises(httpx.ProxyError, match="502"):
        httpx.get("https://nowhere.example.net/")


# -- Without a proxy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [ARTICLE, "http://plain.example.org/"])
def test_without_a_proxy_the_same_web_is_reached_at_public_addresses(
    web: SimulatedWeb, direct_sockets: DirectSockets, url: str
) -> None:
    host = httpx.URL(url).host
    assert "How sorting works" in httpx.get(url).text
    assert direct_sockets.looked_up == [host]
    ((address, _),) = direct_sockets.connected
    assert [[address]] == direct_sockets.addresses[host]
    assert ipaddress.ip_address(address).is_global
    assert [request.url for request in web.requests] == [url]


@pytest.mark.anyio
async def test_without_a_proxy_an_asynchronous_client_gets_there_too(
    web: SimulatedWeb, direct_sockets: DirectSockets
) -> None:
    direct_sockets.addresses["blog.example.com"] = [["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]]
    async with httpx.AsyncClient() as client:
        assert "How sorting works" in (await client.get(ARTICLE)).text
    assert direct_sockets.connected == [("2606:2800:21f:cb07:6820:80da:af6b:8b2c", 443)]


def test_a_name_can_resolve_to_another_address_each_time(direct_sockets: DirectSockets) -> None:
    direct_sockets.addresses["rebind.example.net"] = [["93.184.216.200"], ["127.0.0.1", "::1"]]
    found = [{row[4][0] for row in socket.getaddrinfo("rebind.example.net", 443)} for _ in range(3)]
    assert found == [{"93.184.216.200"}, {"127.0.0.1", "::1"}, {"127.0.0.1", "::1"}]
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("nowhere.example.net", 443)


def test_a_secret_on_loopback_would_be_reached_without_a_proxy(direct_sockets: DirectSockets) -> None:
    assert SECRET in httpx.get("http://127.0.0.1/secret").text
    assert direct_sockets.connected == [("127.0.0.1", 80)]


FETCH_AND_SEARCH = """
import ddgs, httpx
print(httpx.get("https://blog.example.com/posts/sorting").status_code, len(ddgs.DDGS().text("x", backend="duckduckgo")))
"""


def test_a_child_process_reaches_the_web_without_a_proxy(web: SimulatedWeb) -> None:
    environment = {**os.environ, **web.direct_env()}
    command = [sys.executable, "-c", FETCH_AND_SEARCH]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("200 10\n", "")
    assert [tunnel.via for tunnel in web.tunnels] == ["connect"]


# -- Pages -------------------------------------------------------------------------------------------------------------


def test_a_page_of_a_test_is_served_as_it_was_given(through_web: SimulatedWeb) -> None:
    through_web.add_page(
        "https://new.example.org/a?b=1", "Grüße", "text/plain", charset="latin-1", headers=[("X-A", "b")]
    )
    response = httpx.get("https://new.example.org/a?b=1")
    assert response.content == "Grüße".encode("latin-1")
    assert (response.headers["content-type"], response.headers["x-a"]) == ("text/plain; charset=latin-1", "b")
    assert httpx.get("https://new.example.org/other").status_code == 404


@pytest.mark.parametrize("status", [204, 206, 304, 403, 404, 500])
def test_a_status_page_has_its_status(through_web: SimulatedWeb, status: int) -> None:
    assert httpx.get(f"https://status.example.org/{status}").status_code == status


def test_every_page_that_ends_can_be_fetched(through_web: SimulatedWeb) -> None:
    odd = ("hostile.example.net", "127.0.0.1", "localhost", "[::1]", ".local", ".internal", "intranet")
    urls = [url for url in default_pages() if not any(name in url for name in odd)]
    with httpx.Client() as client:
        answered = {url: client.get(url).status_code for url in urls}
    assert len(answered) > 100
    assert not [url for url, status in answered.items() if status == 404 and "/404" not in url]


@pytest.mark.parametrize(("steps", "followed"), [(1, 1), (5, 5), (6, 6)])
def test_a_chain_of_redirects_has_its_length(through_web: SimulatedWeb, steps: int, followed: int) -> None:
    response = httpx.get(f"https://redirect.example.net/chain/{steps}", follow_redirects=True)
    assert (len(response.history), response.status_code) == (followed, 200)


def test_a_redirect_loop_never_ends(through_web: SimulatedWeb) -> None:
    with pytest.raises(httpx.TooManyRedirects):
        httpx.get("https://redirect.example.net/loop/a", follow_redirects=True)


@pytest.mark.parametrize("number", [0, 4, 7, 8])
def test_a_private_address_would_give_its_secret_away(through_web: SimulatedWeb, number: int) -> None:
    response = httpx.get(f"https://redirect.example.net/private/{number}", follow_redirects=True)
    assert SECRET in response.text
    assert PRIVATE_URLS[number] in [request.url for request in through_web.requests]


def test_cookies_are_set_on_the_way_to_another_host(through_web: SimulatedWeb) -> None:
    with httpx.Client(follow_redirects=True) as client:
        client.get("https://cookies.example.com/start")
    assert [(request.host, request.cookies) for request in through_web.requests] == [
        ("cookies.example.com", {}),
        ("cookies.example.com", {"session": "one", "wide": "two"}),
        ("elsewhere.example.net", {}),
    ]


@pytest.mark.parametrize("path", ["drip", "stall", "silence"])
def test_a_page_that_never_ends_times_out(through_web: SimulatedWeb, path: str) -> None:
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.stream("GET", f"https://hostile.example.net/{path}", timeout=httpx.Timeout(10, read=0.02)) as response,
    ):
        response.read()


@pytest.mark.parametrize("path", ["reset", "truncated", "no-http"])
def test_a_page_that_breaks_off_is_an_error(through_web: SimulatedWeb, path: str) -> None:
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        httpx.get(f"https://hostile.example.net/{path}")


def test_a_not_compressed_page_with_a_compressed_label_cannot_be_decoded(through_web: SimulatedWeb) -> None:
    with pytest.raises(httpx.DecodingError):
        httpx.get("https://hostile.example.net/not-gzip")


@pytest.mark.parametrize("kind", ["gzip", "deflate", "nested"])
def test_a_bomb_is_small_on_the_wire_and_huge_when_unpacked(through_web: SimulatedWeb, kind: str) -> None:
    with httpx.stream("GET", f"https://hostile.example.net/bomb/{kind}") as response:
        sent = int(response.headers["content-length"])
        unpacked = 0
        for chunk in response.iter_bytes():
            unpacked += len(chunk)
            if unpacked > BOMB_BYTES // 8:
                break
    assert sent < 600_000
    assert unpacked > BOMB_BYTES // 8


def test_the_large_page_has_100_megabytes(through_web: SimulatedWeb) -> None:
    with httpx.stream("GET", "https://hostile.example.net/large") as response:
        assert sum(len(chunk) for chunk in response.iter_bytes()) > 99_000_000


@pytest.mark.parametrize(("encoding", "way"), CHARSET_CASES, ids="-".join)
def test_a_charset_page_is_in_its_charset(through_web: SimulatedWeb, encoding: str, way: str) -> None:
    response = httpx.get(charset_url(encoding, way))
    assert CHARSET_SAMPLES[encoding] in response.content.decode(encoding)
    assert (encoding in response.headers["content-type"]) == (way == "header")


# -- Around it ---------------------------------------------------------------------------------------------------------


def test_closing_ends_a_connection_that_hangs(authority: Authority) -> None:
    failures: list[BaseException] = []

    def fetch(client: httpx.Client) -> None:
        try:
            client.get("https://hostile.example.net/silence")
        except httpx.HTTPError as error:
            failures.append(error)

    with SimulatedWeb(authority) as web:
        context = ssl.create_default_context(cafile=web.ca_file)
        client = httpx.Client(proxy=web.proxy_url(), verify=context, timeout=30)
        thread = threading.Thread(target=fetch, args=(client,))
        thread.start()
        web.wait_for_request("hostile.example.net")
    thread.join(10)
    client.close()
    assert [type(error) for error in failures] == [httpx.RemoteProtocolError]


def test_a_connection_to_the_real_network_fails_the_test() -> None:
    with socket.socket() as connection, pytest.raises(pytest.fail.Exception, match="use the simulated web"):
        connection.connect(("192.0.2.1", 80))
    with pytest.raises(pytest.fail.Exception, match="use the simulated web"):
        socket.getaddrinfo("example.com", 443)


def test_the_environment_of_a_test_names_no_proxy() -> None:
    assert not [name for name in os.environ if name.upper().endswith("_PROXY") or name.startswith("SSL_CERT_")]


def run_module(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulated_web", *arguments],
        cwd=TEST_FILE_DIRECTORY.parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


PRINT_SEARCH = """
import json, os, ddgs
try:
    print(json.dumps([row["href"] for row in ddgs.DDGS().text("x", backend="duckduckgo")]))
except ddgs.exceptions.DDGSException as error:
    raise SystemExit(f"{error}")
"""


def test_the_command_runs_a_program_against_the_web(web: SimulatedWeb) -> None:
    done = run_module("--", sys.executable, "-c", PRINT_SEARCH, https_proxy="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[:3] == FIRST_THREE


def test_the_command_passes_faults_and_the_exit_status_on() -> None:
    done = run_module("--engine", "duckduckgo=202", "--", sys.executable, "-c", PRINT_SEARCH)
    assert (done.returncode, done.stderr) == (1, "No results found.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give a command after --"),
        (("--engine", "duckduckgo=418", "--", "true"), "unknown fault '418'"),
        (("--", "no-such-command-here"), "no such command: no-such-command-here"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_arguments(arguments: tuple[str, ...], sentence: str) -> None:
    done = run_module(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


@pytest.fixture
def serving() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.simulated_web", "--serve"]
    with subprocess.Popen(command, cwd=TEST_FILE_DIRECTORY.parent, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_serve_prints_lines_for_a_shell(serving: "subprocess.Popen[str]") -> None:
    assert serving.stdout is not None
    lines = [serving.stdout.readline() for _ in range(4)]
    variables = dict(line.removeprefix("export ").rstrip("\n").split("=", 1) for line in lines)
    assert set(variables) == {"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "SSL_CERT_FILE"}
    context = ssl.create_default_context(cafile=variables["SSL_CERT_FILE"])
    with httpx.Client(proxy=variables["HTTPS_PROXY"], verify=context) as client:
        assert client.get(ARTICLE).status_code == 200
