"""One contract for all engines: io/read_engine.h."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastshard import _core
from fastshard.errors import InvalidError

PAGE = 4096


@pytest.fixture(params=["threads", "uring", "uring:registered", "scrambled:7"])
def engine(request: pytest.FixtureRequest) -> Any:
    if request.param.startswith("uring") and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)  # a container or an old kernel: no package could change that
    return _core.ReadEngine(request.param, depth=8, io_threads=3)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    content = bytes(i * 31 % 251 for i in range(10 * PAGE + 100))
    path = tmp_path / "data"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield fd, content
    os.close(fd)


def drain(engine: Any, count: int) -> dict[int, tuple[int, bytes]]:
    done: dict[int, tuple[int, bytes]] = {}
    deadline = time.monotonic() + 30
    while len(done) < count:
        assert time.monotonic() < deadline
        done.update(
            (tag, (result, data)) for tag, result, data in engine.wait(most=8, at_least=1, seconds=10)
        )
    return done


def test_reads_what_was_asked_for_under_its_tag(engine: Any, file: tuple[int, bytes]) -> None:
    fd, content = file
    assert engine.submit([(100 + i, fd, i * PAGE, 2 * PAGE) for i in range(6)]) == 6
    for tag, (result, data) in drain(engine, 6).items():
        first = (tag - 100) * PAGE
        assert result > 0
        assert data == content[first : first + result]


def test_takes_no_more_than_its_depth(engine: Any, file: tuple[int, bytes]) -> None:
    fd, _ = file
    requests = [(i, fd, 0, PAGE) for i in range(20)]
    assert engine.submit(requests) == 8
    assert engine.submit(requests[8:]) == 0
    drain(engine, 8)
    assert engine.submit(requests[8:]) == 8
    drain(engine, 8)


def test_a_read_at_the_end_comes_short_and_beyond_it_empty(engine: Any, file: tuple[int, bytes]) -> None:
    fd, content = file
    engine.submit([(1, fd, 10 * PAGE, 2 * PAGE), (2, fd, 20 * PAGE, PAGE)])
    done = drain(engine, 2)
    assert done[1] == (100, content[10 * PAGE :])
    assert done[2] == (0, b"")


def test_an_error_is_a_negative_errno(engine: Any) -> None:
    engine.submit([(5, 9999, 0, PAGE)])
    assert drain(engine, 1)[5][0] == -errno.EBADF


def test_wait_ends_at_its_deadline(engine: Any) -> None:
    assert engine.wait(most=4, at_least=1, seconds=0.05) == []


def test_wake_ends_a_wait_from_another_thread(engine: Any) -> None:
    started = threading.Event()
    found: list[Any] = []

    def wait() -> None:
        started.set()
        found.append(engine.wait(most=4, at_least=1, seconds=60))

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait(10)
    engine.wake()
    thread.join(30)
    assert not thread.is_alive()
    assert found == [[]]


def test_an_engine_that_is_dropped_waits_for_its_reads(file: tuple[int, bytes]) -> None:
    fd, _ = file
    for name in ("threads", "scrambled:1"):
        engine = _core.ReadEngine(name, depth=8, io_threads=2)
        engine.submit([(i, fd, 0, PAGE) for i in range(8)])
        del engine


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(InvalidError, match="no engine 'tape'"):
        _core.ReadEngine("tape")
