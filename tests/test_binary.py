"""What only a built program can get wrong: missing modules, folders left behind, the places it is put in.

    AGENT_WEB_SEARCH_BIN=dist/agent-web-search python -m pytest

runs these and every test that starts the program on the binary. Without the variable they are skipped.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agent_web_search import TRAITS_BY_ENGINE, __version__
from tests.simulated_web import SimulatedWeb
from tests.stdio_client import BINARY_VARIABLE, REPLY_SECONDS, ServerProcess, program_environment

BINARY = Path(os.environ.get(BINARY_VARIABLE, "none")).resolve()
INSTALL = Path(__file__).parent.parent / "docs" / "install.md"
UNPACKED = "_MEI*"  # the folder that the boot loader unpacks into, below the temporary one
UNKNOWN_TOOL = {"name": "no_such_tool", "arguments": {}}  # is answered by the SDK, so that its import is over

pytestmark = pytest.mark.skipif(BINARY_VARIABLE not in os.environ, reason=f"{BINARY_VARIABLE} names no built program")
posix_only = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or mounts a file system")


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    """A temporary folder for the program alone, so that what it leaves there can be seen."""
    folder = tmp_path / "temp"
    folder.mkdir()
    return folder


@pytest.fixture
def temp_env(temp: Path) -> dict[str, str]:
    return dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temp))


@pytest.fixture
def server(web: SimulatedWeb, temp_env: dict[str, str]) -> Iterator[ServerProcess]:
    """A server that has searched, so that everything is unpacked and loaded."""
    with ServerProcess(env={**web.env(), **temp_env}) as process:
        process.initialize()
        assert len(process.call(search_query="sorting").results) == 10
        yield process


def unpacked_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(UNPACKED))


def child_of(pid: int) -> int:
    """The process behind the boot loader's."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


# -- What is inside ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", TRAITS_BY_ENGINE)
def test_each_engine_answers_with_the_text_of_pages(
    engine: str, web: SimulatedWeb, temp: Path, temp_env: dict[str, str]
) -> None:
    settings = {"AGENT_WEB_SEARCH_ENGINES": engine}
    with ServerProcess(env={**web.env(), **temp_env, **settings}) as server:
        server.initialize()
        answer = server.call(search_query="sorting")
        assert len(answer.results) == 10
        assert (answer.diagnostics["engine"], answer.diagnostics["pages"]) == (engine, ["extract"] * 3)
        server.close_stdin()
        assert (server.wait(), server.stderr) == (0, "")
    assert [search.engine for search in web.searches] == [engine]
    assert unpacked_in(temp) == []


def test_it_is_the_program_that_is_tested_here() -> None:
    done = subprocess.run([BINARY, "--version"], capture_output=True, text=True, timeout=REPLY_SECONDS, check=True)
    assert done.stdout == f"agent-web-search {__version__}\n"


# -- How it ends -------------------------------------------------------------------------------------------------------


def end_input(server: ServerProcess) -> None:
    server.close_stdin()


def send(name: str) -> Callable[[ServerProcess], None]:
    def end(server: ServerProcess) -> None:
        server.process.send_signal(getattr(signal, name))

    return end


