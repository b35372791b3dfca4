"""A small internet on 127.0.0.1, behind a proxy: search engines, pages of every kind, and faults to choose.

Programs reach it unchanged, through the standard proxy and certificate variables:

    with SimulatedWeb() as web:
        web.set_engine("duckduckgo", "429:30")
        web.add_page("https://docs.example.org/new", "<p>Text</p>")
        subprocess.run([...], env={**os.environ, **web.env()})
        assert web.searches[0].query == "sorting"

One port speaks HTTP (CONNECT and absolute-form requests), another SOCKS5; both lead to the same hosts, by name and by
address. Certificates come from a throw-away CA. A host without a page does not resolve. A third port is the
hosts themselves, for programs that use no proxy (`direct_sockets`). From a shell:

    python -m tests.simulated_web -- agent-web-search search "sorting"
    python -m tests.simulated_web --engine duckduckgo=202 -- agent-web-search search "sorting"
    python -m tests.simulated_web --serve
"""

import argparse
import base64
import collections
import os
import shlex
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import parse_headers
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

import trustme

from tests.direct_sockets import SITECUSTOMIZE, VARIABLE, DirectSockets, is_address
from tests.simulated_engines import (
    ENGINE_BY_HOST,
    ENGINES,
    FAULTS,
    HOST_FAULTS,
    STARTPAGE_HOME,
    STARTPAGE_TOKEN,
    Fault,
    RateLimit,
    Search,
    answer_search,
    hits_for_query,
    read_search,
)
from tests.simulated_pages import DEFAULT_HITS, Body, Hit, Response, default_pages, page

__all__ = ["Authority", "Hit", "Request", "Response", "SimulatedWeb", "Tunnel", "page", "strip_network_variables"]

IDLE_SECONDS = 60.0  # a connection that a client forgot ends by itself
NETWORK_VARIABLES = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "DDGS_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PRIMP_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
DEFAULT_PORTS = {"http": 80, "https": 443}
TLS_HANDSHAKE_RECORD = b"\x16"
MISNAMED_HOST = "misnamed.invalid"
DIRECT_HOST = "direct.invalid"
PROXY_STATUS_BY_FAULT = {"dns": 502, "refused": 503}
SOCKS_REPLY_BY_FAULT = {"dns": 4, "refused": 5}


def strip_network_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without proxy and certificate variables, in either case."""
    return {name: value for name, value in environment.items() if name.upper() not in NETWORK_VARIABLES}


# -- Records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tunnel:
    """What a proxy was asked to connect to, whatever became of it: `via` is `http`, `connect` or `socks5`."""

    via: str
    host: str
    port: int


@dataclass(frozen=True)
class Request:
    """A request that arrived. Header names are in lower case; `url` has the name that the client gave as `Host`."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    tunnel: Tunnel

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def path(self) -> str:
        """Path and query, as sent."""
        parts = urlsplit(self.url)
        return parts.path + ("?" + parts.query if parts.query else "")

    @property
    def params(self) -> dict[str, str]:
        """The query's parameters and, in a POST, the form's."""
        form = self.body.decode("utf-8", "replace") if self.method == "POST" else ""
        return dict(parse_qsl(urlsplit(self.url).query) + parse_qsl(form, keep_blank_values=True))

    @property
    def cookies(self) -> dict[str, str]:
        return {name: morsel.value for name, morsel in SimpleCookie(self.headers.get("cookie", "")).items()}


