"""Data sets to iterate: real ones, and ones that exist in their numbers only."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are one process of their own, whatever started them."""
    for name in list(os.environ):
        if name in LAUNCHERS or name.startswith(("SLURM_", "OMPI_", "PMI_")):
            monkeypatch.delenv(name)


def rows(first: int, count: int) -> pa.Table:
    """Samples `first` to `first + count - 1`: id int64, x float32 [4] and text, all told by the id."""
    ids = np.arange(first, first + count, dtype=np.int64)
    values = (ids[:, None] + np.arange(4) / 4).astype(np.float32)
    return pa.table(
        {
            "id": pa.array(ids),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 4),
            "text": pa.array([f"sample {i}" for i in ids]),
        }
    )


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., str]:
    """Writes a data set with so many samples in each shard, or appends such shards to one; returns its path."""

    def write(shards: Sequence[int] | int, name: str = "data", **options: Any) -> str:
        path = tmp_path / name
        first = len(fs.open(path)) if path.exists() else 0
        for count in [shards] if isinstance(shards, int) else shards:
            fs.write(rows(first, count), path, mode="append" if path.exists() else "error", **options)
            first += count
        return str(path)

    return write
