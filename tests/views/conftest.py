"""Data sets to take views of."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs


def samples(first: int, count: int) -> pa.Table:
    """Samples `first` to `first + count - 1`, told by the id: id, x float32 [3], label 0 to 9 or null, user, tags."""
    ids = np.arange(first, first + count, dtype=np.int64)
    x = (ids[:, None] + np.arange(3) / 4).astype(np.float32)
    return pa.table(
        {
            "id": pa.array(ids),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 3),
            "label": pa.array([None if i % 11 == 0 else int(i % 10) for i in ids], pa.int32()),
            "user": pa.array([f"user {(i * i) % 37}" for i in ids]),
            "tags": pa.array([list(range(i % 4)) for i in ids], pa.list_(pa.int16())),
        }
    )


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Writes a data set with so many samples in each shard, ids from `first` on; returns its path."""

    def write(shards: list[int], *, first: int = 0, path: Path | None = None, **options: Any) -> str:
        path = path or tmp_path_factory.mktemp("data") / "set"
        for count in shards:
            fs.write(
                samples(first, count),
                path,
                mode="append" if path.exists() else "error",
                **{"block_bytes": 512, **options},
            )
            first += count
        return str(path)

    return write


@pytest.fixture(scope="session")
def path(make: Callable[..., str]) -> str:
    """500 samples in four shards of many blocks."""
    return make([200, 50, 1, 249])


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The slow implementation of docs/order.md."""
    where = Path(__file__).parents[1] / "order" / "reference.py"
    spec = importlib.util.spec_from_file_location("order_reference", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module
