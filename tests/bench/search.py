"""How a search fares when engines are well, slow, blocked or dead, and under a rate limiter; next to other servers.

    python -m tests.bench.search
    python -m tests.bench.search --folder /tmp/peers --rounds 5

The engines are those of the simulated web, so nothing leaves this machine but the installation of the peers, which
goes into a folder of the benchmark's own. Every program is asked by the same client over its pipes; the programs take
turns, round by round, each time in a new process that had time to finish its imports. An answer counts when it holds
an address that the engine gave, whatever the flags of the reply say. Prints Markdown.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.simulated_engines import ENGINES
from tests.simulated_pages import DEFAULT_HITS, Hit, large_body
from tests.simulated_web import Authority, SimulatedWeb, host_of
from tests.stdio_client import ServerProcess, program

PEERS = ("uwr", "duckduckgo-mcp-server")
STATES = {"healthy": "ok", "slow (4 s)": "slow:4", "blocked (202)": "202", "dead (no answer)": "hang"}
LIMITER = "limit:8/10/60"
SETTLE_SECONDS = 3.0  # between the handshake and the first search: background imports are another benchmark's figure
PARALLEL_SEARCHES = 20
SERIAL_SEARCHES = 60
REPEATED_SEARCHES = 10
LARGE_PAGE = "https://hostile.example.net/large"
HIT_HOSTS = {host_of(hit.url) for hit in DEFAULT_HITS}


@dataclass(frozen=True)
class Program:
    """A server to ask: its command, its search tool and the name of that tool's query, its tool that reads a URL."""

    name: str
    command: list[str]
    tool: str
    parameter: str
    reader: str = ""  # with one argument, `url`; "" where a search reads the pages itself


@dataclass(frozen=True)
class Timing:
    """How long a search took, and whether it brought results."""

    seconds: float
    is_answered: bool


class AskedProcess(ServerProcess):
    """Any of the programs, asked through the tests' client."""

    def __init__(self, asked: Program, env: Mapping[str, str]) -> None:
        super().__init__(env=env)
        self._command = asked.command
        self._asked = asked

    def __enter__(self) -> "AskedProcess":
        super().__enter__()
        return self

    def start_search(self, query: str) -> int:
        arguments = {"name": self._asked.tool, "arguments": {self._asked.parameter: query}}
        request_id: int = self.start("tools/call", arguments)
        return request_id

    def is_answered(self, request_id: int) -> bool:
        """Waits for the reply."""
        text = str(self.reply(request_id).get("result", ""))
        return any(host in text for host in HIT_HOSTS)

    def search(self, query: str) -> Timing:
        started = time.perf_counter()
        is_answered = self.is_answered(self.start_search(query))
        return Timing(time.perf_counter() - started, is_answered)


def install_peers(folder: Path) -> list[Program]:
    """The peers, installed from PyPI where they are missing."""
    scripts = folder / "search-peers" / ("Scripts" if os.name == "nt" else "bin")
    if not all((scripts / peer).exists() for peer in PEERS):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(scripts.parent)], check=True)
        subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", *PEERS], check=True)
    listed = subprocess.run([scripts / "python", "-m", "pip", "freeze"], check=True, capture_output=True, text=True)
    versions = [line for line in listed.stdout.splitlines() if line.partition("==")[0] in PEERS]
    print(f"Peers: {', '.join(versions)}. Python {platform.python_version()}, {platform.system()}.\n")
    tools = {"uwr": ("web_search", "web_fetch"), "duckduckgo-mcp-server": ("search", "fetch_content")}
    return [
        Program(peer, [str(scripts / peer)], searcher, "query", reader) for peer, (searcher, reader) in tools.items()
    ]


@contextmanager
def running(
    asked: Program, authority: Authority, faults: Mapping[str, str]
) -> Iterator[tuple[SimulatedWeb, AskedProcess]]:
    """A program at rest, on a web of its own whose engines have these faults."""
    with SimulatedWeb(authority) as web:
        for engine, fault in faults.items():
            web.set_engine(engine, fault)
        with AskedProcess(asked, web.env()) as server:
            server.initialize()
            server.request("tools/list")
            time.sleep(SETTLE_SECONDS)
            yield web, server


def engine_requests(web: SimulatedWeb) -> int:
    return sum(request.host in {engine.host for engine in ENGINES.values()} for request in web.requests)


def median_seconds(timings: list[Timing]) -> str:
    answered = sum(timing.is_answered for timing in timings)
    seconds = statistics.median(timing.seconds for timing in timings)
    if not answered:
        return f"fails after {seconds:.2f} s"
    return f"{seconds:.2f} s" + ("" if answered == len(timings) else f" ({answered} of {len(timings)})")


