"""Memory that two processes map, without torch: what the sanitizers run of the handover."""

from __future__ import annotations

import gc
import os
import sys

import numpy as np
import pytest

from fastshard import _core
from fastshard.errors import InvalidError, StorageError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memfd_create is Linux's")


def filled(batch: _core.SharedBatch, size: int, value: int) -> int:
    """Leases bytes and fills them; returns the number of their piece."""
    piece, _, room = batch.lease(size)
    assert room.shape == (size,)
    room[:] = value
    return piece


def sent(batch: _core.SharedBatch) -> list[tuple[int, int, int, int, int]]:
    tickets = batch.send(list(range(len(batch.pieces))))
    assert tickets is not None
    return tickets


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096, 65536, 1_000_001])
def test_what_is_sent_is_received(size: int) -> None:
    batch = _core.SharedPool().batch(16)
    filled(batch, size, 7)
    (ticket,) = sent(batch)
    received = np.frombuffer(_core.ReceivedMemory(*ticket), np.uint8)
    assert len(received) >= size
    assert (received[:size] == 7).all()


def test_leases_of_a_batch_do_not_overlap() -> None:
    batch = _core.SharedPool().batch(1000)
    sizes = [1, 64, 100, 0, 4096, 70_000, 1, 200_000]
    rooms = [batch.lease(size) for size in sizes]
    for value, (_, _, room) in enumerate(rooms):
        room[:] = value
    received = [np.frombuffer(_core.ReceivedMemory(*ticket), np.uint8) for ticket in sent(batch)]
    for value, (size, (piece, offset, _)) in enumerate(zip(sizes, rooms, strict=True)):
        assert offset % 64 == 0
        assert (received[piece][offset : offset + size] == value).all()


def test_a_ticket_is_good_once() -> None:
    batch = _core.SharedPool().batch(100)
    filled(batch, 100, 1)
    (ticket,) = sent(batch)
    first = _core.ReceivedMemory(*ticket)
    with pytest.raises(InvalidError, match="once"):
        _core.ReceivedMemory(*ticket)
    assert batch.send([0]) is None
    del first


def test_a_ticket_that_was_made_up_is_refused() -> None:
    batch = _core.SharedPool().batch(100)
    filled(batch, 100, 1)
    ((pid, fd, cookie, number, size),) = sent(batch)
    for wrong in [
        (pid, fd, cookie ^ 1, number, size),
        (pid, fd, cookie, number + 1, size),
        (pid, fd, cookie, 0, size),
    ]:
        with pytest.raises(InvalidError):
            _core.ReceivedMemory(*wrong)
    for larger in (1 << 30, 2**64 - 1, 2**64 - 4096):  # than the memory is
        with pytest.raises(StorageError):
            _core.ReceivedMemory(pid, fd, cookie, number, larger)
    with pytest.raises(StorageError, match="gone"):
        _core.ReceivedMemory(pid, 1 << 20, cookie, number, size)
    assert _core.ReceivedMemory(pid, fd, cookie, number, size) is not None  # none of these used it up


def test_memory_outlives_its_pool_and_batch() -> None:
    pool = _core.SharedPool()
    batch = pool.batch(100)
    piece, offset, room = batch.lease(100)
    del pool, batch
    room[:] = 3
    assert (piece, offset, int(room.sum())) == (0, 0, 300)


def test_what_the_receiver_let_go_of_is_used_again_and_what_it_holds_is_not() -> None:
    pool = _core.SharedPool()
    held = []
    for value in range(50):
        batch = pool.batch(1000)
        filled(batch, 1000, value)
        (ticket,) = sent(batch)
        del batch
        held.append((value, np.frombuffer(_core.ReceivedMemory(*ticket), np.uint8)))
        if len(held) > 4:
            held.pop(0)
        assert all((received[:1000] == expected).all() for expected, received in held)
    assert pool.fresh_pieces <= 6
    assert held[0][1].ctypes.data != held[1][1].ctypes.data


def test_a_child_receives_while_the_parent_goes_on() -> None:
    """The child answers by its exit status; it ends before Python's cleanup, as after any fork here."""
    pool = _core.SharedPool()
    for value in range(1, 6):
        batch = pool.batch(5000)
        filled(batch, 5000, value)
        (ticket,) = sent(batch)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                received = np.frombuffer(_core.ReceivedMemory(*ticket), np.uint8)
                status = 0 if (received[:5000] == value).all() else 2
                del received
                del batch, pool  # the parent's: left alone
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        del batch
    assert pool.fresh_pieces <= 2


def test_descriptors_come_back() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()  # what other tests left
    before = descriptors()
    pool = _core.SharedPool()
    batches = [pool.batch(100) for _ in range(40)]
    for batch in batches:
        filled(batch, 100, 1)
        _core.ReceivedMemory(*sent(batch)[0])
    assert descriptors() >= before + 40
    del batches, batch, pool
    assert descriptors() <= before
