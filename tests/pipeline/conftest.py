"""Data sets for the pipeline's tests: every layout, several shards, each compression."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs

sys.path.append(str(Path(__file__).parents[1] / "writing"))  # for arrow_tables


def make_table(rows: int) -> pa.Table:
    """Rows of every layout, each different."""
    rng = np.random.default_rng(rows)
    matrix = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 4, np.float32)), 4)
    return pa.table(
        {
            "id": np.arange(rows),
            "x": matrix,
            "flag": pa.array((np.arange(rows) % 3 == 0).tolist()),
            "text": [f"row {i} é" * (i % 4) for i in range(rows)],
            "blob": [bytes([i % 256]) * (i % 7) for i in range(rows)],
            "ragged": pa.array([list(range(i % 5)) for i in range(rows)], pa.list_(pa.int32())),
            "score": pa.array([None if i % 11 == 0 else i / 2 for i in range(rows)]),
            "nested": [{"a": i, "b": [[i], []]} for i in range(rows)],
            "price": [Decimal(i).scaleb(-2) for i in range(rows)],
        }
    )


@pytest.fixture(scope="session", params=["none", "lz4", "zstd"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """700 samples in several shards of small blocks."""
    path = tmp_path_factory.mktemp("pipeline") / request.param
    fs.write(make_table(700), path, compression=request.param, block_bytes=2048, shard_bytes=20_000)
    return path


@pytest.fixture(scope="session")
def plain_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 samples (id int64, x float32[4]) in several uncompressed shards."""
    path = tmp_path_factory.mktemp("pipeline") / "plain"
    table = make_table(2000).select(["id", "x"])
    fs.write(table, path, compression="none", block_bytes=2048, shard_bytes=16_384)
    return path
