"""The division of an epoch among ranks, on the numbers of the documentation."""

import pytest

from fastshard import _core


def sizes(tail: str) -> list[tuple[int, int]]:
    parts = [_core.Partition(size=100, batch_size=3, world_size=7, rank=rank, tail=tail) for rank in range(7)]
    return [(part.num_samples, part.num_batches) for part in parts]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("pad", [(15, 5)] * 7),
        ("drop", [(12, 4)] * 7),
        ("exact", [(15, 5)] * 2 + [(14, 5)] * 5),
    ],
)
def test_one_hundred_samples_on_seven_ranks(tail, expected):
    assert sizes(tail) == expected
