"""The wire, byte for byte: what the process writes, what the SDK alone would write, and the golden files agree.

After a change of the tool's description or of the SDK:

    python -m tests.test_protocol            # writes the golden files anew, from the SDK's own answers
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, jsonrpc_message_adapter

import agent_web_search
from agent_web_search import EngineQuery, Page, PageError, Prelude, SearchHit, SearchOutcome, Settings, create_server
from tests.stdio_client import CLIENT_INFO, LEGACY_VERSIONS, MODULE, TOOL_NAME, ServerProcess, modern_meta, run_program

GOLDEN = Path(__file__).parent / "golden"
VERSION_MARK = "VERSION"  # stands for the program's version in the golden files


def request(request_id: Any, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return body if params is None else {**body, "params": params}


def handshake(version: str) -> list[dict[str, Any]]:
    """What a host of the versions up to 2025-11-25 sends before its first call."""
    greeting = {"protocolVersion": version, "capabilities": {"roots": {"listChanged": True}}, "clientInfo": CLIENT_INFO}
    return [
        request(0, "initialize", greeting),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("list-1", "tools/list", {"_meta": {"progressToken": 1}}),
        request(2, "ping"),
    ]


SESSIONS: dict[str, list[dict[str, Any]]] = {
    **{version: handshake(version) for version in LEGACY_VERSIONS},
    "unknown-version": handshake("2099-01-01"),
    "2026-07-28": [
        request("server-discover-probe-1", "server/discover", {"_meta": modern_meta()}),
        request(1, "tools/list", {"_meta": modern_meta(progressToken="t")}),
    ],
    "2026-07-28-without-discover": [request(0, "tools/list", {"_meta": modern_meta()})],
}


def to_bytes(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def golden_answers(name: str) -> bytes:
    """The answers of a golden file as the wire has them: compact, in the file's order of fields."""
    text = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    answers = json.loads(text.replace(f'"{VERSION_MARK}"', f'"{agent_web_search.__version__}"'))
    lines = [json.dumps(answer, ensure_ascii=False, separators=(",", ":")) for answer in answers]
    return "".join(line + "\n" for line in lines).encode()


def answers_of_the_sdk(stdin: bytes) -> bytes:
    """What the process writes when it leaves every answer to the SDK."""
    code = "import agent_web_search as a; a.serve(a.Settings(), [], use_prelude=False)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=stdin, capture_output=True, cwd=MODULE.parent, check=True, timeout=60
    )
    return done.stdout


# -- Golden files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SESSIONS)
def test_the_process_writes_the_golden_answers(name: str) -> None:
    done = run_program(stdin=to_bytes(SESSIONS[name]))
    assert (done.stdout, done.stderr, done.returncode) == (golden_answers(name), b"", 0)


@pytest.mark.parametrize("name", SESSIONS)
def test_the_sdk_alone_writes_the_golden_answers(name: str) -> None:
    assert answers_of_the_sdk(to_bytes(SESSIONS[name])) == golden_answers(name)


@pytest.mark.parametrize("name", SESSIONS)
def test_the_prelude_knows_every_golden_answer(name: str) -> None:
    prelude = Prelude()
    answers = [prelude.answer(json.dumps(message).encode()) for message in SESSIONS[name]]
    assert None not in answers
    assert "".join(f"{answer}\n" for answer in answers if answer).encode() == golden_answers(name)


def test_the_prelude_knows_the_installed_sdk() -> None:
    """When this fails, the SDK has a new version: run this file, look at the change, and raise `SDK_VERSION`."""
    assert agent_web_search.is_sdk_known()


