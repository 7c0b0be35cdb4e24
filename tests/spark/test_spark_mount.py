"""Volumes: Spark writes through a mounted file system that takes one pass of writes into each file and nothing else."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fastshard as fs
from fastshard.spark import _places

pytestmark = pytest.mark.spark


@contextmanager
def mounted(backing: Path, point: Path) -> Iterator[bool]:
    """Mount it; gives False where this user may not."""
    backing.mkdir()
    point.mkdir()
    program = Path(__file__).with_name("mount_server.py")
    server = subprocess.Popen([sys.executable, program, backing, point], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not os.path.ismount(point) and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        yield os.path.ismount(point)
    finally:
        subprocess.run(["fusermount", "-u", "-z", str(point)], check=False, stderr=subprocess.DEVNULL)
        server.kill()
        server.wait()


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where it is mounted; its name is one of those that stand for mounted object stores."""
    if shutil.which("fusermount") is None:
        pytest.skip("FUSE is not installed (scripts/prepare-system.sh installs it where it may)")
    point = tmp_path / "volume"
    with mounted(tmp_path / "backing", point) as is_there:
        if not is_there:
            pytest.skip("this user may not mount FUSE file systems")  # no package could change that
        monkeypatch.setattr(_places, "_MOUNTS", re.compile(re.escape(str(point)) + r"(/|$)"))
        yield point


def numbers(spark: Any, rows: int = 100, partitions: int = 4) -> Any:
    return spark.range(0, rows, 1, partitions).selectExpr("id", "array(cast(id as double), 0.5D) AS pair")


def refused(tmp_path: Path) -> list[str]:
    log = tmp_path / "backing" / ".refused"
    return log.read_text().splitlines() if log.exists() else []


def check(path: Path, rows: int) -> None:
    with fs.open(path) as reader:
        assert reader["id"].tolist() == list(range(rows))
        assert reader["pair"].tolist() == [[i, 0.5] for i in range(rows)]
        assert not reader.verify()


def test_the_mount_refuses_what_stores_refuse(tmp_path: Path, volume: Path) -> None:
    file = volume / "file"
    file.write_bytes(b"once")
    assert file.read_bytes() == b"once"
    with pytest.raises(OSError, match="not supported"):
        file.rename(volume / "other")
    with pytest.raises(OSError, match="not supported"), open(file, "ab") as stream:
        stream.write(b"more")
    with open(volume / "seeks", "wb", buffering=0) as stream:
        stream.seek(10)
        with pytest.raises(OSError, match="not supported"):
            stream.write(b"later")
    with open(file, "rb") as stream:
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(stream.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        with pytest.raises(OSError, match="not supported"):
            fcntl.lockf(stream, fcntl.LOCK_SH)
    assert [line.split()[0] for line in refused(tmp_path)] == ["rename", "open", "write", "lock"]


def test_executors_write_to_a_volume(spark: Any, tmp_path: Path, volume: Path) -> None:
    local = fs.spark.write(numbers(spark), tmp_path / "local")
    result = fs.spark.write(numbers(spark), volume / "train", shard_bytes=512, block_bytes=256)
    assert result.shards > 4
    check(volume / "train", 100)
    fs.spark.write(numbers(spark), volume / "train", mode="overwrite")
    with fs.open(volume / "train") as reader:
        assert reader.fingerprint == local.fingerprint
    fs.spark.write(numbers(spark).selectExpr("id + 100 AS id", "array(id + 100.0D, 0.5D) AS pair"),
                   volume / "train", mode="append")  # fmt: skip
    check(volume / "train", 200)
    with fs.open(fs.cached(volume / "train", tmp_path / "cache")) as reader:
        assert reader["id"].tolist() == list(range(200))
    # Nothing was tried but what the probe tries, to know.
    assert all(re.fullmatch(r"rename /train/\.tmp-\w+-executor", line) for line in refused(tmp_path))


def test_an_index_that_cannot_be_written_leaves_the_data_set(
    spark: Any, tmp_path: Path, volume: Path
) -> None:
    fs.spark.write(numbers(spark), volume / "train")
    before = sorted(os.listdir(volume / "train"))
    fail = tmp_path / "backing" / ".fail"
    index = (volume / "train" / "index.json").read_bytes()
    fail.touch()
    with pytest.raises(fs.errors.StorageError, match="could not commit the index"):
        fs.spark.write(numbers(spark, 10, 1), volume / "train", mode="overwrite")
    assert not fail.exists()
    assert sorted(os.listdir(volume / "train")) == before
    assert (volume / "train" / "index.json").read_bytes() == index
    check(volume / "train", 100)
