"""`verify=`: when columns are compared with their hashes, by what was counted and by what damage is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastshard as fs
from fastshard._checking import choose_checking
from fastshard.errors import CorruptError, InvalidError

ENGINES = ["mmap", "threads"]


@pytest.fixture(params=["none", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    columns = {"id": np.arange(4000), "name": [f"sample {i}" for i in range(4000)]}
    fs.write(columns, tmp_path / "data", compression=request.param, block_bytes=4096)
    return tmp_path / "data"


def loader(path: Path, engine: Any, verify: Any, **options: Any) -> fs.ShardLoader:
    return fs.ShardLoader(
        path, batch_size=50, shuffle="global", engine=engine, verify=verify, threads=2, **options
    )


def checked(made: fs.ShardLoader) -> int:
    return made.stats().reads["columns_checked"]


@pytest.mark.parametrize("engine", ENGINES)
def test_once_compares_each_column_of_a_block_once_per_open(path: Path, engine: str) -> None:
    blocks = fs.open(path).index.blocks
    with loader(path, engine, "once", memory=0) as made:  # nothing is kept: blocks are read again and again
        for _ in range(3):
            assert sum(batch.num_samples for batch in made) == 4000
            assert checked(made) == 2 * blocks
        assert made.stats().reads["bytes_checked"] <= made.dataset._source.open().native[0].index.bytes  # type: ignore[index]
        assert made.stats().verify == "once"


@pytest.mark.parametrize("engine", ENGINES)
def test_never_compares_nothing(path: Path, engine: str) -> None:
    with loader(path, engine, "never") as made:
        list(made)
        assert checked(made) == 0
        assert (made.stats().verify, made.stats().verify_reason) == ("never", "asked for")


@pytest.mark.parametrize("engine", ENGINES)
def test_always_compares_whenever_bytes_are_read(path: Path, engine: str) -> None:
    blocks = fs.open(path).index.blocks
    with loader(path, engine, "always", memory=0) as made:
        list(made)
        first = checked(made)
        assert first >= 2 * blocks
        if engine == "threads":
            assert first == 2 * made.stats().blocks_read
        list(made)
        assert checked(made) > first


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_that_are_not_read_are_not_compared(path: Path, engine: str) -> None:
    with loader(path, engine, "once", columns=["id"]) as made:
        list(made)
        assert checked(made) == fs.open(path).index.blocks


def flip(path: Path) -> None:
    """Damage a value in every block, in place."""
    for shard in path.glob("shard-*.arrow"):
        with open(shard, "r+b") as file:
            data = bytearray(file.read())
            for at in range(len(data)):
                if data[at : at + 7] == b"sample ":
                    data[at] ^= 1
            file.seek(0)
            file.write(data)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("verify", ["always", "once", "never"])
def test_damage_that_comes_later_is_found_by_always_alone(tmp_path: Path, engine: str, verify: str) -> None:
    path = tmp_path / "data"
    fs.write({"name": [f"sample {i}" for i in range(400)]}, path, compression="none", block_bytes=2048)
    with loader(path, engine, verify, memory=0) as made:
        list(made)
        flip(path)
        if verify == "always":
            with pytest.raises(CorruptError, match="xxh3 of column 'name'"):
                list(made)
        else:
            assert {name[:7] for batch in made for name in batch["name"]} == {"rample "}


@pytest.mark.parametrize("verify", ["always", "once", "never"])
def test_readers_too(tmp_path: Path, verify: Any) -> None:
    path = tmp_path / "data"
    fs.write({"x": np.arange(1000), "name": ["sample"] * 1000}, path, compression="none", block_bytes=2048)
    reader = fs.open(path, verify=verify)
    blocks = reader.index.blocks
    for _ in range(2):
        reader.take(np.arange(1000))
        reader[5]
    counted = reader.stats()["columns_checked"]
    assert counted == {"never": 0, "once": 2 * blocks, "always": 2 * (2 * blocks + 2)}[verify]
    assert reader.checking.mode == verify


def test_once_is_counted_anew_when_a_reader_was_closed(tmp_path: Path) -> None:
    fs.write({"x": np.arange(10)}, tmp_path / "data")
    reader = fs.open(tmp_path / "data")
    for count in (1, 2):
        reader.take([1])
        reader.take([2])
        assert reader.stats()["columns_checked"] == count
        reader.close()


def test_shards_that_were_closed_meanwhile_are_not_compared_again(tmp_path: Path) -> None:
    fs.write(
        {"x": np.arange(4000)}, tmp_path / "data", compression="none", block_bytes=2048, shard_bytes=8192
    )
    reader = fs.open(tmp_path / "data", max_open=1, verify="once")
    assert reader.index.shards > 2
    for _ in range(2):
        reader.take(np.arange(4000))
    assert reader.stats()["shards_opened"] > reader.index.shards
    assert reader.stats()["columns_checked"] == reader.index.blocks


def test_auto_by_size_and_order(tmp_path: Path) -> None:
    assert choose_checking("auto", 1 << 20, whole_blocks=False).mode == "once"
    huge = choose_checking("auto", 1 << 60, whole_blocks=False)
    assert huge.mode == "never"
    assert "larger than half of the memory" in huge.reason
    assert choose_checking("auto", 1 << 60, whole_blocks=True).mode == "once"
    assert choose_checking("always", 1 << 60, whole_blocks=False).mode == "always"
    fs.write({"x": np.arange(10)}, tmp_path / "data")
    made = fs.ShardLoader(tmp_path / "data", batch_size=2, shuffle=True)
    assert (made.stats().verify, made.stats().verify_reason) == ("once", "blocks are read whole")
    random = fs.ShardLoader(tmp_path / "data", batch_size=2, shuffle="global")
    assert "fit into half of the memory" in random.stats().verify_reason
    several = fs.ShardLoader(fs.concat([tmp_path / "data"] * 2), batch_size=2)
    assert several.stats().verify_reason == "several data sets are read, each as fits it"


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    fs.write({"x": np.arange(10)}, tmp_path / "data")
    for make in (fs.open, fs.ShardDataset, lambda path, verify: loader(path, "auto", verify)):
        with pytest.raises(InvalidError, match="verify is 'auto', 'always', 'once' or 'never', not 'twice'"):
            make(tmp_path / "data", verify="twice")
