"""The examples of training loops: every id once, the same losses for 1 and 2 processes, and after a kill."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from journals import TRAINERS, check_curves, make_data
from launching import call, ended_well, torchrun

import fastshard as fs

TORCHRUN = {1: torchrun(1), 2: torchrun(2)}


def call_example(command: list[str], folder: Path) -> str:
    done = call(command, folder)
    assert ended_well(done), done.stdout
    return done.stdout


def test_ddp(tmp_path: Path) -> None:
    check_curves(tmp_path, TORCHRUN, "train_ddp.py")


@pytest.mark.slow
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


@pytest.mark.slow
def test_transformers(tmp_path: Path) -> None:
    check_curves(tmp_path, TORCHRUN, "train_transformers.py")


@pytest.mark.parametrize("processes", [1, 2])
def test_scoring(processes: int, tmp_path: Path) -> None:
    make_data(tmp_path)
    more = {"id": [120], "x": np.zeros((1, 8), "float32"), "y": np.zeros(1, "float32")}
    fs.write(more, tmp_path / "train", mode="append")
    call_example([*TORCHRUN[processes], str(TRAINERS / "score_table.py"), str(tmp_path)], tmp_path)
    scored = pq.read_table(tmp_path / "scored.parquet")
    assert scored["id"].to_pylist() == list(range(121))
    model = runpy.run_path(str(TRAINERS / "common.py"))["make_model"]()
    expected = model(torch.tensor(scored["x"].to_pylist()))[:, 0].detach().numpy()
    np.testing.assert_allclose(scored["score"].to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_four_trials(tmp_path: Path) -> None:
    make_data(tmp_path)
    done = call_example([sys.executable, str(TRAINERS / "four_trials.py"), str(tmp_path)], tmp_path)
    found = json.loads((tmp_path / "trials.json").read_text())
    assert [trial["rate"] for trial in found] == [0.001, 0.01, 0.03, 0.1]
    assert len({tuple(trial["ids"]) for trial in found}) == 1
    assert sorted(found[0]["ids"][:120]) == list(range(120))
    assert "best learning rate: 0." in done