def test_the_handshake_needs_no_heavy_import() -> None:
    code = (
        "import json, sys, agent_web_search as a\n"
        "prelude = a.Prelude() if a.is_sdk_known() else None\n"
        "answers = [prelude.answer(line) for line in sys.stdin.buffer]\n"
        "print(json.dumps([len(answers), answers.count(None), sorted(sys.modules)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=to_bytes(SESSIONS["2025-11-25"]),
        capture_output=True,
        cwd=MODULE.parent,
        check=True,
        timeout=60,
    )
    count, unknown_count, modules = json.loads(done.stdout)
    assert (count, unknown_count) == (4, 0)
    heavy = {"mcp", "mcp_types", "pydantic", "anyio", "ddgs", "primp", "httpx", "lxml", "readability"}
    assert heavy.isdisjoint(modules)


# -- The prelude against the SDK ---------------------------------------------------------------------------------------

ODD_VALUES = st.sampled_from(
    [None, True, 0, 1.5, "", "x", "é", '"', "\ud83d", {}, [], {"a": {}}, {"listChanged": True}]
)
CAPABILITIES = st.dictionaries(
    st.sampled_from(["roots", "sampling", "elicitation", "experimental", "extensions", "tasks", "other"]),
    st.one_of(
        ODD_VALUES, st.dictionaries(st.sampled_from(["listChanged", "form", "url", "tools"]), ODD_VALUES, max_size=2)
    ),
    max_size=2,
)
CLIENTS = st.dictionaries(
    st.sampled_from(["title", "websiteUrl", "icons", "version", "other"]), ODD_VALUES, max_size=1
).map(lambda extra: {**CLIENT_INFO, **extra})
VERSIONS = st.sampled_from([*LEGACY_VERSIONS, "2026-07-28", "2099-01-01", "", 5])
IDS = st.sampled_from([0, 1, "a", "é", "", '"', -1, 2**53, 2**70, None, True, 1.5])
EXTRA_META = st.dictionaries(
    st.sampled_from(["progressToken", "x/y", "io.modelcontextprotocol/logLevel"]), ODD_VALUES, max_size=1
)
GREETINGS = st.fixed_dictionaries(
    {"protocolVersion": VERSIONS, "capabilities": CAPABILITIES, "clientInfo": CLIENTS}, optional={"_meta": EXTRA_META}
)
ENVELOPES = st.builds(
    lambda version, info, capabilities, extra: {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": info,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            **extra,
        }
    },
    st.sampled_from(["2026-07-28", "2026-07-28", "2099-01-01"]),
    CLIENTS,
    CAPABILITIES,
    EXTRA_META,
)
PLAIN = st.one_of(st.just({}), ODD_VALUES, EXTRA_META.map(lambda meta: {"_meta": meta}), st.just({"cursor": "x"}))
REQUESTS = st.builds(
    request,
    IDS,
    st.sampled_from(["tools/list", "ping", "server/discover", "initialize", "no/such"]),
    st.one_of(PLAIN, ENVELOPES, GREETINGS),
)
INITIALIZED = st.just({"jsonrpc": "2.0", "method": "notifications/initialized"})
CONVERSATIONS = st.one_of(
    st.lists(REQUESTS, min_size=1, max_size=2),
    st.tuples(
        st.builds(lambda params: request(0, "initialize", params), GREETINGS),
        INITIALIZED,
        st.lists(st.one_of(REQUESTS, INITIALIZED), max_size=2),
    ).map(lambda parts: [parts[0], parts[1], *parts[2]]),
)


async def answer_with_sdk(lines: list[bytes]) -> list[str]:
    """The SDK's answer to each line in turn, "" for none."""
    server = create_server()
    to_server, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_server = anyio.create_memory_object_stream[SessionMessage](100)
    answers = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, read_stream, write_stream, server.create_initialization_options())
        for line in lines:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                answers.append("")
                continue
            await to_server.send(SessionMessage(message))
            is_request = b'"id"' in line
            reply = (await from_server.receive()).message if is_request else None
            answers.append(reply.model_dump_json(by_alias=True, exclude_unset=True) if reply else "")
        tasks.cancel_scope.cancel()
    return answers


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONVERSATIONS)
def test_whatever_the_prelude_answers_the_sdk_answers_the_same(conversation: list[dict[str, Any]]) -> None:
    lines = [json.dumps(message).encode() for message in conversation]
    prelude = Prelude()
    known = []
    for line in lines:
        answer = prelude.answer(line)
        if answer is None:
            break
        known.append(answer)
    assert known == anyio.run(answer_with_sdk, lines[: len(known)])


