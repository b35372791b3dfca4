"""Make a golden page from a saved HTML file.

    python tests/pages/add_page.py saved.html --kind sphinx --url https://example.org/guide.html

writes `tests/pages/<kind>/` with the page trimmed to what extraction looks at, its URL and maker, and what
`extract_main_text` makes of it now. That last file is only a draft: read it beside the page, and correct it to what a
reader needs, whatever the extractor does today.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

PAGES = Path(__file__).parent
MAX_SOURCE_BYTES = 60_000  # a larger page is slow to read by eye, and its traps are hard to find

# A script is kept where it carries content: MathJax 2 keeps its TeX there, linked data may describe the page.
_SCRIPT = re.compile(
    r"<script\b(?![^>]*\btype\s*=\s*[\"']?(?:math/tex|application/ld\+json))[^>]*>.*?</script\s*>",
    re.IGNORECASE | re.DOTALL,
)
_STYLE = re.compile(r"<style\b[^>]*>.*?</style\s*>", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_RESOURCE_LINK = re.compile(
    r"<link\b[^>]*\brel\s*=\s*[\"']?"
    r"(?:stylesheet|preload|modulepreload|prefetch|dns-prefetch|preconnect|icon|shortcut icon|mask-icon"
    r"|apple-touch-icon|manifest|search|alternate stylesheet)\b[^>]*>",
    re.IGNORECASE,
)
_DRAWING = re.compile(r"<(?:path|rect|circle|polygon|polyline|line|g|defs|use)\b[^>]*/>", re.IGNORECASE)
_DRAWING_PAIR = re.compile(r"<(path|rect|circle|polygon|polyline|line|use)\b[^>]*>\s*</\1\s*>", re.IGNORECASE)
_DATA_URI = re.compile(r"(=\s*[\"'])data:[^\"']{64,}([\"'])", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_VERBATIM = re.compile(r"(<(pre|textarea)\b.*?</\2\s*>)", re.IGNORECASE | re.DOTALL)


def trim_html(html: str) -> str:
    """Return `html` without scripts, styles, comments, drawings and long data URIs; all other markup is untouched.

    It works on the text, not on a parsed tree, so that malformed markup stays as malformed as it was served.
    """
    for pattern in (_SCRIPT, _STYLE, _COMMENT, _RESOURCE_LINK, _DRAWING, _DRAWING_PAIR):
        html = pattern.sub("", html)
    html = _DATA_URI.sub(r"\1data:,\2", html)
    pieces = _VERBATIM.split(html)
    # re.split with two groups: text, verbatim element, its tag name, text, ...
    return "".join(
        piece if at % 3 == 1 else _BLANK_LINES.sub("\n\n", piece) for at, piece in enumerate(pieces) if at % 3 != 2
    )


def add_page(source: Path, kind: str, url: str, made_by: str, pages: Path = PAGES) -> Path:
    """Write the folder of `kind` under `pages` and return it; an existing expected.txt is never overwritten."""
    from agent_web_search import extract_main_text

    html = trim_html(source.read_text(encoding="utf-8", errors="replace")).strip() + "\n"
    folder = pages / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.html").write_text(html, encoding="utf-8")
    meta = json.dumps({"url": url, "made_by": made_by}, ensure_ascii=False, indent=2)
    (folder / "meta.json").write_text(meta + "\n", encoding="utf-8")
    expected = folder / "expected.txt"
    if not expected.exists():
        expected.write_text(extract_main_text(html, url) + "\n", encoding="utf-8")
    return folder


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make a golden page from a saved HTML file.")
    parser.add_argument("file", type=Path, help="the saved page")
    parser.add_argument("--kind", required=True, help="name of the folder: what made the page")
    parser.add_argument("--url", required=True, help="the page's URL; a #fragment is honoured")
    parser.add_argument("--made-by", default="saved page", help="generator and version, or whose markup it follows")
    args = parser.parse_args(argv)
    folder = add_page(args.file, args.kind, args.url, args.made_by)
    size = (folder / "source.html").stat().st_size
    sys.stderr.write(f"{folder}: {size:,} bytes; now read expected.txt beside the page and correct it\n")
    if size > MAX_SOURCE_BYTES:
        sys.stderr.write(f"over {MAX_SOURCE_BYTES:,} bytes: cut repeated navigation and sections by hand\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
