"""Lint and types are part of the test run, so that one command is the whole check."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


COMMANDS = {"lint": ("ruff", "check", "."), "format": ("ruff", "format", "--check", "."), "types": ("mypy",)}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_the_code_passes(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_before_a_commit_run_the_same_commands() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    entries = dict(re.findall(r"- id: (\w+)\n.*?entry: (.+?)\n", hooks, re.DOTALL))
    assert entries == {name: " ".join(("python", "-m", *command)) for name, command in COMMANDS.items()}
    assert re.findall(r"repo: (.+)", hooks) == ["local"]
