"""Generations: what a commit keeps, what it removes, and what happens to leftovers, damage and old readers."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from written import read_back

import fastshard as fs
from fastshard import _storage
from fastshard._index import read_index
from fastshard.errors import (
    CorruptError,
    InvalidError,
    LockedError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)


def files(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()} - {".fastshard.lock"}


def named(path: Path) -> set[str]:
    """What the index names, itself included."""
    index = read_index(path)
    shards = pa.ipc.open_file(str(path / index.shard_table.path)).read_all()["path"].to_pylist()
    return {"index.json", index.shard_table.path, index.block_table.path, *shards}


def write(path: Path, *values: int, mode: str = "error") -> None:
    fs.write({"x": list(values)}, path, mode=mode)  # type: ignore[arg-type]


def values(path: Path) -> list[int]:
    found: list[int] = read_back(path)["x"].to_pylist()
    return found


def test_a_commit_leaves_what_it_names_and_the_lock(tmp_path: Path) -> None:
    write(tmp_path / "d", 1, 2)
    assert files(tmp_path / "d") == named(tmp_path / "d")
    assert (tmp_path / "d" / ".fastshard.lock").stat().st_size == 0


def test_generations_keep_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "d"
    generations = []
    for number in range(1, 6):
        write(path, number, mode="overwrite")
        index = read_index(path)
        assert index.generation == number
        generations.append(named(path) - {"index.json"})
        assert set(index.previous) == (generations[-2] if number > 1 else set())
        assert files(path) == named(path) | set(index.previous)
    assert values(path) == [5]


def test_appending_keeps_shards_and_ids(tmp_path: Path) -> None:
    path = tmp_path / "d"
    for number in range(4):
        write(path, number * 2, number * 2 + 1, mode="append")
        assert values(path) == list(range(number * 2 + 2))
        index = read_index(path)
        assert index.shards == number + 1
        assert not any(name.startswith("shard-") for name in index.previous)
        assert files(path) == named(path) | set(index.previous)
    assert [name[:12] for name in sorted(named(path)) if name.startswith("shard")] == [
        f"shard-{i:05d}-" for i in range(4)
    ]


def test_the_same_bytes_again_are_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "d"
    for value in (1, 1, 2, 1, 2, 2, 1):
        write(path, value, mode="overwrite")
        assert values(path) == [value]
        assert files(path) == named(path) | set(read_index(path).previous)


def test_a_reader_keeps_the_generation_that_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1, 2)
    reader = fs.open(path)
    write(path, 3, mode="overwrite")
    assert [reader[i]["x"] for i in range(2)] == [1, 2]
    assert fs.open(path)[0]["x"] == 3


def test_vacuum_removes_what_the_index_does_not_name(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1)
    write(path, 2, mode="overwrite")
    (path / ".tmp-0123456789ab-rest.arrow").write_bytes(b"x" * 10)
    (path / "shard-00007-0123456789abcdef.arrow").write_bytes(b"x" * 5)
    (path / "mine.arrow").write_bytes(b"mine")
    (path / ".tmp-mine").write_bytes(b"mine")
    old = sum((path / name).stat().st_size for name in read_index(path).previous)
    removed = fs.vacuum(path)
    assert (removed.files, removed.bytes) == (5, old + 15)
    assert files(path) == named(path) | {"mine.arrow", ".tmp-mine"}
    assert values(path) == [2]
    assert fs.vacuum(path).files == 0
    write(path, 3, mode="append")
    assert values(path) == [2, 3]


def test_vacuum_needs_a_whole_data_set_and_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with pytest.raises(NotFoundError):
        fs.vacuum(path)
    assert not path.exists()
    write(path, 1)
    with fs.ShardWriter(path, mode="append") as writer:
        with pytest.raises(LockedError):
            fs.vacuum(path)
        writer.write({"x": 2})
    (path / read_index(path).shard_table.path).write_bytes(b"junk")
    before = files(path)
    with pytest.raises(CorruptError):
        fs.vacuum(path)
    assert files(path) == before


def test_leftovers_of_a_dead_writer_go_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir()
    leftovers = [".tmp-0123456789ab-000000.arrow", "shard-00000-0123456789abcdef.arrow", ".fastshard.lock"]
    for name in leftovers:
        (path / name).write_bytes(b"")
    write(path, 1)
    assert files(path) == named(path)
    for name in leftovers[:2]:
        (path / name).write_bytes(b"rest")
    write(path, 2, mode="append")
    assert files(path) == named(path) | set(read_index(path).previous)


def test_without_locks_only_old_leftovers_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_storage, "fcntl", None)
    path = tmp_path / "d"
    path.mkdir()
    young, old = path / ".tmp-0123456789ab-young", path / ".tmp-0123456789ab-old"
    for file in (young, old):
        file.write_bytes(b"")
    os.utime(old, (time.time() - 90_000,) * 2)
    write(path, 1)
    assert young.exists()
    assert not old.exists()


def test_error_mode_refuses_what_is_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1)
    with pytest.raises(InvalidError, match=r'a data set is there already; choose mode="overwrite"'):
        write(path, 2)
    assert values(path) == [1]
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(InvalidError, match=r"not empty \(it holds 'thesis\.tex'\)"):
        write(other, 2)
    assert os.listdir(other) == ["thesis.tex"]
    write(other, 2, mode="overwrite")
    assert (other / "thesis.tex").read_text() == "precious"
    with pytest.raises(StorageError, match=r"could not begin to write: .*"):
        write(other / "thesis.tex", 2)
    with pytest.raises(StorageError):
        write(other / "thesis.tex" / "deeper", 2)


def test_shards_whose_index_is_gone_are_not_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1)
    (path / "index.json").unlink()
    before = files(path)
    for mode in ("error", "append"):
        with pytest.raises(CorruptError, match=r"index\.json is gone, though there is a shard table"):
            write(path, 2, mode=mode)
    assert files(path) == before
    write(path, 2, mode="overwrite")
    assert values(path) == [2]


@pytest.mark.parametrize("damage", ["index.json", "shard table", "block table", "missing table"])
def test_damage_is_refused_when_appending_and_overwritten(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "d"
    write(path, 1)
    index = read_index(path)
    if damage == "index.json":
        (path / "index.json").write_text("{")
    elif damage == "missing table":
        (path / index.block_table.path).unlink()
    else:
        ref = index.shard_table if damage == "shard table" else index.block_table
        data = bytearray((path / ref.path).read_bytes())
        data[len(data) // 2] ^= 1
        (path / ref.path).write_bytes(data)
    before = files(path)
    with pytest.raises(CorruptError, match="damaged"):
        write(path, 2, mode="append")
    assert files(path) == before
    write(path, 2, mode="overwrite")
    assert values(path) == [2]
    write(path, 3, mode="overwrite")
    assert files(path) == named(path) | set(read_index(path).previous)


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1)
    document = json.loads((path / "index.json").read_text())
    (path / "index.json").write_text(json.dumps({**document, "version": 2}))
    for mode in ("overwrite", "append"):
        with pytest.raises(UnsupportedError, match="format version 2"):
            write(path, 2, mode=mode)
    assert json.loads((path / "index.json").read_text())["version"] == 2


def test_a_hostile_previous_removes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write(path, 1)
    (path / "mine").write_text("x")
    document = json.loads((path / "index.json").read_text())
    document["previous"] = ["mine", ".fastshard.lock", "index.json", *named(path)]
    del document["checksum"]  # whoever means harm can make it, too
    (path / "index.json").write_text(json.dumps(document))
    write(path, 2, mode="append")
    assert values(path) == [1, 2]
    assert (path / "mine").exists()


def test_a_data_set_may_move(tmp_path: Path) -> None:
    write(tmp_path / "d", 1)
    shutil.move(tmp_path / "d", tmp_path / "e")
    write(tmp_path / "e", 2, mode="append")
    assert values(tmp_path / "e") == [1, 2]


def test_a_lock_that_was_removed_is_taken_anew(tmp_path: Path) -> None:
    first = _storage.DirectoryLock(str(tmp_path))
    first.release(remove=True)
    first.release()
    second = _storage.DirectoryLock(str(tmp_path))
    with pytest.raises(LockedError):
        _storage.DirectoryLock(str(tmp_path))
    second.release()
    with _storage.DirectoryLock(str(tmp_path)) as third:
        assert third.exclusive


def test_nobody_may_write_there(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir(mode=0o500)
    if os.access(path, os.W_OK):  # root may write anywhere: what it cannot is a name too long
        with pytest.raises(StorageError, match="choose a shorter path"):
            write(tmp_path / ("x" * 300), 1)
    else:
        with pytest.raises(StorageError, match="check the permissions"):
            write(path, 1)
