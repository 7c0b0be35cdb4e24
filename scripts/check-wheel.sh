#!/usr/bin/env bash
# Usage: check-wheel.sh PYTHON
# Installs the wheel in dist/ into a new environment, away from the sources and without torch, and uses it there.
set -euo pipefail

python=${1:?usage: check-wheel.sh PYTHON}
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
cd "$work"
venv/bin/python -m pip install --quiet --disable-pip-version-check "$root"/dist/*.whl
venv/bin/fastshard --version
venv/bin/python "$root/scripts/check_install.py" "$work/data"
venv/bin/fastshard info "$work/data" >/dev/null
venv/bin/fastshard verify "$work/data"
