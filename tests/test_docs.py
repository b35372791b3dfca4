"""What stands both in the documentation and in the code is the same in both."""

import asyncio
import json
import re
import runpy
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from mcp import Client

import agent_web_search as module
from agent_web_search import (
    DIAGNOSTICS_META_KEY,
    HOST_CONFIGS,
    INPUT_SCHEMA,
    SearchResult,
    Settings,
    render_host_entry,
    setting_flag,
    setting_variable,
)
from tests.simulated_web import SimulatedWeb

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLE_PROGRAM = "/path/to/agent-web-search"
INSTALLED_PROGRAM = '"$PWD/.venv/bin/agent-web-search"'  # what a reader of the README has after its first command


def tracked_files() -> list[Path]:
    """The files that git tracks; in a copy without git, every file that is not in a dot folder or a cache."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]
    kept_folders = {".ci", ".github"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(
            (part.startswith(".") and part not in kept_folders) or part in {"__pycache__", "build", "dist"}
            for part in path.relative_to(ROOT).parts[:-1]
        )
    ]


MARKDOWN = [path for path in tracked_files() if path.suffix == ".md" and "pages" not in path.parts]


def section(text: str, heading: str) -> str:
    """The part of a page below a heading, up to the next one of its level or above."""
    match = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no heading {heading!r}"
    return match[2]


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows, without the head, of the table whose first column is called `first_heading`; backticks are dropped."""
    lines = iter(text.splitlines())
    assert any(line.startswith(f"| {first_heading} |") for line in lines), f"no table of {first_heading!r}"
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.replace("`", "").strip("|").split(" |")])
    return rows


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


# -- Reference ---------------------------------------------------------------------------------------------------------


