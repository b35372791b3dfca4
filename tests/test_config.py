"""`config HOST` prints an entry that the host's own parser reads back as the program's command, wherever that lies."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_web_search as aws

Captured = pytest.CaptureFixture[str]

PROGRAMS = {
    "plain": "/opt/agent-web-search",
    "blanks": "/home/ada/My Programs/agent-web-search",
    "other scripts": "/home/ада/工具/agent-web-search-é😀",
    "backslashes": "C:\\Users\\new\\tools\\agent-web-search.exe",
    "quotes": '/tmp/it\'s "quoted"/agent-web-search',
    "a shell's signs": "/tmp/$HOME/`x`/!a/*;&|#/agent-web-search",
    "controls": "/tmp/tab\tline\nbell\x07delete\x7f/agent-web-search",
}
SETTINGS = ["--proxy", "http://ada:pa$$w%20rd@proxy.example:3128", "--engines", "duckduckgo"]
# What each host reads, next to `command` and `args`: the path of keys, and the rest of the entry.
ENTRIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "claude-code": (("mcpServers",), {"type": "stdio", "alwaysLoad": True}),
    "codex": (
        ("mcp_servers",),
        {"required": True, "env_vars": ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_DIR"]},
    ),
    "zcode": (("mcp", "servers"), {"type": "stdio", "enabled": True}),
    "cursor": (("mcpServers",), {"type": "stdio"}),
    "vscode": (("servers",), {"type": "stdio"}),
    "claude-desktop": (("mcpServers",), {}),
}
ADDING_HOSTS = ("claude-code", "codex", "vscode")


def parse(host: str, text: str) -> Any:
    if host != "codex":
        return json.loads(text)
    return pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML").loads(text)


def add_commands(stderr: str) -> list[list[str]]:
    """The commands shown on stderr, as a shell reads them."""
    _, mark, command = stderr.partition("Or let the host add the command alone:\n")
    return [shlex.split(command)] if mark else []


@pytest.fixture(params=PROGRAMS.values(), ids=PROGRAMS)
def binary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The built program's own path, as it knows it."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", request.param)
    return str(request.param)


def test_every_host_is_looked_at_here() -> None:
    assert set(ENTRIES) == set(aws.HOST_CONFIGS)


@pytest.mark.parametrize("host", ENTRIES)
def test_the_entry_is_read_back_as_it_was_meant(host: str, binary: str, capsys: Captured) -> None:
    assert aws.main(["config", host, *SETTINGS]) == 0
    keys, extra = ENTRIES[host]
    table = parse(host, capsys.readouterr().out)
    for key in keys:
        (table,) = [table.pop(key)] if not set(table) - {key} else []
    options = dict(zip(SETTINGS[::2], SETTINGS[1::2], strict=True))
    entry = table.pop("web-search-prime")
    arguments = entry.pop("args")
    assert table == {}
    assert entry == {"command": binary, **extra}
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == options


@pytest.mark.skipif(os.name == "nt", reason="quotes for a POSIX shell")
@pytest.mark.parametrize("host", ENTRIES)
def test_the_command_that_adds_it_is_read_by_a_shell_as_it_was_meant(host: str, binary: str, capsys: Captured) -> None:
    assert aws.main(["config", host, "--engines", "duckduckgo"]) == 0
    command = [binary, "--engines", "duckduckgo"]
    entry = {"name": "web-search-prime", "type": "stdio", "command": command[0], "args": command[1:]}
    shown = add_commands(capsys.readouterr().err)
    if host == "vscode":
        ((*words, text),) = shown
        assert (words, json.loads(text)) == (["code", "--add-mcp"], entry)
        return
    expected = {
        "claude-code": [["claude", "mcp", "add", "-s", "user", "web-search-prime", "--", *command]],
        "codex": [["codex", "mcp", "add", "web-search-prime", "--", *command]],
    }
    assert shown == expected.get(host, [])
    assert bool(shown) == (host in ADDING_HOSTS)


def test_from_source_the_command_is_this_python_and_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [os.path.join(os.curdir, "agent_web_search.py"), "config", "cursor"])
    assert aws.own_command() == [part.replace("\\", "/") for part in (sys.executable, os.path.abspath(aws.__file__))]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no executable bit")
def test_an_installed_script_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin dir" / "agent-web-search"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [os.path.join("bin dir", "agent-web-search"), "config", "cursor"])
    assert aws.own_command() == [str(script)]


def test_on_windows_paths_have_forward_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "frozen", True, raising=False)
        patched.setattr(sys, "executable", PROGRAMS["backslashes"])
        patched.setattr(os, "name", "nt")
        command = aws.own_command()
    assert command == ["C:/Users/new/tools/agent-web-search.exe"]
