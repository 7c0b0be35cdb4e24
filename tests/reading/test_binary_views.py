"""`binary="view"`: binary columns as uint8 arrays over the batch's own buffer."""

from __future__ import annotations

import gc
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import DataLoader

import fastshard as fs
from fastshard.errors import InvalidError

ROWS = [b"one", b"", None, b"three" * 100, b"\x00\xff"]


@pytest.fixture(params=["none", "lz4"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = pa.table(
        {
            "blob": pa.array(ROWS, pa.binary()),
            "code": pa.array([b"ab", b"cd", None, b"gh", b"ij"], pa.binary(2)),
            "inner": [{"raw": row} for row in ROWS],
            "text": ["a", "b", "c", "d", "e"],
        }
    )
    fs.write(table, tmp_path / "data", compression=request.param)
    return tmp_path / "data"


def as_bytes(values: Any) -> list[bytes | None]:
    return [None if value is None else bytes(value) for value in values]


def test_rows_are_views_of_one_buffer(path: Path) -> None:
    reader = fs.open(path, binary="view")
    batch = reader.take([3, 0, 2, 1])
    views = batch["blob"]
    assert as_bytes(views) == [ROWS[3], ROWS[0], None, b""]
    assert {view.dtype for view in views if view is not None} == {np.dtype(np.uint8)}
    assert views[0].base is views[1].base is views[3].base
    assert as_bytes(batch["code"]) == [b"gh", b"ab", None, b"cd"]
    assert as_bytes(batch["inner"]["raw"]) == as_bytes(views)
    assert batch["text"] == ["d", "a", "c", "b"]
    assert batch.to_torch()["blob"][0] is views[0]
    assert io.BytesIO(views[0]).read() == ROWS[3]


def test_samples(path: Path) -> None:
    reader = fs.open(path, binary="view")
    for samples in (list(reader), [reader[i] for i in range(5)], list(fs.ShardDataset(path, binary="view"))):
        assert as_bytes(sample["blob"] for sample in samples) == ROWS
        assert as_bytes(sample["inner"]["raw"] for sample in samples) == ROWS


def test_a_view_outlives_its_batch_and_its_loader(path: Path) -> None:
    loader = fs.ShardLoader(path, batch_size=2, binary="view", tail="exact", prefetch=1)
    kept = []
    for _ in range(3):
        kept += [view for batch in loader for view in batch["blob"]]
    loader.close()
    del loader
    gc.collect()
    assert as_bytes(kept) == ROWS * 3
    kept[0][:] = 0  # its own memory, not the shard's
    assert as_bytes(kept[5:]) == ROWS * 2
    assert bytes(fs.open(path)[0]["blob"]) == ROWS[0]


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_loaders(path: Path, engine: Any) -> None:
    loader = fs.ShardLoader(path, batch_size=5, binary="view", engine=engine)
    (batch,) = loader
    assert as_bytes(batch["blob"]) == ROWS
    again = pickle.loads(pickle.dumps(batch))
    assert as_bytes(again["blob"]) == ROWS


def test_worker_processes(path: Path) -> None:
    dataset = fs.ShardDataset(path, batch_size=5, batched=True, binary="view")
    (batch,) = DataLoader(dataset, batch_size=None, num_workers=1)
    assert as_bytes(batch["blob"]) == ROWS


def test_fills_and_masks(path: Path) -> None:
    batch = fs.open(path, binary="view", fill_null={"blob": b"none"}, columns=["blob"]).take([2, 0])
    assert as_bytes(batch["blob"]) == [b"none", b"one"]
    with pytest.raises(InvalidError, match="'x' is not bytes"):
        fs.open(path, binary="view", fill_null={"blob": "x"}, columns=["blob"])


def test_the_option_is_checked(path: Path) -> None:
    with pytest.raises(InvalidError, match="binary is 'bytes' or 'view', not 'views'"):
        fs.open(path, binary="views")  # type: ignore[arg-type]
