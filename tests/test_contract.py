"""What hosts and models are shown, and what importing the module does not do.

The golden file is written anew by `python -m tests.test_contract`, for a change that an ADR tells of.
"""

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from mcp import Client

import agent_web_search as aws
from tests.fakes import FakeFetch, FakeSearch, found

GOLDEN_TOOLS_LIST = Path(__file__).parent / "golden" / "tools_list.json"
HEAVY_MODULES = ("ddgs", "primp", "httpx", "lxml", "readability", "mcp", "mcp_types", "anyio", "pydantic")
SCHEMA_WORDS = {"type", "properties", "required", "enum", "default", "description"}  # what every host takes


async def list_tools() -> dict[str, Any]:
    async with Client(aws.create_server(search=FakeSearch(found()), fetch=FakeFetch()), mode="legacy") as client:
        listed = await client.list_tools()
    return {"tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]}


def to_golden(listed: dict[str, Any]) -> str:
    return json.dumps(listed, ensure_ascii=False, indent=2) + "\n"


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    root = Path(aws.__file__).parent
    variables = {"PYTHONPATH": str(root), "SYSTEMROOT": os.environ.get("SYSTEMROOT", ""), **env}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)


@pytest.mark.anyio
async def test_the_listed_tool_is_the_golden_one() -> None:
    assert to_golden(await list_tools()) == GOLDEN_TOOLS_LIST.read_text("utf-8")


@pytest.mark.anyio
async def test_there_is_exactly_one_tool_and_it_has_the_paid_name() -> None:
    assert [tool["name"] for tool in (await list_tools())["tools"]] == ["web_search_prime"]


@pytest.mark.anyio
async def test_the_list_stays_under_4_kb() -> None:
    assert len(json.dumps(await list_tools(), ensure_ascii=False).encode()) < 4_000


@pytest.mark.anyio
async def test_no_description_reaches_the_length_at_which_hosts_cut() -> None:
    tool = (await list_tools())["tools"][0]
    descriptions = [tool["description"], *(p["description"] for p in tool["inputSchema"]["properties"].values())]
    assert len(descriptions) == 6
    assert all(0 < len(text) < 2_000 for text in descriptions)


def test_the_description_asks_for_keywords_and_warns_of_what_pages_say() -> None:
    assert "keywords rather than a question" in aws.TOOL_DESCRIPTION
    assert "untrusted web content" in aws.TOOL_DESCRIPTION


@pytest.mark.parametrize(
    "word",
    [
        "web",
        "internet",
        "online",
        "search",
        "look up",
        "current",
        "latest",
        "news",
        "documentation",
        "web_search_prime",
    ],
)
def test_the_instructions_hold_what_a_model_searches_for_where_hosts_show_it(word: str) -> None:
    assert word in aws.INSTRUCTIONS[:240].lower()


def test_the_instructions_end_within_what_every_host_shows() -> None:
    assert len(aws.INSTRUCTIONS) <= 240


def schema_keys(schema: dict[str, Any]) -> set[str]:
    return set(schema).union(*(schema_keys(property_) for property_ in schema.get("properties", {}).values()))


def test_the_schema_uses_no_word_that_a_host_refuses() -> None:
    assert schema_keys(aws.INPUT_SCHEMA) <= SCHEMA_WORDS


def test_every_parameter_is_a_plain_string() -> None:
    assert {property_["type"] for property_ in aws.INPUT_SCHEMA["properties"].values()} == {"string"}


def test_the_parameters_are_those_of_the_paid_tool() -> None:
    assert list(aws.INPUT_SCHEMA["properties"]) == [
        "search_query",
        "search_domain_filter",
        "search_recency_filter",
        "content_size",
        "location",
    ]
    assert aws.INPUT_SCHEMA["required"] == ["search_query"]


