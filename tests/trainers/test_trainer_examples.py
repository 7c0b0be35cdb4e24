"""The examples of training loops: every id once, the same losses for 1 and 2 processes, and after a kill."""

from __future__ import annotations

import sys
from pathlib import Path

from journals import check_curves
from launching import torchrun

TORCHRUN = {1: torchrun(1), 2: torchrun(2)}


def test_ddp(tmp_path: Path) -> None:
    check_curves(tmp_path, TORCHRUN, "train_ddp.py")


def test_accelerate(tmp_path: Path) -> None:
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_machines=1",
        "--mixed_precision=no",
    ]
    command = {n: [*launch, f"--num_processes={n}", "--num_cpu_threads_per_process=1"] for n in (1, 2)}
    check_curves(tmp_path, command, "train_accelerate.py")


def test_transformers(tmp_path: Path) -> None:
    check_curves(tmp_path, TORCHRUN, "train_transformers.py")
