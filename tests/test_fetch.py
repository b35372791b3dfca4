"""Fetching one page: which addresses, which connections, how much of a body, in which charset."""

import asyncio
import ctypes
import gzip
import ipaddress
import re
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chardet
import httpx
import pytest
import trustme
from hypothesis import example, given, settings
from hypothesis import strategies as st

import agent_web_search
from agent_web_search import (
    MAX_PAGE_BYTES,
    HttpPageFetcher,
    Page,
    PageError,
    Settings,
    ca_pem,
    decode_body,
    is_wall,
    refuse_address,
    ssl_context,
)
from tests.simulated_pages import BYTE_ORDER_MARKS, CHARSET_CASES, CHARSET_SAMPLES, MEBIBYTE, charset_page
from tests.simulated_web import Authority, SimulatedWeb

PUBLIC = "93.184.215.14"
PUBLIC_IPV6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"

# -- The address policy ------------------------------------------------------------------------------------------------

PRIVATE_HOSTS = {
    "loopback": "127.0.0.1",
    "loopback-last": "127.255.255.254",
    "this-network": "0.0.0.0",
    "private-10": "10.0.0.1",
    "private-172-first": "172.16.0.1",
    "private-172-last": "172.31.255.254",
    "private-192": "192.168.1.1",
    "carrier-grade-nat": "100.64.0.1",
    "link-local": "169.254.1.1",
    "cloud-metadata": "169.254.169.254",
    "container-metadata": "169.254.170.2",
    "alibaba-metadata": "100.100.100.200",
    "azure-wire-server": "168.63.129.16",
    "oracle-metadata": "192.0.0.192",
    "protocol-assignments": "192.0.0.8",
    "documentation-1": "192.0.2.1",
    "documentation-2": "198.51.100.1",
    "documentation-3": "203.0.113.1",
    "6to4-relay": "192.88.99.1",
    "multicast": "224.0.0.251",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "ipv6-loopback": "::1",
    "ipv6-loopback-bracketed": "[::1]",
    "ipv6-loopback-long": "0000:0000:0000:0000:0000:0000:0000:0001",
    "ipv6-unspecified": "::",
    "ipv6-link-local": "fe80::1",
    "ipv6-link-local-zone": "fe80::1%eth0",
    "ipv6-unique-local": "fd12:3456:789a::1",
    "ipv6-site-local": "fec0::1",
    "ipv6-multicast": "ff02::fb",
    "ipv6-documentation": "2001:db8::1",
    "ipv6-documentation-new": "3fff::1",
    "ipv6-discard": "100::1",
    "ipv6-segment-routing": "5f00::1",
    "ipv6-benchmarking": "2001:2::1",
    "ipv6-orchid": "2001:20::1",
    "ipv6-unassigned": "4000::1",
    "ec2-metadata-ipv6": "fd00:ec2::254",
    "google-metadata-ipv6": "fd20:ce::254",
    "mapped-loopback": "::ffff:127.0.0.1",
    "mapped-loopback-hex": "::ffff:7f00:1",
    "mapped-metadata": "::ffff:169.254.169.254",
    "compatible-loopback": "::127.0.0.1",
    "compatible-public": "::93.184.215.14",
    "translated-loopback": "::ffff:0:127.0.0.1",
    "nat64-loopback": "64:ff9b::127.0.0.1",
    "nat64-metadata": "64:ff9b::a9fe:a9fe",
    "nat64-local-use": "64:ff9b:1::10.0.0.1",
    "nat64-local-use-subnet": "64:ff9b:1:fffe::192.168.1.1",
    "6to4-loopback": "2002:7f00:1::",
    "6to4-private": "2002:c0a8:101::1",
    "teredo-private-client": "2001:0:5db8:d70e:8000:63bf:3f57:fefe",
    "teredo-private-server": "2001:0:a00:1:8000:63bf:a247:28f1",
    "localhost": "localhost",
    "localhost-upper": "LOCALHOST",
    "localhost-dot": "localhost.",
    "localhost-dots": "localhost..",
    "localhost-below": "anything.localhost",
    "localhost-domain": "localhost.localdomain",
    "mdns": "printer.local",
    "mdns-dot": "printer.local.",
    "internal": "wiki.internal",
    "google-metadata-name": "metadata.google.internal",
    "home": "nas.home",
    "home-arpa": "nas.home.arpa",
    "intranet": "wiki.intranet",
    "corp": "wiki.corp",
    "lan": "router.lan",
    "single-label": "intranet",
    "fullwidth-digits": "１２７.0.0.1",
    "circled-digits": "①②⑦.⓪.⓪.①",
    "ideographic-dots": "127。0。0。1",
    "fullwidth-dots": "10．0．0．1",
    "fullwidth-localhost": "ｌｏｃａｌｈｏｓｔ",
    "dot-after-address": "127.0.0.1.",
}
ODD_HOSTS = {
    "decimal": "2130706433",
    "decimal-public": "1572395790",
    "hexadecimal": "0x7f000001",
    "hexadecimal-parts": "0x7f.0.0.1",
    "hexadecimal-last": "127.0.0.0x1",
    "octal": "0177.0.0.1",
    "octal-with-zeros": "0000177.0.0.01",
    "two-parts": "127.1",
    "three-parts": "192.168.257",
    "leading-zero": "10.0.0.01",
    "too-large": "256.256.256.256",
    "five-parts": "1.2.3.4.5",
    "number-as-top-level": "example.1",
    "bare-prefix": "example.0x",
    "nothing": "",
    "dot": ".",
    "blank": "exa mple.com",
    "percent": "%31%32%37.0.0.1",
    "nul": "127.0.0.1\0.example.com",
    "line-break": "example.com\r\nHost: localhost",
    "slash": "example.com/@127.0.0.1",
    "user": "user@127.0.0.1",
    "broken-ipv6": "::1::",
    "unknown-idna": "\u2603\u0338.example.com\ud800",
}
PUBLIC_HOSTS = {
    "name": ("example.com", [PUBLIC]),
    "name-without-look-up": ("example.com", []),
    "upper-case": ("EXAMPLE.com", [PUBLIC]),
    "trailing-dot": ("example.com.", [PUBLIC]),
    "underscore": ("my_page.example.com", [PUBLIC]),
    "internationalised": ("bücher.example.com", [PUBLIC]),
    "punycode": ("xn--bcher-kva.example.com", [PUBLIC]),
    "both-families": ("example.com", [PUBLIC, PUBLIC_IPV6]),
    "ipv4": (PUBLIC, []),
    "ipv6": (PUBLIC_IPV6, []),
    "ipv6-bracketed": (f"[{PUBLIC_IPV6}]", []),
    "mapped-public": (f"::ffff:{PUBLIC}", []),
    "nat64-public": ("64:ff9b::5db8:d70e", []),
    "nat64-beside-wire-server": ("64:ff9b::168.63.129.17", []),
    "nat64-local-use-public": ("64:ff9b:1::5db8:d70e", []),
    "6to4-public": ("2002:5db8:d70e::1", []),
    "teredo-public": ("2001:0:808:808:8000:63bf:a247:28f1", []),
    "fake-ip": ("example.com", ["198.18.0.5"]),
    "fake-ip-last": ("example.com", ["198.19.255.254"]),
    "digits-in-name": ("123.example.com", [PUBLIC]),
    "local-in-the-middle": ("local.internal.example.com", [PUBLIC]),
}


