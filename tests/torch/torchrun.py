"""Runs of several ranks by torchrun."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# torch (2.13, gloo) now and then aborts while a process ends, after all that a script does was done: so do scripts that
# know nothing of fastshard, with a barrier before the end and without.
_ABORTED = "terminate called without an active exception"
_EXIT_CODE = re.compile(r"exitcode\s*: (-?\d+)")


def torchrun(arguments: Sequence[str], ranks: int, folder: Path, done: str) -> str:
    """What a script prints that torchrun starts on so many ranks.

    Args:
        arguments: The script and its arguments.
        ranks: How many.
        folder: Where it runs.
        done: What every rank prints when its work is done, before a barrier. If all have printed it, torch may abort
            one on its way out (torchrun then ends the others); anything else than a clean end is a failure.
    """
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            *arguments,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        env=environ,
    )
    said = f"{list(arguments)}\n{run.stdout}\n{run.stderr}"
    assert run.stdout.count(done) == ranks, said
    if run.returncode:
        codes = _EXIT_CODE.findall(run.stderr)
        assert {"-6"} <= set(codes) <= {"-6", "-15"}, said
        assert _ABORTED in run.stderr, said
    return run.stdout
