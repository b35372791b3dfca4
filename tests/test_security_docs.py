"""What `docs/security.md` claims has a test, and what it lists is what the code has."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from agent_web_search import PageReason

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
ATTACK_ROWS = re.findall(r"^\| (.+?) \| (.+?) \| `(\w+\.py)::(.+?)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The tests of the files that the table names, with and without their parameters."""
    files = sorted({f"tests/{file}" for _, _, file, _ in ATTACK_ROWS})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    tests = {line.removeprefix("tests/") for line in listing.splitlines() if "::" in line}
    return tests | {test.partition("[")[0] for test in tests}


def test_every_attack_names_a_test_that_exists(collected: set[str]) -> None:
    assert [f"{file}::{name}" for _, _, file, name in ATTACK_ROWS if f"{file}::{name}" not in collected] == []


def test_sixty_attacks_and_more_are_listed_once_each_and_most_run_against_the_real_process() -> None:
    tests = [f"{file}::{name}" for _, _, file, name in ATTACK_ROWS]
    assert len(ATTACK_ROWS) == PAGE.count(".py::") >= 60
    assert len(set(tests)) == len(tests)
    assert sum(test.startswith("test_security_process.py") for test in tests) > len(tests) / 2


def test_the_table_of_reasons_is_the_one_of_the_reference() -> None:
    section = PAGE.partition("## Why a page was not read")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `.+?` \| .+ \|$", section, re.MULTILINE)
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert len(rows) == len(get_args(PageReason)) - 1  # "http 404" and the like stand above the table
    assert [row for row in rows if row not in reference] == []