@pytest.mark.parametrize("host", PRIVATE_HOSTS.values(), ids=PRIVATE_HOSTS)
def test_a_private_host_is_refused_however_it_is_written(host: str) -> None:
    assert refuse_address(host, [], allow_private=False) == "private address"


@pytest.mark.parametrize("host", ODD_HOSTS.values(), ids=ODD_HOSTS)
def test_a_host_in_no_ordinary_spelling_is_refused_even_where_private_ones_are_allowed(host: str) -> None:
    assert refuse_address(host, [], allow_private=False) == "bad address"
    assert refuse_address(host, [], allow_private=True) == "bad address"


@pytest.mark.parametrize(("host", "addresses"), PUBLIC_HOSTS.values(), ids=PUBLIC_HOSTS)
def test_a_public_host_is_not_refused(host: str, addresses: list[str]) -> None:
    assert refuse_address(host, addresses, allow_private=False) is None


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::ffff:169.254.169.254"], [PUBLIC_IPV6, "fe80::1%2"], ["no address"]],
    ids=["private", "one-of-two", "mapped", "link-local-with-zone", "unreadable"],
)
def test_a_public_name_is_refused_when_any_of_its_addresses_is_private(addresses: list[str]) -> None:
    assert refuse_address("example.com", addresses, allow_private=False) == "private address"


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("10.0.0.1", []),
        ("wiki.internal", ["192.168.1.1"]),
        ("localhost", ["127.0.0.1", "::1"]),
        ("intranet", ["fd12::1"]),
        ("intranet", ["fec0::1"]),
    ],
)
def test_the_setting_opens_private_addresses_and_local_names(host: str, addresses: list[str]) -> None:
    assert refuse_address(host, addresses, allow_private=True) is None


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254", "100.100.100.200", "224.0.0.1",
     "fd20:ce::254", "fe80::1", "0.0.0.0"],
)  # fmt: skip
def test_the_setting_does_not_open_what_serves_credentials_or_is_no_host(address: str) -> None:
    assert refuse_address("wiki.internal", [address], allow_private=True) == "private address"
    assert refuse_address(address, [], allow_private=True) == "private address"


def spellings(address: ipaddress.IPv4Address) -> dict[str, str]:
    """An IPv4 address in the ways that some program or other reads."""
    number = int(address)
    a, b, c, d = address.packed
    return {
        "canonical": str(address),
        "decimal": str(number),
        "hexadecimal": hex(number),
        "octal": f"0{number:o}",
        "octal-parts": ".".join(f"0{part:o}" for part in address.packed),
        "hexadecimal-parts": ".".join(map(hex, address.packed)),
        "short": f"{a}.{(b << 16) + (c << 8) + d}",
        "mapped": f"::ffff:{address}",
        "compatible": f"::{address}",
        "nat64": f"64:ff9b::{address}",
        "nat64-local": f"64:ff9b:1::{address}",
        "6to4": str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80))),
        "teredo": str(ipaddress.IPv6Address((0x20010000 << 96) | (0x08080808 << 64) | (number ^ 0xFFFFFFFF))),
        "fullwidth": "".join(chr(ord(letter) + 0xFEE0) for letter in str(address)),
    }


@settings(deadline=None)
@given(
    st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]).flatmap(
        lambda network: st.ip_addresses(network=network)
    )
)
def test_no_spelling_of_a_private_address_gets_through(address: Any) -> None:
    refused = {name: refuse_address(text, [], allow_private=False) for name, text in spellings(address).items()}
    assert None not in refused.values(), refused


@settings(deadline=None)
@given(st.text(max_size=80), st.lists(st.text(max_size=40) | st.ip_addresses().map(str), max_size=4), st.booleans())
@example("..", [], False)
@example("xn--", [], True)
def test_the_policy_answers_for_any_text(host: str, addresses: list[str], allow_private: bool) -> None:
    assert refuse_address(host, addresses, allow_private) in (None, "bad address", "private address")


@settings(deadline=None)
@given(st.ip_addresses())
def test_the_policy_is_no_laxer_than_the_standard_library(address: Any) -> None:
    is_fake_ip = address.version == 4 and address in ipaddress.ip_network("198.18.0.0/15")
    if refuse_address(str(address), [], allow_private=False) is None and not is_fake_ip:
        inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
        is_nat64 = inner.version == 6 and str(inner).startswith("64:ff9b:")
        assert is_nat64 or (inner.is_global and not inner.is_multicast)


# -- A wire to test on -------------------------------------------------------------------------------------------------


class Chunks(httpx.AsyncByteStream):
    """A body that arrives in pieces; an item that is no bytes is awaited or raised. `closed` tells that it was left."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.closed = False
        self.sent_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for item in self.items:
            for chunk in [item] if isinstance(item, (bytes, Exception)) else item:
                if isinstance(chunk, Exception):
                    raise chunk
                if not isinstance(chunk, bytes):
                    await chunk
                    continue
                self.sent_bytes += len(chunk)
                yield chunk

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class Wire:
    """What the fetcher connects to: replies by URL, addresses by name, and what was asked of both."""

    replies: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, list[list[str]]] = field(default_factory=dict)
    dead_addresses: set[str] = field(default_factory=set)
    requests: list[httpx.Request] = field(default_factory=list)
    look_ups: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> list[str]:
        """The answers for a name in order, the last one for ever; any other name is public."""
        self.look_ups.append(host)
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            answers = self.addresses.get(host, [[PUBLIC]])
            return answers.pop(0) if len(answers) > 1 else answers[0]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.host in self.dead_addresses:
            raise httpx.ConnectError("refused", request=request)
        reply = self.replies[f"{request.url.scheme}://{request.headers['host']}{request.url.raw_path.decode()}"]
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    def fetcher(self, **settings: Any) -> HttpPageFetcher:
        return HttpPageFetcher(Settings(**settings), resolve=self.resolve)

    async def fetch(self, url: str, language: str = "en-US", **settings: Any) -> Page:
        return await self.fetcher(**settings)(url, language)

    async def reason(self, url: str, **settings: Any) -> str:
        with pytest.raises(PageError) as caught:
            await self.fetch(url, **settings)
        return caught.value.reason

    async def read(self, reply: httpx.Response) -> Page:
        self.replies["https://example.com/"] = reply
        return await self.fetch("https://example.com/")

    async def reason_of_reply(self, reply: Any) -> str:
        self.replies["https://example.com/"] = reply
        return await self.reason("https://example.com/")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Takes the place of httpx's own connections, below everything that is ours."""
    wire = Wire()
    monkeypatch.setattr(agent_web_search, "ssl_context", lambda _: None)  # loading certificates takes its time
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(wire.handle))
    return wire


