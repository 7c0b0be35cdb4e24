"""Shards that are cut short, or go, while they are mapped: an error that says what cannot be read, never a crash."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch.utils.data

import fastshard as fs
from fastshard.errors import CorruptError, StorageError

ROWS = 10_000

# What an error says: the shard, the block, where it lies, and what was found.
VANISHED = (
    r"{name}: (block \d+ at offset (?P<offset>\d+): could not be read: the file has {kept} bytes now, and had {size}"
    r"|the file has {kept} bytes, the index says {size})"  # by those who open it once more
)


@pytest.fixture(params=["none", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = pa.table(
        {
            "x": np.arange(ROWS),
            "v": pa.FixedSizeListArray.from_arrays(np.arange(ROWS * 2.0), 2),
            "s": [f"sample {i}" for i in range(ROWS)],
            "b": [i % 2 == 0 for i in range(ROWS)],
            "l": [[i] * (i % 3) for i in range(ROWS)],
        }
    )
    fs.write(table, tmp_path / "data", block_bytes=8192, compression=request.param)
    return tmp_path / "data"


def cut(path: Path) -> tuple[str, int]:
    """Truncate the only shard to whole pages; the pattern of the error that follows, and how many bytes stay."""
    (shard,) = path.glob("shard-*.arrow")
    size = shard.stat().st_size
    kept = size // 2 // mmap.PAGESIZE * mmap.PAGESIZE
    os.truncate(shard, kept)
    return VANISHED.format(name=re.escape(shard.name), kept=kept, size=size), kept


ALL = np.arange(ROWS)
WAYS: dict[str, Callable[[fs.ShardReader], Any]] = {
    "sample": lambda reader: [reader[i] for i in range(0, ROWS, 25)],
    "last sample": lambda reader: reader[-1],
    "slice": lambda reader: reader[1:],
    "column": lambda reader: reader["x"],
    "column of lists": lambda reader: reader["l"],
    "take in order": lambda reader: reader.take(ALL),
    "take": lambda reader: reader.take(ALL[::-1]),
    "take of one": lambda reader: reader.take([ROWS - 1]),
    "iteration": list,
    "list": lambda reader: reader.__getitems__(list(range(0, ROWS, 25))),
    "numpy": lambda reader: reader.to_numpy(),
    "arrow": lambda reader: reader.to_arrow(),
    "filter": lambda reader: reader.filter("x >= 0"),
    "loader": lambda reader: list(fs.ShardLoader(reader, batch_size=100, shuffle=True)),
    "loader of batches read": lambda reader: list(fs.ShardLoader(reader, batch_size=100, engine="threads")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_shard_cut_short_under_the_mapping(path: Path, way: str, warm: bool) -> None:
    with fs.open(path, verify="never" if warm else "once", cache_bytes=0) as reader:
        reader[0]
        if warm:  # every block is known, and need not be parsed again
            assert len(reader.take(ALL)["s"]) == ROWS
        pattern, kept = cut(path)
        with pytest.raises((StorageError, CorruptError), match=pattern) as caught:
            WAYS[way](reader)
        found = re.search(pattern, str(caught.value))
        assert found is not None
        assert (
            found["offset"] is None or int(found["offset"]) + 16_384 > kept
        )  # a block of those that are gone
        assert reader[0]["s"] == "sample 0"  # and what is left is read on


class Reading(torch.utils.data.Dataset[Any]):
    """Reads in a worker process; the parent cuts the file short in between."""

    def __init__(self, reader: fs.ShardReader, way: str, gate: Any) -> None:
        self.reader, self.way, self.gate = reader, way, gate

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> str:
        if i == 0:
            self.reader[0]
            if "warm" in self.way:
                self.reader.take(ALL)
            return "ready"
        assert self.gate.wait(60)
        try:
            WAYS[self.way.removeprefix("warm ")](self.reader)
        except (StorageError, CorruptError) as error:
            return str(error)
        return "no error"


@pytest.mark.parametrize(
    ("method", "way"),
    [
        *(
            ("fork", way)
            for way in ("sample", "warm sample", "warm take", "slice", "warm iteration", "column", "arrow")
        ),
        ("spawn", "warm sample"),
        ("spawn", "take"),
    ],
)
def test_in_a_worker_of_a_data_loader(path: Path, way: str, method: str) -> None:
    """torch's worker loop has a handler for SIGBUS of its own, which ends the process."""
    context = multiprocessing.get_context(method)
    gate = context.Event()
    reader = fs.open(path, verify="never", cache_bytes=0)
    assert reader[0]["x"] == 0  # open in the parent, too
    loader: Iterator[str] = iter(
        torch.utils.data.DataLoader(
            Reading(reader, way, gate),
            batch_size=None,
            num_workers=1,
            prefetch_factor=2,
            multiprocessing_context=context,
            timeout=60,
        )
    )
    assert next(loader) == "ready"
    pattern, _ = cut(path)
    gate.set()
    assert re.search(pattern, next(loader))
    assert list(loader) == []


def test_a_file_that_is_gone_is_read_on(path: Path) -> None:
    """The mapping holds what a name no longer leads to."""
    with fs.open(path) as reader:
        assert reader[0]["x"] == 0
        for shard in path.glob("shard-*.arrow"):
            shard.unlink()
        assert reader.take([ROWS - 1])["s"] == [f"sample {ROWS - 1}"]
