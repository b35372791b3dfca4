"""Which small faults in the program the tests would miss: search, fetch policy, truncation, request, assembly.

    python -m tests.bench.mutants [TARGET ...] [--most 40] [--seed 1]

A mutant is the module with one place changed: a comparison, `and`/`or`, a condition, a number, a word for an outcome,
an element of a table, a returned value, a statement left out, `min`/`max`, an operator of arithmetic. It is killed when
a test fails or takes too long; the others are printed as differences, to be explained or killed. Each runs in a copy of
the tree, first with the tests that reach its line, then with their whole file. Not part of the suite: it takes minutes.
"""

import argparse
import ast
import difflib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from coverage import CoverageData

import agent_web_search

ROOT = Path(__file__).parents[2]
MODULE = "agent_web_search.py"
FEW_TESTS_SECONDS, FILE_SECONDS = 20, 60  # for what takes a third; a mutant may loop without end
TARGETS_BY_TESTS = {  # names of functions, classes, methods and tables
    "tests/test_text.py": "clean_text clean_line count_words truncate_words truncate_bytes _mark_cut",
    "tests/test_request.py": "Site split_url ascii_host parse_sites parse_site parse_request build_engine_query "
    "is_wanted guess_location _parse_query _parse_choice _parse_domain_filter",
    "tests/test_search.py": "Memory parse_hits merge_hits normalize_url read_response parse_retry_after "
    "explain_failure ask_ddgs ddgs_backend Engine engines_for EngineRun EngineRace combine_failures EngineSearch "
    "_hit_bytes",
    "tests/test_fetch.py": "REFUSED_NETWORKS PRIVATE_NETWORKS NAT64_NETWORKS LOCAL_SUFFIXES refuse_address "
    "_addresses_inside _is_open CheckedTransport HttpPageFetcher _reason_of _read_page _read_body WALL_HOSTS is_wall "
    "decode_body _labelled_codecs _codec_of _detect_codec",
    "tests/test_assemble.py": "web_search _within_clock PageReader read_extracts choose_extract favicon_url "
    "assemble_result render_results _shorten",
}
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
}  # fmt: skip
SECONDS = itertools.count(1_000_000_000)
OUTCOMES = {*agent_web_search.RETRY_ADVICE, *get_args(agent_web_search.PageReason), "no match"}


def expressions(node: ast.AST) -> Iterator[str]:
    """The source of each mutation of this one expression."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in SWAPS:
            yield ast.unparse(ast.Compare(left, [SWAPS[type(operator)]()], [right]))
        case ast.BoolOp(operator, values):
            yield ast.unparse(ast.BoolOp(SWAPS[type(operator)](), values))
        case ast.BinOp(left, operator, right) if type(operator) in SWAPS:
            yield ast.unparse(ast.BinOp(left, SWAPS[type(operator)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.Call(ast.Name("min" | "max" as name), arguments, keywords):
            yield ast.unparse(ast.Call(ast.Name("max" if name == "min" else "min"), arguments, keywords))
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (str(value + 1), str(value - 1))
        case ast.Constant(str(value)) if value in OUTCOMES:
            yield repr("mutant")


def changes(node: ast.AST) -> Iterator[tuple[Any, str]]:
    """Each mutation at this one node: the node to replace, and the source in its place."""
    yield from ((node, f"({change})") for change in expressions(node))
    match node:
        case ast.Tuple(elements) | ast.List(elements) | ast.Set(elements):
            values = [element.value for element in elements if isinstance(element, ast.Constant)]
            for value in values if len(values) == len(elements) else ():
                yield node, f"(*{[other for other in values if other != value]},)"
        case ast.Return(ast.expr()):
            yield node, "return None"
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Break() | ast.Delete():
            yield node, "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript(), *_]):
            yield node, "pass"
        case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.comprehension(ifs=[test]):
            if not isinstance(test, (ast.Compare, ast.UnaryOp)):
                yield test, f"(not ({ast.unparse(test)}))"


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all inside that runs: no annotations, and no pieces of f-strings, whose places are not known."""
    yield node
    for field, value in ast.iter_fields(node):
        if field not in {"annotation", "returns", "decorator_list"} and not isinstance(node, ast.JoinedStr):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from nodes(child)


def mutants(source: str, target: str) -> Iterator[tuple[int, str]]:
    """The number of the changed line and the text of the module, for each mutant of a target."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw = source.encode()
    for top in ast.parse(source).body:
        name = getattr(top, "name", None) or getattr(getattr(top, "target", None), "id", None)
        for place, change in itertools.chain.from_iterable(map(changes, nodes(top))) if name == target else ():
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            mutant = (raw[:start] + change.encode() + raw[end:]).decode()
            if mutant != source:
                yield place.lineno, mutant


def fails(tree: Path, module: str, tests: Sequence[str], limit_seconds: float) -> bool:
    """Whether one of the tests fails with this text of the module, or they take too long."""
    (tree / MODULE).write_text(module, "utf-8")
    second = next(SECONDS)  # cached byte code is known by its source's time
    os.utime(tree / MODULE, (second, second))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(command, cwd=tree, stdout=-3, stderr=-3, start_new_session=True)
    try:
        return process.wait(limit_seconds) != 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait() != 0


def tests_by_line(tree: Path, tests: str) -> dict[int, list[str]]:
    """The tests of a file that reach each line of the module, by coverage; what runs beside a test is not seen."""
    shutil.copy(ROOT / MODULE, tree)
    (tree / "contexts.ini").write_text(f"[run]\ndynamic_context = test_function\ninclude = {MODULE}\n")
    command = [sys.executable, "-m", "coverage", "run", "--rcfile=contexts.ini", "-m", "pytest", "-q", tests]
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    data = CoverageData(str(tree / ".coverage"))
    data.read()
    module = tests.removesuffix(".py").replace("/", ".") + "."
    return {
        line: sorted(name.replace(module, f"{tests}::") for name in names if name.startswith(module))
        for line, names in data.contexts_by_lineno(str(tree / MODULE)).items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all of TARGETS_BY_TESTS")
    parser.add_argument("--most", type=int, default=40, help="mutants a target, drawn where there are more")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    source = (ROOT / MODULE).read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve() / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", "dist", "build"))
        for tests, names in TARGETS_BY_TESTS.items():
            targets = [name for name in names.split() if name in options.targets or not options.targets]
            reached = tests_by_line(tree, tests) if targets else {}
            for target in targets:
                found = list(mutants(source, target))
                drawn = random.Random(options.seed).sample(found, min(options.most, len(found)))
                survived = 0
                for line, mutant in drawn:
                    few_tests = reached.get(line, [])
                    if few_tests and fails(tree, mutant, few_tests, FEW_TESTS_SECONDS):
                        continue
                    if fails(tree, mutant, [tests], FILE_SECONDS):
                        continue
                    survived += 1
                    difference = difflib.unified_diff(source.splitlines(), mutant.splitlines(), n=0, lineterm="")
                    print("\n".join(list(difference)[2:]), flush=True)
                print(f"{target:20} {len(found):4} mutants, {len(drawn):3} run, {survived:3} survived", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
