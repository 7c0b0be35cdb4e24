"""However an epoch is divided among ranks and workers, and wherever it is resumed, it is the same epoch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual import Loader, Tables, being, dataset, delivered, fork, global_batches, ids, ranks

from fastshard.errors import InvalidError

PLAIN = st.lists(st.integers(1, 12), min_size=1, max_size=6).map(lambda rows: Tables(tuple(rows)))
# Views: of some shards no sample, of some all.
VIEWS = (
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6)
    .filter(lambda shards: any(rows for rows, _ in shards))
    .map(lambda shards: Tables(tuple(r for r, _ in shards), of=tuple(r + more for r, more in shards)))
)
TABLES = st.one_of(PLAIN, VIEWS)
ORDERS = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(["none", "global", "block"]),
        "seed": st.integers(0, 5),
    }
).flatmap(
    lambda order: (
        st.just(order)
        if order["shuffle"] == "none"
        else st.sampled_from([None, 1, 2, 3, 8]).map(lambda lanes: order | {"lanes": lanes})
    )
)
TAILS = st.sampled_from(["pad", "drop", "exact"])
WORLDS = st.integers(1, 5)
SIZES = st.integers(1, 7)


def enough(tables: Tables, world: int, size: int, tail: str) -> bool:
    return tail != "drop" or sum(tables.rows) >= world * size


@settings(max_examples=300, deadline=None)
@given(TABLES, ORDERS, TAILS, WORLDS, SIZES, st.integers(0, 3))
def test_an_epoch_delivers_what_its_tail_says(
    tables: Tables, order: dict[str, Any], tail: str, world: int, size: int, epoch: int
) -> None:
    total = sum(tables.rows)
    data = ranks(tables, world, batch_size=size, batched=True, tail=tail, **order)
    if not enough(tables, world, size, tail):
        for each in data:
            with pytest.raises(InvalidError, match=f"{total} sample"):
                next(iter(each))
        return
    for each in data:
        each.set_epoch(epoch)
    steps = list(global_batches([iter(each) for each in data]))
    lengths = [sum(len(step[rank]) for step in steps) for rank in range(world)]
    counts = [sum(1 for step in steps if step[rank]) for rank in range(world)]
    expected = total if tail != "drop" else total - total % (world * size)
    assert delivered(steps) == list(range(expected))
    assert (
        len({sample[0] for step in steps for batch in step for sample in batch if not sample[2]}) == expected
    )
    assert {sample[3] for step in steps for batch in step for sample in batch} == {epoch}
    if tail == "exact":
        assert max(lengths) - min(lengths) <= 1
        assert max(counts) - min(counts) <= 1
        assert sum(lengths) == total
    else:
        assert len(set(lengths)) == len(set(counts)) == 1
    if tail == "pad":
        assert lengths[0] == -(-total // world)
    assert [len(each) for each in data] == counts
    samples = ranks(tables, world, batch_size=size, tail=tail, **order)
    assert [len(each) for each in samples] == lengths


@settings(max_examples=200, deadline=None)
@given(TABLES, ORDERS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), TAILS)
def test_global_batches_do_not_depend_on_the_division(
    tables: Tables, order: dict[str, Any], world: int, size: int, factor: int, tail: str
) -> None:
    """world * factor ranks of size, and world ranks of size * factor, with the same samples at each step."""
    if not enough(tables, world * factor, size, tail):
        return
    many = ranks(tables, world * factor, batch_size=size, tail=tail, batched=True, **order)
    few = ranks(tables, world, batch_size=size * factor, tail=tail, batched=True, **order)
    steps = [list(global_batches([iter(each) for each in data])) for data in (many, few)]
    first, second = [[delivered([step]) for step in each] for each in steps]
    assert first == second


@settings(max_examples=200, deadline=None)
@given(
    TABLES,
    ORDERS,
    TAILS,
    st.integers(1, 3),
    SIZES,
    st.sampled_from([1, 2, 3, 4, 16]),
    st.booleans(),
    st.booleans(),
)
def test_the_sequence_does_not_depend_on_the_workers(
    tables: Tables,
    order: dict[str, Any],
    tail: str,
    world: int,
    size: int,
    workers: int,
    persistent: bool,
    batched: bool,
) -> None:
    if not enough(tables, world, size, tail):
        return
    for rank in range(world):
        options = {"batch_size": size, "tail": tail, "rank": rank, "world_size": world, **order}
        plain = Loader(dataset(tables, **options), size, 0)
        spread = Loader(
            dataset(tables, batched=batched, **options), None if batched else size, workers, persistent
        )
        for _ in range(3):
            assert list(spread.epoch()) == list(plain.epoch())


@settings(max_examples=100, deadline=None)
@given(TABLES, ORDERS, TAILS, WORLDS, SIZES, st.integers(1, 3), st.data())
def test_restoring_from_every_state_equals_the_uninterrupted_run(
    tables: Tables, order: dict[str, Any], tail: str, world: int, size: int, epoch: int, data: st.DataObject
) -> None:
    """After each step, under a division drawn anew, with the states of all ranks equal."""
    if not enough(tables, world, size, tail):
        return
    total = sum(tables.rows)
    running = ranks(tables, world, batch_size=size, batched=True, tail=tail, **order)
    for each in running:
        each.set_epoch(epoch)
    seen: list[int] = []
    new_world, new_size = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    new_tail = data.draw(st.sampled_from(["pad", "exact"]))
    for step in global_batches([iter(each) for each in running]):
        seen += delivered([step])
        states = [json.loads(json.dumps(each.state_dict())) for each in running]
        assert all(state == states[0] for state in states)
        fresh = ranks(tables, new_world, batch_size=new_size, batched=True, tail=new_tail, **order)
        for each in fresh:
            each.load_state_dict(states[0])
        rest = list(global_batches([iter(each) for each in fresh]))
        epochs = {sample[3] for step in rest for batch in step for sample in batch}
        if len(seen) == total or (tail == "drop" and total - len(seen) < world * size):
            assert epochs == {epoch + 1}
            assert delivered(rest) == list(range(total))
        else:
            assert epochs == {epoch}
            assert sorted(seen) + delivered(rest) == list(range(total))
            assert all(
                set(delivered([step])) <= set(range(len(seen) + k * new_world * new_size, total))
                for k, step in enumerate(rest)
            )
        following = list(global_batches([iter(each) for each in fresh]))
        assert {sample[3] for step in following for batch in step for sample in batch} == {max(epochs) + 1}
        assert delivered(following) == list(range(total))


@settings(max_examples=100, deadline=None)
@given(TABLES, ORDERS, st.integers(1, 4), SIZES, st.data())
def test_the_same_division_resumes_with_the_same_batches(
    tables: Tables, order: dict[str, Any], world: int, size: int, data: st.DataObject
) -> None:
    running = ranks(tables, world, batch_size=size, batched=True, **order)
    reference = ranks(tables, world, batch_size=size, batched=True, **order)
    whole = list(global_batches([iter(each) for each in reference]))
    stop = data.draw(st.integers(1, len(whole)))
    for step, _ in zip(global_batches([iter(each) for each in running]), range(stop), strict=False):
        state = running[0].state_dict()
        del step
    fresh = ranks(tables, world, batch_size=size, batched=True, **order)
    for each in fresh:
        each.load_state_dict(state)
    rest = list(global_batches([iter(each) for each in fresh]))
    if stop < len(whole):
        assert rest == whole[stop:]
    else:
        assert {sample[3] for step in rest for batch in step for sample in batch} == {1}


@settings(max_examples=100, deadline=None)
@given(TABLES, ORDERS, st.integers(1, 3), st.integers(1, 3), SIZES)
def test_replicas_get_the_same_batches(
    tables: Tables, order: dict[str, Any], groups: int, replication: int, size: int
) -> None:
    data = ranks(
        tables, groups * replication, batch_size=size, batched=True, replication=replication, **order
    )
    alone = ranks(tables, groups, batch_size=size, batched=True, **order)
    expected = [list(each) for each in alone]
    assert [list(each) for each in data] == [batches for batches in expected for _ in range(replication)]


@settings(max_examples=100, deadline=None)
@given(TABLES, ORDERS, SIZES, st.data())
def test_a_short_epoch_takes_the_first_positions(
    tables: Tables, order: dict[str, Any], size: int, data: st.DataObject
) -> None:
    total = sum(tables.rows)
    short = data.draw(st.integers(1, total))
    whole = [sample for batch in dataset(tables, batch_size=total, batched=True, **order) for sample in batch]
    each = dataset(tables, batch_size=size, batched=True, epoch_size=short, **order)
    assert len(each) == -(-short // size)
    got = [sample for batch in each for sample in batch]
    assert sorted(got, key=lambda sample: sample[1]) == sorted(whole, key=lambda sample: sample[1])[:short]


@settings(max_examples=100, deadline=None)
@given(TABLES, st.integers(1, 3), st.integers(0, 4))
def test_samples_one_by_one_are_dealt_to_the_ranks_in_turn(tables: Tables, world: int, workers: int) -> None:
    """Without batch_size, and without a shuffle: rank r gets positions r, r + W, ..."""
    total = sum(tables.rows)
    for rank in range(world):
        data = dataset(tables, rank=rank, world_size=world, tail="exact")
        found = [sample for batch in Loader(data, 1, workers).epoch() for sample in batch]
        assert ids(found) == list(range(rank, total, world))


def test_an_iteration_given_up_is_followed_by_the_next_epoch() -> None:
    data = dataset(Tables((7, 5)), batch_size=2, batched=True, shuffle="global")
    epochs = []
    for _ in range(3):
        for batch in data:
            epochs.append(batch[0][3])
            break
    assert epochs == [0, 1, 2]


@settings(max_examples=50, deadline=None)
@given(TABLES, ORDERS, SIZES, st.integers(1, 4), st.booleans(), st.data())
def test_workers_resume_each_in_its_place(
    tables: Tables, order: dict[str, Any], size: int, workers: int, batched: bool, data: st.DataObject
) -> None:
    """As torchdata's StatefulDataLoader does it: each worker saves and loads a state of its own."""

    def batches(worker: int, copy: Any) -> Any:
        return Loader(copy, None if batched else size, 0)._batches(iter(copy))

    options = {"batch_size": size, "batched": batched, **order}
    reference = Loader(dataset(tables, **options), None if batched else size, 0)
    whole = [list(reference.epoch()) for _ in range(2)]
    stop = data.draw(st.integers(0, len(whole[0])))
    first = dataset(tables, **options)
    states, copies, running = [], [fork(first) for _ in range(workers)], []
    for worker, copy in enumerate(copies):
        with being(worker, workers, 1):
            running.append(batches(worker, copy))
    for index in range(stop):
        assert next(running[index % workers]) == whole[0][index]
    for worker, copy in enumerate(copies):
        with being(worker, workers, 1):
            states.append(json.loads(json.dumps(copy.state_dict())))

    second = dataset(tables, **options)
    copies, running = [fork(second) for _ in range(workers)], []
    for worker, copy in enumerate(copies):
        with being(worker, workers, 2):
            copy.load_state_dict(states[worker])
            running.append(batches(worker, copy))
    for index in range(stop, len(whole[0])):
        assert next(running[index % workers]) == whole[0][index]
    assert [next(each, None) for each in running] == [None] * workers
    assert list(Loader(second, None if batched else size, workers).epoch()) == whole[1]
