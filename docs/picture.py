"""Draws docs/search.svg: what `agent-web-search search` prints, from a real run against the simulated web.

python docs/picture.py
"""

import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "search.svg"
ARGUMENTS = ["search", "sorting", "--domain", "docs.example.org"]
MOST_LINES, MOST_COLUMNS = 21, 96
FONT_PIXELS, LINE_PIXELS, COLUMN_PIXELS, MARGIN_PIXELS = (
    14,
    20,
    8.43,
    18,
)  # a column: 0.6 of the size, and a little room
STYLE = """
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee6 }
    .title { fill: #8bd49c; font-weight: bold } .url { fill: #7fb4f0 } .prompt { fill: #e8c268 }
"""


def run_search() -> list[str]:
    """The first lines that the command prints, each cut at the picture's width, below the line that was typed."""
    server = [sys.executable, "-m", "tests.simulated_web", "--", sys.executable, "agent_web_search.py"]
    done = subprocess.run([*server, *ARGUMENTS], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    typed = " ".join(["$ agent-web-search", *ARGUMENTS])
    lines = [typed, *done.stdout.splitlines()][:MOST_LINES]
    return [line if len(line) <= MOST_COLUMNS else line[: MOST_COLUMNS - 1] + "…" for line in lines]


def kind_of(line: str) -> str:
    """The class of a line, which gives it its colour."""
    beginnings = {"$ ": "prompt", "   https://": "url"} | {f"{number}. ": "title" for number in range(1, 11)}
    return next((kind for beginning, kind in beginnings.items() if line.startswith(beginning)), "plain")


def draw(lines: list[str]) -> str:
    """The lines as SVG. It has a ground of its own, so it can be read on a dark page and on a light one."""
    width = round(MOST_COLUMNS * COLUMN_PIXELS) + 2 * MARGIN_PIXELS
    height = len(lines) * LINE_PIXELS + 2 * MARGIN_PIXELS
    rows = [
        f'  <text class="{kind_of(line)}" x="{MARGIN_PIXELS}" y="{MARGIN_PIXELS + FONT_PIXELS + number * LINE_PIXELS}"'
        f' xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    ground = f'  <rect width="{width}" height="{height}" rx="8" fill="#1b2027" stroke="#59636e"/>'
    return "\n".join([head, f"  <style>{STYLE}  </style>", ground, *rows, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(run_search()), encoding="utf-8")
