"""The order of an epoch: every kind and any lanes hold each sample once, as docs/order.md says."""

import os
import threading

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from reference import Shard
from shards import columns, regular, shard_tables, total

from fastshard import _core
from fastshard.errors import InvalidError, OutOfRangeError

WORDS = st.one_of(st.integers(0, 10), st.integers(0, 2**64 - 1))
LANES = st.one_of(st.none(), st.sampled_from([1, 2, 3, 4, 7, 8, 64]), st.integers(1, 200))


def all_ids(order: _core.EpochOrder) -> list[int]:
    return order.ids(np.arange(order.size, dtype=np.uint64)).tolist()


def block(shards, *, seed=0, epoch=0, lanes=None, window=1000, unit_blocks=1):
    return _core.EpochOrder(
        kind="block",
        size=total(shards),
        seed=seed,
        epoch=epoch,
        lanes=lanes,
        window=window,
        unit_blocks=unit_blocks,
        **columns(shards),
    )


def test_none_is_the_identity():
    order = _core.EpochOrder(kind="none", size=1000, seed=3, epoch=4)
    assert order.lanes == 1
    assert all_ids(order) == list(range(1000))
    assert _core.EpochOrder(kind="none", size=2**62).ids(np.array([2**62 - 1])).tolist() == [2**62 - 1]


@given(size=st.integers(0, 3000), seed=WORDS, epoch=WORDS)
def test_global_equals_the_reference(size, seed, epoch):
    order = _core.EpochOrder(kind="global", size=size, seed=seed, epoch=epoch)
    assert order.lanes == 1
    assert all_ids(order) == reference.global_order(size, seed, epoch)


@given(shards=shard_tables(), seed=WORDS, epoch=WORDS, lanes=st.integers(1, 200))
def test_global_with_lanes_equals_the_reference(shards, seed, epoch, lanes):
    order = _core.EpochOrder(
        kind="global",
        size=total(shards),
        seed=seed,
        epoch=epoch,
        lanes=lanes,
        shard_rows=columns(shards)["shard_rows"],
    )
    ids = all_ids(order)
    assert sorted(ids) == list(range(total(shards)))
    assert ids == reference.global_order(total(shards), seed, epoch, lanes, shards)


@given(
    shards=shard_tables(),
    seed=WORDS,
    epoch=WORDS,
    lanes=LANES,
    window=st.one_of(st.integers(1, 300), st.just(2**62)),
    unit_blocks=st.one_of(st.integers(1, 8), st.sampled_from([2**40, 2**63])),
)
def test_block_equals_the_reference(shards, seed, epoch, lanes, window, unit_blocks):
    order = block(shards, seed=seed, epoch=epoch, lanes=lanes, window=window, unit_blocks=unit_blocks)
    ids = all_ids(order)
    assert sorted(ids) == list(range(total(shards)))
    assert order.lanes == (lanes or reference.default_lanes(shards, unit_blocks))
    assert ids == reference.block_order(
        shards, seed, epoch, window=window, unit_blocks=unit_blocks, lanes=lanes
    )


@given(shards=shard_tables(), lanes=st.integers(1, 20), data=st.data())
def test_any_positions_in_any_order_have_the_ids_of_the_whole(shards, lanes, data):
    order = block(shards, seed=1, lanes=lanes, window=50)
    whole = all_ids(order)
    positions = data.draw(st.lists(st.integers(0, total(shards) - 1), max_size=50) if whole else st.just([]))
    assert order.ids(np.array(positions, dtype=np.uint64)).tolist() == [whole[p] for p in positions]


@pytest.mark.parametrize("kind", ["global", "block"])
def test_seeds_and_epochs_do_not_add_up(kind):
    shards = [regular(1000, 10)] * 4
    seen = {}
    for seed in range(6):
        for epoch in range(6):
            order = _core.EpochOrder(
                kind=kind, size=4000, seed=seed, epoch=epoch, window=500, unit_blocks=1, **columns(shards)
            )
            ids = tuple(all_ids(order))
            assert ids not in seen, (seed, epoch, seen[ids])
            seen[ids] = (seed, epoch)


@pytest.mark.parametrize("kind", ["global", "block"])
def test_a_lane_holds_the_same_samples_in_every_epoch(kind):
    shards = [regular(rows, 16) for rows in (700, 30, 1, 512, 300)]
    lanes = 8
    held = []
    for epoch in range(3):
        order = _core.EpochOrder(
            kind=kind,
            size=total(shards),
            seed=9,
            epoch=epoch,
            lanes=lanes,
            window=200,
            unit_blocks=1,
            **columns(shards),
        )
        ids = all_ids(order)
        held.append([frozenset(ids[lane::lanes]) for lane in range(lanes)])
    assert held[0] == held[1] == held[2]
    lengths = [len(lane) for lane in held[0]]
    assert max(lengths) - min(lengths) <= 1
    other = _core.EpochOrder(
        kind=kind, size=total(shards), seed=10, lanes=lanes, window=200, **columns(shards)
    )
    assert [frozenset(all_ids(other)[lane::lanes]) for lane in range(lanes)] != held[0]


