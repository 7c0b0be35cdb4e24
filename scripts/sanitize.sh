#!/usr/bin/env bash
# Usage: sanitize.sh asan|tsan VENV [pytest arguments]
# Builds the native core with sanitizers and runs the tests on it. The interpreter is the environment's, seen through a
# second one without pip in which the package is a copy of the sources beside the instrumented library, so that the
# editable install does not get in the way.
set -euo pipefail

kind=${1:?usage: sanitize.sh asan|tsan VENV [pytest arguments]}
venv=$(realpath "${2:?usage: sanitize.sh asan|tsan VENV [pytest arguments]}")
shift 2
root=$(realpath "$(dirname "$0")/..")
build=$root/build/$kind
tree=$build/tree
export PATH="$venv/bin:$PATH"

cd "$root"
compiler=()
if [ "$kind" = tsan ]; then
    # Of GCC 12 and clang 14, only the latter's runtime is clean of reports about waits for conditions.
    clang=${CLANGXX:-$(command -v clang++ || compgen -c clang++- | sort -V | tail -1 || true)}
    [ -n "$clang" ] || { echo "sanitize.sh: tsan needs clang++ (or CLANGXX=)" >&2; exit 1; }
    compiler=(-DCMAKE_CXX_COMPILER="$clang")
fi
cmake --preset "$kind" "${compiler[@]}" -DPython_EXECUTABLE="$venv/bin/python" -DPython_FIND_VIRTUALENV=ONLY \
    >"$build.log" 2>&1 || {
    cat "$build.log" >&2
    exit 1
}
cmake --build --preset "$kind"

rm -rf "$tree"
mkdir -p "$tree"
cp -r fastshard tests examples docs benchmarks README.md pyproject.toml "$tree"
rm -f "$tree"/fastshard/_core*.so
cmake --install "$build" --prefix "$tree" >/dev/null

packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$venv/bin/python" -m venv --without-pip "$build/venv"
printf '%s\n' "$tree" "$packages" >"$("$build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tree.pth"

library() { "${CXX:-c++}" -print-file-name="$1"; }
case $kind in
    asan)
        # libstdc++ is named too: without it the first C++ exception aborts. CPython's own allocations live to the end of
        # the process, so leaks are not looked for.
        preload="$(library libasan.so) $(library libstdc++.so)"
        export ASAN_OPTIONS="detect_leaks=0:abort_on_error=1:${ASAN_OPTIONS:-}"
        export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
        ;;
    tsan)
        preload=
        mapfile -t embedding < <("$venv/bin/python" -c '
import sysconfig
get = sysconfig.get_config_var
print("-I" + get("INCLUDEPY"))
for place in ("LIBDIR", "LIBPL"):
    print("-L" + get(place))
if get("Py_ENABLE_SHARED"):
    print("-Wl,-rpath," + get("LIBDIR"), "-lpython" + get("LDVERSION"), sep="\n")
else:
    print("-Wl,--whole-archive", "-lpython" + get("LDVERSION"), "-Wl,--no-whole-archive", sep="\n")
print(*(get("LIBS") + " " + get("SYSLIBS")).split(), sep="\n")
')
        rm -f "$build"/venv/bin/python*
        "$clang" -fsanitize=thread -g -rdynamic scripts/tsan_python.cpp "${embedding[@]}" -o "$build/venv/bin/python"
        export _RJEM_MALLOC_CONF=background_thread:false  # of polars: a thread that the runtime does not know, and dies of
        # The search for lock cycles takes 64 locks held at once at the most: the allocator of polars takes more at a fork.
        export TSAN_OPTIONS="suppressions=$root/scripts/tsan.supp:halt_on_error=1:detect_deadlocks=0:${TSAN_OPTIONS:-}"
        ;;
    *)
        echo "sanitize.sh: asan or tsan, not $kind" >&2
        exit 2
        ;;
esac

cd "$tree"
export FASTSHARD_SANITIZER=$kind
LD_PRELOAD=$preload exec "$build/venv/bin/python" -m pytest -p no:cacheprovider -m "not slow and not unsanitized" "$@"
