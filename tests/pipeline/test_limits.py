"""`stats().limit` tells disk, decompression, gather, transforms and the consumer apart: each case provokes one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from mirror import mounted

import fastshard as fs
from fastshard.loader_stats import LoaderStats


def limit_of(path: Path, work: Callable[[Any], Any] = lambda batch: None, **options: Any) -> LoaderStats:
    loader = fs.ShardLoader(path, verify="never", **{"threads": 2, "batch_size": 64, **options})
    for batch in loader:
        work(batch)
    stats = loader.stats()
    parts = stats.wait_seconds + stats.transform_seconds + stats.object_seconds + stats.program_seconds
    assert parts == pytest.approx(stats.seconds, rel=0.2, abs=0.05)
    return stats


def check_limit(expected: str, path: Path, **options: Any) -> None:
    """Of three runs one at least says so: on a machine with other work a drive, or a processor, may be away."""
    found = [limit_of(path, **options).limit for _ in range(3)]
    assert any(limit.startswith(expected) for limit in found), found


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Rows of 64 KiB: 64 MB."""
    fs.write({"x": np.zeros((1000, 16384), np.float32)}, tmp_path / "wide")
    return tmp_path / "wide"


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_the_disk(tmp_path: Path, engine: str) -> None:
    fs.write(
        {"x": np.zeros((400, 1024), np.float32)}, tmp_path / "d", shard_bytes=1 << 20, block_bytes=1 << 18
    )
    with mounted(tmp_path / "d", tmp_path / "mounted", seconds=0.2) as mount:
        stats = limit_of(mount.path, engine=engine)
    assert stats.limit.startswith("The disk limits"), stats
    assert stats.read_seconds > 0.2


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_decompression(tmp_path: Path, engine: str) -> None:
    values = np.random.default_rng(0).integers(0, 4, (1000, 16384)).astype(np.int32)
    fs.write({"x": values}, tmp_path / "d", compression="zstd:9")
    check_limit("Decompression limits", tmp_path / "d", engine=engine)


def test_the_gather(tmp_path: Path) -> None:
    """Short lists, taken one by one."""
    lists = pa.ListArray.from_arrays(np.arange(0, 3_000_003, 3), np.zeros(3_000_000, np.int16))
    fs.write(pa.table({"ragged": lists}), tmp_path / "d")
    options = {"shuffle": "global", "engine": "mmap", "lists": "ragged", "batch_size": 8192}
    check_limit("The gather limits", tmp_path / "d", **options)


@pytest.mark.parametrize("kind", ["transform", "sample_transform"])
def test_transforms(wide: Path, kind: str) -> None:
    def slow(value: Any) -> Any:
        time.sleep(0.05 if kind == "transform" else 0.005)
        return value

    stats = limit_of(wide, **{kind: slow})
    assert stats.limit.startswith("The transforms limit"), stats


def test_the_program(wide: Path) -> None:
    stats = limit_of(wide, lambda batch: time.sleep(0.05))
    assert stats.limit.startswith("The consumer limits: what the program does"), stats
    assert stats.program_seconds >= 16 * 0.05


def test_objects(tmp_path: Path) -> None:
    fs.write({"lists": [[[i, i], [i], []] for i in range(50_000)]}, tmp_path / "d")
    stats = limit_of(tmp_path / "d", batch_size=1024)
    assert stats.limit.startswith("The consumer limits: making Python's objects"), stats


def test_an_iterator_that_is_left(wide: Path) -> None:
    loader = fs.ShardLoader(wide, batch_size=64)
    assert loader.stats().limit == "Nothing was delivered yet."
    iterator = iter(loader)
    next(iterator)
    time.sleep(0.3)
    del iterator
    assert loader.stats().program_seconds >= 0.3
