"""What a release needs besides the tests and the build; each step is a command that also runs on a developer's machine.

python .github/release.py check-tag v0.1.0        the tag, the module and the changelog name one version
python .github/release.py mcpb BINARY OUT.mcpb    the bundle that desktop hosts install by a click
python .github/release.py server-json DIR         the registry's server.json, for the bundles in DIR
python .github/release.py checksums DIR           SHA256SUMS of the files in DIR
python .github/release.py notes                   the changelog's section of this version
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import agent_web_search as module  # noqa: E402

SERVER_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
SUMMARY = "Free, keyless web search with readable page text: a drop-in web_search_prime tool"  # at most 100 characters
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: the same input gives the same bundle
# A bundle's platforms, by the part of its file name that says what it was built on.
MCPB_PLATFORM_BY_SYSTEM = {"linux": "linux", "macos": "darwin", "windows": "win32"}


def repository() -> str:
    """`OWNER/NAME`, out of the one place that holds it."""
    return module.REPOSITORY_URL.removeprefix("https://github.com/")


def changelog_section(version: str) -> str:
    """The changelog's text of one version, without its heading; raises SystemExit where there is none."""
    text = (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(rf"^## \[?{re.escape(version)}\]?[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not match:
        raise SystemExit(f"The changelog has no section for {version}.")
    return match[1].strip()


def check_tag(tag: str) -> None:
    """Stops a release whose tag, module and changelog disagree."""
    if tag != f"v{module.__version__}":
        raise SystemExit(f"The tag is {tag}, the module says v{module.__version__}.")
    changelog_section(module.__version__)


def mcpb_manifest(platform: str, program: str) -> dict[str, Any]:
    """The bundle's manifest: one binary, one tool, no settings that must be filled in."""
    owner, name = repository().split("/")
    return {
        "manifest_version": "0.3",
        "name": name,
        "display_name": "Agent web search",
        "version": module.__version__,
        "description": SUMMARY,
        "author": {"name": owner, "url": f"https://github.com/{owner}"},
        "repository": {"type": "git", "url": module.REPOSITORY_URL},
        "license": "MIT",
        "server": {
            "type": "binary",
            "entry_point": f"server/{program}",
            "mcp_config": {"command": "${__dirname}/server/" + program, "args": [], "env": {}},
        },
        "tools": [{"name": module.TOOL_NAME, "description": module.TOOL_DESCRIPTION}],
        "compatibility": {"platforms": [platform]},
    }


def write_mcpb(binary: Path, bundle: Path) -> None:
    """A reproducible .mcpb: a zip of the manifest and the binary, which stays executable."""
    platform = next(value for key, value in MCPB_PLATFORM_BY_SYSTEM.items() if key in bundle.name)
    program = "agent-web-search" + binary.suffix
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        manifest = json.dumps(mcpb_manifest(platform, program), indent=2) + "\n"
        archive.writestr(zipfile.ZipInfo("manifest.json", EPOCH), manifest)
        entry = zipfile.ZipInfo(f"server/{program}", EPOCH)
        entry.external_attr = 0o755 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, binary.read_bytes())


def server_json(folder: Path) -> dict[str, Any]:
    """The registry's entry: the Python package, and each bundle with its checksum."""
    base = f"{module.REPOSITORY_URL}/releases/download/v{module.__version__}"
    owner, name = repository().split("/")
    bundles = [
        {
            "registryType": "mcpb",
            "identifier": f"{base}/{bundle.name}",
            "fileSha256": hashlib.sha256(bundle.read_bytes()).hexdigest(),
            "transport": {"type": "stdio"},
        }
        for bundle in sorted(folder.glob("*.mcpb"))
    ]
    package = {
        "registryType": "pypi",
        "identifier": name,
        "version": module.__version__,
        "transport": {"type": "stdio"},
    }
    return {
        "$schema": SERVER_SCHEMA,
        "name": f"io.github.{owner}/{name}",
        "title": "Agent web search",
        "description": SUMMARY,
        "version": module.__version__,
        "repository": {"url": module.REPOSITORY_URL, "source": "github"},
        "packages": [package, *bundles],
    }


def write_checksums(folder: Path) -> None:
    """SHA256SUMS in the form that `sha256sum --check` reads."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8", newline="\n")


def main(argv: list[str] | None = None) -> int:
    """Runs one of the commands in the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check-tag").add_argument("tag")
    mcpb = commands.add_parser("mcpb")
    mcpb.add_argument("binary", type=Path)
    mcpb.add_argument("bundle", type=Path)
    commands.add_parser("server-json").add_argument("folder", type=Path)
    commands.add_parser("checksums").add_argument("folder", type=Path)
    commands.add_parser("notes")
    options = parser.parse_args(argv)
    if options.command == "check-tag":
        check_tag(options.tag)
    elif options.command == "mcpb":
        write_mcpb(options.binary, options.bundle)
    elif options.command == "server-json":
        text = json.dumps(server_json(options.folder), indent=2) + "\n"
        (options.folder / "server.json").write_text(text, encoding="utf-8")
    elif options.command == "checksums":
        write_checksums(options.folder)
    else:
        sys.stdout.write(changelog_section(module.__version__) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
