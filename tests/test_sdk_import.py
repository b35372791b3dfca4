"""The SDK imported without its client and its higher server answers as the whole SDK does."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.stdio_client import MODULE
from tests.test_protocol import BAD_LINES, SESSIONS, UNANSWERED_LINES, handshake, request, to_bytes

SERVE = "import agent_web_search as a; a.serve(a.Settings(), [], use_prelude=False)"
WHOLE_SDK = "import mcp, mcp.server\n"
CREATE = "import json, sys, agent_web_search as a; a.import_sdk(); server = a.create_server()\n"
# The tool's calls that end before a search, and what a server without these features answers.
CALLS: list[dict[str, Any]] = [
    request(10, "tools/call", {"name": "web_search_prime", "arguments": {}}),
    request(11, "tools/call", {"name": "web_search_prime", "arguments": {"search_query": 5, "location": "mars"}}),
    request(12, "tools/call", {"name": "no_such_tool", "arguments": {}}),
    request(13, "tools/call", {"name": 5}),
    request(14, "tools/call"),
    request(15, "tools/list", {"cursor": "x"}),
    request(16, "resources/list"),
    request(17, "prompts/get", {"name": "x"}),
    request(18, "logging/setLevel", {"level": "debug"}),
    request(19, "completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}}),
    request(20, "no/such/method", {"x": [1]}),
    request(21, "initialize", {"protocolVersion": "2025-11-25"}),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
    {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
]
LINES: dict[str, bytes] = {
    **{name: to_bytes(messages) for name, messages in SESSIONS.items()},
    "calls": to_bytes([*handshake("2025-11-25"), *CALLS]),
    "calls without a handshake": to_bytes(CALLS),
    "bad lines": to_bytes(handshake("2025-06-18"))
    + b"".join(line + b"\n" for line in [*(case[0] for case in BAD_LINES.values()), *UNANSWERED_LINES]),
}


def run(code: str, stdin: bytes = b"") -> bytes:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=MODULE.parent, check=True, timeout=60).stdout


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_the_same_lines_are_written_as_with_the_whole_sdk(lines: bytes) -> None:
    """In any order: refusals of bad lines come from a thread of their own."""
    ours = sorted(run(SERVE, lines).splitlines())
    assert ours == sorted(run(WHOLE_SDK + SERVE, lines).splitlines())
    assert ours


def test_what_only_a_client_needs_is_not_loaded() -> None:
    modules = set(json.loads(run(CREATE + "print(json.dumps(list(sys.modules)))")))
    assert "mcp.server.lowlevel" in modules
    assert modules.isdisjoint({"mcp.client", "mcp.server.mcpserver", "cryptography", "httpx2", "jsonschema", "jwt"})


def test_the_client_can_be_imported_afterwards() -> None:
    code = (
        "from mcp import Client, types\n"
        "from mcp.server import Server\n"
        "import asyncio, mcp\n"
        "async def list_tools():\n"
        "    async with Client(server) as client:\n"
        "        return (await client.list_tools()).tools[0].name\n"
        "print(asyncio.run(list_tools()), isinstance(server, Server), type(mcp).__name__)"
    )
    assert run(CREATE + code) == b"web_search_prime True module\n"


def test_whatever_goes_wrong_the_sdk_is_imported_plainly() -> None:
    break_it = (
        "import agent_web_search as a, importlib\n"
        "real = importlib.import_module\n"
        "def fail(name, package=None):\n"
        "    module = real(name, package)\n"
        "    if name == 'mcp.server.lowlevel': raise AttributeError(name)\n"
        "    return module\n"
        "importlib.import_module = fail\n"
    )
    code = break_it + CREATE + "print(type(sys.modules['mcp']).__name__, 'mcp.client' in sys.modules)"
    assert run(code) == b"module True\n"