def time_to_answer(programs: list[Program], authority: Authority, rounds: int) -> None:
    """The first search of a process and the one after it, by the state of DuckDuckGo; the other engines are well."""
    print(f"Time to answer, median of {rounds} (first search / next search):\n")
    print_head("DuckDuckGo is", programs)
    for state, fault in STATES.items():
        timings: dict[str, tuple[list[Timing], list[Timing]]] = {asked.name: ([], []) for asked in programs}
        for _ in range(rounds):
            for asked in programs:
                with running(asked, authority, {"duckduckgo": fault}) as (_web, server):
                    for position, query in enumerate(("sort a list", "sort a table")):
                        timings[asked.name][position].append(server.search(query))
        print_row(state, *(" / ".join(map(median_seconds, both)) for both in timings.values()))


def search_in_parallel(server: AskedProcess) -> tuple[int, int]:
    calls = [server.start_search(f"sorting {number}") for number in range(PARALLEL_SEARCHES)]
    return sum(map(server.is_answered, calls)), PARALLEL_SEARCHES


def search_in_series(server: AskedProcess) -> tuple[int, int]:
    return sum(server.search(f"sorting {number}").is_answered for number in range(SERIAL_SEARCHES)), SERIAL_SEARCHES


def search_repeatedly(server: AskedProcess) -> tuple[int, int]:
    return sum(server.search("sort a list").is_answered for _ in range(REPEATED_SEARCHES)), REPEATED_SEARCHES


def answered_share(programs: list[Program], authority: Authority) -> None:
    """How many searches are answered, how long all of them take, and how many requests the engines see."""
    limited = dict.fromkeys(ENGINES, LIMITER)
    workloads: dict[str, tuple[Callable[[AskedProcess], tuple[int, int]], Mapping[str, str]]] = {
        f"{PARALLEL_SEARCHES} at once, limiter": (search_in_parallel, limited),
        f"{SERIAL_SEARCHES} in series, limiter": (search_in_series, limited),
        f"one search {REPEATED_SEARCHES} times": (search_repeatedly, {}),
    }
    print(
        "\nAnswered, time for all, requests the engines saw (each engine blocks an address for 60 s after 8 in 10 s):\n"
    )
    print_head("searches", programs)
    for name, (workload, faults) in workloads.items():
        cells = []
        for asked in programs:
            with running(asked, authority, faults) as (web, server):
                started = time.perf_counter()
                answered, count = workload(server)
                seconds = time.perf_counter() - started
                cells.append(f"{answered} of {count}, {seconds:.1f} s, {engine_requests(web)} requests")
        print_row(name, *cells)


def failed_search(asked: Program, authority: Authority, fault: str) -> str:
    """What the model is told when every engine has this fault, and after how long."""
    with running(asked, authority, dict.fromkeys(ENGINES, fault)) as (_web, server):
        started = time.perf_counter()
        result = server.reply(server.start_search("sort a list")).get("result", {})
        text = " ".join(" ".join(block["text"] for block in result["content"]).split())
        is_error = "isError" if result.get("isError") else "a success"
        return f"{is_error} after {time.perf_counter() - started:.1f} s: {text[:160]}"


def large_page(asked: Program, authority: Authority) -> str:
    """How much of a page of 100 MB is taken, the socket's buffers included."""
    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for chunk in large_body():
            sent += len(chunk)
            yield chunk

    with running(asked, authority, {}) as (web, server):
        web.add_page(LARGE_PAGE, body)
        web.results([Hit("Large", LARGE_PAGE, "A large page")])
        if asked.reader:
            server.request("tools/call", {"name": asked.reader, "arguments": {"url": LARGE_PAGE}})
        else:
            server.search("sort a list")
    return f"{sent / 1e6:.0f} MB"


def call_in_flight(asked: Program, authority: Authority) -> str:
    """What becomes of a search that runs when its host closes the pipe."""
    with running(asked, authority, dict.fromkeys(ENGINES, "slow:1")) as (web, server):
        request_id = server.start_search("sort a list")
        while not engine_requests(web):
            time.sleep(0.01)
        server.close_stdin()
        server.wait()
        return "answered" if server.replies(request_id) else "lost"


def say_what_happens(programs: list[Program], authority: Authority) -> None:
    """What the README's table says of programs, as far as it is no number."""
    print("\nWhat happens:\n")
    print_head("", programs)
    print_row("every engine refuses (403)", *(failed_search(asked, authority, "403") for asked in programs))
    print_row("every engine hangs", *(failed_search(asked, authority, "hang") for asked in programs))
    print_row("a page of 100 MB", *(large_page(asked, authority) for asked in programs))
    print_row("a call in flight when input ends", *(call_in_flight(asked, authority) for asked in programs))


def print_head(corner: str, programs: list[Program]) -> None:
    print_row(corner, *(asked.name for asked in programs))
    print_row(*["---"] * (len(programs) + 1))


def print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the peers are installed"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes per program and state (default: %(default)s)")
    options = parser.parse_args()
    ours = Program("agent-web-search", program(), "web_search_prime", "search_query")
    programs = [ours, *install_peers(options.folder)]
    authority = Authority()
    time_to_answer(programs, authority, options.rounds)
    answered_share(programs, authority)
    say_what_happens(programs, authority)


if __name__ == "__main__":
    main()
