"""Memory that io_uring has registered: the same batches, while memory comes and goes, and after a fork."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import by_rows, comparable, with_engine

import fastshard as fs
from fastshard import _core

MIB = 1 << 20
ROWS = 12_000  # of 8 KiB: 94 MiB in blocks of a megabyte

pytestmark = [
    pytest.mark.unsanitized,  # there no memory is a region's, so that nothing is registered
    pytest.mark.skipif(_core.uring_refusal() is not None, reason="the kernel or a policy forbids io_uring"),
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("registered") / "data"
    values = np.random.default_rng(3).integers(0, 1 << 30, (ROWS, 2048), np.int32)
    fs.write({"x": values, "id": np.arange(ROWS)}, path, shard_bytes=20 * MIB)
    if not registers(next(path.glob("shard-*"))):
        pytest.skip("the system lets no memory be registered (RLIMIT_MEMLOCK)")
    return path


def registers(file: Path) -> bool:
    engine = _core.ReadEngine("uring:registered", depth=2)
    fd = os.open(file, os.O_RDONLY)
    try:
        engine.submit([(1, fd, 0, MIB)])
        [(_, result, data)] = engine.wait(most=2, at_least=1, seconds=20)
        assert data == file.read_bytes()[:result]
    finally:
        os.close(fd)
    return bool(engine.registered_reads)


def loader(path: Path, **options: Any) -> fs.ShardLoader:
    return with_engine(
        fs.ShardLoader(path, batch_size=200, threads=2, prefetch=3, **options), "uring:registered"
    )


def check(made: fs.ShardLoader, reader: fs.ShardReader) -> None:
    seen = 0
    for batch in made:
        assert comparable(batch) == comparable(reader.take(batch.ids.numpy()).to_torch())
        seen += batch.num_samples
    assert seen == ROWS


@pytest.mark.parametrize("memory", [4 * MIB, None])
@pytest.mark.parametrize("rows", [False, True])
def test_batches_are_those_of_take(wide: Path, memory: int | None, rows: bool) -> None:
    made = loader(wide, shuffle="global" if rows else "block", memory=memory)
    with fs.open(wide) as reader, by_rows(made) if rows else made:
        for _ in range(3):  # each iteration has an engine of its own
            check(made, reader)
        stats = made.stats()
        assert stats.registered_reads > 50
        if rows:
            assert stats.rows_read > 0


def test_two_loaders_have_each_its_own(wide: Path) -> None:
    with fs.open(wide) as reader, loader(wide, shuffle="block") as one, loader(wide, shuffle="block") as two:
        for left, right in zip(one, two, strict=True):
            expected = comparable(reader.take(left.ids.numpy()).to_torch())
            assert comparable(left) == comparable(right) == expected
        assert one.stats().registered_reads > 0 < two.stats().registered_reads


def test_a_fork_in_the_middle_changes_nothing(wide: Path) -> None:
    """The child writes to its copy of the memory; reads go on into the parent's."""
    with fs.open(wide) as reader, loader(wide, shuffle="block", memory=8 * MIB) as made:
        for number, batch in enumerate(made):
            assert comparable(batch) == comparable(reader.take(batch.ids.numpy()).to_torch())
            if number % 10 == 0:
                child = os.fork()
                if child == 0:
                    batch["x"][:] = -1
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert made.stats().registered_reads > 0


def test_what_was_registered_is_given_back(wide: Path) -> None:
    before = _core.memory_mapped()
    for _ in range(3):
        with loader(wide, shuffle="block") as made:
            next(iter(made))
    del made
    assert _core.memory_mapped() == before