def reply(
    body: Any = b"<p>Some text</p>",
    content_type: str | None = "text/html; charset=utf-8",
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
) -> httpx.Response:
    """A response; `body` is bytes or what `Chunks` takes."""
    typed = [("content-type", content_type)] if content_type else []
    stream = body if isinstance(body, Chunks) else Chunks(body)
    return httpx.Response(status, headers=[*typed, *headers], stream=stream)


def redirect(location: str, status: int = 302, *cookies: str) -> httpx.Response:
    return reply(b"", None, status, [("location", location), *(("set-cookie", cookie) for cookie in cookies)])


# -- Connections -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_page_comes_with_its_url_media_type_and_text(wire: Wire) -> None:
    page = await wire.read(reply("<p>Größe</p>".encode()))
    assert page == Page("https://example.com/", "text/html", "<p>Größe</p>")


@pytest.mark.anyio
async def test_the_request_says_who_asks_and_in_which_language(wire: Wire) -> None:
    wire.replies["https://example.com/"] = reply()
    await wire.fetch("https://example.com/", "zh-CN,zh;q=0.9")
    headers = wire.requests[0].headers
    assert headers["user-agent"] == agent_web_search.USER_AGENT
    assert headers["user-agent"].startswith(f"agent-web-search/{agent_web_search.__version__} (+https://")
    assert headers["accept-language"] == "zh-CN,zh;q=0.9"
    assert headers["accept-encoding"] == "gzip, deflate"
    assert headers["host"] == "example.com"
    assert "cookie" not in headers


@pytest.mark.anyio
async def test_the_connection_goes_to_the_address_that_was_checked_and_tls_keeps_the_name(wire: Wire) -> None:
    wire.addresses["example.com"] = [[PUBLIC], ["127.0.0.1"]]
    await wire.read(reply())
    assert wire.look_ups == ["example.com"]
    assert wire.requests[0].url.host == PUBLIC
    assert wire.requests[0].headers["host"] == "example.com"
    assert wire.requests[0].extensions["sni_hostname"] == "example.com"


@pytest.mark.anyio
async def test_dns_that_turns_private_between_redirects_is_caught(wire: Wire) -> None:
    wire.addresses["example.com"] = [[PUBLIC], ["127.0.0.1"]]
    wire.replies["http://example.com/"] = redirect("/secret")
    assert await wire.reason("http://example.com/") == "private address"
    assert [request.url.host for request in wire.requests] == [PUBLIC]


@pytest.mark.anyio
async def test_a_name_with_one_private_address_is_not_connected_to_at_all(wire: Wire) -> None:
    wire.addresses["example.com"] = [[PUBLIC, "10.0.0.7"]]
    assert await wire.reason("http://example.com/") == "private address"
    assert wire.requests == []


@pytest.mark.anyio
async def test_a_local_name_is_not_even_looked_up(wire: Wire) -> None:
    assert await wire.reason("http://wiki.internal/") == "private address"
    assert wire.look_ups == []


@pytest.mark.anyio
async def test_when_one_address_is_dead_the_next_is_tried_without_another_look_up(wire: Wire) -> None:
    wire.addresses["example.com"] = [[PUBLIC_IPV6, PUBLIC]]
    wire.dead_addresses = {PUBLIC_IPV6}
    assert (await wire.read(reply())).text == "<p>Some text</p>"
    assert [request.url.host for request in wire.requests] == [PUBLIC_IPV6, PUBLIC]
    assert wire.look_ups == ["example.com"]


@pytest.mark.anyio
async def test_a_name_without_an_address_is_told_apart_from_a_host_that_does_not_answer(wire: Wire) -> None:
    wire.addresses["gone.example.com"] = [[]]
    wire.dead_addresses = {PUBLIC}
    assert await wire.reason("http://gone.example.com/") == "name not found"
    assert await wire.reason("http://example.com/") == "unreachable"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "data:text/html,hello",
        "javascript:alert(1)",
        "//example.com/",
        "example.com",
        "",
        "http://",
        "http:///path",
        "http://[::1",
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://exa mple.com/",
    ],
)
async def test_an_address_that_is_no_plain_web_address_is_refused(wire: Wire, url: str) -> None:
    assert await wire.reason(url) == "bad address"
    assert wire.requests == []


@settings(deadline=None)
@given(st.text(max_size=60).map(lambda text: f"http://{text}") | st.text(max_size=60))
@example("http://[::ffff:127.0.0.1]/")
@example("http://①②⑦.0.0.1/")
def test_no_url_whatever_leads_to_a_private_address(url: str) -> None:
    wire = Wire()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def fetch() -> None:
        with pytest.raises(PageError):
            await HttpPageFetcher(Settings(), resolve)(url, "en")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "AsyncHTTPTransport", lambda **_: httpx.MockTransport(wire.handle))
        patch.setattr(agent_web_search, "ssl_context", lambda _: None)
        asyncio.run(fetch())
    assert wire.requests == []


# -- Redirects and cookies ---------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_the_page_has_the_url_it_ended_at(wire: Wire, status: int) -> None:
    wire.replies["http://example.com/a"] = redirect("https://www.example.com/b", status)
    wire.replies["https://www.example.com/b"] = reply()
    page = await wire.fetch("http://example.com/a#part")
    assert page.url == "https://www.example.com/b#part"
    assert [request.method for request in wire.requests] == ["GET", "GET"]


@pytest.mark.anyio
async def test_five_redirects_are_followed_and_a_sixth_is_not(wire: Wire) -> None:
    for step in range(6):
        wire.replies[f"http://example.com/{step}"] = redirect(f"/{step + 1}")
    wire.replies["http://example.com/6"] = reply()
    assert (await wire.fetch("http://example.com/1")).url == "http://example.com/6"
    assert await wire.reason("http://example.com/0") == "too many redirects"


