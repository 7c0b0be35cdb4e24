"""Rows read by themselves: the same batches, from hardly more bytes than the rows have."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batches import by_rows, comparable, with_engine

import fastshard as fs
from fastshard import _core
from fastshard.errors import CorruptError, StorageError

ENGINES = ["threads", "uring"]
ROWS = 6000
PAGE = 4096  # of the device, at most


def need(engine: str) -> None:
    if engine == "uring" and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)  # a container or an old kernel: no package could change that


def make_table(rows: int = ROWS) -> pa.Table:
    """Some 2.2 KB a row, every layout of constant width, with and without nulls."""
    rng = np.random.default_rng(5)
    present = (np.arange(rows) % 7 != 0).tolist()
    flags = pa.array((np.arange(rows * 13) % 3 == 0).tolist())
    values = pa.array([None if i % 5 == 0 else i for i in range(rows * 3)], pa.int16())
    return pa.table(
        {
            "id": np.arange(rows),
            "image": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.integers(0, 256, rows * 2000, np.uint8)), 2000
            ),
            "flag": pa.array((np.arange(rows) % 3 == 0).tolist()),
            "flags": pa.FixedSizeListArray.from_arrays(flags, 13),
            "score": pa.array([i / 2 if here else None for i, here in enumerate(present)]),
            "nothing": pa.nulls(rows),
            "pair": pa.FixedSizeListArray.from_arrays(values, 3),
            "price": [Decimal(i).scaleb(-2) for i in range(rows)],
            "place": [{"x": i / 3, "seen": i % 2 == 0} if here else None for i, here in enumerate(present)],
        }
    )


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "fixed"
    fs.write(make_table(), path, compression="none", shard_bytes=5 << 20)
    return path


def loader(path: Path, engine: Any = "threads", **options: Any) -> fs.ShardLoader:
    given: dict[str, Any] = {"batch_size": 50, "shuffle": "global", "seed": 3, "null_masks": True}
    given |= {"memory": 1 << 20, "verify": "never", **options}
    return fs.ShardLoader(path, engine=engine, **given)


def contents(made: fs.ShardLoader) -> list[Any]:
    return [(batch.ids.tolist(), comparable(batch)) for batch in made]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "columns", [None, ["image"], ["id", "score"], ["flags", "place"], ["nothing", "flag"]]
)
def test_reads_rows_and_little_more(fixed: Path, engine: str, columns: list[str] | None) -> None:
    need(engine)
    made = loader(fixed, engine, columns=columns)
    if columns is not None and "image" not in columns:
        made = by_rows(made)  # of narrow columns the whole is as soon read
    with made:
        assert contents(made) == contents(loader(fixed, "mmap", columns=columns))
        stats = made.stats()
    index = fs.open(fixed).index
    assert index.blocks > 10
    assert stats.rows_read == ROWS
    assert stats.blocks_read == 0
    buffers = 14 if columns is None else 5
    # Of each block the metadata once; of each row its buffers, with the rest of the pages that they begin and end in.
    assert stats.bytes_read <= index.blocks * 2 * PAGE + ROWS * (2200 + buffers * 2 * PAGE)
    assert "that is read alone" in stats.engine_reason


@pytest.mark.parametrize("engine", ["threads", "scrambled:4"])
def test_reads_no_byte_more_where_the_page_cache_serves(fixed: Path, engine: str) -> None:
    made = by_rows(with_engine(loader(fixed, columns=["image"]), engine))
    with made:
        contents(made)
        stats = made.stats()
        assert stats.rows_read == ROWS
        near = 2000 * ROWS
        assert (
            near < stats.bytes_read < near * 1.9
        )  # rows of a batch that lie close together come with what is between


@pytest.mark.parametrize("shuffle", ["global", "block", "none"])
@pytest.mark.parametrize("engine", ["threads", "scrambled:1", "scrambled:2"])
@pytest.mark.parametrize("memory", [0, 100_000])
def test_rows_are_those_of_blocks(dataset: Path, shuffle: str, engine: str, memory: int) -> None:
    """Any layout, any compression, blocks of a few rows: what has no constant width is read whole."""
    columns = ["x", "id", "score", "text", "nested", "ragged", "flag"]
    options: dict[str, Any] = {"columns": columns, "memory": memory, "shuffle": shuffle, "threads": 3}
    made = by_rows(with_engine(loader(dataset, **options), engine))
    with made:
        assert contents(made) == contents(loader(dataset, "mmap", **options))
        uncompressed = dataset.name == "none"
        assert (made.stats().rows_read == 700) == uncompressed


def test_columns_of_varying_width_cost_their_size(tmp_path: Path) -> None:
    """A batch takes a few rows of each block: with short texts beside wide rows these, and the texts whole."""
    table = make_table().append_column("name", pa.array([f"s{i}" for i in range(ROWS)]))
    fs.write(table, tmp_path / "data", compression="none")
    with loader(tmp_path / "data", columns=["image", "name"]) as made:
        assert contents(made) == contents(loader(tmp_path / "data", "mmap", columns=["image", "name"]))
        assert made.stats().rows_read == ROWS
    texts = {"name": ["some words " * 200] * 3000, "id": np.arange(3000)}
    fs.write(texts, tmp_path / "texts", compression="none")
    with loader(tmp_path / "texts") as made:
        assert contents(made) == contents(loader(tmp_path / "texts", "mmap"))
        assert made.stats().rows_read == 0


def test_compressed_blocks_and_those_that_fit_the_budget_are_read_whole(fixed: Path, tmp_path: Path) -> None:
    with loader(fixed, memory=1 << 30) as made:
        contents(made)
        assert made.stats().rows_read == 0
        assert made.stats().blocks_read == fs.open(fixed).index.blocks
        assert made.stats().engine_reason == "asked for"
    fs.write(make_table(1000), tmp_path / "data", compression="zstd")
    with loader(tmp_path / "data") as made:
        contents(made)
        assert made.stats().rows_read == 0


def test_once_compares_a_block_first_and_then_reads_its_rows(fixed: Path) -> None:
    index = fs.open(fixed).index
    with loader(fixed, verify="once", columns=["id", "image"]) as made:
        first = contents(made)
        stats = made.stats()
        assert stats.reads["columns_checked"] == 2 * index.blocks
        assert stats.blocks_read >= index.blocks
        assert 0 < stats.rows_read < ROWS
        made.set_epoch(0)
        assert contents(made) == first
        assert made.stats().reads["columns_checked"] == 2 * index.blocks
        assert made.stats().rows_read == stats.rows_read + ROWS
    with loader(fixed, verify="always", columns=["id", "image"]) as made:
        contents(made)
        assert made.stats().rows_read == 0


def test_once_finds_damage_before_rows_are_delivered(tmp_path: Path) -> None:
    fs.write(make_table(3000), tmp_path / "data", compression="none")
    (shard,) = (tmp_path / "data").glob("shard-*.arrow")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with (
        loader(tmp_path / "data", verify="once") as made,
        pytest.raises(CorruptError, match=r"block \d+ at offset"),
    ):
        contents(made)


@pytest.mark.parametrize("engine", ENGINES)
def test_damaged_metadata_are_found(tmp_path: Path, engine: str) -> None:
    need(engine)
    fs.write(make_table(400), tmp_path / "data", compression="none")
    assert fs.open(tmp_path / "data").index.blocks == 1
    (shard,) = (tmp_path / "data").glob("shard-*.arrow")
    with pa.OSFile(str(shard)) as file, pa.ipc.open_file(file) as opened:
        first_body = shard.read_bytes().find(opened.get_batch(0).column(0).buffers()[1].to_pybytes()[:64])
    with open(shard, "r+b") as damaged:
        damaged.seek(first_body - 100)
        byte = damaged.read(1)
        damaged.seek(first_body - 100)
        damaged.write(bytes([byte[0] ^ 255]))
    with (
        loader(tmp_path / "data", engine, batch_size=5, memory=0) as made,
        pytest.raises(CorruptError, match=r"block 0 at offset \d+: .*metadata"),
    ):
        contents(made)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shard_that_is_cut_short_names_its_block(tmp_path: Path, engine: str) -> None:
    need(engine)
    fs.write(make_table(3000), tmp_path / "data", compression="none")
    (shard,) = (tmp_path / "data").glob("shard-*.arrow")
    with loader(tmp_path / "data", engine, prefetch=1) as made:
        iterator = iter(made)
        next(iterator)
        os.truncate(shard, shard.stat().st_size // 2)
        with pytest.raises(StorageError, match=rf"{shard.name}: block \d+ at offset \d+: .*cut short"):
            list(iterator)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("batch_size", [1, 50, 1000])
def test_any_budget_and_any_batch_ends(fixed: Path, threads: int, batch_size: int) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "threads": threads, "columns": ["id", "image"]}
    with loader(fixed, memory=0, verify="once", **options) as made:
        for _ in range(2):
            assert sorted(i for batch in made for i in batch["id"].tolist()) == list(range(ROWS))
        assert made.stats().rows_read > 0 or batch_size == 1000


def test_few_samples_of_a_view_are_read_by_themselves(fixed: Path) -> None:
    chosen = np.arange(11, ROWS, 997)
    view = fs.open(fixed, verify="never").select(chosen)
    for shuffle in ("block", "none"):
        with fs.ShardLoader(
            view, batch_size=3, shuffle=shuffle, engine="threads", columns=["id", "image"]
        ) as made:
            assert sorted(i for batch in made for i in batch["id"].tolist()) == chosen.tolist()
            stats = made.stats()
        assert stats.rows_read == len(chosen)
        assert stats.bytes_read < 40 * 4 * PAGE


def test_iterators_that_are_left_and_begun_anew(fixed: Path) -> None:
    with loader(fixed, columns=["id"], threads=2) as made:
        for taken in (0, 1, 5):
            made.set_epoch(1)
            iterator = iter(made)
            found = [next(iterator).ids.tolist() for _ in range(taken)]
            iterator.close()  # type: ignore[attr-defined]
            made.set_epoch(1)
            assert [batch.ids.tolist() for batch in made][:taken] == found
