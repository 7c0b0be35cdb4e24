"""Scripts that train, run by the launchers that people run them by."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ABORTED = "terminate called without an active exception"
EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(**more: str) -> dict[str, str]:
    """That of a child: no launcher's, one thread for each process, no GPU, no network of Hugging Face's."""
    environ = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    return {**environ, **quiet, **more}


def call(
    command: list[str], folder: Path, *, timeout: float = 180, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; when it does not end in time, its whole process group is killed."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, output, "")


def ended_well(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether it did what it should.

    torch (2.13, gloo) now and then aborts a process that has come to its end, with data sets of fastshard or without.
    torchrun then ends the others by SIGTERM. What a test looks at is what they wrote: it fails if that is not all.
    """
    if done.returncode == 0:
        return True
    codes = set(re.findall(r"exitcode\s*: (-?\d+)", done.stdout))
    return _ABORTED in done.stdout and "[rank" not in done.stdout and codes in (set(), {"-6"}, {"-6", "-15"})


def torchrun(processes: int) -> list[str]:
    """The command that starts so many ranks of a script on this machine."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(processes)]


def train(script: Path, processes: int, *arguments: str, **more: Any) -> str:
    """Runs a script under torchrun, in its own folder; returns what it printed. It must end well."""
    done = call([*torchrun(processes), str(script), *arguments], script.parent, **more)
    assert ended_well(done), done.stdout
    return done.stdout


def results(folder: Path, pattern: str = "rank-*.json") -> list[Any]:
    """What the ranks wrote, in the order of their numbers."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]
