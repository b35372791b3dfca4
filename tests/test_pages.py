"""Golden pages: each folder of tests/pages/ is one kind of page and the text a reader would call its content."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_web_search import extract_main_text

PAGES = Path(__file__).parent / "pages"
FOLDERS = sorted(path.parent for path in PAGES.glob("*/source.html"))
_FENCED = re.compile(r"^(`{3,})\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class GoldenPage:
    """One folder of tests/pages/, read."""

    source: str
    url: str
    expected: str

    @classmethod
    def read(cls, folder: Path) -> GoldenPage:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        source, expected = ((folder / name).read_text(encoding="utf-8") for name in ("source.html", "expected.txt"))
        return cls(source, meta["url"], expected.removesuffix("\n"))


def fenced_code(text: str) -> list[str]:
    """The code of each fence in `text`, without the fences."""
    return [match.group(2) for match in _FENCED.finditer(text)]


WITH_CODE = [folder for folder in FOLDERS if fenced_code((folder / "expected.txt").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_page_gives_the_text_its_reader_would_call_the_content(folder: Path) -> None:
    page = GoldenPage.read(folder)
    assert extract_main_text(page.source, page.url) == page.expected


@pytest.mark.parametrize("folder", WITH_CODE, ids=lambda folder: folder.name)
def test_every_code_block_of_a_page_is_kept_verbatim(folder: Path) -> None:
    page = GoldenPage.read(folder)
    kept = fenced_code(extract_main_text(page.source, page.url))
    assert [code for code in fenced_code(page.expected) if code not in kept] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_page_given_as_bytes_reads_as_the_same_text(folder: Path) -> None:
    page = GoldenPage.read(folder)
    assert extract_main_text(page.source.encode(), page.url) == extract_main_text(page.source, page.url)


def test_there_are_golden_pages_for_at_least_twenty_kinds() -> None:
    assert len(FOLDERS) >= 20