@pytest.mark.anyio
async def test_a_redirect_loop_ends(wire: Wire) -> None:
    wire.replies["http://example.com/"] = lambda _: redirect("/")
    assert await wire.reason("http://example.com/") == "too many redirects"
    assert len(wire.requests) == 6


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.1/secret", "private address"),
        ("http://[::ffff:10.0.0.7]/secret", "private address"),
        ("http://[64:ff9b::a9fe:a9fe]/latest/meta-data/", "private address"),
        ("//localhost/secret", "private address"),
        ("http://wiki.internal/secret", "private address"),
        ("http://2130706433/secret", "bad address"),
        ("https://user:password@example.com/", "bad address"),
        ("file:///etc/passwd", "bad address"),
        ("gopher://example.com/", "bad address"),
        ("http://[::1", "bad response"),
    ],
)
async def test_each_redirect_is_checked_again(wire: Wire, location: str, reason: str) -> None:
    wire.replies["http://example.com/"] = redirect(location)
    assert await wire.reason("http://example.com/") == reason
    assert len(wire.requests) == 1


@pytest.mark.anyio
async def test_a_redirect_without_a_target_is_a_status_like_any_other(wire: Wire) -> None:
    assert await wire.reason_of_reply(reply(b"", None, 302)) == "http 302"


@pytest.mark.anyio
async def test_a_meta_refresh_is_not_followed(wire: Wire) -> None:
    html = b"<meta http-equiv=refresh content='0; url=http://127.0.0.1/secret'><p>Moved</p>"
    assert "Moved" in (await wire.read(reply(html))).text
    assert len(wire.requests) == 1


@pytest.mark.anyio
async def test_a_cookie_lives_for_the_redirects_of_one_page_and_its_own_site(wire: Wire) -> None:
    fetch = wire.fetcher()

    def wall(request: httpx.Request) -> httpx.Response:
        return reply() if "seen=1" in request.headers.get("cookie", "") else redirect("/wall", 302, "seen=1; Path=/")

    wire.replies["https://example.com/wall"] = wall
    wire.replies["https://example.com/out"] = redirect("https://example.org/", 302, "seen=1; Path=/")
    wire.replies["https://example.org/"] = lambda _: reply()
    assert (await fetch("https://example.com/wall", "en")).text == "<p>Some text</p>"
    assert (await fetch("https://example.com/wall", "en")).text == "<p>Some text</p>"
    await fetch("https://example.com/out", "en")
    cookies = [request.headers.get("cookie") for request in wire.requests]
    assert cookies == [None, "seen=1", None, "seen=1", None, None]


# -- Bodies ------------------------------------------------------------------------------------------------------------


