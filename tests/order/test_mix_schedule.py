"""Mixing: sources take turns by integer weights, as docs/order.md says."""

from fractions import Fraction

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from fastshard import _core
from fastshard.errors import InvalidError

WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=8)


def sources_of(schedule: _core.MixSchedule, count: int, lanes: int = 1) -> list[int]:
    return schedule.locate(np.arange(count, dtype=np.uint64), lanes=lanes)[0].tolist()


def distance_from_share(slots: list[int], weights: list[int]) -> Fraction:
    """The largest difference, after any slot, between how often a source came and its share."""
    counts = [0] * len(weights)
    worst = Fraction(0)
    for t, source in enumerate(slots, start=1):
        counts[source] += 1
        worst = max(
            worst, *(abs(c - Fraction(t * w, sum(weights))) for c, w in zip(counts, weights, strict=True))
        )
    return worst


@given(weights=WEIGHTS)
def test_every_prefix_is_within_one_sample_of_its_share(weights):
    schedule = _core.MixSchedule(weights)
    slots = sources_of(schedule, schedule.period)
    assert schedule.period == sum(weights)
    assert [slots.count(j) for j in range(len(weights))] == weights
    assert slots == reference.schedule(weights)
    assert distance_from_share(slots, weights) < 1


@pytest.mark.parametrize(
    "weights",
    [
        [65_536],
        [1] * 65_536,
        [65_535, 1],
        [1, 65_535],
        [32_768, 32_767, 1],
        [1, 1, 1, 65_533],
        list(range(1, 362)),
    ],
    ids=["one", "many", "first", "second", "halves", "small first", "all different"],
)
def test_the_largest_periods_keep_their_shares(weights):
    schedule = _core.MixSchedule(weights)
    slots = np.array(sources_of(schedule, schedule.period))
    turns = np.arange(1, len(slots) + 1)
    for j in sorted({0, 1, len(weights) // 2, len(weights) - 1} & set(range(len(weights)))):
        ahead = np.cumsum(slots == j) * len(slots) - turns * weights[j]
        assert abs(ahead).max() < len(slots)


@given(weights=WEIGHTS, lanes=st.integers(1, 9), end=st.integers(0, 600))
def test_positions_and_counts_equal_the_reference(weights, lanes, end):
    schedule = _core.MixSchedule(weights)
    sources, positions = schedule.locate(np.arange(end, dtype=np.uint64), lanes=lanes)
    expected = reference.mixed_positions(weights, lanes, end)
    assert list(zip(sources.tolist(), positions.tolist(), strict=True)) == expected
    counts = schedule.count(end, lanes=lanes).tolist()
    assert counts == [sum(source == j for source, _ in expected) for j in range(len(weights))]
    for j, count in enumerate(counts):  # each source goes through its positions in order and misses none
        assert [p for source, p in expected if source == j] == list(range(count))


@given(weights=WEIGHTS, lanes=st.integers(1, 64))
def test_a_position_keeps_its_lane_in_its_source(weights, lanes):
    positions = np.arange(2000, dtype=np.uint64)
    _, own = _core.MixSchedule(weights).locate(positions, lanes=lanes)
    assert (own % lanes == positions % lanes).all()


def test_far_positions_need_no_walk():
    schedule = _core.MixSchedule([3, 2])
    position = 2**61
    sources, own = schedule.locate(np.array([position]), lanes=64)
    turn = position // 64
    expected = reference.schedule([3, 2])
    source = expected[turn % 5]
    assert sources.tolist() == [source]
    assert own.tolist() == [
        (turn // 5 * [3, 2][source] + expected[: turn % 5].count(source)) * 64 + position % 64
    ]
    assert schedule.num_sources == 2


def test_weights_that_make_no_schedule_are_refused():
    with pytest.raises(InvalidError, match="at least one source"):
        _core.MixSchedule([])
    with pytest.raises(InvalidError, match="weights must be at least 1, got 0 for source 1"):
        _core.MixSchedule([1, 0])
    with pytest.raises(InvalidError, match="sum of the weights must be at most 65536"):
        _core.MixSchedule([65_536, 1])
    with pytest.raises(InvalidError, match="sum of the weights"):
        _core.MixSchedule([2**63, 2**63])
    with pytest.raises(InvalidError, match=r"weights must be from 0 to 2\^64 - 1, got -1"):
        _core.MixSchedule([-1])
    with pytest.raises(InvalidError, match="lanes must be from 1 to 65536, got 0"):
        _core.MixSchedule([1]).locate(np.array([0]), lanes=0)
