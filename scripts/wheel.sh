#!/usr/bin/env bash
# Usage: wheel.sh VENV
# Writes the source distribution and a wheel built from it, and nothing else, to dist/. Where auditwheel and patchelf are at
# hand the wheel carries its native libraries, so that it runs on machines without them.
set -euo pipefail

venv=$(realpath "${1:?usage: wheel.sh VENV}")
export PATH="$venv/bin:$PATH"
cd "$(dirname "$0")/.."

rm -rf dist build/wheel
python -m build --sdist --no-isolation --outdir dist . >/dev/null
python -m pip wheel --quiet --no-deps --wheel-dir build/wheel dist/*.tar.gz
if command -v auditwheel >/dev/null && command -v patchelf >/dev/null; then
    auditwheel repair --wheel-dir dist build/wheel/*.whl
else
    cp build/wheel/*.whl dist/
fi
ls -l dist