def test_lines_are_answered_once_though_the_sdk_sees_them_too() -> None:
    with ServerProcess() as server:
        server.send_raw(to_bytes(SESSIONS["2025-06-18"]))
        reply = server.request("tools/call", {"name": "no_such_tool", "arguments": {}})
        assert reply["error"]["code"] == -32602
        assert [message.get("id") for message in server.messages] == [0, "list-1", 2, reply["id"]]


# -- Both eras ---------------------------------------------------------------------------------------------------------


def test_a_version_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with ServerProcess() as server:
        meta = {**modern_meta(), "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
        error = server.request("tools/list", {"_meta": meta})["error"]
        assert (error["code"], error["data"]["supported"]) == (-32022, ["2026-07-28"])
        assert "result" in server.request("tools/list", {"_meta": modern_meta()})


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(modern_meta(), id="answered"),
        pytest.param(
            {**modern_meta(), "io.modelcontextprotocol/protocolVersion": "2099-01-01"}, id="of a later version"
        ),
        pytest.param({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, id="without the client's facts"),
    ],
)
def test_a_handshake_after_a_probe_is_answered_and_either_version_goes_on(probe: dict[str, Any]) -> None:
    """A host whose probe was answered late, or refused, asks for a handshake in the same process."""
    with ServerProcess() as server:
        server.request("server/discover", {"_meta": probe})
        assert server.initialize("2025-11-25")["protocolVersion"] == "2025-11-25"
        assert "tools" in server.request("tools/list")["result"]
        assert "Bad argument" in server.call(search_query="").texts[0]
        assert "tools" in server.request("tools/list", {"_meta": modern_meta()})["result"]
        server.close_stdin()
        assert server.wait() == 0


def test_unknown_notifications_and_meta_keys_are_ignored() -> None:
    with ServerProcess() as server:
        server.initialize()
        server.notify("notifications/no_such_thing", {"x": 1})
        server.notify("notifications/cancelled", {"requestId": 99, "reason": "never sent"})
        assert "tools" in server.request("tools/list", {"_meta": {"example.org/x": [1, {"y": 2}]}})["result"]
        assert len(server.messages) == 2


def test_a_progress_token_of_any_type_is_taken() -> None:
    with ServerProcess() as server:
        server.initialize()
        for token in (1, "t", 1.5, True, None, {}, [1]):
            params = {"name": TOOL_NAME, "arguments": {}, "_meta": {"progressToken": token}}
            reply = server.request("tools/call", params)
            assert "Bad argument search_query" in reply["result"]["content"][0]["text"], token


# -- Bad lines ---------------------------------------------------------------------------------------------------------

BAD_LINES = {
    "no JSON": (b"{nonsense", None, -32700),
    "a batch": (b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', None, -32600),
    "a number": (b"5", None, -32600),
    "an empty object": (b"{}", None, -32600),
    "no method": (b'{"jsonrpc":"2.0","id":7}', 7, -32600),
    "no version": (b'{"id":"seven","method":"ping"}', "seven", -32600),
    "an id of null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
    "parameters that are a list": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, -32600),
    "half a character": (rb'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"\ud83d"}}', 7, -32700),
    "bytes that are no UTF-8": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"\xff"}}', 7, -32700),
    "endless nesting": (b"[" * 100_000, None, -32700),
}
UNANSWERED_LINES = [
    b"",
    b"  \t\r",
    b'{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
    b'{"jsonrpc":"2.0","id":7,"result":5}',
    b'{"jsonrpc":"2.0","id":7,"error":"x"}',
]


