"""The page that a process and its children share."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from fastshard._shared import SharedCell
from fastshard.errors import StorageError


def test_it_begins_empty_and_keeps_what_is_written() -> None:
    cell = SharedCell()
    with cell.locked():
        assert cell.read() == b""
        for content in (b"a", b"", b"b" * 100_000, b"c"):
            cell.write(content)
            assert cell.read() == content


def test_too_much_is_refused() -> None:
    cell = SharedCell()
    with cell.locked(), pytest.raises(ValueError, match="do not fit"):
        cell.write(b"x" * (1 << 21))


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))])
def test_other_copies_are_new_and_empty(clone) -> None:
    cell = SharedCell()
    with cell.locked():
        cell.write(b"mine")
    other = clone(cell)
    with other.locked():
        assert other.read() == b""
        other.write(b"theirs")
    with cell.locked():
        assert cell.read() == b"mine"


def append(cell: SharedCell, times: int) -> None:
    for _ in range(times):
        with cell.locked():
            cell.write(cell.read() + b".")


def context(method: str) -> BaseContext:
    return multiprocessing.get_context(method)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_write_without_losing_anything(method: str) -> None:
    cell = SharedCell()
    processes = [context(method).Process(target=append, args=(cell, 200)) for _ in range(3)]
    for process in processes:
        process.start()
    append(cell, 200)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with cell.locked():
        assert cell.read() == b"." * 800


def hold(cell: SharedCell, held: object) -> None:
    with cell.locked():
        held.set()  # type: ignore[attr-defined]
        time.sleep(60)


def test_the_lock_goes_with_a_killed_holder() -> None:
    cell = SharedCell()
    with cell.locked():
        cell.write(b"old")
    held = context("fork").Event()
    process = context("fork").Process(target=hold, args=(cell, held))
    process.start()
    assert held.wait(30)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    with cell.locked():
        assert cell.read() == b"old"


def test_a_child_forked_while_a_thread_holds_the_lock_does_not_wait_for_ever() -> None:
    cell = SharedCell()
    with cell.locked():
        process = context("fork").Process(target=append, args=(cell, 1))
        process.start()
    process.join(30)
    assert process.exitcode == 0


def test_the_descriptor_goes_with_the_cell() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("counts descriptors in /proc")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    cells = [SharedCell() for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 20
    del cells
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_that_became_another_file_is_not_written_to(tmp_path) -> None:
    cell = SharedCell()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, cell._fd)
    with pytest.raises(StorageError, match="closed in this process"), cell.locked():
        pass
    os.close(cell._fd)
    with pytest.raises(StorageError, match="closed in this process"), cell.locked():
        pass
    os.close(other)
    assert (tmp_path / "other").stat().st_size == 0


def test_a_cell_that_lives_to_the_end_of_the_process_goes_quietly() -> None:
    code = (
        "from fastshard._shared import SharedCell\nimport sys\nsys.kept = SharedCell()\ncell = SharedCell()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_no_name_is_left_in_shared_memory() -> None:
    cell = SharedCell()
    mapped = Path("/proc/self/maps").read_text().splitlines()  # others' names come and go meanwhile
    assert not [line for line in mapped if "/dev/shm/" in line and not line.endswith("(deleted)")]
    del cell