def bomb(unpacked_bytes: int = 64 * MEBIBYTE, wbits: int = 31) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    block = b" " * MEBIBYTE
    return b"".join(packer.compress(block) for _ in range(unpacked_bytes // MEBIBYTE)) + packer.flush()


@pytest.mark.anyio
async def test_a_body_is_read_up_to_its_size_limit_and_the_rest_is_left(wire: Wire) -> None:
    body = Chunks(b"x" * 65_536 for _ in range(1_600))
    page = await wire.read(reply(body))
    assert len(page.text) == MAX_PAGE_BYTES
    assert body.closed
    assert body.sent_bytes <= MAX_PAGE_BYTES + 65_536


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("encoding", "wbits"), [("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15)],
    ids=["gzip", "x-gzip", "deflate", "bare-deflate"],
)  # fmt: skip
async def test_a_packed_bomb_is_unpacked_up_to_the_size_limit_only(wire: Wire, encoding: str, wbits: int) -> None:
    packed = bomb(wbits=wbits)
    start = zlib.compressobj(9, zlib.DEFLATED, wbits)
    html = start.compress(b"<p>Some text</p>") + start.flush()
    assert (await wire.read(reply(html, headers=[("content-encoding", encoding)]))).text == "<p>Some text</p>"
    whole = await wire.reason_of_reply(reply(packed, headers=[("content-encoding", encoding)]))
    assert whole == "empty"  # 4 MiB of blanks


@pytest.mark.anyio
async def test_unpacking_stops_at_the_size_limit_in_the_middle_of_a_piece(wire: Wire) -> None:
    packed = gzip.compress(b"word " * (16 * MEBIBYTE // 5))
    page = await wire.read(reply(packed, headers=[("content-encoding", "gzip")]))
    assert len(page.text) == MAX_PAGE_BYTES


@pytest.mark.anyio
@pytest.mark.parametrize(("encoding", "pack"), [("identity", bytes), ("gzip", gzip.compress)], ids=["plain", "gzip"])
async def test_the_size_limit_holds_where_it_is_met_inside_of_a_later_piece(
    wire: Wire, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(b"word " * (6 * MEBIBYTE // 5))
    half = len(body) // 2
    page = await wire.read(reply(Chunks(body[:half], body[half:]), headers=[("content-encoding", encoding)]))
    assert len(page.text) == MAX_PAGE_BYTES


@pytest.mark.anyio
async def test_behind_the_size_limit_or_the_end_of_what_was_packed_nothing_is_read(wire: Wire) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    full = packer.compress(b"word" * (MAX_PAGE_BYTES // 4)) + packer.flush(zlib.Z_SYNC_FLUSH)
    more = packer.compress(b"word" * (MAX_PAGE_BYTES // 4)) + packer.flush()
    ended = gzip.compress(b"<p>Some text</p>")
    for first, then, characters in ((full, more, MAX_PAGE_BYTES), (ended, b"more", len("<p>Some text</p>"))):
        body = Chunks(first, then)
        page = await wire.read(reply(body, headers=[("content-encoding", "gzip")]))
        assert (len(page.text), body.sent_bytes) == (characters, len(first))


@pytest.mark.anyio
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, deflate", "compress", "aes128gcm", "x"])
async def test_a_body_that_was_packed_otherwise_or_twice_is_refused(wire: Wire, encoding: str) -> None:
    body = Chunks(gzip.compress(gzip.compress(b"<p>Some text</p>")))
    assert await wire.reason_of_reply(reply(body, headers=[("content-encoding", encoding)])) == "bad response"
    assert body.sent_bytes == 0
    assert body.closed


@pytest.mark.anyio
async def test_a_body_that_is_not_packed_as_it_says_is_refused(wire: Wire) -> None:
    assert await wire.reason_of_reply(reply(headers=[("content-encoding", "gzip")])) == "bad response"


@pytest.mark.anyio
@pytest.mark.parametrize("encoding", ["", "identity"])
async def test_a_body_that_says_it_is_not_packed_is_taken_as_it_is(wire: Wire, encoding: str) -> None:
    assert (await wire.read(reply(headers=[("content-encoding", encoding)]))).text == "<p>Some text</p>"


@pytest.mark.anyio
async def test_a_body_that_drips_for_ever_ends_with_the_page_clock(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_web_search, "PAGE_TIMEOUT_SECONDS", 0.05)

    def drip() -> Iterable[Any]:
        while True:
            yield b"a"
            yield asyncio.sleep(0.001)

    body = Chunks(drip())
    assert await wire.reason_of_reply(reply(body)) == "timed out"
    assert body.closed


@pytest.mark.anyio
async def test_the_page_clock_holds_over_all_redirects(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_web_search, "PAGE_TIMEOUT_SECONDS", 0.05)
    stalled = Chunks([asyncio.Event().wait()])
    wire.replies["http://example.com/"] = redirect("/next")
    wire.replies["http://example.com/next"] = reply(stalled)
    assert await wire.reason("http://example.com/") == "timed out"
    assert stalled.closed


@pytest.mark.anyio
async def test_a_fetcher_closes_what_it_opened(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Transport(httpx.MockTransport):
        async def aclose(self) -> None:
            closed.append(self)

    monkeypatch.setattr(httpx, "AsyncHTTPTransport", lambda **_: Transport(wire.handle))
    wire.replies["https://example.com/"] = reply()
    fetcher = wire.fetcher()
    await fetcher.aclose()
    await fetcher("https://example.com/", "")
    assert not closed
    await fetcher.aclose()
    assert len(closed) == 1


@pytest.mark.anyio
async def test_a_cancelled_page_leaves_its_connection(wire: Wire) -> None:
    arrived = asyncio.Event()

    async def arrive() -> None:
        arrived.set()
        await asyncio.Event().wait()

    body = Chunks([arrive()])
    wire.replies["http://example.com/"] = reply(body)
    task = asyncio.create_task(wire.fetch("http://example.com/"))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert body.closed


FAILURES: dict[str, tuple[Exception, str]] = {
    "silent-stall": (httpx.ReadTimeout("no byte"), "timed out"),
    "connect-timeout": (httpx.ConnectTimeout("no answer"), "timed out"),
    "pool-timeout": (httpx.PoolTimeout("busy"), "timed out"),
    "reset": (httpx.ReadError("reset"), "unreachable"),
    "write-error": (httpx.WriteError("reset"), "unreachable"),
    "refused": (httpx.ConnectError("refused"), "unreachable"),
    "proxy": (httpx.ProxyError("502"), "proxy failed"),
    "file": (OSError("a socket of the system"), "bad response"),
    "protocol": (httpx.UnsupportedProtocol("gopher"), "bad address"),
    "no-http": (httpx.RemoteProtocolError("SSH-2.0"), "bad response"),
    "decoding": (httpx.DecodingError("nonsense"), "bad response"),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("error", "reason"), FAILURES.values(), ids=FAILURES)
async def test_every_failure_of_the_connection_is_a_page_error_in_a_stable_word(
    wire: Wire, error: Exception, reason: str
) -> None:
    assert await wire.reason_of_reply(error) == reason
    body = Chunks(b"<p>", error)
    assert await wire.reason_of_reply(reply(body)) == reason
    assert body.closed


@pytest.mark.anyio
async def test_the_log_has_the_cause_of_a_failure(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger=agent_web_search.logger.name):
        await wire.reason_of_reply(httpx.ReadError("reset by somebody"))
    assert "A page could not be read" in caplog.text
    assert "reset by somebody" in caplog.text


@pytest.mark.anyio
async def test_the_first_page_has_freed_memory_go_back_to_the_system(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, parameter: int, value: int) -> None:
            told.append((parameter, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    wire.replies["https://example.com/"] = lambda _: reply()
    fetcher = wire.fetcher()
    assert told == []
    for _ in range(2):
        await fetcher("https://example.com/", "en")
    assert told == [(agent_web_search.MALLOPT_MMAP_THRESHOLD, agent_web_search.LARGE_BLOCK_BYTES)]


@pytest.mark.anyio
async def test_a_fault_of_this_program_is_told_as_such_without_its_text(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    assert await wire.reason_of_reply(RuntimeError("at https://example.com/")) == "unexpected error"
    assert caplog.messages == ["An unexpected RuntimeError ended the fetching of a page"]


@pytest.mark.anyio
async def test_certificates_are_read_once_and_not_by_the_event_loop(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    monkeypatch.setattr(agent_web_search, "ssl_context", lambda _: threads.append(threading.current_thread()))
    wire.replies["https://example.com/"] = lambda _: reply()
    fetcher = wire.fetcher()
    await asyncio.gather(*(fetcher("https://example.com/", "en") for _ in range(3)))
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.anyio
async def test_a_certificate_that_cannot_be_verified_is_told_apart(wire: Wire) -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert await wire.reason_of_reply(error) == "certificate refused"


# -- What is a page ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("status", [201, 203])
async def test_any_success_with_a_body_is_a_page(wire: Wire, status: int) -> None:
    assert (await wire.read(reply(status=status))).text == "<p>Some text</p>"


@pytest.mark.anyio
@pytest.mark.parametrize("status", [204, 205, 206, 304, 400, 401, 403, 404, 410, 429, 451, 500, 502, 503, 599])
async def test_any_other_status_is_no_page_and_its_body_is_not_read(wire: Wire, status: int) -> None:
    body = Chunks(b"<p>Some text</p>")
    assert await wire.reason_of_reply(reply(body, status=status)) == f"http {status}"
    assert body.sent_bytes == 0
    assert body.closed


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content_type", "media_type"),
    [
        ("text/html", "text/html"),
        ("TEXT/HTML;charset=UTF-8", "text/html"),
        ("application/xhtml+xml", "application/xhtml+xml"),
        ("text/plain", "text/plain"),
        ("text/markdown; charset=utf-8", "text/markdown"),
        ("application/json", "application/json"),
    ],
)
async def test_html_and_text_are_pages(wire: Wire, content_type: str, media_type: str) -> None:
    assert (await wire.read(reply(b"<p>Some text</p>", content_type))).media_type == media_type


@pytest.mark.anyio
@pytest.mark.parametrize(
    "content_type",
    [
        "application/pdf",
        "image/png",
        "text/css",
        "text/javascript",
        "application/octet-stream",
        "video/mp4",
        "text/xml",
    ],
)
async def test_any_other_media_type_is_refused_without_reading_the_body(wire: Wire, content_type: str) -> None:
    body = Chunks(b"<html><p>Some text</p></html>")
    assert await wire.reason_of_reply(reply(body, content_type)) == "media type"
    assert body.sent_bytes == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"\n <!DOCTYPE html><p>x", "text/html"),
        (b"\xef\xbb\xbf<html><p>x", "text/html"),
        (b"<!-- c --><p>x", "text/html"),
        (b'<?xml version="1.0"?>\n<html>x', "text/html"),
        (b"Plain words", "text/plain"),
        (b'{"a": 1}', "text/plain"),
        (b"<stdio.h> is a header", "text/plain"),
    ],
)
@pytest.mark.parametrize("content_type", [None, "", "html"])
async def test_a_missing_media_type_is_found_by_looking(
    wire: Wire, body: bytes, media_type: str, content_type: str | None
) -> None:
    assert (await wire.read(reply(body, content_type))).media_type == media_type


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body",
    [b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", bytes(range(256)) * 8, b"PK\x03\x04" + b"\x14\0\0\0\x08\0" * 40],
    ids=["pdf", "binary", "zip"],
)
@pytest.mark.parametrize("content_type", [None, "text/html", "text/plain"])
async def test_a_file_that_is_called_text_is_refused(wire: Wire, body: bytes, content_type: str | None) -> None:
    assert await wire.reason_of_reply(reply(body, content_type)) == "media type"


@pytest.mark.anyio
async def test_a_text_may_have_as_many_control_characters_as_the_limit_says(wire: Wire) -> None:
    body = b"\x01" * agent_web_search.MAX_CONTROL_CHARACTERS + b" Some text"
    assert (await wire.read(reply(body))).text == body.decode()
    assert await wire.reason_of_reply(reply(b"\x01" + body)) == "media type"


@pytest.mark.anyio
async def test_a_download_is_read_only_when_it_is_text(wire: Wire) -> None:
    header = [("content-disposition", 'attachment; filename="x"')]
    assert (await wire.read(reply(b"Some text", "text/plain", headers=header))).text == "Some text"
    assert await wire.reason_of_reply(reply(b"Some text", None, headers=header)) == "media type"


@pytest.mark.anyio
@pytest.mark.parametrize("body", [b"", b" \r\n\t ", b"\xef\xbb\xbf"])
async def test_a_body_without_text_is_empty(wire: Wire, body: bytes) -> None:
    assert await wire.reason_of_reply(reply(body)) == "empty"


WALLS = {
    "cloudflare": "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>",
    "cloudflare-block": "<title>Attention Required! | Cloudflare</title><h1>Sorry, you have been blocked</h1>",
    "cloudflare-other-language": "<title>Nur einen Moment…</title><script>window._cf_chl_opt={cvId:'3'}</script>",
    "datadome": "<title>site.com</title><script src='https://ct.captcha-delivery.com/c.js'></script>",
    "perimeterx": "<title>Access to this page has been denied</title><div id='px-captcha'></div>",
    "imperva": "<iframe src='/_Incapsula_Resource?SWUDNSAI=31'></iframe>",
    "imperva-distil": "<title>Pardon Our Interruption</title>",
    "akamai": "<title>Access Denied</title><p>You don't have permission</p>",
    "akamai-script": "<div id='sec-if-cpt-container'></div>",
    "aws": "<script>window.awsWafCookieDomainList = [];</script>",
    "sucuri": "<script>var sucuri_cloudproxy_js='';</script>",
    "anubis": "<title>Making sure you&#39;re not a bot!</title>",
    "ddos-guard": "<title>DDoS-Guard</title>",
    "vercel": "<title>Vercel Security Checkpoint</title>",
    "amazon": "<title>Robot Check</title>",
    "baidu": "<title>百度安全验证</title>",
    "consent": "<title>Before you continue to YouTube</title><form>",
    "login": "<title>Sign in - Example</title><form>",
    "login-form": "<title>Example</title><form><input name=p type=password></form>",
}


@pytest.mark.anyio
@pytest.mark.parametrize("html", WALLS.values(), ids=WALLS)
async def test_a_wall_served_as_a_page_is_known_by_its_signs(wire: Wire, html: str) -> None:
    assert await wire.reason_of_reply(reply(html.encode())) == "bot challenge"


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 403, 503])
async def test_a_challenge_is_known_by_its_header_whatever_the_status(wire: Wire, status: int) -> None:
    blocked = reply(status=status, headers=[("cf-mitigated", "challenge")])
    assert await wire.reason_of_reply(blocked) == "bot challenge"


def test_a_wall_has_as_little_text_and_markup_as_the_limits_say() -> None:
    form = "<title>Captcha</title><p>" + "x" * (agent_web_search.MAX_WALL_TEXT_CHARACTERS - len("Captcha "))
    full = form + "<br>".ljust(agent_web_search.MAX_WALL_HTML_CHARACTERS - len(form))
    assert is_wall(form, "https://example.com/")
    assert not is_wall(form + "x", "https://example.com/")
    assert is_wall(full, "https://example.com/")
    assert not is_wall(full + " ", "https://example.com/")


@pytest.mark.parametrize(
    "host", ["accounts.google.com", "consent.google.com", "consent.yahoo.com", "consent.youtube.com"]
)
def test_a_redirect_to_a_host_of_consent_or_login_is_a_wall(host: str) -> None:
    assert is_wall("<title>Any</title><p>Any text", f"https://{host}/m?continue=https://example.com/")
    assert not is_wall("<title>Any</title><p>Any text", f"https://{host}.example.com/")


@pytest.mark.parametrize("html", WALLS.values(), ids=WALLS)
def test_an_article_about_a_wall_is_a_page(html: str) -> None:
    assert not is_wall(html + "<p>What this means and how it works, in detail.</p>" * 60, "https://example.com/")


@pytest.mark.parametrize(
    "title",
    ["Sign in with Apple: a guide", "Just a moment of silence", "Captchas explained", "Access denied errors in S3"],
)
def test_a_title_that_only_begins_like_a_wall_is_a_page(title: str) -> None:
    assert not is_wall(f"<title>{title}</title><p>Short.</p>", "https://example.com/")


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<", "<script>", "</script>", "<title>", "<!--", "-->", "type=password", " x"])))
def test_any_heap_of_tags_can_be_asked_whether_it_is_a_wall(pieces: list[str]) -> None:
    assert is_wall("".join(pieces), "https://example.com/") in (True, False)


@pytest.mark.anyio
async def test_a_body_is_decoded_off_the_event_loop(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def decode(body: bytes, content_type: str) -> str:
        threads.append(threading.current_thread())
        return decode_body(body, content_type)

    monkeypatch.setattr(agent_web_search, "decode_body", decode)
    await wire.read(reply())
    assert [thread is threading.current_thread() for thread in threads] == [False]


# -- Charsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "way"), CHARSET_CASES, ids=[f"{a}-{b}" for a, b in CHARSET_CASES])
def test_a_page_is_read_in_its_charset_however_it_says_so(encoding: str, way: str) -> None:
    response = charset_page(encoding, way)
    assert isinstance(response.body, bytes)
    text = decode_body(response.body, dict(response.headers)["Content-Type"])
    assert text.count(CHARSET_SAMPLES[encoding]) == 20


@pytest.mark.parametrize("encoding", [name for name in CHARSET_SAMPLES if name not in BYTE_ORDER_MARKS])
def test_a_wrong_header_gives_way_to_what_the_bytes_are(encoding: str) -> None:
    text = CHARSET_SAMPLES[encoding] * 3
    assert decode_body(text.encode(encoding), "text/html; charset=utf-8") == text


def test_utf_8_under_the_default_charset_of_a_server_is_still_utf_8() -> None:
    text = "Grüße, 你好世界, привет"
    assert decode_body(text.encode(), "text/html; charset=ISO-8859-1") == text
    assert decode_body(text.encode(), "text/html; charset=gb2312") == text


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("gb2312", "gb18030", "镕㐀€"),
        ("GBK", "gb18030", "㐀"),
        ("x-gbk", "gb18030", "㐀"),
        ("iso-8859-1", "cp1252", "“curly” €"),
        ("latin1", "cp1252", "‘x’"),
        ("us-ascii", "cp1252", "café"),
        ("shift_jis", "cp932", "①㈱"),
        ("x-sjis", "cp932", "①"),
        ("euc-kr", "cp949", "똠방각하"),
        ("ks_c_5601-1987", "cp949", "똠"),
        ("big5", "big5hkscs", "㗎"),
        ("windows-874", "cp874", "ไทย"),
        ("tis-620", "cp874", "ไทย"),
        ("iso-8859-9", "cp1254", "ğış"),
        ("koi8-r", "koi8-r", "привет"),
        ("ISO-2022-JP", "iso2022_jp", "日本語"),
        ("x-euc-jp", "euc_jp", "日本語"),
    ],
)
def test_a_label_is_read_as_browsers_read_it(label: str, codec: str, text: str) -> None:
    assert decode_body(text.encode(codec), f"text/plain; charset={label}") == text
    assert decode_body(f"<meta charset='{label}'>{text}".encode(codec)).endswith(text)


@pytest.mark.parametrize(
    "head",
    [
        '<meta charset="windows-1251">',
        "<META CHARSET=windows-1251>",
        '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        "<!-- <meta charset=koi8-r> --><meta charset='windows-1251'>",
        '<?xml version="1.0" encoding="windows-1251"?>',
        "<script>" + "x" * 2_000 + "</script><meta charset=windows-1251>",
    ],
)
def test_the_charset_is_found_in_the_page(head: str) -> None:
    assert decode_body(f"{head}<p>Ы</p>".encode("cp1251"), "text/html").endswith("<p>Ы</p>")


@pytest.mark.parametrize(
    "label", ["x-klingon", "punycode", "idna", "unicode_escape", "utf-7", "hex", "zlib", "é", "-", "\0"]
)
def test_a_label_that_is_no_charset_is_passed_over(label: str) -> None:
    assert decode_body("naïve +AGE- \\u0041".encode(), f"text/html; charset={label}") == "naïve +AGE- \\u0041"


def test_a_run_of_letters_that_would_keep_the_detection_busy_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    samples: list[bytes] = []
    detect = chardet.detect
    monkeypatch.setattr(chardet, "detect", lambda sample: samples.append(sample) or detect(sample))
    text = "Сегодня мы обсудим, как установить этот пакет"
    assert decode_body(b"W" * 12_000 + text.encode("cp1251") + b"m" * 4_000).strip("Wm") == text
    assert len(samples) == 1
    assert not re.search(rb"[A-Za-z]{32}", samples[0])


def test_the_byte_order_mark_beats_every_label() -> None:
    assert decode_body(b"\xff\xfe" + "日本".encode("utf-16-le"), "text/html; charset=utf-8") == "日本"


def test_a_page_cut_in_the_middle_of_a_character_keeps_its_charset() -> None:
    for text, codec in (("日本語" * 5, "utf-8"), ("日本語" * 5, "euc_jp"), ("简体中文" * 5, "gb18030")):
        cut = decode_body(text.encode(codec)[:-1], f"text/html; charset={codec}")
        assert cut.rstrip("\ufffd") == text[:-1]


def test_utf_8_under_another_label_counts_from_as_many_bytes_as_the_limit_says() -> None:
    accents = "é" * agent_web_search.SURE_UTF8_BYTES  # each takes one byte more than a character
    assert decode_body(accents.encode(), "text/html; charset=iso-8859-1") == accents
    assert decode_body(accents[1:].encode(), "text/html; charset=iso-8859-1") == "Ã©" * len(accents[1:])


def test_as_many_broken_bytes_as_the_limit_says_do_not_cost_a_page_its_charset_and_one_more_does() -> None:
    accents = "é" * (round(1 / agent_web_search.MAX_BROKEN_SHARE) - 1)
    assert decode_body(b"\xff" + accents.encode() + b".") == f"\ufffd{accents}."
    assert "é" not in decode_body(b"\xff" + accents[1:].encode() + b".")
    assert "é" not in decode_body(accents[1:].encode() + b"\xff.")


def test_a_few_broken_bytes_do_not_cost_a_page_its_charset() -> None:
    body = ("日本語" * 100).encode() + b"\xff" + "終".encode()
    assert decode_body(body, "text/html; charset=utf-8") == "日本語" * 100 + "\ufffd終"


@settings(deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from(["", *(f"charset={name}" for name in [*CHARSET_SAMPLES, "utf-16"])]) | st.text(),
)
@example(b"\0" * 64, "")
@example(b"\xed\xa0\x80" * 9, "charset=utf-8")
@example(b"\x00\xd8" * 40, "charset=utf-16-le")
@example(b"\xff\xfe\x00\xd8", "")
def test_any_bytes_become_text_without_lone_surrogates(body: bytes, content_type: str) -> None:
    decode_body(body, content_type).encode("utf-8")


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\ufffd"), min_size=8))
def test_utf_8_that_is_beyond_chance_comes_back_as_it_was(text: str) -> None:
    sure = text + "é" * 8
    assert decode_body(sure.encode(), "text/html; charset=windows-1251") == sure


# -- Certificates ------------------------------------------------------------------------------------------------------


def subjects(chosen: Settings) -> set[str]:
    return {
        value
        for certificate in ssl_context(chosen).get_ca_certs()
        for row in certificate["subject"]
        for name, value in row  # type: ignore[misc]
        if name == "organizationName"
    }


@pytest.fixture
def private_ca(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        path = tmp_path / f"{name}.pem"
        trustme.CA(organization_name=name).cert_pem.write_to_path(str(path))
        return path

    return make


def test_every_source_of_certificates_adds_to_the_others(
    private_ca: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = subjects(Settings())
    folder = tmp_path / "folder"
    folder.mkdir()
    private_ca("In Folder").rename(folder / "not-hashed.crt")
    monkeypatch.setenv("SSL_CERT_FILE", str(private_ca("By Variable")))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    found = subjects(Settings(ca_file=str(private_ca("By Setting"))))
    assert system
    assert found == system | {"In Folder", "By Variable", "By Setting"}


def test_without_any_system_store_the_bundled_certificates_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    import certifi

    monkeypatch.setattr(agent_web_search, "_system_pem", lambda: b"")
    assert ca_pem(Settings()).count(b"BEGIN CERTIFICATE") == Path(certifi.where()).read_bytes().count(b"BEGIN CERT")


def test_a_broken_or_missing_certificate_does_not_cost_the_others(
    private_ca: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.pem"
    garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\xff\xfe"
    broken.write_bytes(garbage + private_ca("Behind Garbage").read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(broken))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "missing"))
    assert "Behind Garbage" in subjects(Settings())
    assert b"AAAA\n" not in ca_pem(Settings())


def test_the_merged_certificates_are_plain_pem_that_another_tls_library_can_read(
    private_ca: Callable[[str], Path],
) -> None:
    pem = ca_pem(Settings(ca_file=str(private_ca("By Setting"))))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem.decode("ascii"))
    assert len(context.get_ca_certs()) == pem.count(b"BEGIN CERTIFICATE") == pem.count(b"END CERTIFICATE")


def test_tls_verifies_the_host_name() -> None:
    context = ssl_context(Settings())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


# -- Real connections --------------------------------------------------------------------------------------------------


async def serve_tls(authority: Authority, host: str) -> tuple[asyncio.Server, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>ok</p>")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=authority.context(host))
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.anyio
async def test_a_direct_connection_verifies_the_name_while_it_goes_to_the_address(
    authority: Authority, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.ca.cert_pem.write_to_path(str(ca_file))
    settings = Settings(allow_private=True, ca_file=str(ca_file))

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server, port = await serve_tls(authority, "misnamed.invalid")  # the name it has a certificate for
    async with server:
        fetch = HttpPageFetcher(settings, resolve)
        assert (await fetch(f"https://misnamed.invalid:{port}/", "en")).text == "<p>ok</p>"
        with pytest.raises(PageError, match="certificate refused"):
            await fetch(f"https://example.com:{port}/", "en")
        with pytest.raises(PageError, match="certificate refused"):
            await HttpPageFetcher(Settings(allow_private=True), resolve)(f"https://misnamed.invalid:{port}/", "en")
        await fetch.aclose()


@pytest.mark.anyio
async def test_the_systems_own_look_up_is_used_and_a_missing_name_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def look_up(host: str, *args: Any) -> list[Any]:
        if host != "example.com":
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", ("10.0.0.7", 80)), (2, 1, 6, "", ("10.0.0.7", 80)), (10, 1, 6, "", ("fe80::1", 80, 0, 2))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert await agent_web_search.resolve_host("example.com", 80) == ["10.0.0.7", "fe80::1"]
    for url, reason in (("http://example.com/", "private address"), ("http://example.org/", "name not found")):
        with pytest.raises(PageError, match=reason):
            await HttpPageFetcher(Settings())(url, "en")


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
async def test_pages_come_through_a_proxy_which_looks_the_names_up(
    web: SimulatedWeb, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = HttpPageFetcher(Settings(proxy=web.proxy_url(scheme), ca_file=str(web.ca_file)))
    for url in ("https://blog.example.com/posts/sorting", "http://plain.example.org/"):
        assert "How sorting works" in (await fetch(url, "en")).text
    assert {tunnel.host for tunnel in web.tunnels} == {"blog.example.com", "plain.example.org"}
    await fetch.aclose()


@pytest.mark.anyio
async def test_pages_come_through_a_proxy_that_speaks_tls_itself(web: SimulatedWeb) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", web.http_port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
            target.close()

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=web.authority.context("localhost"))
    proxy = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    async with server:
        fetch = HttpPageFetcher(Settings(proxy=proxy, ca_file=str(web.ca_file)))
        assert "How sorting works" in (await fetch("http://plain.example.org/", "en")).text
        assert "How sorting works" in (await fetch("https://blog.example.com/posts/sorting", "en")).text
        with pytest.raises(PageError, match="certificate refused"):
            await HttpPageFetcher(Settings(proxy=proxy))("http://plain.example.org/", "en")
        await fetch.aclose()


@pytest.mark.anyio
async def test_what_a_proxy_or_the_host_behind_it_refuses_has_its_reason(web: SimulatedWeb) -> None:
    fetch = HttpPageFetcher(Settings(proxy=web.proxy_url(), ca_file=str(web.ca_file)))
    socks = HttpPageFetcher(Settings(proxy=web.proxy_url("socks5"), ca_file=str(web.ca_file)))
    for host, fault, reasons in (
        ("a.example.com", "dns", "proxy failed"),
        ("b.example.com", "refused", "proxy failed"),
        ("c.example.com", "certificate", "certificate refused"),
        ("d.example.com", "misnamed", "certificate refused"),
    ):
        web.set_host(host, fault)
        for way in (fetch, socks):
            with pytest.raises(PageError, match=reasons):
                await way(f"https://{host}/", "en")


@pytest.mark.anyio
async def test_a_proxy_that_is_gone_or_of_an_unknown_kind_costs_the_page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PageError, match="unreachable"):
        await HttpPageFetcher(Settings(proxy="http://127.0.0.1:1"))("https://example.com/", "en")
    monkeypatch.setenv("ALL_PROXY", "quic://127.0.0.1:1")
    with pytest.raises(PageError, match="proxy failed"):
        await HttpPageFetcher(Settings())("https://example.com/", "en")


@pytest.mark.anyio
async def test_an_ipv6_address_goes_through_socks_but_not_through_an_http_proxy(web: SimulatedWeb) -> None:
    url = f"http://[{PUBLIC_IPV6}]/"
    web.add_page(url, "<p>Some text</p>")
    with pytest.raises(PageError, match="bad address"):
        await HttpPageFetcher(Settings(proxy=web.proxy_url()))(url, "en")
    web.set_host(PUBLIC_IPV6, "ok")
    assert (await HttpPageFetcher(Settings(proxy=web.proxy_url("socks5")))(url, "en")).text == "<p>Some text</p>"


@pytest.mark.anyio
async def test_no_connection_stays_open_behind_a_page(web: SimulatedWeb) -> None:
    fetch = HttpPageFetcher(Settings(proxy=web.proxy_url(), ca_file=str(web.ca_file)))
    for path in ("reset", "no-http", "bomb/nested", "large", "not-gzip"):
        with suppress(PageError):
            await fetch(f"https://hostile.example.net/{path}", "en")
    transport: Any = fetch._client._transport  # type: ignore[union-attr]
    assert [pool._pool.connections for pool in transport._transports.values()] == [[]]
    await fetch.aclose()
