#!/usr/bin/env bash
# Usage: lanes.sh TARGET...
# Makes each target in turn, also after one has failed, and says at the end which did.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh

for lane in "$@"; do
    step "$lane" "${MAKE:-make}" --no-print-directory "$lane"
done
verdict
