"""The way to the simulated web without a proxy: names resolve to public addresses, connections end up on loopback.

Python's sockets are patched, in the test's own process (fixture `direct_web`) or in a child's (`direct_env`); what a
program resolved and where it connected can then be compared, and a name can resolve to another address each time.
Standard library only: a child loads this file by itself before anything else.
"""

import ipaddress
import json
import os
import socket
import threading
from typing import Any

VARIABLE = "SIMULATED_WEB_DIRECT"
LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::ffff:127.0.0.1"}
SITECUSTOMIZE = f"""
import importlib.util, os
if os.environ.get({VARIABLE!r}):
    spec = importlib.util.spec_from_file_location("direct_sockets", {__file__!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install_from_environment()
"""


class DirectSockets:
    """What stands in for `socket.getaddrinfo` and `socket.socket.connect`.

    `addresses` maps a name to the answers it gives one after another (the last one stays), each a list of addresses.
    Ports in `open_ports` of loopback are left alone: the simulated web's own proxies. Everything else goes to `port`,
    however private the address: what would answer there is the web's affair. `connected` lists where to, in order.
    """

    def __init__(self, port: int, open_ports: list[int], addresses: dict[str, list[list[str]]]) -> None:
        self.port = port
        self.open_ports = open_ports
        self.addresses = {name: list(answers) for name, answers in addresses.items()}
        self.connected: list[tuple[str, int]] = []
        self.looked_up: list[str] = []
        self._lock = threading.Lock()
        self._look_up = socket.getaddrinfo
        self._connect = socket.socket.connect

    def getaddrinfo(self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or is_address(name) or name == "localhost":
            return self._look_up(host, port, family, type, proto, flags)
        with self._lock:
            self.looked_up.append(name)
            answers = self.addresses.get(name.rstrip(".").lower())
            if not answers:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        found = []
        for address in answer:
            try:
                found += self._look_up(address, port, family, type or socket.SOCK_STREAM, proto, flags)
            except socket.gaierror:  # an address of the family that was not asked for
                continue
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    def connect(self, connection: socket.socket, address: Any) -> None:
        if connection.family not in LOOPBACK:
            return self._connect(connection, address)
        host, port = address[0], address[1]
        if port in self.open_ports and ipaddress.ip_address(host).is_loopback:
            return self._connect(connection, address)
        self.connected.append((host, port))
        return self._connect(connection, (LOOPBACK[connection.family], self.port))

    def install(self) -> None:
        sockets: Any = socket  # a module's functions are not meant to be assigned to
        sockets.getaddrinfo = self.getaddrinfo
        sockets.socket.connect = lambda connection, address: self.connect(connection, address)

    def to_json(self) -> str:
        return json.dumps({"port": self.port, "open_ports": self.open_ports, "addresses": self.addresses})


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def install_from_environment() -> None:
    DirectSockets(**json.loads(os.environ[VARIABLE])).install()