class Authority:
    """A throw-away certificate authority: one TLS context per host, made on first use. Safe to share between webs."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def context(self, host: str) -> ssl.SSLContext:
        """A server's context for a host. A client that names another host (SNI) gets that one's certificate."""
        with self._lock:
            if host not in self._contexts:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.set_alpn_protocols(["http/1.1"])
                self.ca.issue_cert(host).configure_cert(context)
                if host != MISNAMED_HOST:
                    context.sni_callback = self._choose
                self._contexts[host] = context
            return self._contexts[host]

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name:
            connection.context = self.context(name)


@dataclass
class EngineState:
    """The faults an engine still has to show (the last one stays) and, under a limit, when it was asked."""

    faults: list[Fault] = field(default_factory=lambda: [Fault("ok")])
    hits: Sequence[Hit] | None = None
    asked_at: collections.deque[float] = field(default_factory=collections.deque)
    blocked_until: float = 0.0

    def next_fault(self, now: float) -> Fault:
        fault = self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]
        return self.limited(RateLimit.parse(fault.argument), now) if fault.kind == "limit" else fault

    def limited(self, limit: RateLimit, now: float) -> Fault:
        if now < self.blocked_until:
            return Fault("202")
        self.asked_at.append(now)
        while self.asked_at[0] <= now - limit.window_seconds:
            self.asked_at.popleft()
        if len(self.asked_at) <= limit.requests:
            return Fault("ok")
        self.blocked_until = now + limit.block_seconds
        return Fault("202")


# -- The web -----------------------------------------------------------------------------------------------------------


class SimulatedWeb:
    """The internet behind the proxy. Start it with `with`; every method may be called while it serves.

    `authority` can be shared to save time. `credentials` ("name", "password") are what both proxies then ask for.
    `clock` is what the rate limiter reads, in seconds.
    """

    def __init__(
        self,
        authority: Authority | None = None,
        credentials: tuple[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.authority = authority or Authority()
        self.credentials = credentials
        self.clock = clock
        self.requests: list[Request] = []
        self.searches: list[Search] = []
        self.tunnels: list[Tunnel] = []
        self.errors: list[BaseException] = []
        self._unknown_authority: Authority | None = None
        self._pages = dict(default_pages())
        self._hosts = {host_of(url) for url in self._pages} | set(ENGINE_BY_HOST) | {"duckduckgo.com"}
        self._host_faults: dict[str, Fault] = {}
        self._engines = {name: EngineState() for name in ENGINES}
        self._lock = threading.RLock()
        self._arrival = threading.Condition(self._lock)
        self._released = threading.Event()
        self.closing = threading.Event()

    # What tests set

    def set_engine(self, name: str, *faults: str) -> None:
        """The engine's answers in order; the last one stays. `FAULTS` lists the spellings."""
        if name not in ENGINES:
            raise ValueError(f"unknown engine {name!r}; known are {', '.join(ENGINES)}")
        parsed = [Fault.parse(fault) for fault in faults]
        if parsed[-1].kind in HOST_FAULTS:
            self.set_host(ENGINES[name].host, parsed[-1].kind)
            return
        with self._lock:
            self._host_faults.pop(ENGINES[name].host, None)
            self._engines[name].faults = parsed

    def set_host(self, host: str, fault: str) -> None:
        """One of `HOST_FAULTS` for every connection to a host; "ok" takes it back."""
        with self._lock:
            self._hosts.add(host)
            self._host_faults[host] = Fault.parse(fault)

    def results(self, hits: Sequence[Hit], engine: str | None = None) -> None:
        """What an engine (or each of them) finds from now on, exactly so, for any query."""
        for name in [engine] if engine else list(ENGINES):
            self._engines[name].hits = list(hits)

    def add_page(
        self,
        url: str,
        body: Response | str | bytes | Callable[[], Body],
        content_type: str | None = "text/html",
        *,
        charset: str | None = None,
        status: int = 200,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """A page under an exact URL; text is encoded as `charset` (default UTF-8), which the header names if given."""
        if isinstance(body, str):
            body = body.encode(charset or "utf-8")
        if not isinstance(body, Response):
            typed = f"{content_type}; charset={charset}" if content_type and charset else content_type
            body = page(body, typed, status=status, headers=tuple(headers))
        with self._lock:
            self._pages[url] = body
            self._hosts.add(host_of(url))

    def release(self) -> None:
        """Let every held answer (`hang`, `held`) go on, now and later."""
        self._released.set()

    # What tests read

    def proxy_url(self, scheme: str = "http", credentials: bool = True) -> str:
        """The proxy's URL; any scheme but `http` (`socks5`, `socks5h`) is the SOCKS front."""
        user = f"{self.credentials[0]}:{self.credentials[1]}@" if self.credentials and credentials else ""
        return f"{scheme}://{user}127.0.0.1:{self.http_port if scheme == 'http' else self.socks_port}"

    def env(self, scheme: str = "http", credentials: bool = True) -> dict[str, str]:
        """The variables that lead a program here: proxies, and the CA as its only one."""
        proxy = self.proxy_url(scheme, credentials)
        names = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") if scheme == "http" else ("ALL_PROXY",)
        return {**dict.fromkeys(names, proxy), "SSL_CERT_FILE": str(self.ca_file)}

    def direct_sockets(self, addresses: Mapping[str, Sequence[Sequence[str]]] | None = None) -> DirectSockets:
        """Sockets that reach this web without a proxy. Each host has a public address of its own; `addresses` gives
        names others, one answer after another."""
        with self._lock:
            names = sorted(name for name in self._hosts if not is_address(name) and "." in name)
            public = {name: [[f"93.184.{216 + number // 250}.{1 + number % 250}"]] for number, name in enumerate(names)}
        given = {name: [list(answer) for answer in answers] for name, answers in (addresses or {}).items()}
        return DirectSockets(self.direct_port, [self.http_port, self.socks_port], {**public, **given})

    def direct_env(self, addresses: Mapping[str, Sequence[Sequence[str]]] | None = None) -> dict[str, str]:
        """The variables that lead a Python program here without a proxy, but for its engines (primp has its own
        sockets): these go by `DDGS_PROXY`. `Request.tunnel` does not say the address then."""
        folder = Path(self._folder.name, "site")
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
        return {
            "DDGS_PROXY": self.proxy_url(),
            "SSL_CERT_FILE": str(self.ca_file),
            "PYTHONPATH": str(folder),
            VARIABLE: self.direct_sockets(addresses).to_json(),
        }

    def requests_to(self, host: str) -> list[Request]:
        return [request for request in self.requests if request.host == host]

    def wait_for_request(self, host: str, count: int = 1, timeout_seconds: float = 30.0) -> Request:
        """Wait until a host has had `count` requests, return the last of these; TimeoutError if they do not come."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.requests_to(host)) >= count, timeout_seconds):
                raise TimeoutError(f"{host} had {len(self.requests_to(host))} requests, not {count}")
            return self.requests_to(host)[count - 1]

    # Serving

    def __enter__(self) -> "SimulatedWeb":
        self._folder = tempfile.TemporaryDirectory(prefix="simulated-web-")
        self.ca_file = Path(self._folder.name, "ca.pem")
        self.authority.ca.cert_pem.write_to_path(str(self.ca_file))
        handlers: list[type[ConnectionHandler]] = [HttpProxyHandler, SocksHandler, DirectHandler]
        self._servers = [ProxyServer(self, handler) for handler in handlers]
        self.http_port, self.socks_port, self.direct_port = (server.server_address[1] for server in self._servers)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Ends every connection; raises what went wrong inside the web itself."""
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.close_connections()
            server.server_close()
        self._folder.cleanup()
        if self.errors and exc_info == (None, None, None):
            raise self.errors[0]

    def host_fault(self, host: str) -> str:
        with self._lock:
            if host not in self._hosts:
                return "dns"
            return self._host_faults.get(host, Fault("ok")).kind

    def tls_context(self, host: str) -> ssl.SSLContext:
        """The host's certificate, or a wrong one where a fault says so."""
        fault = self.host_fault(host)
        if fault == "certificate":
            with self._lock:
                self._unknown_authority = self._unknown_authority or Authority()
            return self._unknown_authority.context(host)
        return self.authority.context(MISNAMED_HOST if fault == "misnamed" else host)

    def wait(self, seconds: float) -> None:
        """Pass the time, or end with the web."""
        self.closing.wait(seconds)

    def wait_for_release(self) -> None:
        while not (self._released.is_set() or self.closing.is_set()):
            self._released.wait(0.05)

    def respond(self, request: Request) -> Response:
        """The answer to a request: an engine's, a page's, or 404."""
        with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()
        engine = ENGINE_BY_HOST.get(request.host)
        path = urlsplit(request.url).path.partition(";")[0]
        if engine and path.rstrip("/") == ENGINES[engine].path.rstrip("/"):
            return self.respond_as_engine(engine, request)
        if engine == "startpage":
            return page(STARTPAGE_HOME)
        if request.host == "duckduckgo.com" and request.path.startswith("/l/?"):
            return page(b"", None, status=302, headers=(("Location", request.params.get("uddg", "/")),))
        with self._lock:
            found = self._pages.get(request.url) or self._pages.get(request.url.partition("?")[0])
        return found or page("<html><head><title>404</title></head><body>Not found</body></html>", status=404)

    def respond_as_engine(self, name: str, request: Request) -> Response:
        with self._lock:
            state = self._engines[name]
            fault = state.next_fault(self.clock())
            if name == "startpage" and request.params.get("sc") != STARTPAGE_TOKEN:
                fault = Fault("200-challenge")
            search = read_search(name, request.params, request.cookies, fault)
            self.searches.append(search)
            hits = state.hits if state.hits is not None else hits_for_query(DEFAULT_HITS, search.query)
        return answer_search(search, fault, hits)


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


# -- Servers -----------------------------------------------------------------------------------------------------------


class ProxyServer(socketserver.ThreadingTCPServer):
    """A listener on a free port of 127.0.0.1, a thread per connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, web: SimulatedWeb, handler: type["ConnectionHandler"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.web = web
        self.connections: set[socket.socket] = set()

    def close_connections(self) -> None:
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error; anything else is one of ours and is raised when the web closes."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.web.errors.append(error)


class ConnectionHandler(socketserver.BaseRequestHandler):
    """One connection. Subclasses speak a proxy protocol, then hand over to `serve_tunnel`."""

    server: ProxyServer

    def setup(self) -> None:
        self.web = self.server.web
        self.connection: socket.socket = self.request
        self.connection.settimeout(IDLE_SECONDS)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader: BinaryIO = self.connection.makefile("rb")
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with suppress(OSError, ValueError):
            self.reader.close()
        self.connection.close()

    def open_tunnel(self, via: str, host: str, port: int) -> tuple[Tunnel, str]:
        """Note what was asked for; the host's fault decides what the proxy says."""
        tunnel = Tunnel(via, host, port)
        self.web.tunnels.append(tunnel)
        fault = self.web.host_fault(host)
        if fault == "connect-hang":
            self.web.wait_for_release()
        return tunnel, fault

    def serve_tunnel(self, tunnel: Tunnel) -> None:
        """What the client sends through the tunnel says whether it is TLS."""
        scheme = "http"
        if self.connection.recv(1, socket.MSG_PEEK) == TLS_HANDSHAKE_RECORD:
            scheme = "https"
            self.start_tls(tunnel.host)
        while request := self.read_request(scheme, tunnel):
            if not self.send(self.web.respond(request), request):
                return

    def start_tls(self, host: str) -> None:
        plain = self.connection
        self.reader.close()
        self.connection = self.web.tls_context(host).wrap_socket(plain, server_side=True)
        self.server.connections.discard(plain)
        self.server.connections.add(self.connection)
        self.reader = self.connection.makefile("rb")

    def read_request(self, scheme: str, tunnel: Tunnel) -> Request | None:
        """The next request of a keep-alive connection; None at its end."""
        line = self.reader.readline(1 << 16).decode("latin-1").split()
        return self.finish_request(line[0], line[1], scheme, tunnel) if len(line) == 3 else None

    def finish_request(self, method: str, target: str, scheme: str, tunnel: Tunnel | None) -> Request:
        headers = {name.lower(): value for name, value in parse_headers(self.reader).items()}
        body = self.reader.read(int(headers.get("content-length", 0)))
        if tunnel is None:  # absolute form
            parts = urlsplit(target)
            tunnel = Tunnel("http", parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])
            url = target if parts.path else target + "/"
        else:
            url = f"{scheme}://{headers.get('host', tunnel.host)}{target}"
        return Request(method, without_default_port(url), headers, body, tunnel)

    # Answers

    def send(self, response: Response, request: Request) -> bool:
        """Send a response; True if the connection can serve another request."""
        self.web.wait(response.delay_seconds)
        if response.held:
            self.web.wait_for_release()
        if self.web.closing.is_set():
            return False
        if response.raw is not None:
            self.connection.sendall(response.raw)
        else:
            self.send_head_and_body(response, request)
        if response.ending == "stall":
            self.web.closing.wait()
        if response.ending == "reset":
            self.reset()
        keep = response.raw is None and request.headers.get("connection", "").lower() != "close"
        return keep and response.ending == "complete"

    def send_head_and_body(self, response: Response, request: Request) -> None:
        body = response.body() if callable(response.body) else response.body
        has_body = request.method != "HEAD" and response.status not in (204, 304)
        lines = [f"HTTP/1.1 {response.status} {reason(response.status)}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        named = {name.lower() for name, _ in response.headers}
        if not isinstance(body, bytes):
            lines.append("Transfer-Encoding: chunked")
        elif "content-length" not in named and response.status not in (204, 304):
            # More than there is, where the body stops short: the client must not take it for the whole page.
            lines.append(f"Content-Length: {len(body) + (response.ending != 'complete')}")
        self.connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if not has_body:
            return
        if isinstance(body, bytes):
            self.connection.sendall(body)
        else:
            self.send_chunks(body, response.pause_seconds)

    def send_chunks(self, chunks: Iterator[bytes], pause_seconds: float) -> None:
        for chunk in chunks:
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if pause_seconds and self.web.closing.wait(pause_seconds):
                return
        self.connection.sendall(b"0\r\n\r\n")

    def reset(self) -> None:
        """End with RST in place of FIN."""
        linger = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.reader.close()
        self.connection.close()


def reason(status: int) -> str:
    return BaseHTTPRequestHandler.responses.get(status, ("Unknown", ""))[0]


def without_default_port(url: str) -> str:
    scheme, _, rest = url.partition("://")
    netloc, slash, path = rest.partition("/")
    return f"{scheme}://{netloc.removesuffix(f':{DEFAULT_PORTS[scheme]}')}{slash}{path}"


class HttpProxyHandler(ConnectionHandler):
    """CONNECT for https, absolute-form requests for http."""

    def handle(self) -> None:
        while len(line := self.reader.readline(1 << 16).decode("latin-1").split()) == 3:
            method, target, _ = line
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                headers = {name.lower(): value for name, value in parse_headers(self.reader).items()}
                return self.connect(host.strip("[]"), int(port), headers)
            request = self.finish_request(method, target, "http", None)
            if not self.forward(request):
                return None
        return None

    def authorized(self, headers: Mapping[str, str]) -> bool:
        if self.web.credentials is None:
            return True
        expected = base64.b64encode(":".join(self.web.credentials).encode()).decode()
        return headers.get("proxy-authorization") == f"Basic {expected}"

    def connect(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        if not self.authorized(headers):
            return self.refuse(407, "Proxy-Authenticate: Basic realm=simulated\r\n")
        tunnel, fault = self.open_tunnel("connect", host, port)
        if fault in PROXY_STATUS_BY_FAULT:
            return self.refuse(PROXY_STATUS_BY_FAULT[fault])
        self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return self.serve_tunnel(tunnel)

    def refuse(self, status: int, headers: str = "") -> None:
        self.connection.sendall(
            f"HTTP/1.1 {status} {reason(status)}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )

    def forward(self, request: Request) -> bool:
        if not self.authorized(request.headers):
            return self.send(page(status=407, headers=(("Proxy-Authenticate", "Basic realm=simulated"),)), request)
        _, fault = self.open_tunnel("http", request.tunnel.host, request.tunnel.port)
        if fault in PROXY_STATUS_BY_FAULT:
            return self.send(page(status=PROXY_STATUS_BY_FAULT[fault]), request)
        return self.send(self.web.respond(request), request)


class SocksHandler(ConnectionHandler):
    """SOCKS5 (RFC 1928), without authentication or with user name and password (RFC 1929)."""

    def handle(self) -> None:
        _, count = self.take(2)
        methods = self.take(count)
        method = 2 if self.web.credentials else 0
        if method not in methods:
            self.connection.sendall(b"\x05\xff")
            return
        self.connection.sendall(bytes((5, method)))
        if method == 2 and not self.authenticate():
            return
        _, _, _, kind = self.take(4)
        host = self.read_address(kind)
        port = int.from_bytes(self.take(2), "big")
        tunnel, fault = self.open_tunnel("socks5", host, port)
        reply = SOCKS_REPLY_BY_FAULT.get(fault, 0)
        self.connection.sendall(bytes((5, reply, 0, 1, 127, 0, 0, 1, 0, 0)))
        if not reply:
            self.serve_tunnel(tunnel)

    def authenticate(self) -> bool:
        self.take(1)
        name = self.take(self.take(1)[0]).decode()
        password = self.take(self.take(1)[0]).decode()
        accepted = (name, password) == self.web.credentials
        self.connection.sendall(b"\x01\x00" if accepted else b"\x01\x01")
        return accepted

    def read_address(self, kind: int) -> str:
        if kind == 1:
            return socket.inet_ntop(socket.AF_INET, self.take(4))
        if kind == 4:
            return socket.inet_ntop(socket.AF_INET6, self.take(16))
        return self.take(self.take(1)[0]).decode()

    def take(self, count: int) -> bytes:
        """Exactly `count` bytes; ConnectionError if the client leaves before."""
        data = self.reader.read(count)
        if len(data) < count:
            raise ConnectionError("the client left in the handshake")
        return data


class DirectHandler(ConnectionHandler):
    """No proxy: the client takes this for the host itself, and names it by SNI or `Host`."""

    def handle(self) -> None:
        self.serve_tunnel(Tunnel("direct", DIRECT_HOST, 0))


# -- Command line ------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command against the web (its status is ours), or serve until interrupted."""
    own, command = split_command(sys.argv[1:] if argv is None else list(argv))
    parser = build_parser()
    options = parser.parse_args(own)
    if not command and not options.serve:
        parser.error("give a command after --, or --serve")
    with SimulatedWeb() as web:
        for setting in options.engine:
            name, _, fault = setting.partition("=")
            try:
                web.set_engine(name, fault)
            except ValueError as error:
                parser.error(f"--engine {setting}: {error}")
        variables = web.env(options.proxy)
        if options.serve:
            sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                web.closing.wait()
            return 0
        environment = {**strip_network_variables(os.environ), **variables}
        try:
            return subprocess.run(command, env=environment, check=False).returncode
        except FileNotFoundError:
            parser.error(f"no such command: {command[0]}")


def build_parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {name:14} {what}" for name, what in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulated_web",
        description="Run a command against a simulated internet.",
        epilog=f"engines: {', '.join(ENGINES)}\nfaults:\n{faults}",
        usage="%(prog)s [options] -- COMMAND ARGUMENTS...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", action="append", default=[], metavar="NAME=FAULT", help="what an engine answers")
    parser.add_argument("--proxy", choices=("http", "socks5", "socks5h"), default="http", help="default: %(default)s")
    parser.add_argument("--serve", action="store_true", help="print export lines and serve until interrupted")
    return parser


def split_command(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments and, after `--`, the command."""
    if "--" not in arguments:
        return arguments, []
    position = arguments.index("--")
    return arguments[:position], arguments[position + 1 :]


if __name__ == "__main__":
    sys.exit(main())