def shown_default(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        default = ",".join(default)
    return str(default or "none")


def test_the_settings_table_is_the_one_in_the_code() -> None:
    expected = [
        [
            setting_flag(row.name),
            setting_variable(row.name),
            shown_default(row.default),
            row.metadata["accepts"],
            row.metadata["description"],
            "yes" if row.metadata["guards"] else "no",
        ]
        for row in fields(Settings)
    ]
    assert table(section(read("docs/reference.md"), "Settings"), "flag") == expected


def test_the_settings_that_a_host_can_pin_for_one_call_are_named() -> None:
    text = section(read("docs/reference.md"), "Settings")
    sentence = re.search(r"It may name (.*?), spelled", text, re.DOTALL)
    assert sentence
    assert tuple(re.findall(r"`(\w+)`", sentence[1])) == module.PINNED_SETTINGS
    (example,) = code_blocks(text, "json")
    pins = json.loads(example)[module.SETTINGS_META_KEY]
    assert module.narrow_settings(Settings(), pins) != Settings()


def test_the_parameters_table_is_the_input_schema() -> None:
    for name, kind, default, _ in (rows := table(read("docs/reference.md"), "parameter")):
        schema = INPUT_SCHEMA["properties"][name]
        assert kind == ", ".join(schema.get("enum", ["string"])), name
        assert ("required" if name in INPUT_SCHEMA["required"] else schema.get("default", default)) == default, name
    assert [row[0] for row in rows] == list(INPUT_SCHEMA["properties"])


def test_the_numbers_of_the_parameters_are_the_codes() -> None:
    meaning_by_name = {row[0]: row[3] for row in table(read("docs/reference.md"), "parameter")}
    assert f"1 to {module.MAX_QUERY_CHARACTERS} characters" in meaning_by_name["search_query"]
    sizes = module.WORD_LIMIT_BY_CONTENT_SIZE
    assert f"{sizes['medium']} or {sizes['high']:,} words" in meaning_by_name["content_size"]


def test_the_fields_of_a_result_are_the_codes() -> None:
    assert [row[0] for row in table(read("docs/reference.md"), "field")] == list(SearchResult.__annotations__)


def test_the_sizes_of_an_answer_are_the_codes() -> None:
    text = read("docs/reference.md")
    sizes = (
        f"{module.ANSWER_BYTES:,} bytes of UTF-8, or {module.ANSWER_BYTES_BY_CLIENT['claude-code']:,} for Claude Code"
    )
    assert sizes in text
    assert f"at most {module.MAX_RESULTS} objects" in text


def test_the_diagnostics_table_names_what_a_reply_carries() -> None:
    answer = module.Answer(results=())
    text = read("docs/reference.md")
    assert sorted(row[0] for row in table(text, "key")) == sorted(module._answer_diagnostics(answer))
    assert f"`{DIAGNOSTICS_META_KEY}`" in text
    for name, value in module.TOOL_META.items():
        assert f"`{name}` is `{json.dumps(value)}`" in text


def test_the_reference_explains_each_reason_that_the_code_has() -> None:
    *documented, (any_status, _) = table(read("docs/reference.md"), "reason")
    assert [any_status.split()[0], *(reason for reason, _ in documented)] == list(get_args(module.PageReason))


@pytest.mark.parametrize("page", ["docs/reference.md", "docs/CONTEXT.md"])
def test_every_outcome_is_named(page: str) -> None:
    for outcome in get_args(module.Outcome):
        assert f"`{outcome}`" in read(page)


def test_the_exit_statuses_are_the_codes() -> None:
    statuses = [value for name, value in vars(module).items() if name.startswith("EXIT_") and isinstance(value, int)]
    assert [int(row[0]) for row in table(read("docs/reference.md"), "status")] == sorted(statuses)


def test_every_command_is_in_the_reference() -> None:
    documented = "\n".join(row[0] for row in table(read("docs/reference.md"), "command"))
    assert re.findall(r"agent-web-search ([a-z]+)", documented) == list(module.COMMANDS)


# -- Hosts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOST_CONFIGS)
def test_the_entry_of_each_host_is_what_the_config_command_prints(host: str) -> None:
    entry = render_host_entry(HOST_CONFIGS[host], [EXAMPLE_PROGRAM])
    blocks = code_blocks(read("docs/hosts.md"), "toml" if HOST_CONFIGS[host].file.endswith(".toml") else "json")
    assert entry in [block.strip() for block in blocks]


@pytest.mark.parametrize("host", ["claude-code", "codex"])
@pytest.mark.parametrize(("page", "program"), [("README.md", INSTALLED_PROGRAM), ("docs/hosts.md", EXAMPLE_PROGRAM)])
def test_the_command_that_adds_the_server_is_the_one_the_config_command_prints(
    host: str, page: str, program: str
) -> None:
    add_command = HOST_CONFIGS[host].add_command
    assert add_command
    assert shlex.join(add_command([EXAMPLE_PROGRAM])).replace(EXAMPLE_PROGRAM, program) in read(page)


def test_the_readme_has_the_entry_for_zcode() -> None:
    entries = re.findall(r'`(\{"mcp".*\})`', read("README.md"))
    assert [json.loads(entry) for entry in entries] == [
        json.loads(render_host_entry(HOST_CONFIGS["zcode"], [EXAMPLE_PROGRAM]))
    ]


def test_the_readme_names_every_host_that_the_config_command_knows() -> None:
    paragraph = re.search(r"`agent-web-search config .*?prints", read("README.md"), re.DOTALL)
    assert paragraph
    named = re.findall(r"`(?:agent-web-search config )?([a-z-]+)`", paragraph[0])
    assert sorted(named) == sorted(HOST_CONFIGS)


def test_the_example_in_the_readme_is_what_the_tool_answers(through_web: SimulatedWeb) -> None:
    text = read("README.md")
    (arguments,) = [json.loads(block) for block in code_blocks(text, "json")]
    (block,) = code_blocks(text, "text")
    (shown,) = json.loads(re.sub(r",\n \[…\]\]$", "]", block.strip()))

    async def call() -> str:
        async with Client(module.create_server()) as client:
            result = await client.call_tool(module.TOOL_NAME, arguments)
            return result.content[0].text

    answered = json.loads(asyncio.run(call()))
    assert len(answered) > 1
    assert answered[0]["summary"].startswith(shown.pop("summary").removesuffix(" […]"))
    assert shown.items() <= answered[0].items()


# -- The README in Chinese ---------------------------------------------------------------------------------------------

CHINESE = "docs/README.zh-CN.md"


def heading_levels(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)]


def fenced_blocks(text: str) -> list[str]:
    return re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)


