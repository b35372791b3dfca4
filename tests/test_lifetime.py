"""How the process ends: by its input, a signal, with its host; in silence and with status 0, whatever it is doing."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.simulated_web import SimulatedWeb
from tests.stdio_client import (
    CLIENT_INFO,
    MODULE,
    REPLY_SECONDS,
    ServerProcess,
    program,
    program_environment,
    run_program,
)

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": GREETING}).encode() + b"\n"
UNKNOWN_TOOL = {"name": "no_such_tool", "arguments": {}}  # is answered by the SDK, so that its import is over

posix_only = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals and descriptors")


# -- End of input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stdin", [b"", INITIALIZE, INITIALIZE.rstrip(), b"\n\n"], ids=["empty", "a", "no-newline", "blank"]
)
def test_input_that_ends_early_ends_the_process(stdin: bytes) -> None:
    done = run_program(stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == (b"initialize" in stdin)


def test_everything_that_was_asked_is_answered_before_the_end() -> None:
    calls = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": UNKNOWN_TOOL} for n in range(1, 50)]
    done = run_program(stdin=INITIALIZE + b"".join(json.dumps(call).encode() + b"\n" for call in calls))
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(50))


def test_a_cancelled_call_does_not_keep_the_process(web: SimulatedWeb) -> None:
    web.set_engine("duckduckgo", "hang")
    with ServerProcess(env=web.env()) as server:
        server.initialize()
        request_id = server.start_call(search_query="x")
        web.wait_for_request("html.duckduckgo.com")
        server.notify("notifications/cancelled", {"requestId": request_id})
        server.close_stdin()
        assert (server.wait(), server.stderr, server.replies(request_id)) == (0, "", [])


def test_a_host_that_writes_much_before_it_reads_is_answered_in_full() -> None:
    lists = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(1, 400)]
    lines = INITIALIZE + b"".join(json.dumps(line).encode() + b"\n" for line in lists)
    process = subprocess.Popen(program(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=program_environment(None))
    assert process.stdin is not None
    process.stdin.write(lines)  # answers of over a megabyte: no pipe holds them
    process.stdin.flush()
    stdout, _ = process.communicate(timeout=REPLY_SECONDS)
    assert [json.loads(line)["id"] for line in stdout.splitlines()] == list(range(400))


# -- Signals -----------------------------------------------------------------------------------------------------------


def begin_nothing(server: ServerProcess, web: SimulatedWeb) -> None:
    """The handshake is over, and the SDK's import has just begun."""
    server.initialize()


def begin_idling(server: ServerProcess, web: SimulatedWeb) -> None:
    server.initialize()
    assert "error" in server.request("tools/call", UNKNOWN_TOOL)


def begin_calls(server: ServerProcess, web: SimulatedWeb) -> None:
    """Three searches hang in the engine's own code, in threads that nothing can stop."""
    web.set_engine("duckduckgo", "hang")
    server.initialize()
    for number in range(3):
        server.start_call(search_query=f"query {number}")
    web.wait_for_request("html.duckduckgo.com")


SITUATIONS = {"importing": begin_nothing, "idle": begin_idling, "calls in flight": begin_calls}
Begin = Callable[[ServerProcess, SimulatedWeb], None]


@posix_only
@pytest.mark.parametrize("begin", SITUATIONS.values(), ids=SITUATIONS)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_process_well_and_in_silence(name: str, begin: Begin, web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        begin(server, web)
        server.process.send_signal(getattr(signal, name))
        assert (server.wait(), server.stderr) == (0, "")


@posix_only
def test_signals_in_a_row_are_one_end(web: SimulatedWeb) -> None:
    with ServerProcess(env=web.env()) as server:
        begin_calls(server, web)
        for number in (signal.SIGINT, signal.SIGTERM):
            server.process.send_signal(number)
        assert (server.wait(), server.stderr) == (0, "")


# -- Broken streams ----------------------------------------------------------------------------------------------------


@posix_only
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_harms_nobody(redirection: str) -> None:
    command = f"exec {shlex.join(program())} --log-level debug --region nonsense {redirection}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": UNKNOWN_TOOL}
    done = subprocess.run(
        ["sh", "-c", command],
        input=INITIALIZE + json.dumps(call).encode() + b"\n",
        stdout=subprocess.PIPE,
        env=program_environment(None),
        timeout=REPLY_SECONDS,
        check=False,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    assert done.returncode == 0


@posix_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_ends_it_well_when_the_reader_of_stderr_is_gone(number: int) -> None:
    process = subprocess.Popen(
        [*program(), "--log-level", "debug"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_environment(None),
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stderr.close()
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(number)
    assert process.wait(REPLY_SECONDS) == 0
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("method", ["ping", "tools/call"], ids=["importing", "idle"])
def test_a_host_that_reads_no_more_ends_the_process(method: str) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen(program(), stdin=pipe, stdout=pipe, stderr=pipe, env=program_environment(None))
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    assert process.stdout.readline()
    process.stdout.close()
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {} if method == "ping" else UNKNOWN_TOOL}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    assert process.wait(REPLY_SECONDS) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    with suppress(BrokenPipeError):
        process.stdin.close()


def test_the_wire_is_utf8_with_line_feeds_whatever_the_locale() -> None:
    call = {"name": "web_search_prime", "arguments": {"search_query": "x", "location": "中国"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, ensure_ascii=False)
    done = run_program(
        stdin=INITIALIZE + line.encode() + b"\n", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    answer = done.stdout.splitlines(keepends=True)[1]
    assert 'got \\"中国\\"'.encode() in answer
    assert answer.endswith(b"}\n")


def test_what_a_library_prints_is_not_on_the_wire() -> None:
    """Source only: a library that prints has to be planted."""
    code = (
        "import ctypes, os, sys, agent_web_search as a\n"
        "class Noisy:\n"
        "    def __init__(self, settings): pass\n"
        "    async def __call__(self, query):\n"
        "        print('printed', flush=True); os.write(1, b'written\\n'); os.system('echo echoed; cat')\n"
        "        return a.SearchOutcome((a.SearchHit('t', 'ftp://example.org', 's'),))\n"
        "a.EngineSearch = Noisy\n"
        "a.main([])\n"
    )
    call = {"name": "web_search_prime", "arguments": {"search_query": "x"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=INITIALIZE + line + line.replace(b'"id": 1', b'"id": 2'),
        capture_output=True,
        cwd=MODULE.parent,
        env=program_environment(None),
        timeout=REPLY_SECONDS,
        check=False,
    )
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == [0, 1, 2]
    assert {b"printed", b"written", b"echoed"} <= set(done.stderr.splitlines())


# -- The host's death --------------------------------------------------------------------------------------------------

HOST = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"  # its streams are the server's too


@posix_only
@pytest.mark.parametrize("holds_stdin", [False, True], ids=["stdin-ends", "stdin-is-held-open"])
def test_the_death_of_the_host_ends_the_process(holds_stdin: bool) -> None:
    """The end of stdout tells that the server is gone: nothing else holds it."""
    read_end, write_end = os.pipe()
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, *program()],
        stdin=read_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_environment(None),
    )
    os.close(read_end)
    assert host.stdout is not None
    os.write(write_end, INITIALIZE)
    assert host.stdout.readline()
    host.kill()
    if not holds_stdin:
        os.close(write_end)
    assert host.communicate(timeout=REPLY_SECONDS) == (b"", b"")
    if holds_stdin:
        os.close(write_end)
