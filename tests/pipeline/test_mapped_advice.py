"""The system is told ahead what mapped shards will be read for, where they are not in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batches import comparable

import fastshard as fs
from fastshard import _core

ROWS = 20_000


@pytest.fixture(scope="module", params=["none", "lz4"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 20 MB in several shards, with columns of constant and of varying width."""
    rng = np.random.default_rng(2)
    values = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 120)), 120)
    scores = [None if i % 9 == 0 else i / 4 for i in range(ROWS)]
    table = pa.table(
        {"id": np.arange(ROWS), "x": values, "score": scores, "text": [f"row {i}" for i in range(ROWS)]}
    )
    path = tmp_path_factory.mktemp("advice") / "data"
    fs.write(table, path, compression=request.param, shard_bytes=5 << 20, block_bytes=1 << 18)
    return path


def forget(path: Path) -> None:
    """Takes a data set out of the page cache."""
    if _core.file_system(str(path)) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder lies in memory")
    for shard in path.glob("shard-*.arrow"):
        descriptor = os.open(shard, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read(path: Path, **options: Any) -> tuple[list[Any], int]:
    """All batches, and of how many the system was told."""
    options = {"seed": 4, "fill_null": {"score": 0.0}, **options}
    made = fs.ShardLoader(path, batch_size=100, engine="mmap", prefetch=2, **options)
    advised: list[int] = []
    whole = made._totals.add
    made._totals.add = lambda stream: (advised.append(stream["advised"]), whole(stream))[1]  # type: ignore[method-assign]
    with made:
        return [(batch.ids.tolist(), comparable(batch)) for batch in made], advised[0]


@pytest.mark.parametrize("shuffle", ["global", "block", "none"])
@pytest.mark.parametrize("columns", [None, ["id", "score"]])
@pytest.mark.parametrize("verify", ["never", "once"])
def test_what_is_not_in_memory_is_asked_for_ahead(
    path: Path, shuffle: str, columns: Any, verify: Any
) -> None:
    if columns is not None and shuffle != "global":
        columns = ["score"]
    options = {"shuffle": shuffle, "columns": columns, "verify": verify, "fill_null": {"score": -1.0}}
    expected, _ = read(path, **options)
    advised = 0
    for _ in range(8):  # a thread that the system lets run late finds all read already
        forget(path)
        found, advised = read(path, **options)
        assert found == expected
        if advised > 0:
            break
    assert advised > 0


def test_what_is_in_memory_needs_no_advice(path: Path) -> None:
    for shard in path.glob("shard-*.arrow"):
        shard.read_bytes()
    assert read(path, shuffle="global")[1] == 0


def test_a_shard_that_is_gone_is_an_error_of_its_batch(tmp_path: Path) -> None:
    fs.write({"x": np.arange(400_000)}, tmp_path / "data", compression="none", shard_bytes=1 << 20)
    shards = sorted((tmp_path / "data").glob("shard-*.arrow"))
    assert len(shards) > 2
    forget(tmp_path / "data")
    shards[-1].unlink()
    iterator = iter(fs.ShardLoader(tmp_path / "data", batch_size=1000, engine="mmap"))
    assert sum(next(iterator).num_samples for _ in range(200)) == 200_000
    with pytest.raises(fs.Error, match=shards[-1].name):
        list(iterator)
