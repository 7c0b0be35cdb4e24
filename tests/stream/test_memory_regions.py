"""Memory of blocks and batches: pieces do not overlap, and what is free goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastshard import _core

KIB, MIB = 1 << 10, 1 << 20
REGION = 32 * MIB
# Of malloc; of regions, at its ends too; of mappings of their own.
SIZES = st.one_of(
    st.integers(1, 2 * MIB),
    st.sampled_from([128 * KIB - 1, 128 * KIB, 2 * MIB, 2 * MIB + 1, 8 * MIB, 8 * MIB + 1, 20 * MIB]),
)
large_pieces = pytest.mark.unsanitized  # there all memory is malloc's


def piece(size: int) -> np.ndarray:
    return np.frombuffer(memoryview(_core.Memory(size)), np.uint8)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(SIZES, st.integers(0, 1 << 30)), max_size=60))
def test_pieces_keep_what_is_written(steps: list[tuple[int, int]]) -> None:
    """Taken and given back in any order; each has a mark at both ends and in the middle."""
    taken = _core.memory_taken()
    pieces: list[tuple[np.ndarray, int]] = []
    array: np.ndarray | None = None
    for number, (size, draw) in enumerate(steps):
        if pieces and draw % 3 == 0:
            array, mark = pieces.pop(draw % len(pieces))
            assert array[0] == array[-1] == array[len(array) // 2] == mark
        array, mark = piece(size), number % 251 + 1
        assert len(array) == size
        assert array.ctypes.data % 64 == 0
        array[0] = array[-1] = array[size // 2] = mark
        pieces.append((array, mark))
    assert _core.memory_taken() - taken == sum(len(array) for array, _ in pieces)
    for array, mark in pieces:
        assert array[0] == array[-1] == array[len(array) // 2] == mark
    array = None
    pieces.clear()
    assert _core.memory_taken() == taken


@large_pieces
def test_pieces_lie_close_together_and_their_places_are_used_again() -> None:
    before = _core.memory_mapped()
    pieces = [piece(MIB + 4096) for _ in range(100)]  # 1 MiB and 64 KiB each: 30 in a region
    mapped = _core.memory_mapped()
    assert mapped - before <= 4 * REGION
    for _ in range(5):
        del pieces[::2]
        pieces += [piece(MIB + 4096) for _ in range(50)]
    assert _core.memory_mapped() == mapped


@large_pieces
def test_regions_end_with_their_last_piece() -> None:
    before = _core.memory_mapped()
    pieces = [piece(4 * MIB) for _ in range(40)]
    assert _core.memory_mapped() >= before + 5 * REGION
    kept = pieces[0]
    del pieces
    assert _core.memory_mapped() <= before + 2 * REGION  # one that is in use, one for what comes
    del kept
    assert _core.memory_mapped() == before


RESIDENT = """
import sys
import numpy as np
from fastshard import _core

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["VmRSS"].split()[0]) << 10

def piece(size):
    array = np.frombuffer(memoryview(_core.Memory(size)), np.uint8)
    array[:] = 1
    return array

before = resident()
pieces = [piece(1 << 20) for _ in range(512)]
full = resident()
kept = pieces[::31]  # one of each region, and a few more
del pieces
some = resident()
del kept
print(full - before, some - before, resident() - before)
"""


@large_pieces
def test_pages_between_pieces_that_stay_go_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=True, timeout=120
    )
    full, some, none = map(int, done.stdout.split())
    assert full >= 512 * MIB
    assert (
        some <= 17 * 4 * MIB + 40 * MIB
    )  # at most two huge pages for each piece, and what stays for the next
    assert none <= 8 * MIB


@large_pieces
def test_a_child_lets_go_of_what_its_parent_had_taken() -> None:
    array = piece(3 * MIB)
    array[:] = 7
    child = os.fork()
    if child == 0:
        try:
            fresh = piece(3 * MIB)
            fresh[:] = 9
            good = bool((array == 7).all())
            del array
            again = piece(3 * MIB)
            again[:] = 5
            good = good and bool((fresh == 9).all())
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (array == 7).all()


@large_pieces  # whose malloc ends the process where others return null
def test_more_than_there_can_be_is_refused() -> None:
    with pytest.raises(MemoryError):
        _core.Memory(1 << 62)
