"""What a loader's batch is made of late: its ids and positions when they are asked for, its bytes where they lie."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import fastshard as fs
from fastshard.errors import StorageError

ROWS = 300


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lazy") / "d"
    rng = np.random.default_rng(4)
    columns = {
        "id": np.arange(ROWS),
        "x": rng.random((ROWS, 3), np.float32),
        "flag": np.arange(ROWS) % 2 == 0,
        "blob": [None if i % 7 == 0 else rng.bytes(int(rng.integers(0, 5000))) for i in range(ROWS)],
    }
    fs.write(columns, path, block_bytes=1 << 16)
    return path


@pytest.mark.parametrize("columns", [["id", "x"], ["id", "blob"], None])
def test_ids_and_positions_are_there_when_they_are_asked_for(
    dataset: Path, columns: list[str] | None
) -> None:
    loader = fs.ShardLoader(dataset, batch_size=32, shuffle="global", seed=3, columns=columns)
    positions = 0
    for batch in loader:
        assert batch.num_samples == len(batch["id"])
        assert isinstance(batch.positions, torch.Tensor)
        assert batch.ids.dtype == torch.int64
        assert batch.ids.tolist() == batch["id"].tolist()
        assert batch.ids is batch.ids
        assert batch.positions.tolist() == list(range(positions, positions + batch.num_samples))
        positions += batch.num_samples
        assert (batch.epoch, batch.source) == (0, None)
    assert positions == ROWS


def test_batches_keep_what_was_not_asked_for_when_they_change(dataset: Path) -> None:
    loader = fs.ShardLoader(dataset, batch_size=32, shuffle="global", seed=3, columns=["id", "x"])
    changes = (
        copy.copy,
        copy.deepcopy,
        lambda batch: pickle.loads(pickle.dumps(batch)),
        lambda batch: batch.to(torch.float64),
        lambda batch: batch.to("cpu"),
        lambda batch: batch.to_torch(),
        fs.Batch.copy,
        fs.Batch,
    )
    for batch, change in zip(loader, changes, strict=False):
        changed = change(batch)
        assert isinstance(changed.ids, torch.Tensor)
        assert changed.ids.tolist() == changed["id"].tolist()
        assert changed.positions.tolist() == batch.positions.tolist()
    arrays = batch.to_numpy()
    assert isinstance(arrays.ids, np.ndarray)
    assert isinstance(arrays.positions, np.ndarray)
    assert arrays.ids.tolist() == arrays["id"].tolist()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = batch.nothing


def test_repeats_are_marked_on_tensors(dataset: Path) -> None:
    loader = fs.ShardLoader(
        dataset, batch_size=7, shuffle="global", seed=3, columns=["id", "x"], rank=1, world_size=8
    )
    last = list(loader)[-1]
    if last.is_repeat is not None:
        assert last.is_repeat.dtype == torch.bool
        assert last.is_repeat.tolist()[-1] is True
    assert last.num_samples == len(last["id"])


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_bytes_are_those_of_the_reader(dataset: Path, tmp_path: Path, compression: str) -> None:
    path = dataset
    if compression != "none":
        path = tmp_path / "d"
        with fs.open(dataset) as reader:
            fs.write(reader.to_arrow(), path, compression=compression, block_bytes=1 << 16)
    with fs.open(path) as reader:
        for batch in fs.ShardLoader(path, batch_size=32, shuffle=True, seed=5, threads=2):
            expected = reader.take(batch.ids.numpy())
            assert batch["blob"] == expected["blob"]
            assert batch["flag"].tolist() == expected["flag"].tolist()
            assert {type(value) for value in batch["blob"]} <= {bytes, type(None)}


def test_a_file_that_vanishes_under_bytes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d"
    fs.write({"blob": [bytes([i]) * 100_000 for i in range(200)]}, path)
    loader = fs.ShardLoader(
        path, batch_size=8, shuffle="global", seed=1, verify="never", threads=1, prefetch=4
    )
    batches = iter(loader)
    next(batches)
    (shard,) = path.glob("shard-*.arrow")
    os.truncate(shard, 4096)
    with pytest.raises(StorageError, match="shard-00000"):
        for _ in batches:
            pass
    loader.close()
