#!/usr/bin/env bash
# Usage: lanes.sh TARGET...
# Makes each target in turn, also after one has failed, and says at the end which did. With JOBS=2, two at a time: what
# they print goes to build/lanes/TARGET.log, and is shown where one fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
make=("${MAKE:-make}" --no-print-directory)
most=${JOBS:-1}

if [ "$most" -eq 1 ]; then
    for lane in "$@"; do
        step "$lane" "${make[@]}" "$lane"
    done
    verdict
fi

# Lanes share environments, which two must not make at once; a lane whose environment cannot be made fails by itself.
"${make[@]}" -k environments || true
rm -rf build/lanes
mkdir -p build/lanes

run() {
    local lane=$1 start=$SECONDS
    if "${make[@]}" "$lane" >"build/lanes/$lane.log" 2>&1; then
        echo "== $lane: passed in $((SECONDS - start)) s: $(tail -n 1 "build/lanes/$lane.log")"
    else
        touch "build/lanes/$lane.failed"
        echo "== $lane: FAILED after $((SECONDS - start)) s"
        tail -n 200 "build/lanes/$lane.log"
    fi
}

for lane in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$most" ]; do wait -n || true; done
    run "$lane" &
done
wait
for lane in "$@"; do
    [ ! -e "build/lanes/$lane.failed" ] || failed+=("$lane")
done
verdict
