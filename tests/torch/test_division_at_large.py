"""All that decides an epoch, drawn together: data, views, orders, ends, replicas, short epochs, starts, divisions."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_division import ORDERS, TABLES, TAILS
from virtual import Loader, Tables, dataset

Sample = tuple[int, int, bool, int]


@dataclass(frozen=True)
class Division:
    """How a run is divided: so many groups of `replication` ranks, each with so many workers."""

    groups: int
    replication: int
    size: int
    tail: str
    workers: int

    @property
    def global_batch(self) -> int:
        return self.groups * self.size

    def end(self, start: int, total: int) -> int:
        """The position at which what it delivers from `start` on ends."""
        return total if self.tail != "drop" else total - (total - start) % self.global_batch


DIVISIONS = st.builds(
    Division, st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), TAILS, st.sampled_from([0, 1, 2, 3])
)


def run(tables: Tables, order: dict[str, Any], division: Division, state: Any) -> list[list[list[Sample]]]:
    """One epoch from a state: by step the batch of each group, empty where it has none."""
    of_groups = []
    for group in range(division.groups):
        replicas = []
        for replica in range(division.replication):
            data = dataset(
                tables,
                rank=group * division.replication + replica,
                world_size=division.groups * division.replication,
                replication=division.replication,
                batch_size=division.size,
                batched=True,
                tail=division.tail,
                **order,
            )
            data.load_state_dict(state)
            replicas.append(list(Loader(data, None, division.workers).epoch()))
        assert all(replica == replicas[0] for replica in replicas)
        of_groups.append(replicas[0])
    return [list(step) for step in itertools.zip_longest(*of_groups, fillvalue=[])]


def check(
    steps: list[list[list[Sample]]],
    division: Division,
    positions: range,
    places: dict[int, int],
    epoch: int,
) -> None:
    """The steps deliver exactly these positions, in global batches of the right size, at the right places."""
    size = division.global_batch
    assert len(steps) == -(-len(positions) // size)
    for k, step in enumerate(steps):
        samples = [sample for batch in step for sample in batch]
        wanted = positions[k * size : (k + 1) * size]
        assert sorted(position for _, position, repeat, _ in samples if not repeat) == list(wanted)
        assert all(places[position] == place for place, position, _, _ in samples)
        assert {number for _, _, _, number in samples} == {epoch}
        lengths = [len(batch) for batch in step]
        assert max(lengths) - min(lengths) <= (division.tail == "exact")
        assert sum(repeat for _, _, repeat, _ in samples) == (
            -len(wanted) % division.groups if division.tail == "pad" else 0
        )


@settings(max_examples=120, deadline=None)
@given(TABLES, ORDERS, DIVISIONS, DIVISIONS, st.integers(0, 3), st.data())
def test_an_epoch_however_it_is_begun_divided_and_resumed(
    tables: Tables, order: dict[str, Any], first: Division, second: Division, epoch: int, data: st.DataObject
) -> None:
    rows = sum(tables.rows)
    epoch_size = data.draw(st.none() | st.integers(1, rows), "epoch_size")
    total = epoch_size or rows
    order = order | {"epoch_size": epoch_size}
    whole = dataset(tables, batch_size=total, batched=True, rank=0, world_size=1, **order)
    whole.set_epoch(epoch)
    places = {position: place for batch in whole for place, position, _, _ in batch}
    assert sorted(places) == list(range(total))
    assert len(set(places.values())) == total

    start = data.draw(st.integers(0, total - 1), "start")
    whole.set_epoch(epoch)
    state = whole.state_dict(num_samples=start)
    assert (state["epoch"], state["position"]) == (epoch, start)
    end = first.end(start, total)
    if end == start or (total < first.global_batch and first.tail == "drop"):
        return  # nothing is left, or a division that yields nothing at all
    steps = run(tables, order, first, state)
    check(steps, first, range(start, end), places, epoch)

    taken = data.draw(st.integers(1, len(steps)), "steps")
    stopped = dataset(
        tables,
        rank=first.replication * (first.groups - 1),
        world_size=first.groups * first.replication,
        replication=first.replication,
        batch_size=first.size,
        batched=True,
        tail=first.tail,
        **order,
    )
    stopped.load_state_dict(state)
    iterator = iter(stopped)
    for _ in range(taken):
        next(iterator, None)
    resumed = json.loads(json.dumps(stopped.state_dict()))
    position = min(start + taken * first.global_batch, total)
    if first.tail == "exact" and not steps[taken - 1][-1]:
        return  # this rank has no last batch, and does not know that others had
    if position == total or (first.tail == "drop" and total - position < first.global_batch):
        assert (resumed["epoch"], resumed["position"]) == (epoch + 1, 0)
        return
    assert (resumed["epoch"], resumed["position"]) == (epoch, position)
    end = second.end(position, total)
    if end == position or (total < second.global_batch and second.tail == "drop"):
        return
    check(run(tables, order, second, resumed), second, range(position, end), places, epoch)