@pytest.mark.parametrize("parameter", [p for p in aws.INPUT_SCHEMA["properties"] if p != "search_query"])
def test_each_default_stands_in_the_description_too(parameter: str) -> None:
    property_ = aws.INPUT_SCHEMA["properties"][parameter]
    default = property_.get("default")
    assert f"Default: {default}." in property_["description"] if default else "Default: " in property_["description"]


@pytest.mark.parametrize(
    ("choices", "table"),
    [
        pytest.param(aws.Recency, aws.TIMELIMIT_BY_RECENCY, id="recency"),
        pytest.param(aws.ContentSize, aws.WORD_LIMIT_BY_CONTENT_SIZE, id="content size"),
        pytest.param(aws.Location, aws.REGION_BY_LOCATION, id="region"),
        pytest.param(aws.Location, aws.LANGUAGES_BY_LOCATION, id="page language"),
    ],
)
def test_each_table_has_a_row_for_each_value_of_its_parameter(choices: Any, table: dict[str, Any]) -> None:
    assert list(table) == list(get_args(choices))


def test_the_word_limits_are_those_the_schema_tells() -> None:
    description = aws.INPUT_SCHEMA["properties"]["content_size"]["description"]
    for size, limit in aws.WORD_LIMIT_BY_CONTENT_SIZE.items():
        assert f"{size} ({limit:,} words)" in description


def test_the_tool_says_that_it_only_reads() -> None:
    assert aws.TOOL_ANNOTATIONS == {
        "title": "Web search",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": True,
    }


def test_the_tool_asks_hosts_to_load_it_at_once_and_whole() -> None:
    assert aws.TOOL_META == {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": 200_000}
    assert aws.ANSWER_BYTES_BY_CLIENT["claude-code"] == aws.TOOL_META["anthropic/maxResultSizeChars"]


def test_the_public_names_exist_and_are_these() -> None:
    assert sorted(aws.__all__) == [
        "EngineQuery",
        "Page",
        "PageFetcher",
        "SearchBackend",
        "SearchHit",
        "SearchRequest",
        "SearchResult",
        "Settings",
        "create_server",
        "extract_main_text",
        "main",
        "parse_request",
        "web_search",
    ]
    assert all(hasattr(aws, name) for name in aws.__all__)


def test_importing_loads_none_of_the_heavy_modules_and_prints_nothing() -> None:
    done = run_python(
        f"import sys, agent_web_search; sys.exit(','.join(set({HEAVY_MODULES}) & set(sys.modules)) or None)"
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_importing_reads_no_environment() -> None:
    done = run_python(
        "import json, os\n"
        "class Watched(dict):\n"
        "    def read(self, name, *default): raise SystemExit(f'read {name}')\n"
        "    __getitem__ = get = __contains__ = __iter__ = read\n"
        "for module in ('asyncio', 'logging', 'threading', 'urllib.parse', 'urllib.request', 'typing', 'dataclasses',\n"
        "               'contextlib', 'signal', 'ssl', 'socket', 'ipaddress', 'html', 'gzip', 'zlib'):\n"
        "    __import__(module)  # what the standard library reads is its own affair\n"
        "os.environ = Watched()\n"
        "os.getenv = os.environ.read\n"
        "import agent_web_search\n"
        "print('imported')"
    )
    assert done.stdout == "imported\n"


def test_the_sections_keep_their_order() -> None:
    banners = [
        line.strip("# -") for line in Path(aws.__file__).read_text("utf-8").splitlines() if line.startswith("# -- ")
    ]
    order = ["Contract", "Limits", "Errors", "Text", "Sites", "Settings", "Request", "Search", "Fetch", "Extract"]
    order += ["Assemble", "MCP server", "Process", "Command line"]
    assert [name for name in banners if name in order] == order


if __name__ == "__main__":
    import asyncio

    GOLDEN_TOOLS_LIST.write_text(to_golden(asyncio.run(list_tools())), "utf-8")


def test_the_examples_in_the_modules_docstrings_are_true() -> None:
    result = doctest.testmod(aws)
    assert result.attempted > 0
    assert result.failed == 0
