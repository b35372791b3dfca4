"""Real hosts drive the real server, offline: the web is simulated, and so is the model of a host that has one.

A host that is not there is skipped with the reason. Those from npm are looked for in `AGENT_WEB_SEARCH_HOSTS`, a folder
in which they were installed:

    npm install @modelcontextprotocol/inspector @modelcontextprotocol/sdk @modelcontextprotocol/client
    npm install @anthropic-ai/claude-code @openai/codex
    AGENT_WEB_SEARCH_HOSTS=$PWD python -m pytest tests/hosts
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

from tests.hosts.model_api import ModelApi
from tests.simulated_pages import Hit
from tests.simulated_web import SimulatedWeb
from tests.stdio_client import TOOL_NAME, program

FOLDER_VARIABLE = "AGENT_WEB_SEARCH_HOSTS"
FOLDER = os.environ.get(FOLDER_VARIABLE)  # read early: tests run in a cleaned environment
README = Path(__file__).parents[2] / "README.md"
TAP = Path(__file__).parent / "tap.py"
HOST_SECONDS = 120.0
CALLS = [{"search_query": "sort a list", "content_size": size} for size in ("medium", "high")]
FILES = "https://files.example.org"
ENGINE = "html.duckduckgo.com"


def host_folder() -> Path:
    """The folder of the hosts from npm; skips the test without it."""
    if not FOLDER or not shutil.which("node"):
        pytest.skip(f"node or {FOLDER_VARIABLE}, the folder of the hosts from npm, is missing")
    return Path(FOLDER) / "node_modules"


def host_program(name: str) -> str:
    """The path of a host's command; skips the test where it is not installed."""
    path = host_folder() / ".bin" / name
    if not path.exists():
        pytest.skip(f"{name} is not installed in {path.parent}")
    return str(path)


class TappedServer:
    """The server as a host starts it, on the simulated web, and what passed between the two."""

    def __init__(self, web: SimulatedWeb, folder: Path) -> None:
        self._log = folder / "tap.jsonl"
        self.command = sys.executable
        self.args = [str(TAP), str(self._log), *program()]
        self.env = web.env()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]

    @property
    def ends(self) -> list[int]:
        """The exit status of each process that was started."""
        return [record["end"] for record in self.records if "end" in record]

    @property
    def sent_texts(self) -> dict[str, str]:
        """By content size: the text that the server sent."""
        sizes, texts = {}, {}
        for record in self.records:
            message = json.loads(record.get("line", "{}"))
            if record.get("to") == "server" and message.get("method") == "tools/call":
                sizes[message["id"]] = message["params"]["arguments"]["content_size"]
            elif record.get("to") == "host" and message.get("id") in sizes:
                texts[sizes[message["id"]]] = message["result"]["content"][0]["text"]
        return texts

    def assert_calls_were_parallel(self) -> None:
        """Every call was sent before the first was answered."""
        kinds = []
        for record in self.records:
            message = json.loads(record.get("line", "{}"))
            if message.get("method") == "tools/call":
                kinds.append("call")
            elif "content" in message.get("result", {}):
                kinds.append("answer")
        assert kinds == ["call"] * len(CALLS) + ["answer"] * len(CALLS)


@pytest.fixture
def server(web: SimulatedWeb, tmp_path: Path) -> TappedServer:
    """Three pages of many words, and an engine slow enough for calls to overlap."""
    long_pages = [Hit(f"Page {n}", f"{FILES}/many-words?{n}", f"Snippet {n}") for n in range(3)]
    web.results([*long_pages, *(Hit(f"Row {n}", f"https://r{n}.example.net/", f"Snippet {n}") for n in range(7))])
    web.set_engine("duckduckgo", "slow:0.5")
    return TappedServer(web, tmp_path)


