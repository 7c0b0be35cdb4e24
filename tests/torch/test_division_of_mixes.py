"""A mix is divided and resumed as a data set is, and its epochs follow each other."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual import Tables, VirtualData, dataset, delivered, global_batches, ids, ranks

from fastshard.mixing import Mix

SOURCES = st.lists(
    st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 4)), min_size=1, max_size=3
)
ORDERS = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(["global", "block"]),
        "seed": st.integers(0, 5),
        "lanes": st.sampled_from([None, 1, 2, 5]),
        "epoch_size": st.sampled_from([None, 1, 13, 40]),
    }
)
WORLDS = st.integers(1, 4)
SIZES = st.integers(1, 6)
Source = tuple[list[int], int]


def mix(sources: list[Source]) -> Mix:
    parts = [VirtualData(Tables(tuple(rows))) for rows, _ in sources]
    return Mix([str(j) for j in range(len(parts))], parts, [weight for _, weight in sources])  # type: ignore[arg-type]


def size_of(sources: list[Source], order: dict[str, Any]) -> int:
    return order["epoch_size"] or sum(sum(rows) for rows, _ in sources)


@settings(max_examples=100, deadline=None)
@given(SOURCES, ORDERS, WORLDS, SIZES, st.integers(1, 3), st.sampled_from(["pad", "exact"]))
def test_global_batches_do_not_depend_on_the_division(
    sources: list[Source], order: dict[str, Any], world: int, size: int, factor: int, tail: str
) -> None:
    many = ranks(mix(sources), world * factor, batch_size=size, tail=tail, batched=True, **order)
    few = ranks(mix(sources), world, batch_size=size * factor, tail=tail, batched=True, **order)
    steps = [list(global_batches([iter(each) for each in data])) for data in (many, few)]
    first, second = [
        [
            sorted((sample[1], sample[0]) for batch in step for sample in batch if not sample[2])
            for step in each
        ]
        for each in steps
    ]
    assert first == second
    assert [position for step in first for position, _ in step] == list(range(size_of(sources, order)))


@settings(max_examples=60, deadline=None)
@given(SOURCES, ORDERS, WORLDS, SIZES, st.integers(0, 3), st.data())
def test_restoring_from_every_state_equals_the_uninterrupted_run(
    sources: list[Source], order: dict[str, Any], world: int, size: int, epoch: int, data: st.DataObject
) -> None:
    total = size_of(sources, order)
    whole = dataset(mix(sources), batch_size=total, batched=True, tail="exact", **order)
    whole.set_epoch(epoch)
    places = {position: place for batch in whole for place, position, _, _ in batch}
    running = ranks(mix(sources), world, batch_size=size, batched=True, **order)
    for each in running:
        each.set_epoch(epoch)
    seen: list[int] = []
    new_world, new_size = data.draw(WORLDS), data.draw(SIZES)
    for step in global_batches([iter(each) for each in running]):
        seen += delivered([step])
        state = json.loads(json.dumps(running[0].state_dict()))
        fresh = ranks(mix(sources), new_world, batch_size=new_size, batched=True, tail="exact", **order)
        for each in fresh:
            each.load_state_dict(state)
        rest = [
            sample for step in global_batches([iter(each) for each in fresh]) for b in step for sample in b
        ]
        if len(seen) < total:
            assert sorted(seen + [position for _, position, _, _ in rest]) == list(range(total))
            assert all(places[position] == place for place, position, _, _ in rest)


@settings(max_examples=60, deadline=None)
@given(SOURCES, ORDERS, st.integers(1, 6))
def test_every_sample_of_a_source_comes_equally_often(
    sources: list[Source], order: dict[str, Any], epochs: int
) -> None:
    data = dataset(mix(sources), batch_size=7, batched=True, tail="exact", **order)
    counts = Counter(place for _ in range(epochs) for batch in data for place in ids(batch))
    first = 0
    for rows, _ in sources:
        of_source = [counts[place] for place in range(first, first + sum(rows))]
        assert max(of_source) - min(of_source) <= 1
        first += sum(rows)
