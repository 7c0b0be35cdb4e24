"""The native stream by itself, without torch: what the sanitizers run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastshard as fs
from fastshard import _core
from fastshard.reader import ShardReader

ROWS = 3000


@pytest.fixture(scope="module", params=["none", "lz4"])
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ShardReader:
    path = tmp_path_factory.mktemp("stream") / request.param
    columns = {
        "id": np.arange(ROWS),
        "x": np.random.default_rng(1).random((ROWS, 4), np.float32),
        "text": [f"row {i}" * (i % 3) for i in range(ROWS)],
        "blob": [bytes([i % 256]) * (i % 5) for i in range(ROWS)],
        "ragged": [list(range(i % 4)) for i in range(ROWS)],
    }
    fs.write(columns, path, compression=request.param, block_bytes=4096, shard_bytes=40_000)
    return fs.open(path, pad={"ragged": (4, -1)}, binary="view")


def make_stream(
    reader: ShardReader,
    engine: str,
    *,
    threads: int,
    memory: int,
    verify: str,
    prefetch: int = 5,
    visits: float = 0.0,
) -> _core.BatchStream:
    reading = {
        "engine": engine,
        "depth": 8,
        "io_threads": 3,
        "direct": False,
        "verify": verify,
        "budget": memory,
        "ahead": max(1 << 14, memory // 2),
        "visits": visits,
        "read_timeout_ns": 0,
    }
    order = _core.EpochOrder(kind="global", size=ROWS, seed=7, epoch=1)
    return _core.BatchStream(
        set=reader.core,
        projection=reader.plan.native,
        order=order,
        partition=_core.Partition(size=ROWS, batch_size=32),
        first=0,
        step=1,
        selection=None,
        threads=threads,
        prefetch=prefetch,
        reading=None if engine == "mmap" else reading,
    )


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@pytest.mark.parametrize("engine", ["mmap", "threads", "scrambled:3"])
@pytest.mark.parametrize("verify", ["once", "always", "never"])
@pytest.mark.parametrize("memory", [0, 1 << 20])
@pytest.mark.parametrize("visits", [0.0, 1e-9], ids=["blocks", "rows"])
def test_threads_change_nothing(
    reader: ShardReader, engine: str, verify: str, memory: int, visits: float
) -> None:
    stream = make_stream(reader, engine, threads=4, memory=memory, verify=verify, visits=visits)
    seen: list[int] = []
    while (made := stream.next(30.0)) is not None:
        columns, ids = made[0], made[1].ids()
        assert plain(columns) == plain(reader.core.take(ids.copy(), reader.plan.native))
        seen += ids.tolist()
    stream.stop()
    assert sorted(set(seen)) == list(range(ROWS))


@pytest.mark.parametrize("engine", ["mmap", "threads", "scrambled:3"])
@pytest.mark.parametrize("visits", [0.0, 1e-9], ids=["blocks", "rows"])
def test_streams_that_are_left(reader: ShardReader, engine: str, visits: float) -> None:
    verify = "never" if visits else "once"
    for taken in (0, 1, 7):
        stream = make_stream(
            reader, engine, threads=3, memory=1 << 16, verify=verify, prefetch=2, visits=visits
        )
        for _ in range(taken):
            assert stream.next(30.0) is not None
        stream.stop()
        assert stream.next(1.0) is None
        stream.stats()