def run_host(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, *, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a host to its end with the home `folder/home`, there or in `cwd`."""
    (home := folder / "home").mkdir(exist_ok=True)
    clean = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    done = subprocess.run(
        command,
        cwd=cwd or home,
        env={**clean, "HOME": str(home), **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


def assert_is_whole(text: str, max_bytes: int) -> None:
    assert len(json.loads(text)) == 10
    assert len(text.encode()) <= max_bytes


# -- Clients without a model -------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_python_sdk(mode: str, server: TappedServer) -> None:
    results: dict[str, CallToolResult] = {}

    async def call(client: Client, arguments: dict[str, str]) -> None:
        results[arguments["content_size"]] = await client.call_tool(TOOL_NAME, dict(arguments))

    parameters = StdioServerParameters(command=server.command, args=server.args, env=server.env)
    async with Client(parameters, mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [TOOL_NAME]
        async with anyio.create_task_group() as tasks:
            for arguments in CALLS:
                tasks.start_soon(call, client, arguments)
    for size, text in server.sent_texts.items():
        assert results[size].content[0].text == text  # type: ignore[union-attr]
        assert_is_whole(text, 40_000)
    server.assert_calls_were_parallel()
    assert server.ends == [0]


@pytest.mark.parametrize(
    ("package", "mode"),
    [("sdk", None), ("client", None), ("client", "auto"), ("client", {"pin": "2026-07-28"})],
    ids=["v1", "v2-legacy", "v2-auto", "v2-pinned"],
)
def test_typescript_sdk(package: str, mode: Any, server: TappedServer, tmp_path: Path) -> None:
    root = host_folder() / "@modelcontextprotocol" / package
    if not root.exists():
        pytest.skip(f"@modelcontextprotocol/{package} is not installed")
    files = (
        ("dist/esm/client/index.js", "dist/esm/client/stdio.js")
        if package == "sdk"
        else ("dist/index.mjs", "dist/stdio.mjs")
    )
    options = {
        "sdk": str(root / files[0]),
        "stdio": str(root / files[1]),
        "mode": mode,
        "command": server.command,
        "args": server.args,
        "env": server.env,
        "calls": CALLS,
    }
    done = run_host(["node", str(TAP.parent / "client.mjs"), json.dumps(options)], tmp_path)
    seen = json.loads(done.stdout)
    assert [tool["name"] for tool in seen["tools"]] == [TOOL_NAME]
    assert [result["content"][0]["text"] for result in seen["results"]] == [
        server.sent_texts[call["content_size"]] for call in CALLS
    ]
    server.assert_calls_were_parallel()
    assert set(server.ends) == {0}


def test_inspector(server: TappedServer, tmp_path: Path) -> None:
    inspector = [
        host_program("mcp-inspector"),
        "--cli",
        *(f for name in server.env for f in ("-e", f"{name}={server.env[name]}")),
    ]
    listing = [*inspector, server.command, *server.args, "--method", "tools/list"]
    assert [tool["name"] for tool in json.loads(run_host(listing, tmp_path).stdout)["tools"]] == [TOOL_NAME]
    arguments = [part for name, value in CALLS[0].items() for part in ("--tool-arg", f"{name}={value}")]
    calling = [*inspector, server.command, *server.args, "--method", "tools/call", "--tool-name", TOOL_NAME, *arguments]
    seen = json.loads(run_host(calling, tmp_path).stdout)
    assert seen["content"][0]["text"] == server.sent_texts["medium"]
    assert server.ends == [0, 0]


# -- Agents ------------------------------------------------------------------------------------------------------------


def anthropic_env(api: ModelApi) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def write_codex_config(api: ModelApi, folder: Path, *more_lines: str) -> dict[str, str]:
    """Codex's file in `folder/home`: which model it speaks with, and more; the variable that the model's key is in."""
    provider = {"name": "stand-in", "base_url": f"{api.url}/v1", "wire_api": "responses", "env_key": "STAND_IN_KEY"}
    lines = [
        'model = "gpt-5.5"',
        'model_provider = "stand-in"',
        "[model_providers.stand-in]",
        *(f"{key} = {json.dumps(value)}" for key, value in provider.items()),
        *more_lines,
    ]
    (codex_home := folder / "home" / ".codex").mkdir(parents=True)
    (codex_home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"STAND_IN_KEY": "none"}


def codex_output(seen: str) -> str:
    """The tool's text in what Codex tells its model."""
    assert seen.startswith("Wall time: ")
    return seen.split("Output:", 1)[1].lstrip("\n")


def test_claude_code(server: TappedServer, tmp_path: Path) -> None:
    claude = host_program("claude")
    entry = {"type": "stdio", "command": server.command, "args": server.args, "env": server.env, "alwaysLoad": True}
    config = json.dumps({"mcpServers": {"web-search-prime": entry}})
    with ModelApi(CALLS) as api:
        allowed = f"mcp__web-search-prime__{TOOL_NAME}"
        options = ["--mcp-config", config, "--strict-mcp-config", "--allowedTools", allowed]
        run_host([claude, "-p", "Search.", *options], tmp_path, anthropic_env(api))
    assert api.tool is not None
    assert [api.results["call_0"], api.results["call_1"]] == [server.sent_texts["medium"], server.sent_texts["high"]]
    assert_is_whole(api.results["call_1"], 200_000)
    assert len(api.results["call_1"].encode()) > 40_000
    server.assert_calls_were_parallel()
    assert server.ends == [0]


def test_codex(server: TappedServer, tmp_path: Path) -> None:
    """Run without approval: `codex exec` refuses a tool that would need it."""
    codex = host_program("codex")
    with ModelApi(CALLS) as api:
        entry = {"command": server.command, "args": server.args, "required": True}
        lines = [
            "[mcp_servers.web-search-prime]",
            *(f"{key} = {json.dumps(value)}" for key, value in entry.items()),
            "[mcp_servers.web-search-prime.env]",
            *(f"{key} = {json.dumps(value)}" for key, value in server.env.items()),
        ]
        env = write_codex_config(api, tmp_path, *lines)
        run_host([codex, "exec", "--skip-git-repo-check", "Search."], tmp_path, env)
    assert api.tool is not None
    for index, call in enumerate(CALLS):
        text = server.sent_texts[call["content_size"]]
        assert codex_output(api.results[f"call_{index}"]) == text
        assert_is_whole(text, 40_000)
    server.assert_calls_were_parallel()


# -- By the README's own lines -----------------------------------------------------------------------------------------


def readme_lines(host: str) -> list[str]:
    """What the README has a person type for a host: the line that adds the server, and the question."""
    lines = re.findall(rf"^(?:\| [\w ]+ \| `)?({host} [^`\n]+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 2, lines
    return lines


@pytest.fixture
def installed(web: SimulatedWeb, tmp_path: Path) -> Path:
    """The folder of a copy of the repository after the README's first line, the simulated web around the program."""
    return write_program(tmp_path / "copy", web.env()).parents[2]


def write_program(folder: Path, env: Mapping[str, str]) -> Path:
    """The program where the README's first line puts it, run with these variables."""
    script = folder / ".venv" / "bin" / "agent-web-search"
    script.parent.mkdir(parents=True)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    script.write_text("\n".join(["#!/bin/sh", *exports, f'exec {shlex.join(program())} "$@"', ""]), encoding="utf-8")
    script.chmod(0o755)
    return script


def assert_lines_bring_an_answer(lines: Sequence[str], api: ModelApi, folder: Path, env: Mapping[str, str]) -> None:
    for line in lines:
        run_host(["sh", "-c", f'PATH="{host_folder() / ".bin"}:$PATH"; {line}'], folder.parent, env, cwd=folder)
    (seen,) = api.results.values()
    results = json.loads(codex_output(seen) if lines[-1].startswith("codex") else seen)
    assert len(results) == 10
    assert results[0]["summary"].startswith("How sorting works\n\n")  # the page's own text


def test_readme_lines_bring_an_answer_to_claude_code(installed: Path) -> None:
    host_program("claude")
    with ModelApi(CALLS[:1]) as api:
        env = anthropic_env(api)
        assert_lines_bring_an_answer(readme_lines("claude"), api, installed, env)


def test_readme_lines_bring_an_answer_to_codex(installed: Path) -> None:
    host_program("codex")
    with ModelApi(CALLS[:1]) as api:
        env = write_codex_config(api, installed.parent)
        assert_lines_bring_an_answer(readme_lines("codex"), api, installed, env)


def test_readme_lines_bring_an_answer_to_codex_behind_a_proxy(tmp_path: Path, web: SimulatedWeb) -> None:
    """The network is in the variables of Codex, which it hands down if they are named."""
    host_program("codex")
    script = write_program(tmp_path / "copy", {})
    adding = re.search(r"^\.venv/bin/agent-web-search config codex.*", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert adding
    with ModelApi(CALLS[:1]) as api:
        env = {**web.env(), **write_codex_config(api, tmp_path), "NO_PROXY": "127.0.0.1"}
        assert_lines_bring_an_answer([adding[0], readme_lines("codex")[1]], api, script.parents[2], env)
