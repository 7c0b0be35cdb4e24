"""The last batches of all ranks, as Accelerate joins them: repeats come last (docs/order.md, "Joined batches")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fastshard as fs
from fastshard._epochs import Start
from fastshard._plan import EpochPlan
from fastshard.distributed import Topology


def plans(path: str, batch: int, world: int, position: int, tail: str, *, joined: bool) -> list[EpochPlan]:
    source = fs.ShardDataset(path, batch_size=batch, shuffle=True, tail=tail, lanes=3)._source
    return [source.plan(Start(0, position), Topology(rank, world, joined=joined)) for rank in range(world)]


@pytest.mark.parametrize("position", [0, 8])
@pytest.mark.parametrize("tail", ["pad", "drop", "exact"])
@pytest.mark.parametrize("world", [1, 2, 3, 5, 8])
def test_repeats_come_last(world: int, tail: str, position: int, data: Callable[..., str]) -> None:
    for rows in (19, 31, 40):
        path = data(rows, f"data-{rows}")
        for batch in (1, 2, 4):
            if tail == "drop" and rows < world * batch:
                continue
            as_ever = plans(path, batch, world, position, tail, joined=False)
            joined = plans(path, batch, world, position, tail, joined=True)
            if tail == "exact" or not joined[0].num_batches:
                assert [plan.deals_last_anew for plan in joined] == [False] * world
                continue
            last = joined[0].num_batches - 1
            before = [plan.batch(last) for plan in as_ever]
            after = [plan.batch(last) for plan in joined]
            assert sorted(np.concatenate([part.positions for part in before])) == sorted(
                np.concatenate([part.positions for part in after])
            )
            repeat = np.concatenate(
                [
                    np.zeros(len(part.positions), np.bool_) if part.is_repeat is None else part.is_repeat
                    for part in after
                ]
            )
            remainder = joined[0].remainder
            assert remainder == (0 if not repeat.any() else np.count_nonzero(~repeat))
            assert not repeat[: remainder or None].any()
            assert {plan.remainder for plan in joined} == {remainder}
            for index in range(last):
                for one, other in zip(as_ever, joined, strict=True):
                    assert one.batch(index).positions.tolist() == other.batch(index).positions.tolist()


def test_replicas_are_left_alone(data: Callable[..., str]) -> None:
    source = fs.ShardDataset(data(7), batch_size=2, replication=2)._source
    plan = source.plan(Start(), Topology(0, 6, joined=True))
    assert plan.remainder == -1
    assert not plan.deals_last_anew
