"""Batches: what each rank gets at each step, whatever the world, as docs/order.md says."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import columns, regular, shard_tables, total

from fastshard import _core
from fastshard.errors import InvalidError, OutOfRangeError

TAILS = ["pad", "drop", "exact"]


def partition(**arguments):
    return _core.Partition(**arguments)


def batches_of(part: _core.Partition) -> list[tuple[list[int], list[bool]]]:
    """All batches of a rank as (positions, marks)."""
    result = []
    for k in range(part.num_batches):
        positions, is_repeat = part.batch(k)
        marks = [False] * len(positions) if is_repeat is None else is_repeat.tolist()
        assert is_repeat is None or is_repeat.any()
        result.append((positions.tolist(), marks))
    return result


def run(world_size: int, replication: int = 1, **arguments) -> list[list[tuple[list[int], list[bool]]]]:
    """What each rank of a run gets."""
    return [
        batches_of(partition(world_size=world_size, rank=rank, replication=replication, **arguments))
        for rank in range(world_size)
    ]


def global_batch(ranks, k: int, *, repeats: bool = False) -> list[int]:
    """The positions of step k on all ranks, sorted."""
    return sorted(
        p
        for batches in ranks
        if k < len(batches)
        for p, mark in zip(*batches[k], strict=True)
        if repeats or not mark
    )


@st.composite
def settings_of_a_run(draw):
    groups = draw(st.integers(1, 9))
    replication = draw(st.integers(1, 3))
    size = draw(st.integers(1, 200))
    return {
        "size": size,
        "start": draw(st.integers(0, size)),
        "lanes": draw(st.one_of(st.sampled_from([1, 2, 4, 8, 64]), st.integers(1, 250))),
        "batch_size": draw(st.integers(1, 12)),
        "world_size": groups * replication,
        "replication": replication,
        "tail": draw(st.sampled_from(TAILS)),
    }


def needed(run_settings) -> int:
    groups = run_settings["world_size"] // run_settings["replication"]
    return groups * run_settings["batch_size"] if run_settings["tail"] == "drop" else 1


@pytest.mark.parametrize(
    ("tail", "sizes"),
    [
        ("pad", [(15, 5)] * 7),
        ("drop", [(12, 4)] * 7),
        ("exact", [(15, 5)] * 2 + [(14, 5)] * 5),
    ],
)
def test_one_hundred_samples_on_seven_ranks(tail, sizes):
    parts = [partition(size=100, batch_size=3, world_size=7, rank=rank, tail=tail) for rank in range(7)]
    assert [(part.num_samples, part.num_batches) for part in parts] == sizes
    assert [part.num_steps for part in parts] == [max(batches for _, batches in sizes)] * 7
    assert [part.num_dropped for part in parts] == [16 if tail == "drop" else 0] * 7
    assert sum(part.num_repeats for part in parts) == (5 if tail == "pad" else 0)


@pytest.mark.parametrize(("tail", "sizes"), [("exact", [3, 3, 2, 2]), ("pad", [3, 3, 3, 3])])
def test_ten_samples_on_four_ranks(tail, sizes):
    ranks = run(4, size=10, batch_size=3, tail=tail)
    assert [sum(len(positions) for positions, _ in batches) for batches in ranks] == sizes
    assert global_batch(ranks, 0) == list(range(10))


@settings(max_examples=300)
@given(run_settings=settings_of_a_run())
def test_equals_the_reference(run_settings):
    if run_settings["size"] < needed(run_settings):
        return
    replication = run_settings["replication"]
    expected = reference.groups_batches(
        run_settings["size"],
        run_settings["start"],
        run_settings["lanes"],
        run_settings["batch_size"],
        run_settings["world_size"] // replication,
        run_settings["tail"],
    )
    for rank, batches in enumerate(run(**run_settings)):
        assert batches == [(list(b.positions), list(b.is_repeat)) for b in expected[rank // replication]]


@settings(max_examples=300)
@given(run_settings=settings_of_a_run())
def test_every_position_comes_as_often_as_the_tail_says(run_settings):
    size, start, tail = run_settings["size"], run_settings["start"], run_settings["tail"]
    if size < needed(run_settings):
        return
    ranks = run(**run_settings)[:: run_settings["replication"]]
    groups = len(ranks)
    delivered = sorted(p for k in range(max(map(len, ranks))) for p in global_batch(ranks, k))
    repeats = [p for batches in ranks for pair in batches for p, mark in zip(*pair, strict=True) if mark]
    lengths = [sum(len(positions) for positions, _ in batches) for batches in ranks]
    assert all(positions for batches in ranks for positions, _ in batches)
    assert all(len(positions) <= run_settings["batch_size"] for batches in ranks for positions, _ in batches)
    if tail == "drop":
        whole = (size - start) // (groups * run_settings["batch_size"]) * groups * run_settings["batch_size"]
        assert delivered == list(range(start, start + whole))
        assert all(
            len(positions) == run_settings["batch_size"] for batches in ranks for positions, _ in batches
        )
    else:
        assert delivered == list(range(start, size))
    if tail == "pad":
        assert len(set(lengths)) == 1
        assert len({len(batches) for batches in ranks}) == 1
        assert len(repeats) == -(size - start) % groups  # no fewer make the ranks equal
        assert all(0 <= p < size for p in repeats)
    else:
        assert repeats == []
        assert max(lengths) - min(lengths) <= 1
        assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


@given(run_settings=settings_of_a_run())
def test_the_counts_tell_what_the_batches_hold(run_settings):
    if run_settings["size"] < needed(run_settings):
        return
    for rank in range(run_settings["world_size"]):
        part = partition(rank=rank, **run_settings)
        batches = batches_of(part)
        assert part.num_samples == sum(len(positions) for positions, _ in batches)
        assert part.num_repeats == sum(sum(marks) for _, marks in batches)
        assert part.num_batches <= part.num_steps <= part.num_batches + 1
        assert part.global_batch_size == run_settings["batch_size"] * (
            run_settings["world_size"] // run_settings["replication"]
        )
        with pytest.raises(
            OutOfRangeError, match=rf"batch {part.num_batches} is outside the {part.num_batches}"
        ):
            part.batch(part.num_batches)


@settings(max_examples=200)
@given(
    size=st.integers(1, 300),
    start=st.integers(0, 300),
    lanes=st.integers(1, 70),
    divisions=st.lists(
        st.sampled_from([(1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 2), (24, 1)]), min_size=2
    ),
    tail=st.sampled_from(TAILS),
)
def test_global_batches_do_not_depend_on_the_division(size, start, lanes, divisions, tail):
    start = min(start, size)
    if tail == "drop" and size < 24:
        return
    runs = [
        run(world_size, size=size, start=start, lanes=lanes, batch_size=batch_size, tail=tail)
        for world_size, batch_size in divisions
    ]
    steps = max(len(batches) for batches in runs[0])
    for ranks in runs:
        assert max(len(batches) for batches in ranks) == steps
        for k in range(steps):
            assert global_batch(ranks, k) == global_batch(runs[0], k)


@settings(max_examples=200)
@given(first=settings_of_a_run(), second=settings_of_a_run(), data=st.data())
def test_a_resumed_run_delivers_exactly_the_rest(first, second, data):
    size, lanes = first["size"], first["lanes"]
    second.update(size=size, lanes=lanes)
    if size < max(needed(first), needed(second)):
        return
    ranks = run(**first)[:: first["replication"]]
    steps = max(map(len, ranks))
    taken = data.draw(st.integers(0, steps))
    position = partition(rank=0, **first).position_after(taken)
    seen = [p for k in range(taken) for p in global_batch(ranks, k)]
    second["start"] = position
    rest = run(**second)[:: second["replication"]]
    seen += [p for k in range(max(map(len, rest))) for p in global_batch(rest, k)]
    end = size if second["tail"] != "drop" else partition(rank=0, **second).position_after(2**60)
    assert sorted(seen) == list(range(first["start"], end))
    if second["tail"] == "drop":
        assert size - end < second["batch_size"] * (second["world_size"] // second["replication"])


def test_a_run_that_resumes_with_the_same_division_goes_on_as_if_nothing_happened():
    whole = run(4, size=103, batch_size=3, lanes=8)
    for k in range(len(whole[0]) + 1):
        position = partition(size=103, batch_size=3, world_size=4, rank=0, lanes=8).position_after(k)
        rest = run(4, size=103, batch_size=3, lanes=8, start=position)
        assert [batches[k:] for batches in whole] == rest


def test_a_resume_keeps_its_global_batches_under_another_world():
    remaining = [list(range(6, 12)), list(range(12, 18)), list(range(18, 24))]
    for world_size, batch_size in [(2, 3), (1, 6), (3, 2), (6, 1)]:
        ranks = run(world_size, size=24, batch_size=batch_size, start=6)
        assert [global_batch(ranks, k) for k in range(3)] == remaining


def test_a_rank_keeps_to_its_lanes():
    parts = run(4, size=10_000, batch_size=16, lanes=64, tail="drop")
    for rank, batches in enumerate(parts):
        lanes = {p % 64 for positions, _ in batches for p in positions}
        assert lanes == set(range(16 * rank, 16 * rank + 16))


def test_consecutive_ranks_of_a_replica_get_the_same_batches():
    ranks = run(6, replication=3, size=100, batch_size=4, lanes=8)
    assert ranks[0] == ranks[1] == ranks[2]
    assert ranks[3] == ranks[4] == ranks[5]
    assert ranks[0] != ranks[3]
    assert ranks[::3] == run(2, size=100, batch_size=4, lanes=8)


def test_repeats_come_from_the_head_of_the_same_lane():
    # 100 = 4 * 21 + 16: parts of 3, 3, 2, 2, 2, 2, 2; positions 84 to 99 lie in lanes 4 to 7 and 0 to 3 of 8.
    ranks = run(7, size=100, batch_size=3, lanes=8)
    lanes = [[p % 8 for p in batches[-1][0]] for batches in ranks]
    assert [batches[-1][1] for batches in ranks] == [[False] * 3] * 2 + [[False, False, True]] * 5
    for batches, own in zip(ranks[2:], lanes[2:], strict=True):
        repeat = batches[-1][0][-1]
        assert own[-1] == own[-2]
        assert repeat < 16


def test_repeats_of_one_lane_are_different_samples():
    ranks = run(7, size=100, batch_size=3)
    assert [batches[-1][0][-1] for batches in ranks[2:]] == [0, 1, 2, 3, 4]


def test_fewer_samples_than_ranks():
    ranks = run(7, size=3, batch_size=4)
    assert [positions for ((positions, _),) in ranks] == [[0], [1], [2], [0], [1], [2], [0]]
    assert [marks for ((_, marks),) in ranks] == [[False]] * 3 + [[True]] * 4
    laned = run(7, size=3, batch_size=4, lanes=2)
    assert [positions for ((positions, _),) in laned] == [[0], [2], [1], [0], [2], [1], [0]]
    exact = run(7, size=3, batch_size=4, tail="exact")
    assert [len(batches) for batches in exact] == [1, 1, 1, 0, 0, 0, 0]


def test_what_is_left_of_an_epoch_may_hold_no_batch():
    for tail, batches in [("pad", 0), ("exact", 0), ("drop", 0)]:
        part = partition(size=100, start=100, batch_size=3, world_size=7, rank=6, tail=tail)
        assert (part.num_batches, part.num_samples, part.num_steps, part.position_after(5)) == (
            batches,
            0,
            0,
            100,
        )
    part = partition(size=100, start=90, batch_size=3, world_size=7, rank=6, tail="drop")
    assert (part.num_batches, part.num_dropped, part.position_after(1)) == (0, 10, 90)


@pytest.mark.parametrize("size", [2**40, 2**53 + 1, 2**62])
def test_huge_epochs_are_divided_in_constant_time(size):
    part = partition(size=size, start=size // 3, batch_size=1000, world_size=100_000, rank=77_777, lanes=64)
    k = part.num_batches - 2
    positions, is_repeat = part.batch(k)
    assert is_repeat is None
    begin = size // 3 + k * 10**8
    assert part.position_after(k) == begin
    assert begin <= int(positions.min()) <= int(positions.max()) < begin + 10**8
    assert (np.diff((positions % 64).astype(np.int64)) >= 0).all()
    last, _ = part.batch(k + 1)
    assert int(last.max()) < size


class TestErrors:
    def test_a_batch_larger_than_the_data_set(self):
        with pytest.raises(InvalidError, match="100 samples make no batch of 101"):
            partition(size=100, batch_size=101, tail="drop")
        with pytest.raises(InvalidError, match="1 sample makes no batch of 2"):
            partition(size=1, batch_size=2, tail="drop")

    def test_a_global_batch_larger_than_the_data_set_on_every_rank(self):
        for rank in range(4):
            with pytest.raises(InvalidError, match="with 4 ranks x 30, 120 are needed"):
                partition(size=100, batch_size=30, world_size=4, rank=rank, tail="drop")
        with pytest.raises(
            InvalidError, match=r"with 2 ranks x 60, 120 are needed \(every 3 ranks count as one"
        ):
            partition(size=100, batch_size=60, world_size=6, replication=3, tail="drop")

    @pytest.mark.parametrize("tail", TAILS)
    def test_no_samples(self, tail):
        with pytest.raises(InvalidError, match="0 samples make no batch"):
            partition(size=0, batch_size=1, tail=tail)

    def test_numbers_that_do_not_fit(self):
        with pytest.raises(InvalidError, match="multiple of replication, got world_size 4 and replication 3"):
            partition(size=10, batch_size=1, world_size=4, replication=3)
        with pytest.raises(InvalidError, match="rank must be below world_size, got rank 4 of 4"):
            partition(size=10, batch_size=1, world_size=4, rank=4)
        for name in ("batch_size", "world_size", "replication", "lanes"):
            with pytest.raises(InvalidError, match=f"{name} must be at least 1, got 0"):
                partition(**{"size": 10, "batch_size": 1, name: 0})
        with pytest.raises(InvalidError, match="lanes must be at most 65536, got 65537"):
            partition(size=10, batch_size=1, lanes=65_537)
        with pytest.raises(InvalidError, match="cannot start at position 11 of an epoch of 10 samples"):
            partition(size=10, start=11, batch_size=1)
        with pytest.raises(InvalidError, match=r"at most 2\^62 samples"):
            partition(size=10, batch_size=2**62, world_size=2)
        with pytest.raises(InvalidError, match=r"at most 2\^62 samples, got 4611686018427387905"):
            partition(size=2**62 + 1, batch_size=1)
        with pytest.raises(InvalidError, match='tail must be "pad", "drop" or "exact", got "wrap"'):
            partition(size=10, batch_size=1, tail="wrap")


@settings(max_examples=200)
@given(run_settings=settings_of_a_run(), num_workers=st.integers(1, 17))
def test_workers_in_turn_give_the_batches_in_order(run_settings, num_workers):
    if run_settings["size"] < needed(run_settings):
        return
    part = partition(rank=0, **run_settings)
    workers = [_core.Cursor(part, worker=w, num_workers=num_workers) for w in range(num_workers)]
    given = []
    for turn in range(part.num_batches):
        cursor = workers[turn % num_workers]
        assert cursor.batch == turn
        positions, is_repeat = next(cursor)
        given.append(
            (positions.tolist(), [False] * len(positions) if is_repeat is None else is_repeat.tolist())
        )
    assert given == batches_of(part)
    assert all(next(cursor, None) is None for cursor in workers)


def test_a_cursor_needs_a_worker_among_the_workers():
    with pytest.raises(InvalidError, match="worker must be below num_workers, got worker 2 of 2"):
        _core.Cursor(partition(size=10, batch_size=1), worker=2, num_workers=2)


@settings(max_examples=200)
@given(
    shards=shard_tables(),
    kind=st.sampled_from(["none", "global", "block"]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_every_sample_of_an_epoch_once_over_all_ranks_and_a_restart(shards, kind, seed, epoch, data):
    size = total(shards)
    if size == 0:
        return
    lanes = 1 if kind == "none" else data.draw(st.integers(1, 20))
    order = _core.EpochOrder(
        kind=kind,
        size=size,
        seed=seed,
        epoch=epoch,
        lanes=lanes,
        window=data.draw(st.integers(1, 500)),
        unit_blocks=data.draw(st.integers(1, 3)),
        **columns(shards),
    )
    epoch_size = data.draw(st.integers(1, size))
    whole = order.ids(np.arange(epoch_size, dtype=np.uint64))
    shape = {"size": epoch_size, "lanes": lanes, "tail": "exact"}
    first = {"world_size": data.draw(st.integers(1, 5)), "batch_size": data.draw(st.integers(1, 9)), **shape}
    second = {"world_size": data.draw(st.integers(1, 5)), "batch_size": data.draw(st.integers(1, 9)), **shape}
    ranks = run(**first)
    taken = data.draw(st.integers(0, max(map(len, ranks))))
    positions = [p for k in range(taken) for p in global_batch(ranks, k)]
    rest = run(start=partition(**first).position_after(taken), **second)
    positions += [p for k in range(max(map(len, rest))) for p in global_batch(rest, k)]
    ids = order.ids(np.array(positions, dtype=np.uint64))
    assert sorted(ids.tolist()) == sorted(whole.tolist())
    assert len(np.unique(ids)) == epoch_size


def test_a_batch_smaller_than_the_lanes_sees_more_than_one_corner_of_the_data():
    shards = [regular(16_000, 100)] * 4  # were the data sorted by class: four classes
    order = _core.EpochOrder(kind="block", size=64_000, seed=1, window=6400, unit_blocks=1, **columns(shards))
    part = partition(size=64_000, batch_size=16, lanes=order.lanes, tail="drop")
    assert order.lanes == 64
    classes = [order.ids(part.batch(k)[0]) // 16_000 for k in range(0, part.num_batches, 7)]
    assert min(len(np.unique(batch)) for batch in classes) >= 2
    same = np.mean([np.mean(batch[:, None] == batch[None, :]) for batch in classes])
    assert same == pytest.approx(1 / 16 + 15 / 16 / 4, abs=0.02)  # as in an even shuffle
