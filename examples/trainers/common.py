"""What the examples of this folder share: a table, a model, arguments, and a journal of what each process trained on.

The journals show what an example claims. Each process writes one line a step: its loss and the ids of its samples. So
one can see that every sample came once, that the losses of one process are those of two, and that a run which was
killed goes on as if nothing had happened.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

import fastshard as fs

FEATURES = 8


def make_data(path: Path, rows: int = 120, shards: int = 3) -> None:
    """A data set to train on: id int64, x float32 [8], y float32, in a few shards."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, FEATURES)).astype("float32")
    y = (x @ np.arange(FEATURES) + rng.normal(size=rows)).astype("float32")
    table = pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), FEATURES),
            "y": pa.array(y),
        }
    )
    size = -(-rows // shards)
    for first in range(0, rows, size):
        fs.write(table.slice(first, size), path, mode="append" if first else "error")


def make_model() -> torch.nn.Module:
    """A small network, the same on every process and in every run."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def loss_of(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean squared error of a batch."""
    return torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every example."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "folder", type=Path, help="holds train/, the data set; journals and checkpoints go there"
    )
    found.add_argument("--epochs", type=int, default=2)
    found.add_argument(
        "--global-batch", type=int, default=12, help="samples a step, of all processes together"
    )
    found.add_argument("--processes", type=int, default=2, help="where the example starts them itself")
    found.add_argument("--checkpoint-every", type=int, default=4, metavar="STEPS")
    found.add_argument(
        "--kill-at", type=int, metavar="STEP", help="kill every process when that step was made"
    )
    return found


class Journal:
    """One line a step of one process, in `FOLDER/journal-RANK.jsonl`."""

    def __init__(self, folder: Path, rank: int, kill_at: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"journal-{rank}.jsonl").open("a")
        self._kill_at = kill_at

    def write(self, step: int, loss: float, ids: Iterable[int]) -> None:
        """Notes step `step`, counted from 1 over all epochs; then kills this process if that is the step for it."""
        self._file.write(json.dumps({"step": step, "loss": float(loss), "ids": [int(i) for i in ids]}) + "\n")
        self._file.flush()
        if step == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class StepCount:
    """Steps made since the run began, over all of its interruptions."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def replace(path: Path, value: object) -> None:
    """Saves a checkpoint so that there is a whole one at every instant."""
    temporary = path.with_suffix(".new")
    torch.save(value, temporary)
    os.replace(temporary, path)
