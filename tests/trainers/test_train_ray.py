"""Ray Train, and DeepSpeed under torchrun and under Spark's distributor of it, on two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from journals import TRAINERS, check_curves, curve, make_data
from launching import call, ended_well, torchrun

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def test_ray_train(tmp_path: Path) -> None:
    """The run whose processes are killed is started again by Ray, from its last checkpoint."""
    curves = {}
    for name, arguments in {
        "two": ["--processes", "2"],
        "one": ["--processes", "1"],
        "killed": ["--processes", "2", "--kill-at", "14"],
    }.items():
        folder = make_data(tmp_path / name)
        done = call(
            [sys.executable, str(TRAINERS / "train_ray.py"), str(folder), *arguments], folder, timeout=240
        )
        assert ended_well(done), done.stdout
        curves[name] = curve(folder)
    np.testing.assert_allclose(curves["one"], curves["two"], rtol=1e-4)
    np.testing.assert_allclose(curves["killed"], curves["two"], rtol=1e-4)


def test_deepspeed(tmp_path: Path) -> None:
    check_curves(
        tmp_path, {1: torchrun(1), 2: torchrun(2)}, "train_deepspeed.py", timeout=400, DS_ACCELERATOR="cpu"
    )


def test_deepspeed_from_spark(tmp_path: Path) -> None:
    launcher = str(Path(__file__).with_name("deepspeed_from_spark.py"))
    command = {processes: [sys.executable, launcher, str(processes)] for processes in (1, 2)}
    check_curves(
        tmp_path,
        command,
        "train_deepspeed.py",
        timeout=400,
        DS_ACCELERATOR="cpu",
        PYSPARK_PYTHON=sys.executable,
    )
