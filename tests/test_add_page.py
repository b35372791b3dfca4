"""The script that makes a golden page: what it trims, and what it must leave alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent / "pages" / "add_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "dropped",
    [
        '<script src="a.js">let a = "<p>";</script>',
        "<style>p { color: red }</style>",
        "<!-- a comment -->",
        '<link rel="stylesheet" href="a.css">',
        '<path d="M0 0h9v9z"/>',
        '<path d="M0 0h9v9z"></path>',
    ],
    ids=["script", "style", "comment", "stylesheet", "drawing", "drawing in a pair"],
)
def test_what_nobody_reads_is_trimmed(script: ModuleType, dropped: str) -> None:
    assert script.trim_html(f"<p>a</p>{dropped}<p>b</p>") == "<p>a</p><p>b</p>"


@pytest.mark.parametrize(
    "kept",
    [
        '<script type="math/tex">x^2</script>',
        '<script data-x="1" type="application/ld+json">{"name": "a"}</script>',
        '<link rel="next" href="b.html">',
        "<pre>a\n\n\n\n\nb</pre>",
        "<noscript><p>a</p></noscript>",
        "<p>an unclosed <b>element",
    ],
    ids=["formula", "linked data", "next page", "blank lines in code", "noscript", "malformed markup"],
)
def test_what_may_carry_content_is_left_alone(script: ModuleType, kept: str) -> None:
    assert script.trim_html(kept) == kept


def test_a_saved_file_becomes_a_folder(script: ModuleType, tmp_path: Path) -> None:
    saved = tmp_path / "saved.html"
    saved.write_text("<html><body><script>1</script><p>Tides rise and fall twice a day.</p></body></html>", "utf-8")
    folder = script.add_page(saved, "tides", "https://example.org/tides", "by hand", pages=tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["expected.txt", "meta.json", "source.html"]
    assert json.loads((folder / "meta.json").read_text("utf-8"))["url"] == "https://example.org/tides"
    assert "<script>" not in (folder / "source.html").read_text("utf-8")
    assert (folder / "expected.txt").read_text("utf-8") == "Tides rise and fall twice a day.\n"


def test_a_corrected_text_is_never_overwritten(script: ModuleType, tmp_path: Path) -> None:
    saved = tmp_path / "saved.html"
    saved.write_text("<p>Tides rise and fall twice a day.</p>", "utf-8")
    folder = script.add_page(saved, "tides", "https://example.org/", "by hand", pages=tmp_path)
    (folder / "expected.txt").write_text("corrected\n", "utf-8")
    script.add_page(saved, "tides", "https://example.org/", "by hand", pages=tmp_path)
    assert (folder / "expected.txt").read_text("utf-8") == "corrected\n"
