"""Main-text extraction on a folder of annotated pages, beside other extractors, in one run.

    python tests/bench/extract.py DIR [--venv CACHE] [--every N] [--worst N] [--systems ours,readability,...]

DIR holds `html/ID.html.gz` and `ground-truth/ID.json` as WCXB (CC-BY-4.0) has them. The extractors compared with are
installed into a virtual environment of the benchmark's own; everything then runs inside it, page by page, one system
after another, so that a busy machine is busy for all of them.

Words are `\\w+` of the lower-cased text, the score of a page is the F1 of the two bags of words, the score of a set the
mean over its pages; "F1 gt" leaves out pages whose reference text is empty. A code block counts when it is a `pre` that
the reference text holds (80 % of its word trigrams), and is kept when its lines follow each other in the output.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RIVALS = ["trafilatura==2.3.1", "readability-lxml>=0.8.4,<0.10", "lxml>=5.3,<7", "chardet"]
WORD = re.compile(r"\w+")
MIN_CODE_LINES, MIN_CODE_WORDS, MIN_REFERENCE_SHARE = 2, 5, 0.8  # smaller blocks and gutters are not counted
UNSEEN = (
    "ancestor-or-self::*[self::nav or self::footer or self::noscript or @hidden or contains(@style, 'display:none')]"
)


@dataclass
class Example:
    """One annotated page."""

    number: str
    kind: str
    url: str
    html: str
    reference: str


@dataclass
class Outcome:
    """What one system did on one page."""

    number: str
    kind: str
    precision: float
    recall: float
    f1: float
    cpu_ms: float
    code_kept: int
    code_count: int
    is_empty: bool
    error: str = ""


@dataclass
class Tally:
    """All outcomes of one system."""

    outcomes: list[Outcome] = field(default_factory=list)

    def of(self, kind: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if kind in ("all", outcome.kind)]


def read_examples(folder: Path, every: int) -> Iterator[Example]:
    for path in sorted(folder.glob("html/*.html.gz"))[::every]:
        number = path.name.split(".")[0]
        truth = json.loads((folder / "ground-truth" / f"{number}.json").read_text(encoding="utf-8"))
        kind = truth["_internal"]["page_type"]["primary"].replace("category", "collection")
        html = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        yield Example(number, kind, truth["url"] or "", html, truth["ground_truth"].get("main_content") or "")


def systems() -> dict[str, Callable[[Example], str]]:
    """Each system as a function of a page; imported here, since only the benchmark's environment has them."""
    import readability
    import trafilatura
    from lxml import html as lxml_html

    sys.path.insert(0, str(ROOT))
    import agent_web_search

    def ours(page: Example) -> str:
        return agent_web_search.extract_main_text(page.html, page.url)

    def with_comments(page: Example) -> str:
        return trafilatura.extract(page.html) or ""

    def without_comments(page: Example) -> str:
        return trafilatura.extract(page.html, include_comments=False) or ""

    def plain_readability(page: Example) -> str:
        summary = readability.Document(page.html).summary(html_partial=True)
        return " ".join(lxml_html.fromstring(summary).text_content().split())

    return {
        "ours": ours,
        "trafilatura": with_comments,
        "trafilatura, no comments": without_comments,
        "readability-lxml": plain_readability,
    }


