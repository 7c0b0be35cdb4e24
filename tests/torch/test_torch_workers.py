"""A stock DataLoader whose workers alone see the data set, however they are started: epochs, set_epoch, states."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import fastshard as fs
import fastshard.torch
from fastshard.errors import StateError

Make = Callable[..., str]
SIZE = 4
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def epochs(path: str, count: int) -> list[list[list[int]]]:
    data = fs.ShardDataset(path, batch_size=SIZE, batched=True, shuffle="global")
    return [ids(data) for _ in range(count)]


@pytest.mark.parametrize(
    ("method", "persistent"), [("fork", False), ("fork", True), ("spawn", True), ("forkserver", True)]
)
@pytest.mark.parametrize("batched", [False, True])
def test_workers_follow_the_main_process(make: Make, method: str, persistent: bool, batched: bool) -> None:
    if method != "fork" and batched != (method == "spawn"):
        return  # each start method is slow: one form is enough
    path = make([9, 8, 6])
    expected = epochs(path, 9)
    data = fs.ShardDataset(path, batch_size=SIZE, batched=batched, shuffle="global")
    loader = DataLoader(
        data,
        batch_size=None if batched else SIZE,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=method,
    )
    assert [ids(loader) for _ in range(2)] == expected[:2]
    assert next(iter(loader))["id"].tolist() == expected[2][0]  # given up
    assert ids(loader) == expected[3]
    data.set_epoch(7)
    assert [ids(loader) for _ in range(2)] == expected[7:]
    state = fs.ShardDataset(path, batch_size=SIZE, shuffle="global").state_dict(2 * SIZE)
    data.load_state_dict(state)
    assert data.state_dict() == state
    assert [ids(loader) for _ in range(2)] == [expected[0][2:], expected[1]]
    data.load_state_dict(state)
    data.set_epoch(0)  # as trainers do that count epochs themselves
    assert ids(loader) == expected[0][2:]
    data.load_state_dict(state)
    data.set_epoch(1)
    assert ids(loader) == expected[1]


def test_seeding_torch_before_each_epoch_does_not_repeat_the_first(make: Make) -> None:
    path = make([9, 8, 6])
    loader = DataLoader(
        fs.ShardDataset(path, batch_size=SIZE, shuffle="global"), batch_size=SIZE, num_workers=2
    )
    found = []
    for _ in range(3):
        torch.manual_seed(0)
        found.append(ids(loader))
    assert found == epochs(path, 3)


def test_loaders_with_equal_seeds_at_the_same_time_are_two_epochs(make: Make) -> None:
    path = make([9, 8, 6])
    data = fs.ShardDataset(path, batch_size=SIZE, shuffle="global")
    loaders = [
        DataLoader(data, batch_size=SIZE, num_workers=2, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    pairs = list(zip(*loaders, strict=True))
    found = [ids(batches) for batches in zip(*pairs, strict=True)]
    assert sorted(found) == sorted(epochs(path, 2))


def test_two_data_sets_count_apart(make: Make) -> None:
    path = make([9, 8, 6])
    train = fs.ShardDataset(path, batch_size=SIZE, shuffle="global")
    other = fs.ShardDataset(path, batch_size=SIZE, shuffle="global")
    expected = epochs(path, 2)
    loader = DataLoader(train, batch_size=SIZE, num_workers=1)
    assert ids(loader) == expected[0]
    assert ids(DataLoader(other, batch_size=SIZE, num_workers=1)) == expected[0]
    assert ids(loader) == expected[1]


class Wrapped(IterableDataset[Any]):
    """What users write around a data set."""

    def __init__(self, data: fs.ShardDataset) -> None:
        self.data = data

    def __iter__(self) -> Any:
        for sample in self.data:
            yield {"id": sample["id"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_inside_the_users_own_counts_too(make: Make, workers: int) -> None:
    path = make([9, 8, 6])
    loader = DataLoader(
        Wrapped(fs.ShardDataset(path, batch_size=SIZE, shuffle="global")),
        batch_size=SIZE,
        num_workers=workers,
    )
    assert [ids(loader) for _ in range(3)] == epochs(path, 3)


def set_epoch_five(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.set_epoch(5)  # type: ignore[attr-defined]


def test_set_epoch_within_workers_is_theirs(make: Make) -> None:
    path = make([9, 8, 6])
    expected = epochs(path, 7)
    data = fs.ShardDataset(path, batch_size=SIZE, shuffle="global")
    loader = DataLoader(data, batch_size=SIZE, num_workers=2, worker_init_fn=set_epoch_five)
    assert [ids(loader) for _ in range(2)] == [expected[5]] * 2
    assert ids(DataLoader(data, batch_size=SIZE)) == expected[6]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_replaced_before_workers_start_are_not_mixed(make: Make, method: str) -> None:
    """Spawned workers open the data set anew; forked ones have it from the main process."""
    path = make([8])
    loader = fastshard.torch.DataLoader(
        fs.ShardDataset(path), batch_size=SIZE, num_workers=1, multiprocessing_context=method
    )
    fs.write([{"id": 100 + i} for i in range(8)], path, mode="overwrite")
    if method == "fork":
        assert ids(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    else:
        with pytest.raises(StateError, match="replaced"):
            list(loader)


def test_an_abandoned_iterator_takes_no_batch_from_the_next_epoch(make: Make) -> None:
    path = make([40])
    expected = epochs(path, 4)
    data = fs.ShardDataset(path, batch_size=SIZE, shuffle="global")
    loader = DataLoader(data, batch_size=SIZE, num_workers=3, persistent_workers=True)
    for epoch in range(3):
        assert ids(itertools.islice(loader, epoch)) == expected[epoch][:epoch]
    assert ids(loader) == expected[3]
