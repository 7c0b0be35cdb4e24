#!/usr/bin/env bash
# Usage: prepare-system.sh PYTHON [java|fuzzer]
# Sees to what pip cannot install: a C++20 compiler, Python with venv and headers, and the headers of zstd, lz4 and
# xxHash; with "java", also a Java for Spark; with "fuzzer", also clang with libFuzzer. As root on a system with apt-get it
# installs what is missing; for anyone else it names the command to run and fails. It changes nothing when nothing is
# missing.
set -euo pipefail

python=${1:?usage: prepare-system.sh PYTHON [java]}
also=${2:-}
oldest=3.10

fail() {
    printf 'fastshard: %s\n' "$@" >&2
    exit 1
}

have_python() { command -v "$python" >/dev/null 2>&1; }
have_header() { echo "#include <$1>" | c++ -E -x c++ - >/dev/null 2>&1; }

# Spark 4 needs Java 17 or newer.
have_java() {
    local version
    version=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || return 1
    [ "${version:-0}" -ge 17 ]
}

java_package() {
    if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then echo openjdk-17-jre-headless; else echo default-jre-headless; fi
}

# The newest clang++ by whatever name, as fuzz.sh takes it, with the runtime of libFuzzer and AddressSanitizer.
have_fuzzer() {
    local clang
    clang=${CLANGXX:-$(command -v clang++ || compgen -c clang++- | sort -V | tail -1 || true)}
    [ -n "$clang" ] && echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
        "$clang" -fsanitize=fuzzer,address -x c++ -o /dev/null - 2>/dev/null
}

# Prints the Debian packages that are missing, in one line.
missing_packages() {
    local missing=()
    command -v c++ >/dev/null 2>&1 || missing+=(g++)
    if ! have_python; then
        [ "$python" = python3 ] && missing+=(python3 python3-venv python3-dev)
    else
        # A python3 of the distribution has its headers and ensurepip in packages of their own; any other brings them.
        "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=("$(distribution_package venv)")
        "$python" -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' ||
            missing+=("$(distribution_package dev)")
    fi
    if command -v c++ >/dev/null 2>&1; then
        have_header zstd.h || missing+=(libzstd-dev)
        have_header lz4frame.h || missing+=(liblz4-dev)
        have_header xxhash.h || missing+=(libxxhash-dev)
    else
        missing+=(libzstd-dev liblz4-dev libxxhash-dev)
    fi
    if [ "$also" = java ] && ! have_java; then
        missing+=("$(java_package)")
    fi
    if [ "$also" = fuzzer ] && ! have_fuzzer; then
        missing+=(clang)
        # Where it is no part of clang's own packages.
        ! apt-cache show libclang-rt-dev >/dev/null 2>&1 || missing+=(libclang-rt-dev)
    fi
    echo "${missing[*]}"
}

# The package of the distribution's Python that ends in -venv or -dev.
distribution_package() { "$python" -c 'import sys; print("python%d.%d-%s" % (*sys.version_info[:2], sys.argv[1]))' "$1"; }

missing=$(missing_packages)
if [ -n "$missing" ] && command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" -ne 0 ]; then
        fail "missing on this system: $missing" "install them and run make again: sudo apt-get install -y $missing"
    fi
    echo "fastshard: installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    # shellcheck disable=SC2086  # a list of words
    apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
    missing=$(missing_packages)
    [ -z "$missing" ] || fail "apt-get succeeded, but these are still missing: $missing"
fi

# For tests of storage that fails or does not answer; without it they are skipped.
if ! command -v fusermount >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends fuse libfuse2 </dev/null >/dev/null 2>&1 ||
        { apt-get update -qq </dev/null &&
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends fuse libfuse2 </dev/null >/dev/null; } ||
        echo "fastshard: no FUSE on this system: its tests are skipped"
fi

have_python || fail "no $python on this system; set PYTHON to a Python of version $oldest or newer: make PYTHON=/path/to/python3"
"$python" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$oldest'.split('.'))))" ||
    fail "$("$python" --version 2>&1) is too old; set PYTHON to a version $oldest or newer: make PYTHON=/path/to/python3"
# Only a system without apt-get comes here with something missing.
for package in $missing; do
    case $package in
        g++) fail "no C++ compiler on this system: install one that knows C++20 (GCC 11, Clang 14 or newer)" ;;
        python*-venv) fail "$python has no venv or no ensurepip: install its venv package, or set PYTHON to another one" ;;
        python*-dev) fail "$python has no Python.h: install its development package, or set PYTHON to another one" ;;
        clang | libclang-rt-dev) fail "no clang++ with libFuzzer on this system: install clang with its compiler-rt" ;;
        *-jre-headless) fail "no Java 17 or newer on this system: install one, or set JAVA_HOME" ;;
        *) echo "fastshard: no $package on this system: CMake will fetch it" ;;
    esac
done
echo 'int main() { return []<class T>(T x) { return x; }(0); }' | c++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null ||
    fail "$(c++ --version | head -1) does not know C++20: install GCC 11, Clang 14 or newer"