def score(output: str, reference: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of two bags of words; two empty texts agree."""
    found, wanted = (collections.Counter(WORD.findall(text.lower())) for text in (output, reference))
    if not found and not wanted:
        return 1.0, 1.0, 1.0
    common = (found & wanted).total() if hasattr(found, "total") else sum((found & wanted).values())
    if not common:
        return 0.0, 0.0, 0.0
    precision, recall = common / sum(found.values()), common / sum(wanted.values())
    return precision, recall, 2 * precision * recall / (precision + recall)


def trigrams(text: str) -> list[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return list(zip(words, words[1:], words[2:], strict=False))


def code_lines(text: str) -> list[str]:
    """Lines that are not empty, without blanks at their ends and without C1 controls (of wrongly decoded pages)."""
    return [line.rstrip() for line in re.sub("[\x80-\x9f]", "", text).split("\n") if line.strip()]


def reference_code(page: Example) -> list[list[str]]:
    """The lines of each `pre` that a reader sees and the reference text holds."""
    from lxml import etree

    root = etree.fromstring(page.html.encode(), etree.HTMLParser(huge_tree=True, encoding="utf-8"))
    wanted = set(trigrams(page.reference))
    blocks = []
    for pre in [] if root is None else root.iter("pre"):
        lines = code_lines(pre_text(pre))
        grams = trigrams("\n".join(lines))
        is_code = len(lines) >= MIN_CODE_LINES and len(WORD.findall(" ".join(lines))) >= MIN_CODE_WORDS
        is_code = is_code and bool(re.search(r"[^\W\d]", "".join(lines))) and not pre.xpath(UNSEEN)
        if is_code and grams and sum(gram in wanted for gram in grams) >= MIN_REFERENCE_SHARE * len(grams):
            blocks.append(lines)
    return blocks


def pre_text(pre: Any) -> str:
    """The text of a `pre`: as it stands, with a line break at `br` and around blocks."""
    parts = [pre.text or ""]
    for child in pre:
        is_block = child.tag in ("div", "li", "ol", "ul", "p", "tr", "table", "section")
        if is_block and parts and not "".join(parts).endswith("\n"):
            parts.append("\n")
        if isinstance(child.tag, str) and child.tag not in ("script", "style", "button"):
            parts.append("\n" if child.tag == "br" else pre_text(child))
        if is_block and not "".join(parts).endswith("\n"):
            parts.append("\n")
        parts.append(child.tail or "")
    return "".join(parts)


def count_kept(blocks: list[list[str]], output: str) -> int:
    """How many blocks are in the output with their lines, in order and with their leading blanks."""
    text = "\n" + "\n".join(code_lines(output)) + "\n"
    return sum("\n" + "\n".join(lines) + "\n" in text for lines in blocks)


def measure(system: Callable[[Example], str], page: Example, blocks: list[list[str]]) -> Outcome:
    error = ""
    start = time.thread_time()
    try:
        output = system(page)
    except Exception as failure:  # a system that fails on a page has no text for it
        output, error = "", f"{type(failure).__name__}: {failure}"
    cpu_ms = (time.thread_time() - start) * 1000
    precision, recall, f1 = score(output, page.reference)
    kept, is_empty = count_kept(blocks, output), not page.reference.strip()
    return Outcome(page.number, page.kind, precision, recall, f1, cpu_ms, kept, len(blocks), is_empty, error)


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


def report(tallies: dict[str, Tally], worst_count: int) -> None:
    kinds = ["all", *sorted({outcome.kind for tally in tallies.values() for outcome in tally.outcomes})]
    for kind in kinds:
        print(f"\n{kind}: {len(next(iter(tallies.values())).of(kind))} pages")
        print(
            f"  {'':26}{'F1':>8}{'F1 gt':>8}{'P':>8}{'R':>8}{'code':>8}{'ms p50':>9}{'p95':>8}{'max':>8}{'errors':>8}"
        )
        for name, tally in tallies.items():
            rows = tally.of(kind)
            code_count = sum(row.code_count for row in rows)
            code = f"{sum(row.code_kept for row in rows) / code_count:.3f}" if code_count else "-"
            times = sorted(row.cpu_ms for row in rows)
            quality = (
                mean([row.f1 for row in rows]),
                mean([row.f1 for row in rows if not row.is_empty]),
                mean([row.precision for row in rows]),
                mean([row.recall for row in rows]),
            )
            cost = statistics.median(times), times[int(len(times) * 0.95)], times[-1]
            print(f"  {name:26}" + "".join(f"{value:8.3f}" for value in quality) + f"{code:>8}", end="")
            print(f"{cost[0]:9.1f}{cost[1]:8.1f}{cost[2]:8.1f}{sum(bool(row.error) for row in rows):8}")
    name, tally = next(iter(tallies.items()))
    print(f"\nWorst pages of {name}")
    for row in sorted((row for row in tally.outcomes if not row.is_empty), key=lambda row: row.f1)[:worst_count]:
        print(f"  {row.number} {row.kind:14} F1 {row.f1:.3f} P {row.precision:.3f} R {row.recall:.3f} {row.error}")


def run_in_own_environment(folder: Path) -> int:
    """Make the environment once, then run this file again with its interpreter."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    check = [python, "-c", "import trafilatura, readability"]
    if not python.exists() or subprocess.run(check, capture_output=True, check=False).returncode:
        venv.create(folder, with_pip=True, clear=True)
        for packages in (["--upgrade", "pip"], RIVALS):  # pip 23 stumbles over extras that two packages ask for
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return subprocess.run([python, *sys.argv, "--inside"], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with html/ and ground-truth/")
    parser.add_argument("--venv", type=Path, default=Path("~/.cache/agent-web-search/bench-extract").expanduser())
    parser.add_argument("--every", type=int, default=1, help="take each Nth page only")
    parser.add_argument("--worst", type=int, default=20, help="how many of the worst pages to name")
    parser.add_argument("--systems", default="", help="names separated by commas; all when left out")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        return run_in_own_environment(options.venv)
    logging.disable(logging.CRITICAL)
    wanted = [name.strip() for name in options.systems.split(",") if name.strip()]
    chosen = {name: system for name, system in systems().items() if not wanted or name in wanted}
    tallies = {name: Tally() for name in chosen}
    for position, page in enumerate(read_examples(options.folder, options.every)):
        blocks = reference_code(page)
        order = list(chosen)
        for name in order[position % len(order) :] + order[: position % len(order)]:  # nobody always finds a warm cache
            tallies[name].outcomes.append(measure(chosen[name], page, blocks))
    report(tallies, options.worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
