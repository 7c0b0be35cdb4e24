"""Engines read what the wanted columns need, and not much more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batches import comparable, with_engine

import fastshard as fs
from fastshard import _core
from fastshard.errors import CorruptError

ENGINES = ["threads", "uring"]
ROWS = 20_000


def need(engine: str) -> None:
    if engine == "uring" and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)  # a container or an old kernel: no package could change that


@pytest.fixture(scope="module", params=["none", "zstd"])
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of some 1.1 KB: a wide column between narrow ones."""
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 256, ROWS * 1024, np.uint8)
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "name": [f"sample {i}" for i in range(ROWS)],
            "image": pa.FixedSizeListArray.from_arrays(pa.array(noise), 1024),
            "nothing": pa.nulls(ROWS),
            "label": rng.integers(0, 1 << 60, ROWS),
            "list": pa.array([list(range(i % 3)) for i in range(ROWS)], pa.list_(pa.int16())),
        }
    )
    path = tmp_path_factory.mktemp("projection") / request.param
    fs.write(table, path, compression=request.param)
    return path


def read(path: Path, engine: Any, columns: list[str] | None, **options: Any) -> tuple[Any, fs.LoaderStats]:
    with fs.ShardLoader(
        path, batch_size=500, shuffle=True, engine=engine, columns=columns, **options
    ) as made:
        batches = [(batch.ids.tolist(), comparable(batch)) for batch in made]
        return batches, made.stats()


def stored(path: Path, columns: list[str]) -> int:
    """Bytes that the columns occupy, by the reader that checks them."""
    reader = fs.open(path, columns=columns, verify="once")
    reader.take(np.arange(len(reader)))
    return reader.stats()["bytes_checked"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "columns",
    [["id"], ["label"], ["id", "label"], ["name", "list"], ["list", "id"], ["nothing"], ["id", "nothing"]],
)
def test_reads_the_wanted_columns_and_little_more(wide: Path, engine: str, columns: list[str]) -> None:
    need(engine)
    found, stats = read(wide, engine, columns)
    assert found == read(wide, "mmap", columns)[0]
    index = fs.open(wide).index
    assert stats.blocks_read == index.blocks > 10
    # Of each block a page or two of metadata, and of each column the pages at its ends.
    assert stats.bytes_read <= stored(wide, columns) + index.blocks * (4 + 2 * len(columns)) * 4096
    assert stats.bytes_read < index.bytes / 4
    assert stats.partial_blocks == stats.blocks_read


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("columns", [None, ["image", "id", "label"], ["image"]])
def test_blocks_of_which_most_is_wanted_are_read_whole(
    wide: Path, engine: str, columns: list[str] | None
) -> None:
    need(engine)
    found, stats = read(wide, engine, columns)
    assert found == read(wide, "mmap", columns)[0]
    index = fs.open(wide).index
    assert stats.partial_blocks <= (0 if columns is None else 2 * 16)  # until it is known how much is wanted
    assert stats.bytes_read >= index.bytes * 0.9


@pytest.mark.parametrize("engine", ENGINES)
def test_small_blocks_are_read_whole(tmp_path: Path, engine: str) -> None:
    need(engine)
    fs.write({"a": np.arange(5000), "b": np.arange(5000)}, tmp_path / "data", block_bytes=16_384)
    found, stats = read(tmp_path / "data", engine, ["b"])
    assert found == read(tmp_path / "data", "mmap", ["b"])[0]
    assert stats.partial_blocks == 0


@pytest.mark.parametrize("seed", range(3))
def test_parts_that_come_in_any_order_and_short(wide: Path, seed: int) -> None:
    def made() -> fs.ShardLoader:
        columns = ["id", "list", "label"]
        return fs.ShardLoader(wide, batch_size=500, shuffle=True, columns=columns, memory=1 << 20)

    expected = [comparable(batch) for batch in made()]
    scrambled = with_engine(made(), f"scrambled:{seed}")
    assert [comparable(batch) for batch in scrambled] == expected
    assert scrambled.stats().partial_blocks > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_damage_in_other_columns_does_not_matter(tmp_path: Path, engine: str) -> None:
    need(engine)
    table = {"id": np.arange(50_000), "x": np.random.default_rng(1).random((50_000, 16))}
    fs.write(table, tmp_path / "data", compression="none")
    (shard,) = (tmp_path / "data").glob("shard-*.arrow")
    data = bytearray(shard.read_bytes())
    at = data.find(table["x"][9000].tobytes())
    data[at] ^= 1
    shard.write_bytes(data)
    read(tmp_path / "data", engine, ["id"], verify="always")
    with pytest.raises(CorruptError, match="column 'x'"):
        read(tmp_path / "data", engine, ["x"])
    with pytest.raises(CorruptError, match="column 'x'"):
        read(tmp_path / "data", engine, None)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_budget_counts_what_was_read(wide: Path, engine: str) -> None:
    need(engine)
    budget = 2 << 20  # less than the data, more than the columns
    _, stats = read(wide, engine, ["id", "label"], memory=budget)
    assert stats.blocks_read_again == 0
    _, stats = read(wide, engine, None, memory=budget)
    assert stats.blocks_read_again > 0
