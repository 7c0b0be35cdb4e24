"""A shard is an Arrow IPC file: pyarrow, polars, DuckDB and pandas open it and see the same values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pytest

import fastshard as fs

ROWS: list[dict[str, Any]] = [
    {
        "id": i,
        "flag": None if i == 3 else i % 2 == 0,
        "small": np.int8(i - 5),
        "single": np.float32(i) / 3,
        "text": None if i == 4 else "é☃" * i,
        "raw": bytes([i]) * i,
        "day": dt.date(2020, 1, 1) + dt.timedelta(i),
        "time": dt.datetime(2020, 1, 1, 0, 0, 0, i),
        "money": Decimal(i) / 4,
        "tokens": np.arange(i, dtype=np.int32),
        "image": np.full((2, 2), i, np.uint8),
        "nested": {"a": i, "b": [str(i)] * (i % 3)},
    }
    for i in range(10)
]
PLAIN: list[dict[str, Any]] = [
    {
        **row,
        "small": int(row["small"]),
        "single": float(row["single"]),
        "tokens": row["tokens"].tolist(),
        "image": row["image"].reshape(-1).tolist(),
        "money": row["money"].quantize(Decimal("0.01")),
    }
    for row in ROWS
]


@pytest.fixture(params=["none", "lz4", "zstd"])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    fs.write(ROWS, tmp_path / "d", compression=request.param, block_bytes=300, shard_bytes=1000)
    found = sorted((tmp_path / "d").glob("shard-*.arrow"))
    assert len(found) > 1
    return found


def test_pyarrow(shards: list[Path]) -> None:
    table = pa.concat_tables([pa.ipc.open_file(str(path)).read_all() for path in shards])
    assert table.to_pylist() == PLAIN
    dataset = pa.dataset.dataset([str(path) for path in shards], format="ipc")
    assert dataset.to_table().to_pylist() == PLAIN
    assert pa.feather.read_table(str(shards[0])).num_rows > 0


@pytest.mark.unsanitized  # polars' own threads and allocator crash under ThreadSanitizer
def test_polars(shards: list[Path]) -> None:
    frame = pl.concat([pl.read_ipc(path) for path in shards])
    for name in PLAIN[0]:
        if name not in ("image", "nested"):
            assert frame[name].to_list() == [row[name] for row in PLAIN], name
    assert [list(image) for image in frame["image"].to_list()] == [row["image"] for row in PLAIN]
    assert frame["nested"].to_list() == [row["nested"] for row in PLAIN]


def test_duckdb(shards: list[Path]) -> None:
    shard_rows = pa.dataset.dataset([str(path) for path in shards], format="ipc")  # noqa: F841
    names = [name for name in PLAIN[0] if name != "image"]
    rows = duckdb.sql(f"select {', '.join(names)} from shard_rows order by id").fetchall()
    assert [dict(zip(names, row, strict=True)) for row in rows] == [
        {name: row[name] for name in names} for row in PLAIN
    ]
    assert duckdb.sql("select sum(id), count(text) from shard_rows").fetchall() == [(45, 9)]


def test_pandas(shards: list[Path]) -> None:
    frame = pd.concat([pd.read_feather(path) for path in shards], ignore_index=True)
    assert frame["id"].tolist() == list(range(10))
    assert frame["single"].dtype == np.float32
    assert [list(tokens) for tokens in frame["tokens"]] == [row["tokens"] for row in PLAIN]
