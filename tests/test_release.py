"""The release's own steps, run as the workflow runs them."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import agent_web_search as aws

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".github" / "release.py"
PROGRAM = b"\x7fELF program"


def release(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the builds hand over: a binary and its bundle."""
    binary = tmp_path / "agent-web-search-linux-x64"
    binary.write_bytes(PROGRAM)
    done = release("mcpb", binary, tmp_path / "agent-web-search-linux-x64.mcpb")
    assert done.returncode == 0, done.stderr
    return tmp_path


def server_json(folder: Path) -> dict[str, Any]:
    assert release("server-json", folder).returncode == 0
    content: dict[str, Any] = json.loads((folder / "server.json").read_text("utf-8"))
    return content


def test_a_tag_passes_if_module_and_changelog_name_its_version() -> None:
    assert release("check-tag", f"v{aws.__version__}").returncode == 0


@pytest.mark.parametrize("tag", ["v99.0.0", aws.__version__, f"v{aws.__version__}rc1", "main"])
def test_another_tag_is_refused_with_the_reason(tag: str) -> None:
    done = release("check-tag", tag)
    assert done.returncode == 1
    assert done.stderr == f"The tag is {tag}, the module says v{aws.__version__}.\n"


def test_the_notes_are_this_versions_part_of_the_changelog() -> None:
    notes = release("notes").stdout.strip()
    changelog = (ROOT / "docs" / "CHANGELOG.md").read_text("utf-8")
    assert f"## {aws.__version__}\n\n{notes}" in changelog
    assert notes
    assert "\n## " not in notes


@pytest.mark.parametrize(("system", "platform"), [("linux", "linux"), ("macos", "darwin"), ("windows", "win32")])
def test_a_bundle_holds_the_program_ready_to_run_and_a_manifest(system: str, platform: str, tmp_path: Path) -> None:
    suffix = ".exe" if system == "windows" else ""
    binary = tmp_path / f"agent-web-search{suffix}"
    binary.write_bytes(PROGRAM)
    bundles = [tmp_path / f"{number}-agent-web-search-{system}-x64.mcpb" for number in range(2)]
    for bundle in bundles:
        assert release("mcpb", binary, bundle).returncode == 0
    assert bundles[0].read_bytes() == bundles[1].read_bytes()
    with zipfile.ZipFile(bundles[0]) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        entry = archive.getinfo(manifest["server"]["entry_point"])
        assert archive.read(entry) == PROGRAM
    assert entry.external_attr >> 16 & 0o111 == 0o111
    assert manifest["server"]["mcp_config"]["command"] == "${__dirname}/" + entry.filename
    assert manifest["compatibility"]["platforms"] == [platform]
    assert manifest["version"] == aws.__version__
    assert [tool["name"] for tool in manifest["tools"]] == [aws.TOOL_NAME]


def test_the_registrys_entry_keeps_the_registrys_rules(folder: Path) -> None:
    """The rules of its schema: lengths, the form of names, and what each kind of package needs."""
    entry = server_json(folder)
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 3 <= len(entry["name"]) <= 200
    assert 1 <= len(entry["description"]) <= 100
    assert 1 <= len(entry["title"]) <= 100
    assert entry["version"] == aws.__version__
    assert entry["repository"] == {"url": aws.REPOSITORY_URL, "source": "github"}
    assert [package["registryType"] for package in entry["packages"]] == ["pypi", "mcpb"]
    assert [package["transport"] for package in entry["packages"]] == [{"type": "stdio"}] * 2


def test_the_registrys_entry_names_each_bundle_and_its_checksum(folder: Path) -> None:
    python, bundle = server_json(folder)["packages"]
    assert (python["identifier"], python["version"]) == ("agent-web-search", aws.__version__)
    base = f"{aws.REPOSITORY_URL}/releases/download/v{aws.__version__}"
    assert bundle["identifier"] == f"{base}/agent-web-search-linux-x64.mcpb"
    assert bundle["fileSha256"] == hashlib.sha256((folder / "agent-web-search-linux-x64.mcpb").read_bytes()).hexdigest()


def test_the_checksums_are_those_of_every_file(folder: Path) -> None:
    server_json(folder)
    for _ in range(2):  # the second time the list itself is there, and is not in the list
        assert release("checksums", folder).returncode == 0
    lines = (folder / "SHA256SUMS").read_bytes().decode().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in folder.iterdir() if path.name != "SHA256SUMS"]
    assert len(files) == 3
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_install_page_names_the_repository_and_the_files_that_are_released() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    repository = aws.REPOSITORY_URL.removeprefix("https://github.com/")
    addresses = re.findall(r"https://github\.com/([\w.-]+/[\w.-]+)/releases", page)
    assert len(addresses) == 2
    assert set(addresses + re.findall(r"--repo (\S+)", page)) == {repository}
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    systems = re.findall(r"system: (\w+), arch: (\w+)", workflow)
    systems += [("linux", arch) for arch in re.findall(r"\{ arch: (\w+), image", workflow)]
    assert len(systems) == 6
    table = set(re.findall(r"`agent-web-search-(\w+)-(\w+)(?:\.exe)?` \|", page))
    assert table == set(systems)
