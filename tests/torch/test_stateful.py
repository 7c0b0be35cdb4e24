"""A `ShardDataset` in torchdata's StatefulDataLoader: each worker saves a state of its own, and goes on with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import fastshard as fs
from fastshard.errors import StateError

Make = Callable[..., str]
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
SIZE = 3


def loader(path: str, workers: int, batched: bool, **options: Any) -> Any:
    data = fs.ShardDataset(path, batch_size=SIZE, batched=batched, shuffle="global")
    return StatefulDataLoader(data, batch_size=None if batched else SIZE, num_workers=workers, **options)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def epochs(path: str, count: int) -> list[list[list[int]]]:
    data = fs.ShardDataset(path, batch_size=SIZE, batched=True, shuffle="global")
    return [ids(data) for _ in range(count)]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_it_resumes_in_the_middle_of_an_epoch(make: Make, workers: int, batched: bool) -> None:
    path = make([9, 11])
    expected = epochs(path, 3)
    for stop in (0, 1, 3, 6):
        first = loader(path, workers, batched)
        iterator = iter(first)
        assert ids(itertools.islice(iterator, stop)) == expected[0][:stop]
        state = first.state_dict()
        json.dumps(state)
        del iterator, first
        resumed = loader(path, workers, batched)
        resumed.load_state_dict(state)
        assert [ids(resumed) for _ in range(3)] == [expected[0][stop:], *expected[1:]]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_it_resumes_at_the_end_of_an_epoch(make: Make, workers: int, persistent: bool) -> None:
    if persistent and not workers:
        return
    path = make([9, 11])
    expected = epochs(path, 4)
    options = {"persistent_workers": True} if persistent else {}
    first = loader(path, workers, True, **options)
    assert [ids(first) for _ in range(2)] == expected[:2]
    state = first.state_dict()
    resumed = loader(path, workers, True, **options)
    resumed.load_state_dict(state)
    assert [ids(resumed) for _ in range(2)] == expected[2:]


def test_a_state_before_the_first_batch(make: Make) -> None:
    path = make([9])
    expected = epochs(path, 2)
    first = loader(path, 2, True)
    state = first.state_dict()
    assert ids(first) == expected[0]
    resumed = loader(path, 2, True)
    resumed.load_state_dict(state)
    assert [ids(resumed) for _ in range(2)] == expected


def test_another_division_is_refused(make: Make) -> None:
    path = make([20])
    first = loader(path, 2, True)
    next(iter(first))
    state = first.state_dict()
    other = StatefulDataLoader(
        fs.ShardDataset(path, batch_size=4, batched=True, shuffle="global"), batch_size=None, num_workers=2
    )
    other.load_state_dict(state)
    with pytest.raises(StateError, match=r"(?s)batch_size was 3 and is 4.*fastshard\.torch\.DataLoader"):
        next(iter(other))


def test_the_state_of_a_worker_is_refused_elsewhere(make: Make) -> None:
    path = make([20])
    first = loader(path, 2, True)
    next(iter(first))
    snapshot = first.state_dict()["_snapshot"]["_worker_snapshots"]
    state = next(iter(snapshot.values()))["dataset_state"]
    data = fs.ShardDataset(path, batch_size=SIZE, batched=True, shuffle="global")
    with pytest.raises(StateError, match="worker 0 of 2"):
        data.load_state_dict(state)