def test_bad_lines_are_refused_each_in_turn_and_the_next_one_is_answered() -> None:
    with ServerProcess() as server:
        server.initialize()
        for line, _, _ in BAD_LINES.values():
            server.send_raw(line + b"\n")
        assert "result" in server.request("ping")
        refusals = [(message["id"], message["error"]["code"]) for message in server.messages if "error" in message]
        assert dict(zip(BAD_LINES, refusals, strict=True)) == {name: case[1:] for name, case in BAD_LINES.items()}


def test_what_must_not_be_answered_is_not() -> None:
    with ServerProcess() as server:
        server.initialize()
        for line in UNANSWERED_LINES:
            server.send_raw(line + b"\n")
        assert "result" in server.request("ping")
        assert len(server.messages) == 2


# -- The host's limits and pins ----------------------------------------------------------------------------------------


class LongHits:
    """A search whose answer is larger than most hosts take; keeps what it was asked."""

    def __init__(self) -> None:
        self.queries: list[EngineQuery] = []

    async def __call__(self, query: EngineQuery) -> SearchOutcome:
        self.queries.append(query)
        hits = [SearchHit("题" * 300, f"https://h{n}.example.org/{'x' * 1900}", "文" * 1000) for n in range(10)]
        return SearchOutcome(tuple(hits), "duckduckgo")


async def no_page(url: str, language: str) -> Page:
    raise PageError("empty")


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize(("name", "limit"), [("a-host", 40_000), ("claude-code", 200_000)])
async def test_the_size_of_an_answer_follows_the_host(mode: str, name: str, limit: int) -> None:
    server = create_server(search=LongHits(), fetch=no_page)
    async with Client(server, mode=mode, client_info=Implementation(name=name, version="1")) as client:
        result = await client.call_tool(TOOL_NAME, {"search_query": "x"})
    text = result.content[0].text  # type: ignore[union-attr]
    assert len(text.encode()) <= limit
    assert (len(text.encode()) > 40_000) == (name == "claude-code")


@pytest.fixture
def search() -> LongHits:
    return LongHits()


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_host_pins_engines_region_and_sites_for_one_call(mode: str, search: LongHits) -> None:
    pins = {"engines": "mojeek", "region": "de-de", "deny_domains": "h0.example.org h1.example.org"}
    meta: Any = {"agent-web-search/settings": pins}
    async with Client(create_server(search=search, fetch=no_page), mode=mode) as client:
        pinned = await client.call_tool(TOOL_NAME, {"search_query": "x"}, meta=meta)
        free = await client.call_tool(TOOL_NAME, {"search_query": "x"})
    assert [(query.engines, query.region) for query in search.queries] == [
        (("mojeek",), "de-de"),
        (Settings().engines, "us-en"),
    ]
    first = [json.loads(result.content[0].text)[0] for result in (pinned, free)]  # type: ignore[union-attr]
    assert [result["site_name"] for result in first] == ["h2.example.org", "h0.example.org"]


@pytest.mark.anyio
@pytest.mark.parametrize("pins", [{"engines": "nonsense"}, {"allow": "x.org"}, {"allow_domains": ","}, "x", ["x"], 1])
async def test_a_pin_that_cannot_be_read_fails_the_call(pins: Any, search: LongHits) -> None:
    async with Client(create_server(search=search, fetch=no_page), mode="legacy") as client:
        meta: Any = {"agent-web-search/settings": pins}
        result = await client.call_tool(TOOL_NAME, {"search_query": "x"}, meta=meta)
    assert result.is_error
    assert result.content[0].text.startswith("Search failed: ")  # type: ignore[union-attr]
    assert search.queries == []


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for session, messages in SESSIONS.items():
        answers = [json.loads(line) for line in answers_of_the_sdk(to_bytes(messages)).splitlines()]
        text = json.dumps(answers, ensure_ascii=False, indent=2)
        text = text.replace(f'"version": "{agent_web_search.__version__}"', f'"version": "{VERSION_MARK}"')
        (GOLDEN / f"{session}.json").write_text(text + "\n", encoding="utf-8")