def test_a_lane_holds_whole_shards_where_there_are_many():
    shards = [regular(100, 5)] * 64
    ids = all_ids(block(shards, lanes=8, seed=2))
    held = [{sample // 100 for sample in ids[lane::8]} for lane in range(8)]
    assert [len(lane) for lane in held] == [8] * 8
    assert sorted(held[0])[-1] - sorted(held[0])[0] > 8  # dealt, not neighbours


def test_each_lane_is_a_sample_of_the_whole_where_there_are_few_shards():
    shards = [regular(2000, 10)] * 4
    ids = all_ids(block(shards, lanes=16, seed=2))
    assert all(len({sample // 2000 for sample in ids[lane::16]}) >= 3 for lane in range(16))
    assert all(
        len({sample // 10 for sample in ids[lane::16]}) <= 51 for lane in range(16)
    )  # 50 units, one cut at most


def test_a_window_takes_whole_units_and_each_unit_once():
    shards = [regular(1000, 20)] * 4  # 200 units of 20 rows
    ids = all_ids(block(shards, lanes=1, window=400, seed=5))
    windows = [ids[start : start + 400] for start in range(0, 4000, 400)]
    for window in windows:
        units = {sample // 20 for sample in window}
        assert len(units) == 20
        assert len({sample // 1000 for sample in window}) > 1
        assert window != sorted(window)


def test_a_data_set_inside_one_window_is_shuffled_as_a_whole():
    shards = [regular(300, 10)]
    ids = np.array(all_ids(block(shards, lanes=1, window=300, seed=1)))
    assert len(np.unique(ids[:30] // 10)) > 15


@pytest.mark.parametrize(
    ("units", "lanes"),
    [
        (1, 1),
        (15, 1),
        (16, 2),
        (31, 2),
        (32, 4),
        (64, 8),
        (255, 16),
        (256, 32),
        (511, 32),
        (512, 64),
        (5000, 64),
    ],
)
def test_default_lanes_follow_the_number_of_units(units, lanes):
    shards = [regular(units * 3, 3)]
    assert block(shards).lanes == lanes
    assert _core.default_lanes(unit_blocks=1, **columns(shards)) == lanes
    assert _core.default_lanes(unit_blocks=2, **columns([regular(units * 6, 3)])) == lanes


def test_empty_data_sets_have_an_order():
    assert all_ids(block([])) == []
    assert all_ids(block([Shard(0, 0, 0), Shard(0, 0, 5)])) == []
    assert all_ids(_core.EpochOrder(kind="global", size=0)) == []
    assert _core.default_lanes(unit_blocks=1, **columns([])) == 1


def test_more_lanes_than_samples_leave_lanes_empty():
    assert sorted(all_ids(block([regular(3, 2)], lanes=64))) == [0, 1, 2]


@pytest.mark.skipif(
    os.environ.get("FASTSHARD_SANITIZER") == "tsan",
    reason="TSan does not see the interpreter lock and takes reference counts for races",
)
def test_threads_share_an_order():
    order = block([regular(50_000, 100)] * 3, seed=4, window=10_000)
    positions = np.random.default_rng(1).permutation(150_000).astype(np.uint64)
    expected = order.ids(positions)
    results = [None] * 8

    def read(i):
        results[i] = order.ids(positions)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert all((result == expected).all() for result in results)


def test_what_makes_no_order_is_refused():
    shards = [regular(10, 2)]
    with pytest.raises(InvalidError, match='kind must be "none", "global" or "block", got "random"'):
        _core.EpochOrder(kind="random", size=1)
    with pytest.raises(InvalidError, match=r"at most 2\^62 samples"):
        _core.EpochOrder(kind="global", size=2**62 + 1)
    with pytest.raises(InvalidError, match="without shuffling there is 1 lane, got lanes 2"):
        _core.EpochOrder(kind="none", size=10, lanes=2)
    with pytest.raises(InvalidError, match="lanes must be from 1 to 65536, got 0"):
        block(shards, lanes=0)
    with pytest.raises(InvalidError, match="lanes must be from 1 to 65536, got 65537"):
        block(shards, lanes=65_537)
    with pytest.raises(InvalidError, match="window must be at least 1"):
        block(shards, window=0)
    with pytest.raises(InvalidError, match="unit_blocks must be at least 1"):
        block(shards, unit_blocks=0)
    with pytest.raises(InvalidError, match=r"seed must be from 0 to 2\^64 - 1, got -5"):
        block(shards, seed=-5)
    with pytest.raises(InvalidError, match="epoch must be from 0"):
        block(shards, epoch=2**64)
    with pytest.raises(OutOfRangeError, match="position 10 is outside an order of 10 samples"):
        block(shards).ids(np.array([10]))


def test_shard_tables_that_contradict_themselves_are_refused():
    good = columns([regular(10, 2), regular(5, 2)])

    def order(**changes):
        arguments = {"kind": "block", "size": 15, "window": 4, "unit_blocks": 1, **good, **changes}
        return _core.EpochOrder(**arguments)

    order()
    with pytest.raises(InvalidError, match="the shards have 15 samples, but the order is of 14"):
        order(size=14)
    with pytest.raises(InvalidError, match="shard 1: rows must not be negative, got -1"):
        order(shard_rows=np.array([16, -1]))
    with pytest.raises(InvalidError, match=r"more than 2\^62 samples"):
        order(shard_rows=np.array([2**62, 2**62]))
    with pytest.raises(InvalidError, match="shard 0: 10 rows need at least 1 block"):
        order(shard_blocks=np.array([0, 3]))
    with pytest.raises(InvalidError, match="shard 1: 5 rows need"):
        order(shard_block_rows=np.array([2, -2]))
    with pytest.raises(InvalidError, match="differ in length: 2 rows, 0 blocks"):
        order(shard_blocks=None)
    with pytest.raises(InvalidError, match=r"8388608 units of 1 blocks, at most 2\^22 are allowed"):
        order(size=2**23, shard_rows=[2**23], shard_blocks=[2**23], shard_block_rows=[1])
    with pytest.raises(InvalidError, match="the shards have 0 samples, but the order is of 10"):
        _core.EpochOrder(kind="global", size=10, lanes=2)
    with pytest.raises(TypeError, match="shard_rows must be a one-dimensional array of integers"):
        order(shard_rows=np.array([10.0, 5.0]))
