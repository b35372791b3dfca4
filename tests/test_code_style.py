"""Lint, types and the order of the module are part of the test run, so that one command is the whole check."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parent.parent


COMMANDS = {"lint": ("ruff", "check", "."), "format": ("ruff", "format", "--check", "."), "types": ("mypy",)}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_lint_format_and_types_find_nothing(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_before_a_commit_run_the_same_commands() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    entries = dict(re.findall(r"- id: (\w+)\n.*?entry: (.+?)\n", hooks, re.DOTALL))
    assert entries == {name: " ".join(("python", "-m", *command)) for name, command in COMMANDS.items()}
    assert re.findall(r"repo: (.+)", hooks) == ["local"]


# -- The module reads from top to bottom -------------------------------------------------------------------------------

MAX_FUNCTION_LINES = 42
MODULE = ast.parse((ROOT / "agent_web_search.py").read_text("utf-8"))


def defined_names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return [name]
        case ast.Assign(targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(ast.Name(name)):
            return [name]
    return []


def used_names(node: ast.AST) -> Iterator[str]:
    """The names that run, at once or in a call: not those of annotations."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from used_names(child)


def test_nothing_is_used_above_its_definition() -> None:
    definition_line = {name: node.lineno for node in MODULE.body for name in defined_names(node)}
    early = [
        f"line {statement.lineno}: {name}"
        for statement in MODULE.body
        for name in used_names(statement)
        if definition_line.get(name, 0) > statement.lineno
    ]
    assert len(definition_line) > 300
    assert early == []


def test_no_function_is_longer_than_a_screen() -> None:
    functions = [node for node in ast.walk(MODULE) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lengths = {node.name: cast(int, node.end_lineno) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}
