"""What tools see of a loader: names of its threads, and ranges of torch's profiler."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastshard as fs


def as_it_is(batch: fs.Batch) -> fs.Batch:
    return batch


def slowly(batch: fs.Batch) -> fs.Batch:
    time.sleep(0.03)
    return batch


@contextmanager
def names_seen() -> Iterator[set[str]]:
    """The names that threads of this process had at any time within; those before are left out."""

    def names() -> set[str]:
        found = set()
        for task in os.listdir("/proc/self/task"):
            try:
                found.add(Path(f"/proc/self/task/{task}/comm").read_text().strip())
            except OSError:  # it has ended
                continue
        return found

    before, seen, done = names(), set[str](), threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.update(names())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
        seen -= before


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 64 MB in several shards."""
    path = tmp_path_factory.mktemp("observing") / "wide"
    fs.write({"x": np.zeros((16_000, 1000), np.float32)}, path, shard_bytes=8 << 20)
    return path


def forget(path: Path) -> None:
    for shard in path.glob("shard-*.arrow"):
        descriptor = os.open(shard, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"engine": "mmap"}, {"fs-gather-0", "fs-gather-1", "fs-advise"}),
        ({"engine": "uring"}, {"fs-gather-0", "fs-gather-1", "fs-read", "fs-ahead"}),
        ({"engine": "threads"}, {"fs-gather-0", "fs-gather-1", "fs-read", "fs-ahead", "fs-pread"}),
        (
            {"engine": "mmap", "transform": as_it_is},
            {"fs-gather-0", "fs-gather-1", "fs-transform_0", "fs-transform_1"},
        ),
    ],
    ids=["mmap", "uring", "threads", "transform"],
)
def test_threads_have_readable_names(wide: Path, options: dict[str, Any], expected: set[str]) -> None:
    if options["engine"] == "uring" and (refusal := fs._core.uring_refusal()) is not None:
        pytest.skip(refusal)
    with (
        names_seen() as seen,
        fs.ShardLoader(wide, batch_size=64, threads=2, prefetch=2, **options) as loader,
    ):
        deadline = time.monotonic() + 30
        while not expected <= seen and time.monotonic() < deadline:
            forget(wide)  # what is in memory needs no advice
            for _ in loader:
                pass
    assert expected <= seen
    ours = {name for name in seen if name.startswith("fs-")}
    assert ours == expected or ours == expected | {"fs-advise"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_threads_around_several_data_sets_have_names_too(plain_dataset: Path) -> None:
    reader = fs.open(plain_dataset)
    with names_seen() as seen, fs.ShardLoader(fs.concat([reader, reader]), batch_size=8, threads=2) as loader:
        deadline = time.monotonic() + 30
        while not {"fs-gather-0", "fs-gather-1"} <= seen and time.monotonic() < deadline:
            assert sum(1 for _ in loader) == 500
    assert {"fs-gather-0", "fs-gather-1"} <= seen


def waits_of(loader: fs.ShardLoader, work: float = 0.0) -> tuple[int, float]:
    """Number and seconds of the profiler's ranges while a program works so long on each batch."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in loader:
            time.sleep(work)
    ranges = [event for event in profile.events() or [] if event.name == "fastshard.wait"]
    return len(ranges), sum(event.time_range.elapsed_us() for event in ranges) / 1e6


def test_the_profiler_sees_each_wait(plain_dataset: Path) -> None:
    loader = fs.ShardLoader(plain_dataset, batch_size=500)
    assert waits_of(loader)[0] == 5  # and once for the end
    stats = loader.stats()
    assert stats.bytes == 2000 * loader._data.row_bytes
    assert stats.bytes_per_second == pytest.approx(stats.bytes / stats.seconds)


def test_a_range_is_the_wait_and_not_the_program(plain_dataset: Path) -> None:
    """Four transforms of 30 ms, one at a time, are waited for; 100 ms of work on each batch are not."""
    count, waited = waits_of(fs.ShardLoader(plain_dataset, batch_size=500, threads=1, transform=slowly))
    assert count == 5
    assert waited > 0.1
    count, waited = waits_of(fs.ShardLoader(plain_dataset, batch_size=500), work=0.1)
    assert count == 5
    assert waited < 0.3


def test_files_that_are_not_read_directly_are_counted() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        fs.write({"x": np.zeros(4000)}, Path(folder, "data"))
        with fs.ShardLoader(Path(folder, "data"), batch_size=64, engine="threads") as loader:
            assert loader.stats().buffered_files == 0
            list(loader)
            assert loader.stats().buffered_files == 1
