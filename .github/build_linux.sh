#!/usr/bin/env bash
# Builds the Linux binary inside a manylinux_2_28 container, so that glibc 2.28 is enough to run it, and tests it there.
# Usage: bash .github/build_linux.sh   (in the repository's root; the binary lands in dist/)
set -euo pipefail
# The distribution's Python has a shared library, which PyInstaller needs; the container's own interpreters do not.
command -v python3.12 >/dev/null || dnf install --quiet --assumeyes python3.12 python3.12-devel python3.12-pip
python3.12 -m venv /tmp/build
/tmp/build/bin/pip install --quiet --upgrade pip
/tmp/build/bin/pip install --quiet --editable '.[dev]'
git config --global --add safe.directory "$PWD" # the folder belongs to the user outside of the container
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)} \
  /tmp/build/bin/python -m PyInstaller --noconfirm --distpath dist --workpath /tmp/pyinstaller build.spec
AGENT_WEB_SEARCH_BIN=dist/agent-web-search /tmp/build/bin/python -m pytest -q
time sh .github/smoke.sh dist/agent-web-search
