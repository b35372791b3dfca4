"""The workflows, checked by the tools made for that; `pip install -e '.[ci]'` brings them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHECKS = {
    "actionlint": [],  # what a workflow may say, and shellcheck for its commands where that is installed
    "zizmor": ["--offline", "--no-progress"],  # what an attacker could do with it
}


@pytest.mark.parametrize("tool", CHECKS)
def test_the_workflows_pass(tool: str) -> None:
    program = shutil.which(tool, path=str(Path(sys.executable).parent)) or shutil.which(tool)
    if not program:
        pytest.skip(f"{tool} is missing; the extra `ci` has it")
    done = subprocess.run(
        [program, *CHECKS[tool], *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert WORKFLOWS
    assert done.returncode == 0, done.stdout + done.stderr
