"""What every test stands on: a clean environment, no way out of this machine, and a simulated web on request."""

import ipaddress
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.direct_sockets import DirectSockets, is_address
from tests.simulated_web import Authority, SimulatedWeb, strip_network_variables
from tests.stdio_client import BINARY_VARIABLE

# No clock (a busy machine would fail the test), the same examples in each run, and nothing kept on disk.
settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


@pytest.fixture
def anyio_backend() -> str:
    """The program runs on asyncio, so do its tests."""
    return "asyncio"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, certificate or setting of the machine reaches a test; only the program under test may be named."""
    settings = {name for name in os.environ if name.startswith("AGENT_WEB_SEARCH_")} - {BINARY_VARIABLE}
    for name in settings | (set(os.environ) - set(strip_network_variables(os.environ))):
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_real_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that would leave this machine fails the test that tried it; so does looking up a name.

    It holds for Python's sockets in this process. primp connects on its own, but finds no route without a proxy.
    """
    connect, connect_ex, look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        check_local(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        check_local(self, address)
        return connect_ex(self, address)

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not (is_local(host) or is_address(host)):
            pytest.fail(f"the test looked up {host!r}; use the simulated web", pytrace=True)
        return look_up(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)


def check_local(connection: socket.socket, address: Any) -> None:
    if connection.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
        pytest.fail(f"the test connected to {address!r}; use the simulated web", pytrace=True)


def is_local(host: Any) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    if not is_address(name):
        return False
    address = ipaddress.ip_address(name)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@pytest.fixture(autouse=True)
def own_log_level() -> Iterator[None]:
    """The command line sets the logger's level, which would outlive the test."""
    yield
    logging.getLogger("agent_web_search").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def authority() -> Authority:
    """One certificate authority for the whole run, so that each host's key is made once."""
    return Authority()


@pytest.fixture
def web(authority: Authority) -> Iterator[SimulatedWeb]:
    """A simulated web of the test's own."""
    with SimulatedWeb(authority) as running:
        yield running


@pytest.fixture
def direct_sockets(web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch) -> DirectSockets:
    """The simulated web without a proxy for this process: `addresses` may be changed, `connected` says where to."""
    sockets = web.direct_sockets()
    monkeypatch.setenv("SSL_CERT_FILE", str(web.ca_file))
    monkeypatch.setattr(socket, "getaddrinfo", sockets.getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", lambda connection, address: sockets.connect(connection, address))
    return sockets


@pytest.fixture
def through_web(web: SimulatedWeb, monkeypatch: pytest.MonkeyPatch) -> SimulatedWeb:
    """The simulated web, with the proxy and certificate variables of this process leading to it."""
    for name, value in web.env().items():
        monkeypatch.setenv(name, value)
    return web