ENDS = {
    "end of input": end_input,
    **{name: pytest.param(send(name), marks=posix_only) for name in ("SIGINT", "SIGTERM", "SIGHUP")},
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_neither_a_folder_nor_a_process_is_left(
    end: Callable[[ServerProcess], None], server: ServerProcess, temp: Path
) -> None:
    """`wait` reads stdout to its end, which comes when no process holds it any more."""
    assert len(unpacked_in(temp)) == 1
    end(server)
    assert (server.wait(), server.stderr) == (0, "")
    assert list(temp.iterdir()) == []


@posix_only
def test_a_signal_to_both_processes_ends_both_well(web: SimulatedWeb, temp: Path, temp_env: dict[str, str]) -> None:
    env = {**program_environment(web.env()), **temp_env}
    pipe = subprocess.PIPE
    with subprocess.Popen(BINARY, stdin=pipe, stdout=pipe, env=env, start_new_session=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(REPLY_SECONDS) == 0
        assert process.stdout.read() == b""
    assert list(temp.iterdir()) == []


@linux_only
def test_when_the_boot_loader_is_killed_the_program_takes_its_folder_away(server: ServerProcess, temp: Path) -> None:
    server.process.kill()
    server.wait()
    assert list(temp.iterdir()) == []


@linux_only
def test_when_the_program_is_killed_the_boot_loader_takes_its_folder_away(server: ServerProcess, temp: Path) -> None:
    os.kill(child_of(server.process.pid), signal.SIGKILL)
    assert server.wait() == -signal.SIGKILL
    assert list(temp.iterdir()) == []


def test_ten_at_once_do_not_meet(web: SimulatedWeb, temp: Path, temp_env: dict[str, str]) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(ServerProcess(env={**web.env(), **temp_env})) for _ in range(10)]
        for server in servers:
            server.initialize()
            assert server.request("tools/call", UNKNOWN_TOOL)["error"]["code"] == -32602
        assert len(unpacked_in(temp)) == 10
        for server in servers:
            server.close_stdin()
        assert [(server.wait(), server.stderr) for server in servers] == [(0, "")] * 10
    assert list(temp.iterdir()) == []


# -- Where it is put ---------------------------------------------------------------------------------------------------


def test_alone_in_a_strange_folder_without_python_it_searches(web: SimulatedWeb, tmp_path: Path) -> None:
    """Blanks and other scripts in the paths, nothing on the path for programs, a home that stays as it was."""
    folder, home, temp = tmp_path / "eine Mappe 目录", tmp_path / "home é", tmp_path / "temp ü x"
    for path in (folder, home, temp):
        path.mkdir()
    program = folder / f"agent web-search ñ{BINARY.suffix}"
    shutil.copy(BINARY, program)
    home.chmod(0o500)
    needed_by_windows = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    temp_variables = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temp))
    env = {**web.env(), **temp_variables, **needed_by_windows, "PATH": "", "HOME": str(home), "LC_ALL": "C"}
    done = subprocess.run(
        [program, "search", "sorting", "--json"],
        env=env,
        cwd=folder,
        capture_output=True,
        timeout=REPLY_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) == 10
    assert all(len(result["summary"]) > 300 for result in results[:3])
    assert [list(path.iterdir()) for path in (folder, home, temp)] == [[program], [], []]


def test_its_host_entry_names_the_copy_that_printed_it(tmp_path: Path) -> None:
    folder = tmp_path / "eine Mappe 目录"
    folder.mkdir()
    program = folder / BINARY.name
    shutil.copy(BINARY, program)
    done = subprocess.run(
        [os.path.join(os.curdir, BINARY.name), "config", "cursor"],
        cwd=folder,
        capture_output=True,
        timeout=REPLY_SECONDS,
        check=True,
    )
    entry = json.loads(done.stdout)["mcpServers"]["web-search-prime"]
    assert (Path(entry["command"]), entry["args"]) == (program, [])


# -- Where it cannot be unpacked ---------------------------------------------------------------------------------------

# What the boot loader says, by the options of the file system that holds the temporary folder.
UNUSABLE_FOLDERS = {"noexec": "noexec", "full": "size=4m"}


def run_on_file_system(options: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the binary with a file system of its own, mounted in a name space of its own, as temporary folder."""
    script = f'mount -t tmpfs -o "{options}" none "$TMPDIR" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", BINARY, *arguments]
    env = {**program_environment(None), "TMPDIR": str(folder)}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=REPLY_SECONDS, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is missing")
    if re.search(r"^(unshare|mount):", done.stderr, re.MULTILINE):
        pytest.skip("no file system can be mounted here")
    return done


@linux_only
@pytest.mark.parametrize("options", UNUSABLE_FOLDERS.values(), ids=UNUSABLE_FOLDERS)
def test_a_temporary_folder_that_cannot_be_used_is_told_in_words_that_the_documentation_explains(
    options: str, temp: Path
) -> None:
    done = run_on_file_system(options, temp, "--version")
    assert (done.stdout, done.returncode > 0) == ("", True)
    headings = re.findall(r"^### (.+)$", INSTALL.read_text("utf-8"), re.MULTILINE)
    patterns = [re.escape(heading).replace("…", ".*") for heading in headings]
    assert any(re.search(pattern, done.stderr) for pattern in patterns), done.stderr


@linux_only
def test_a_temporary_folder_that_cannot_be_written_to_is_passed_over(temp: Path) -> None:
    done = run_on_file_system("ro", temp, "--version")
    assert done.stdout == f"agent-web-search {__version__}\n"