def table_cells(text: str) -> list[list[tuple[list[str], list[str]]]]:
    """Of each row of each table and each cell: what stands in it as code, and its figures."""
    return [
        [
            (
                re.findall(r"`[^`]+`", cell),
                sorted(re.findall(r"\d[\d.,]*\d|\d", re.sub(r"`[^`]+`|\(http.*?\)", "", cell))),
            )
            for cell in line.strip("|").split(" |")
        ]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def linked(name: str) -> list[str]:
    """Where the links and pictures of a page lead, sorted; other pages by their path from the root."""
    targets = re.findall(r"\]\(([^)\s]+)\)", read(name))
    folder = (ROOT / name).parent
    paths = [target if ":" in target else str((folder / target).resolve().relative_to(ROOT)) for target in targets]
    return sorted(path for path in paths if path not in {"README.md", CHINESE})


@pytest.mark.parametrize("part", [heading_levels, fenced_blocks, table_cells], ids=["headings", "code", "tables"])
def test_the_chinese_readme_has_the_same(part: Callable[[str], list[Any]]) -> None:
    english = part(read("README.md"))
    assert len(english) > 3
    assert part(read(CHINESE)) == english


def test_both_readmes_lead_to_the_same_places_and_to_each_other() -> None:
    assert linked(CHINESE) == linked("README.md")
    assert f"]({CHINESE})" in read("README.md")
    assert "](../README.md)" in read(CHINESE)


def test_both_readmes_name_the_same_commands_and_settings() -> None:
    english = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", read("README.md"), flags=re.M | re.S)))
    assert english <= set(re.findall(r"`([^`\n]+)`", read(CHINESE)))


# -- Picture -----------------------------------------------------------------------------------------------------------


def test_the_picture_shows_the_lines_of_a_run() -> None:
    picture = runpy.run_path(str(DOCS / "picture.py"))
    lines = picture["run_search"]()
    shown = [
        element.text for element in ElementTree.parse(DOCS / "search.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    assert shown == [line for line in lines if line]
    assert read("docs/search.svg") == picture["draw"](lines)


# -- Pages -------------------------------------------------------------------------------------------------------------


def test_the_newest_version_in_the_changelog_is_the_programs() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", read("docs/CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == module.__version__


def test_the_sections_in_architecture_are_those_of_the_module_in_order() -> None:
    banners = re.findall(r"^# -- (.+?) -+$", read("agent_web_search.py"), re.MULTILINE)
    assert [row[0] for row in table(read("docs/architecture.md"), "section")] == banners


def test_what_architecture_and_the_decisions_name_in_code_exists() -> None:
    source = read("agent_web_search.py")
    pages = [DOCS / "architecture.md", DOCS / "CONTEXT.md"]
    text = "".join(page.read_text("utf-8") for page in pages)
    for name in re.findall(r"`(?:python -m )?(\w*_\w+|[A-Z][a-z]+[A-Z]\w+|[A-Z_]{5,})(?:\.\w+|\(.*?\))?`", text):
        assert re.search(rf"\b{name}\b", source), name


def test_the_list_of_decisions_is_complete() -> None:
    files = sorted(path.name for path in (DOCS / "adr").glob("[0-9]*.md"))
    assert re.findall(r"^\| \[\d+\]\((.*?)\)", read("docs/adr/README.md"), re.MULTILINE) == files


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", prose):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in [slug(h) for h in re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)], target


def test_the_lines_that_install_are_the_same_in_the_readme() -> None:
    powershell = code_blocks(read("docs/install.md"), "powershell")
    assert powershell == code_blocks(read("README.md"), "powershell")
    assert code_blocks(read("docs/install.md"), "sh")[0] in code_blocks(read("README.md"), "sh")


def test_each_section_of_the_benchmarks_names_a_program_that_exists_and_its_options() -> None:
    sections = re.split(r"^## ", read("docs/benchmarks.md"), flags=re.MULTILINE)[1:]
    for text in sections:
        commands = re.findall(r"`python (?:-m )?(tests[./]bench[./]\w+)(?:\.py)?( --\w+)?", text)
        assert commands, text.splitlines()[0]
        for name, option in commands:
            source = read(name.replace(".", "/") + ".py")
            assert f'"{option.strip()}"' in source or not option, (name, option)


def test_the_registrys_name_in_the_readme_follows_the_repositorys_address() -> None:
    owner, name = module.REPOSITORY_URL.removeprefix("https://github.com/").split("/")
    assert f"mcp-name: io.github.{owner}/{name}" in read("README.md")


# -- Every file --------------------------------------------------------------------------------------------------------

# Folders of the machine someone works on. (Those that exist everywhere, such as /etc/ssl, are no secret.)
MACHINE_PATH = re.compile(r"(?<![\w.~/:-])/(?:root|work|workspace|opt/pypi)/[\w.-]+|[A-Z]:\\Users\\\w+")
REGISTRY = re.compile(
    r"(?i)--(?:extra-)?index-url|\bPIP_(?:EXTRA_)?INDEX_URL|https?://[\w.-]*(?:pypi|npm|mirror|artifact)[\w.-]*"
)
PUBLIC_REGISTRIES = (
    "https://pypi.org",
    "https://files.pythonhosted.org",
    "https://test.pypi.org",
    "https://registry.npmjs.org",
)


def test_no_file_names_a_folder_or_a_registry_of_the_machine_it_was_written_on() -> None:
    found = []
    for path in tracked_files():
        if path == Path(__file__).resolve() or path.name in {"source.html", "page.html"} or "corpus" in path.parts:
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        hits = [match[0] for match in MACHINE_PATH.finditer(text)] + [str(ROOT)] * (str(ROOT) in text)
        hits += [match[0] for match in REGISTRY.finditer(text) if match[0] not in PUBLIC_REGISTRIES]
        found += [f"{path.relative_to(ROOT)}: {hit}" for hit in hits]
    assert not found
