"""A raw JSON-RPC client over real pipes, for the real process: nothing between a test and the bytes.

    with ServerProcess(env=web.env()) as server:
        server.initialize()
        answer = server.call(search_query="sorting")
        assert len(answer.results) == 10

The program is `agent_web_search.py` under this interpreter, or the binary that `AGENT_WEB_SEARCH_BIN` names.
Leaving the `with` block fails the test if a line of stdout was not JSON-RPC.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulated_web import strip_network_variables

MODULE = Path(__file__).parent.parent / "agent_web_search.py"
BINARY_VARIABLE = "AGENT_WEB_SEARCH_BIN"
REPLY_SECONDS = 60.0  # no test waits longer than this for anything; a call's own clock is 20 s
TOOL_NAME = "web_search_prime"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
CLIENT_INFO = {"name": "raw-client", "version": "1.0"}


def program() -> list[str]:
    """The command that starts the program under test."""
    binary = os.environ.get(BINARY_VARIABLE)
    return [str(Path(binary).resolve())] if binary else [sys.executable, str(MODULE)]


def program_environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """This environment without proxies, certificates and the program's settings, plus `env`."""
    clean = strip_network_variables(os.environ)
    return {name: value for name, value in clean.items() if not name.startswith("AGENT_WEB_SEARCH_")} | dict(env or {})


def run_program(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end, as from a shell."""
    return subprocess.run(
        [*program(), *arguments],
        input=stdin,
        env=program_environment(env),
        cwd=cwd,
        capture_output=True,
        timeout=REPLY_SECONDS,
        check=False,
    )


@dataclass(frozen=True)
class ToolAnswer:
    """The result of a tool call as the wire has it, and the parts of it that tests ask for."""

    raw: dict[str, Any]

    @property
    def is_error(self) -> bool:
        return bool(self.raw.get("isError", False))

    @property
    def texts(self) -> list[str]:
        return [block["text"] for block in self.raw["content"]]

    @property
    def results(self) -> list[dict[str, str]]:
        assert not self.is_error, self.texts
        results: list[dict[str, str]] = json.loads(self.texts[0])
        return results

    @property
    def diagnostics(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["_meta"]["agent-web-search/diagnostics"]
        return found


class ServerProcess:
    """The program serving stdio. Every wait is bounded by `REPLY_SECONDS` and fails with what stderr said.

    `env` is added to this environment (without its proxies); with `bare=True` it is all that the process gets.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        *,
        bare: bool = False,
        cwd: Path | None = None,
    ) -> None:
        self._command = [*program(), *arguments]
        self._env = dict(env or {}) if bare else program_environment(env)
        self._cwd = cwd
        self._changed = threading.Condition()
        self._stderr = bytearray()
        self._next_id = 0
        self._stdout_ended = False
        self.messages: list[dict[str, Any]] = []
        self.bad_lines: list[bytes] = []

    def __enter__(self) -> "ServerProcess":
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, cwd=self._cwd
        )
        self._readers = [
            threading.Thread(target=reader, daemon=True) for reader in (self._read_stdout, self._read_stderr)
        ]
        for thread in self._readers:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream and not stream.closed:
                with suppress(OSError):  # what stdin still had to say found no reader
                    stream.close()
        if exc_info == (None, None, None):
            assert not self.bad_lines, f"lines on stdout that are not JSON-RPC: {self.bad_lines[:3]}"

    # Sending

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are, line break included."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        self.send_raw(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})})

    def start(self, method: str, params: Mapping[str, Any] | None = None, request_id: Any = None) -> Any:
        """Send a request and return its id at once."""
        if request_id is None:
            self._next_id += 1
            request_id = self._next_id
        body = {"jsonrpc": "2.0", "id": request_id, "method": method}
        self.send({**body, **({"params": params} if params is not None else {})})
        return request_id

    def start_call(self, /, request_id: Any = None, meta: Mapping[str, Any] | None = None, **arguments: Any) -> Any:
        params: dict[str, Any] = {"name": TOOL_NAME, "arguments": arguments}
        return self.start("tools/call", {**params, **({"_meta": meta} if meta is not None else {})}, request_id)

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    # Waiting

    def wait_for(self, condition: Callable[[], Any], what: str, seconds: float = REPLY_SECONDS) -> Any:
        """The first true value of `condition`, asked again whenever something arrives."""
        with self._changed:
            value = self._changed.wait_for(lambda: condition() or self._stdout_ended, seconds) and condition()
        assert value, f"no {what}; exit status {self.process.poll()}, stderr: {self.stderr[-2000:]}"
        return value

    def reply(self, request_id: Any) -> dict[str, Any]:
        """The reply to a request, `result` or `error` as it is."""
        replies: list[dict[str, Any]] = self.wait_for(lambda: self.replies(request_id), f"reply to {request_id!r}")
        return replies[0]

    def replies(self, request_id: Any) -> list[dict[str, Any]]:
        """Every reply to a request so far (one that was cancelled must stay without)."""
        return [m for m in list(self.messages) if "method" not in m and m.get("id") == request_id]

    def notifications(self, method: str) -> list[dict[str, Any]]:
        return [m["params"] for m in list(self.messages) if m.get("method") == method]

    def wait(self, seconds: float = REPLY_SECONDS) -> int:
        """The exit status, once the process has ended and both its streams are read to the end."""
        status = self.process.wait(seconds)
        for thread in self._readers:
            thread.join(seconds)
        return status

    @property
    def stderr(self) -> str:
        return self._stderr.decode("utf-8", "replace")

    # Speaking MCP

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its reply."""
        return self.reply(self.start(method, params))

    def initialize(self, version: str = LEGACY_VERSIONS[-1], client_info: Mapping[str, str] | None = None) -> Any:
        """The handshake of the versions up to 2025-11-25; returns its result."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client_info or CLIENT_INFO}
        reply = self.request("initialize", params)
        self.notify("notifications/initialized")
        return reply["result"]

    def call(self, **arguments: Any) -> ToolAnswer:
        """Call the tool and wait for its answer."""
        return self.answer(self.start_call(**arguments))

    def answer(self, request_id: Any) -> ToolAnswer:
        """The answer to a call that `start_call` began."""
        reply = self.reply(request_id)
        assert "result" in reply, reply
        return ToolAnswer(reply["result"])

    # Reading

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = parse_message(line)
            with self._changed:
                if message is None:
                    self.bad_lines.append(line)
                else:
                    self.messages.append(message)
                self._changed.notify_all()
        with self._changed:
            self._stdout_ended = True
            self._changed.notify_all()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while chunk := self.process.stderr.read1(1 << 16):  # type: ignore[attr-defined]
            self._stderr += chunk


def modern_meta(**more: Any) -> dict[str, Any]:
    """What every request of 2026-07-28 carries in place of a handshake."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
        "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


def parse_message(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON-RPC 2.0 message, None if it is none: a request, a notification, a result or an error."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not line.endswith(b"\n"):
        return None
    is_reply = ("result" in message) != ("error" in message) and "id" in message
    return message if is_reply or isinstance(message.get("method"), str) else None
