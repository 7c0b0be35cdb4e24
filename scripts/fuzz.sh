#!/usr/bin/env bash
# Usage: fuzz.sh [SECONDS]
# Feeds the native IPC reader with any bytes, beginning with the golden files (tests/fuzz/fuzz_ipc.cpp). Inputs that were
# of interest are kept in build/fuzz/corpus for the next run; one that breaks something is written to build/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
clang=${CLANGXX:-$(command -v clang++ || compgen -c clang++- | sort -V | tail -1 || true)}
if [ -z "$clang" ]; then
    echo "fuzz.sh: no clang++ on this system; install clang with its compiler-rt (Debian: clang libclang-rt-14-dev)" >&2
    exit 1
fi
cmake -S . -B build/fuzz -G Ninja -DFASTSHARD_FUZZ=ON -DFASTSHARD_WERROR=ON -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_COMPILER="${clang/clang++/clang}" -DCMAKE_CXX_COMPILER="$clang" >/dev/null
cmake --build build/fuzz --target fuzz_ipc
mkdir -p build/fuzz/corpus
find tests/golden -name '*.arrow' -exec cp -n {} build/fuzz/corpus \;
# A file may say that a small frame holds a gigabyte; what it then holds is checked.
exec build/fuzz/tests/fuzz/fuzz_ipc -max_total_time="$seconds" -rss_limit_mb=4096 -malloc_limit_mb=4096 -timeout=20 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/ build/fuzz/corpus
