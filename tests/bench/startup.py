"""How soon a host has the tools, what the waiting server holds in memory, and how fast it ends; next to other servers.

    python -m tests.bench.startup                                 # this program from source, against other servers
    python -m tests.bench.startup --binary dist/agent-web-search --rounds 20 --busy

The others are installed once, into a folder of the benchmark's own (`--folder`): from PyPI, and from npm where node is
there. All programs are started in turn, round by round, so that each sees the same machine; figures are medians, the
ratio is the median of each round's ratio to the first program. Memory is read from /proc, so on Linux only.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CLIENT = {"name": "bench", "version": "1"}
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": GREETING}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
PYPI_RIVALS = {"uwr": "uwr", "duckduckgo-mcp-server": "duckduckgo-mcp-server"}  # command by package
NPM_RIVALS = ("tavily-mcp", "exa-mcp-server")
KEYS = {"TAVILY_API_KEY": "tvly-none", "EXA_API_KEY": "none"}  # these refuse to start without one
SETTLE_SECONDS = 2.0  # after the handshake, for imports in the background, before memory is read
END_SECONDS = 20.0
DEADLINE_SECONDS = 1.0  # what the most impatient host waits
INSTALLED_SCRIPT = "import sys; sys.path.insert(0, {root!r}); from agent_web_search import main; sys.exit(main())"


@dataclass(frozen=True)
class Start:
    """One start of one program; times in milliseconds from the spawn, memory in MiB of the whole process tree."""

    initialize_ms: float
    tools_list_ms: float
    memory_mib: float
    exit_ms: float


def own_commands(binary: str | None, plain_binary: str | None) -> dict[str, list[str]]:
    """This program as the installed script starts it (from cached byte code), as a plain file, and as binaries."""
    commands = {
        "ours, installed": [sys.executable, "-c", INSTALLED_SCRIPT.format(root=str(ROOT))],
        "ours, as a file": [sys.executable, str(ROOT / "agent_web_search.py")],
    }
    binaries = {"ours, binary": binary, "ours, plain build": plain_binary}
    return {**commands, **{name: [path] for name, path in binaries.items() if path}}


def rival_commands(folder: Path) -> dict[str, list[str]]:
    """The other servers' commands; installs what is missing."""
    scripts = folder / "venv" / "bin"
    if not all((scripts / command).exists() for command in PYPI_RIVALS.values()):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")], check=True)
        subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", *PYPI_RIVALS], check=True)
    commands = {package: [str(scripts / command)] for package, command in PYPI_RIVALS.items()}
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        print("node is missing: its servers are left out")
        return commands
    packages = folder / "node_modules"
    if not all((packages / package).exists() for package in NPM_RIVALS):
        subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *NPM_RIVALS], check=True)
    for package in NPM_RIVALS:
        entry = json.loads((packages / package / "package.json").read_text())["bin"]
        script = entry if isinstance(entry, str) else next(iter(entry.values()))
        commands[package] = [node, str(packages / package / script)]
    return commands


def measure(command: list[str], settle_seconds: float) -> Start:
    """Starts the program, shakes hands, reads its memory, and ends its input."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        check_answer(process.stdout.readline(), 0)
        initialized = time.perf_counter()
        for message in (INITIALIZED, LIST_TOOLS):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        check_answer(process.stdout.readline(), 1)
        listed = time.perf_counter()
        time.sleep(settle_seconds)
        memory = tree_memory_mib(process.pid)
        ending = time.perf_counter()
        process.stdin.close()
        process.wait(END_SECONDS)
        ended = time.perf_counter()
    finally:
        process.stdout.close()
        process.kill()  # does nothing where it has ended
        process.wait()
    return Start((initialized - started) * 1e3, (listed - started) * 1e3, memory, (ended - ending) * 1e3)


def environment() -> dict[str, str]:
    """This environment; byte code is cached in the first start, as it is for everyone who uses an installed program."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | KEYS


def check_answer(line: bytes, request_id: int) -> None:
    if "result" not in (answer := json.loads(line)) or answer["id"] != request_id:
        raise SystemExit(f"not the answer to request {request_id}: {line[:300]!r}")


def tree_memory_mib(pid: int) -> float:
    """The share of memory (PSS: shared pages divided by their users) of a process and its descendants."""
    total_kib, pids = 0, [pid]
    while pids:
        pid = pids.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total_kib += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
    return total_kib / 1024


def measure_signal_exit_ms(command: list[str], number: int) -> float:
    """From the signal to the process's end, idle, 1 s after the handshake."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    process.stdin.flush()
    check_answer(process.stdout.readline(), 0)
    time.sleep(1)
    sent = time.perf_counter()
    process.send_signal(number)
    status = process.wait(END_SECONDS)
    if status:
        raise SystemExit(f"signal {number} ended {command} with status {status}")
    return (time.perf_counter() - sent) * 1e3


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Every core works on something else meanwhile, at the same priority."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_rounds(commands: dict[str, list[str]], rounds: int, settle_seconds: float) -> dict[str, list[Start]]:
    starts: dict[str, list[Start]] = {name: [] for name in commands}
    for command in commands.values():
        measure(command, 0)  # fills the caches
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", end="\r", file=sys.stderr, flush=True)
        for name, command in commands.items():
            starts[name].append(measure(command, settle_seconds))
    return starts


def print_table(title: str, starts: dict[str, list[Start]]) -> None:
    reference = next(iter(starts))
    print(f"\n{title}\n")
    print(f"| program | initialize ms | tools/list ms | x {reference} | slowest ms | in 1.0 s | memory MiB | exit ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in starts.items():
        lists = [run.tools_list_ms for run in runs]
        ratios = [run.tools_list_ms / other.tools_list_ms for run, other in zip(runs, starts[reference], strict=True)]
        in_time = sum(ms < DEADLINE_SECONDS * 1e3 for ms in lists)
        cells = [
            f"{statistics.median(run.initialize_ms for run in runs):.0f}",
            f"{statistics.median(lists):.0f}",
            f"{statistics.median(ratios):.2f}",
            f"{max(lists):.0f}",
            f"{in_time} of {len(lists)}",
            f"{statistics.median(run.memory_mib for run in runs):.1f}",
            f"{statistics.median(run.exit_ms for run in runs):.1f}",
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="this program's binary, measured too")
    parser.add_argument("--plain-binary", help="and the one that AGENT_WEB_SEARCH_PLAIN=1 builds, without any option")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", action="store_true", help="a second table, with every core busy")
    parser.add_argument("--rivals", nargs="*", metavar="NAME", help="the servers to compare with; not given: all")
    parser.add_argument("--no-rivals", dest="rivals", action="store_const", const=[], help="compare with none")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "agent-web-search-bench")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ours = own_commands(options.binary, options.plain_binary)
    rivals = {} if options.rivals == [] else rival_commands(options.folder)
    rivals = {name: command for name, command in rivals.items() if options.rivals is None or name in options.rivals}
    commands = {**rivals, **ours}
    print_table("Idle", run_rounds(commands, options.rounds, SETTLE_SECONDS))
    if options.busy:
        with busy_cores():
            print_table("Every core busy", run_rounds(commands, options.rounds, 0.5))
    if os.name == "nt":
        return  # no signal there that a process could answer by itself
    print("\nFrom a signal to the end, ms (median of 5)")
    for name, command in ours.items():
        medians = [
            f"{number.name} {statistics.median(measure_signal_exit_ms(command, number) for _ in range(5)):.1f}"
            for number in (signal.SIGINT, signal.SIGTERM)
        ]
        print(f"- {name}: {', '.join(medians)}")


if __name__ == "__main__":
    main()
