"""Hostile results against the real process: what it asks for, what it answers, and that other results do not suffer.

Every attack is the first result of a search, two good pages are the next, and seven results follow that are not read.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from agent_web_search import EXTRACT_COUNT, MAX_RESULTS
from tests.simulated_engines import ENGINE_BY_HOST
from tests.simulated_pages import HIDDEN_TEXT, PRIVATE_URLS, SECRET, Hit, html_page, page, paragraphs
from tests.simulated_web import Authority, SimulatedWeb
from tests.stdio_client import BINARY_VARIABLE, ServerProcess, ToolAnswer

GOOD_URLS = ("https://docs.example.org/guide/sorting.html", "https://blog.example.com/posts/sorting")
SEARCHES_PER_SERVER = 25
SNIPPET = "What the engine says of the page."
SECRET_PAGE = html_page("Internal", f"<p>{SECRET}</p>" * 50)
PUBLIC = "93.184.216.200"
PUBLIC_SUFFIXES = (".example.com", ".example.net", ".example.org")


class Target:
    """A running server and the web that it looks at.

    The server is a fresh one after some searches: engines are asked at a pace, which tests need not wait for.
    """

    def __init__(self, web: SimulatedWeb, env: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        self.web = web
        self.secret_urls = set(PRIVATE_URLS)
        self._env = env
        self._arguments = arguments
        self._running = ExitStack()
        self._searches = 0

    def __enter__(self) -> "Target":
        self.server = self._running.enter_context(ServerProcess(self._env, self._arguments))
        self.server.initialize()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._running.__exit__(*exc_info)

    def hide(self, url: str) -> str:
        """Serve the secret under an address that must never be asked for."""
        self.web.add_page(url, SECRET_PAGE)
        self.secret_urls.add(url)
        return url

    def start(self, urls: Sequence[str], snippet: str = SNIPPET, title: str = "A result") -> int:
        """Start a search that finds these addresses first."""
        self._searches += 1
        if self._searches % SEARCHES_PER_SERVER == 0:
            self._running.close()
            self.__enter__()
        filler = [f"https://filler{number}.example.com/{self._searches}" for number in range(MAX_RESULTS - len(urls))]
        self.web.results([Hit(title, url, snippet) for url in [*urls, *filler]])
        request_id: int = self.server.start_call(search_query=f"search number {self._searches}")
        return request_id

    def search(self, *urls: str, snippet: str = SNIPPET, title: str = "A result") -> ToolAnswer:
        request_id = self.start(urls, snippet, title)
        answer = self.server.answer(request_id)
        assert not answer.is_error, answer.texts
        assert len(answer.results) == MAX_RESULTS
        assert [result["url"] for result in answer.results[: len(urls)]] == list(urls)
        self.check_secret(answer)
        return answer

    def attack(self, url: str) -> tuple[str, str]:
        """What became of the page (`extract` or a reason) and its summary, once the good pages were seen to be read."""
        answer = self.search(url, *GOOD_URLS)
        notes = answer.diagnostics["pages"]
        assert notes[1:] == ["extract", "extract"]
        assert all(result["summary"] != SNIPPET for result in answer.results[1:EXTRACT_COUNT])
        if notes[0] != "extract":
            assert answer.results[0]["summary"] == SNIPPET
        return notes[0], answer.results[0]["summary"]

    def check_secret(self, answer: ToolAnswer) -> None:
        """The secret is in no answer, and nobody asked for it."""
        assert SECRET not in json.dumps(answer.raw)
        assert {request.url for request in self.web.requests} & self.secret_urls == set()
        hosts = {tunnel.host for tunnel in self.web.tunnels} - set(ENGINE_BY_HOST)
        assert not [host for host in hosts if not host.endswith(PUBLIC_SUFFIXES)]


@pytest.fixture(scope="module")
def target(authority: Authority) -> Iterator[Target]:
    """A server that reaches its web through an HTTP proxy: the proxy would connect it to anything."""
    with SimulatedWeb(authority) as web, Target(web, web.env()) as target:
        yield target


@pytest.fixture(scope="module")
def direct_target(authority: Authority) -> Iterator[Target]:
    """A server that looks names up by itself and connects to whatever it finds."""
    if BINARY_VARIABLE in os.environ:
        pytest.skip("the sockets of a binary cannot be replaced")
    with SimulatedWeb(authority) as web:
        for host in DIRECT_ADDRESSES:
            web.add_page(
                f"https://{host}/", SECRET_PAGE if host.startswith("private") else html_page("Good", paragraphs(6))
            )
        web.add_page("https://rebind.example.net/", page(b"", None, status=302, headers=(("Location", "/secret"),)))
        web.add_page("https://rebind.example.net/secret", SECRET_PAGE)
        with Target(web, web.direct_env(DIRECT_ADDRESSES)) as target:
            target.secret_urls |= {f"https://{host}/" for host in DIRECT_ADDRESSES if host.startswith("private")}
            yield target


# -- Private addresses -------------------------------------------------------------------------------------------------

PRIVATE_ADDRESSES = {
    "loopback": "http://127.0.0.1/secret",
    "loopback-port": "http://127.0.0.1:8080/secret",
    "loopback-other": "http://127.8.9.10/secret",
    "localhost": "http://localhost/secret",
    "localhost-dot": "http://localhost./secret",
    "private-10": "http://10.0.0.7/secret",
    "private-172": "http://172.16.3.4/secret",
    "private-192": "http://192.168.1.1/secret",
    "carrier-grade-nat": "http://100.64.0.9/secret",
    "cloud-metadata": "http://169.254.169.254/latest/meta-data/",
    "unspecified": "http://0.0.0.0/secret",
    "ipv6-loopback": "http://[::1]/secret",
    "ipv6-unspecified": "http://[::]/secret",
    "ipv6-unique-local": "http://[fd00:ec2::254]/secret",
    "ipv6-link-local": "http://[fe80::1]/secret",
    "ipv6-mapped": "http://[::ffff:127.0.0.1]/secret",
    "ipv6-mapped-hex": "http://[::ffff:a00:7]/secret",
    "ipv6-compatible": "http://[::127.0.0.1]/secret",
    "ipv6-nat64": "http://[64:ff9b::a9fe:a9fe]/secret",
    "ipv6-nat64-local": "http://[64:ff9b:1::a00:7]/secret",
    "ipv6-6to4": "http://[2002:7f00:1::1]/secret",
    "ipv6-teredo": "http://[2001:0:808:808:0:0:80ff:fffe]/secret",
    "mdns-name": "http://printer.local/secret",
    "internal-name": "http://wiki.internal/secret",
    "metadata-name": "http://metadata.google.internal/secret",
    "home-name": "http://nas.home.arpa/secret",
    "single-label": "http://intranet/secret",
}
ODD_ADDRESSES = {
    "decimal": "http://2130706433/secret",
    "hexadecimal": "http://0x7f000001/secret",
    "hexadecimal-parts": "http://0x7f.0.0.1/secret",
    "octal": "http://0177.0.0.1/secret",
    "short": "http://127.1/secret",
    "fullwidth-digits": "http://１２７.0.0.1/secret",
    "user-name": "http://blog.example.com@127.0.0.1/secret",
    "password": "https://user:password@blog.example.com/secret",
}


@pytest.mark.parametrize("url", PRIVATE_ADDRESSES.values(), ids=PRIVATE_ADDRESSES)
def test_a_result_on_a_private_address_is_not_asked_for(target: Target, url: str) -> None:
    assert target.attack(target.hide(url))[0] == "private address"


@pytest.mark.parametrize("url", ODD_ADDRESSES.values(), ids=ODD_ADDRESSES)
def test_a_result_whose_address_is_oddly_written_is_not_asked_for(target: Target, url: str) -> None:
    assert target.attack(target.hide(url))[0] == "bad address"


@pytest.mark.parametrize("number", range(len(PRIVATE_URLS)), ids=PRIVATE_URLS)
def test_a_redirect_to_a_private_address_is_not_followed(target: Target, number: int) -> None:
    url = f"https://redirect.example.net/private/{number}"
    assert target.attack(url)[0] == "private address"
    assert len([request for request in target.web.requests if request.url == url]) == 1


REDIRECTS = {
    "mapped": ("http://[::ffff:127.0.0.1]/secret", "private address"),
    "nat64": ("http://[64:ff9b::7f00:1]/secret", "private address"),
    "without-scheme": ("//127.0.0.1/secret", "private address"),
    "decimal": ("http://2130706433/secret", "bad address"),
    "user-name": ("https://blog.example.com:x@127.0.0.1/secret", "bad address"),
    "file": ("file:///etc/passwd", "bad address"),
    "gopher": ("gopher://127.0.0.1:6379/_FLUSHALL", "bad address"),
    "split-header": ("http://blog.example.com/%0d%0aHost:%20127.0.0.1", "http 404"),
}


@pytest.mark.parametrize(("location", "note"), REDIRECTS.values(), ids=REDIRECTS)
def test_a_redirect_is_checked_like_a_result(target: Target, location: str, note: str) -> None:
    url = f"https://moved.example.net/{len(location)}"
    target.web.add_page(url, page(b"", None, status=302, headers=(("Location", location),)))
    if location.startswith("http://["):
        target.hide(location)
    assert target.attack(url)[0] == note


@pytest.mark.parametrize("path", ["loop", "loop/a", "chain/6"])
def test_redirects_without_end_are_given_up(target: Target, path: str) -> None:
    assert target.attack(f"https://redirect.example.net/{path}")[0] == "too many redirects"


def test_a_meta_refresh_to_a_private_address_is_not_followed(target: Target) -> None:
    note, summary = target.attack("https://redirect.example.net/meta-refresh")
    assert note != "extract" or "Moved" in summary


def test_a_cookie_is_not_taken_to_another_site_nor_to_the_next_search(target: Target) -> None:
    for _ in range(2):
        target.attack(f"https://cookies.example.com/start?{target._searches}")
    assert [request.cookies for request in target.web.requests_to("elsewhere.example.net")] == [{}, {}]
    starts = [r for r in target.web.requests_to("cookies.example.com") if r.path.startswith("/start")]
    checks = [r for r in target.web.requests_to("cookies.example.com") if r.path == "/check"]
    assert [r.cookies for r in starts] == [{}, {}]
    assert [r.cookies["session"] for r in checks] == ["one", "one"]


# -- Names that resolve to private addresses ---------------------------------------------------------------------------

DIRECT_ADDRESSES = {
    "private-loopback.example.net": [["127.0.0.1"]],
    "private-ten.example.net": [["10.0.0.7"]],
    "private-metadata.example.net": [["169.254.169.254"]],
    "private-zero.example.net": [["0.0.0.0"]],
    "private-ipv6-loopback.example.net": [["::1"]],
    "private-ipv6-mapped.example.net": [["::ffff:10.0.0.7"]],
    "private-ipv6-nat64.example.net": [["64:ff9b::a00:7"]],
    "private-ipv6-6to4.example.net": [["2002:a00:7::1"]],
    "private-ipv6-unique-local.example.net": [["fd12::7"]],
    "private-one-of-two.example.net": [[PUBLIC, "10.0.0.7"]],
    "fake-ip.example.net": [["198.18.0.9"]],
    "public.example.net": [[PUBLIC]],
    "public-ipv6.example.net": [["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]],
    "rebind.example.net": [[PUBLIC], ["127.0.0.1"]],
}


@pytest.mark.parametrize("host", [host for host in DIRECT_ADDRESSES if host.startswith("private")])
def test_a_name_with_a_private_address_is_not_asked_for(direct_target: Target, host: str) -> None:
    assert direct_target.attack(f"https://{host}/")[0] == "private address"
    assert direct_target.web.requests_to(host) == []


@pytest.mark.parametrize("host", ["fake-ip.example.net", "public.example.net", "public-ipv6.example.net"])
def test_a_name_with_a_public_or_a_fake_ip_address_is_read(direct_target: Target, host: str) -> None:
    assert direct_target.attack(f"https://{host}/")[0] == "extract"


def test_a_name_that_turns_private_after_the_first_look_up_gets_no_second_request(direct_target: Target) -> None:
    assert direct_target.attack("https://rebind.example.net/")[0] == "private address"
    assert [request.path for request in direct_target.web.requests_to("rebind.example.net")] == ["/"]


def test_a_name_that_does_not_exist_keeps_its_snippet(direct_target: Target) -> None:
    assert direct_target.attack("https://nowhere.example.net/")[0] == "name not found"


# -- Hostile bodies ----------------------------------------------------------------------------------------------------

BAD_BODIES = {
    "reset": "unreachable",
    "truncated": "bad response",
    "bomb/br": "bad response",
    "bomb/nested": "bad response",
    "not-gzip": "bad response",
    "huge-headers": "bad response",
    "endless-header": "bad response",
    "no-http": "bad response",
    "wrong-type": "media type",
    "binary-as-html": "media type",
}


@pytest.mark.parametrize(("path", "note"), BAD_BODIES.items(), ids=BAD_BODIES)
def test_a_body_that_cannot_be_read_costs_its_own_extract_only(target: Target, path: str, note: str) -> None:
    assert target.attack(f"https://hostile.example.net/{path}")[0] == note


def test_pages_that_never_end_cost_their_own_extracts_only(target: Target) -> None:
    answer = target.search(*(f"https://hostile.example.net/{path}" for path in ("drip", "stall", "silence")))
    assert answer.diagnostics["pages"] == ["timed out"] * 3
    assert {result["summary"] for result in answer.results} == {SNIPPET}


LARGE_BODIES = [
    "large",
    "one-line",
    "bomb/gzip",
    "bomb/deflate",
    "deep",
    "attributes",
    "cells",
    "entities",
    "nul-bytes",
]


@pytest.mark.parametrize("path", LARGE_BODIES)
def test_a_body_that_is_large_or_malformed_leaves_ten_results(target: Target, path: str) -> None:
    answer = target.search(f"https://hostile.example.net/{path}", *GOOD_URLS)
    assert all(result["summary"] for result in answer.results)
    assert "root:" not in json.dumps(answer.raw)


def test_three_large_bodies_at_once_leave_ten_results_and_do_not_keep_others_waiting(target: Target) -> None:
    urls = [f"https://hostile.example.net/{path}?again" for path in ("deep", "attributes", "bomb/gzip")]
    search = target.start(urls)
    target.web.wait_for_request("hostile.example.net")
    target.server.request("ping")
    assert target.server.replies(search) == []
    assert len(target.server.answer(search).results) == MAX_RESULTS


@pytest.mark.parametrize(
    "path", ["challenge", "challenge-403", "mitigated", "captcha", "consent", "login"]
)  # fmt: skip
def test_a_bot_wall_keeps_the_snippet(target: Target, path: str) -> None:
    assert target.attack(f"https://walls.example.com/{path}")[0] == "bot challenge"


@pytest.mark.parametrize("status", [204, 206, 304, 401, 403, 404, 410, 429, 500, 503])
def test_a_status_other_than_success_keeps_the_snippet(target: Target, status: int) -> None:
    assert target.attack(f"https://status.example.org/{status}")[0] == f"http {status}"


def test_a_wall_of_cookies_is_read_past(target: Target) -> None:
    assert target.attack("https://hostile.example.net/cookie-wall")[0] == "extract"


def test_an_empty_body_keeps_the_snippet(target: Target) -> None:
    assert target.attack("https://status.example.org/empty")[0] == "empty"


@pytest.mark.parametrize("path", ["paper.pdf", "photo.png"])
def test_a_file_keeps_the_snippet(target: Target, path: str) -> None:
    assert target.attack(f"https://files.example.org/{path}")[0] == "media type"


# -- Hidden text -------------------------------------------------------------------------------------------------------


def test_text_that_a_page_hides_from_its_reader_is_hidden_from_the_model(target: Target) -> None:
    note, summary = target.attack("https://hostile.example.net/injection")
    assert note == "extract"
    assert "innocence" in summary
    assert HIDDEN_TEXT not in summary
    assert not [letter for letter in summary if ord(letter) >= 0xE0000 or letter in "\u200b\u202e\u202c\x1b"]


def test_text_hidden_in_a_title_or_a_snippet_is_hidden_from_the_model(target: Target) -> None:
    tags = "".join(chr(0xE0000 + ord(letter)) for letter in HIDDEN_TEXT)
    hidden = f"{tags}\u200b\u202e\u2066\u00ad\ufeff\ue000\x07\x1b[31m"
    answer = target.search(
        "https://status.example.org/500", title=f"A{hidden} title", snippet=f"A{hidden} snippet of the engine"
    )
    assert answer.results[0]["title"] == "A title"
    assert answer.results[0]["summary"] == "A snippet of the engine"


# -- What must still work ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
def test_pages_are_read_through_a_proxy_with_a_name_and_a_password(authority: Authority, scheme: str) -> None:
    """The web's certificates are a private authority's, so each of these is a TLS-inspecting proxy too."""
    with (
        SimulatedWeb(authority, credentials=("name", "pass-word")) as web,
        Target(web, web.env(scheme)) as target,
    ):
        answer = target.search(*GOOD_URLS)
        assert answer.diagnostics["pages"][:2] == ["extract", "extract"]
        assert "pass-word" not in json.dumps(answer.raw)
        assert {tunnel.via for tunnel in web.tunnels} == {"connect" if scheme == "http" else "socks5"}


def test_proxy_and_certificates_can_be_given_as_settings_alone(web: SimulatedWeb) -> None:
    arguments = ["--proxy", web.proxy_url(), "--ca-file", str(web.ca_file)]
    with Target(web, {}, arguments) as target:
        answer = target.search(*GOOD_URLS)
        assert answer.diagnostics["pages"][:2] == ["extract", "extract"]


def test_a_page_with_a_certificate_that_cannot_be_verified_is_not_read(target: Target) -> None:
    for fault in ("certificate", "misnamed"):
        host = f"{fault}.example.com"
        target.web.add_page(f"https://{host}/", html_page("Good", paragraphs(6)))
        target.web.set_host(host, fault)
        assert target.attack(f"https://{host}/")[0] == "certificate refused"
        assert target.web.requests_to(host) == []


def test_the_setting_opens_an_intranet_but_no_metadata_service(web: SimulatedWeb) -> None:
    web.add_page("http://wiki.internal/", html_page("Good", paragraphs(6)))
    web.add_page("http://10.1.2.3/", html_page("Good", paragraphs(6)))
    metadata = "http://169.254.169.254/latest/meta-data/"
    with ServerProcess(env=web.env(), arguments=["--allow-private", "yes"]) as server:
        server.initialize()
        web.results([Hit("A result", url, SNIPPET) for url in ("http://wiki.internal/", "http://10.1.2.3/", metadata)])
        answer = server.call(search_query="anything")
        assert answer.diagnostics["pages"] == ["extract", "extract", "private address"]
        assert web.requests_to("169.254.169.254") == []


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_address_of_a_page_is_logged_only_on_demand(web: SimulatedWeb, level: str) -> None:
    with Target(web, web.env(), ["--log-level", level]) as target:
        target.search(*GOOD_URLS)
        assert "docs.example.org" not in target.server.stderr
    with Target(web, web.env(), ["--log-level", level, "--log-queries", "yes"]) as target:
        target.search(*GOOD_URLS)
        target.server.close_stdin()
        target.server.wait()
        assert "https://docs.example.org/guide/sorting.html" in target.server.stderr
