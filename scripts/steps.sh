# Sourced by what takes several steps: each is taken whatever becomes of the others, and the end says which failed.

failed=()

# step NAME COMMAND...
step() {
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if "$@"; then
        echo "== $name: passed in $((SECONDS - start)) s"
    else
        echo "== $name: FAILED after $((SECONDS - start)) s"
        failed+=("$name")
    fi
}

# Ends the script, with 1 if a step failed.
verdict() {
    if [ ${#failed[@]} -gt 0 ]; then
        echo "failed: ${failed[*]}"
        exit 1
    fi
    echo "all steps passed in $SECONDS s"
    exit 0
}
