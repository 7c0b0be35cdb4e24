"""`fastshard.torch.DataLoader`."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import fastshard as fs
import fastshard.torch
from fastshard.errors import InvalidError, StateError, StorageError
from fastshard.torch import DataLoader

Make = Callable[..., str]
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def reference(path: str, epochs: int, **options: Any) -> list[list[list[int]]]:
    data = fs.ShardDataset(path, batched=True, **options)
    return [ids(data) for _ in range(epochs)]


def test_it_is_a_torch_loader_that_tells_its_numbers(make: Make) -> None:
    loader = DataLoader(fs.ShardDataset(make([10]), rank=0, world_size=2), batch_size=2, num_workers=1)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert loader.batch_size == 2
    assert isinstance(loader.dataset, fs.ShardDataset)
    assert len(loader.dataset) == 5
    assert len(loader) == 3 == len(list(loader))


def test_it_yields_ready_batches_of_tensors(make: Make) -> None:
    batch = next(iter(DataLoader(fs.ShardDataset(make([10])), batch_size=4, num_workers=1)))
    assert isinstance(batch, fs.Batch)
    assert batch["x"].shape == (4, 4)
    assert batch["text"] == [f"sample {i}" for i in range(4)]
    assert batch.ids.tolist() == [0, 1, 2, 3]
    assert batch.epoch == 0


@pytest.mark.parametrize("workers", [0, 1, 3, 16])
@pytest.mark.parametrize("persistent", [False, True])
def test_any_number_of_workers_gives_the_same(make: Make, workers: int, persistent: bool) -> None:
    if persistent and not workers:
        return
    path = make([7, 9, 7])
    expected = reference(path, 3, batch_size=4, shuffle=True)
    loader = DataLoader(
        fs.ShardDataset(path, shuffle=True), batch_size=4, num_workers=workers, persistent_workers=persistent
    )
    assert [ids(loader) for _ in range(3)] == expected
    loader.set_epoch(1)
    assert ids(loader) == expected[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_counts_what_was_handed_out_not_what_workers_fetched(make: Make, workers: int) -> None:
    path = make([23])
    options: dict[str, Any] = {"batch_size": 2, "shuffle": "global"}
    whole, following = reference(path, 2, **options)
    for stop in range(len(whole) + 1):
        loader = DataLoader(fs.ShardDataset(path, shuffle="global"), batch_size=2, num_workers=workers)
        iterator = iter(loader)
        assert ids(itertools.islice(iterator, stop)) == whole[:stop]
        state = json.loads(json.dumps(loader.state_dict()))
        del iterator
        for other in (0, 3) if stop in (3, len(whole)) else (0,):
            resumed = DataLoader(fs.ShardDataset(path, shuffle="global"), batch_size=2, num_workers=other)
            resumed.load_state_dict(state)
            assert ids(resumed) == (whole[stop:] or following)
            if whole[stop:]:
                assert ids(resumed) == following


def test_states_of_loader_and_data_set_are_one_kind(make: Make) -> None:
    path = make([20])
    loader = DataLoader(fs.ShardDataset(path, shuffle="global"), batch_size=4, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    data = fs.ShardDataset(path, batch_size=5, batched=True, shuffle="global")
    data.load_state_dict(loader.state_dict())
    whole = list(itertools.chain.from_iterable(reference(path, 1, batch_size=20, shuffle="global")[0]))
    inner = iter(data)
    assert next(inner)["id"].tolist() == whole[4:9]
    loader.load_state_dict(data.state_dict())
    assert list(itertools.chain.from_iterable(ids(loader))) == whole[9:]


def test_the_data_set_it_was_made_of_counts_with_it(make: Make) -> None:
    path = make([12])
    data = fs.ShardDataset(path, shuffle="global")
    expected = reference(path, 5, batch_size=4, shuffle="global")
    loader = DataLoader(data, batch_size=4, num_workers=2)
    assert ids(loader) == expected[0]
    data.set_epoch(3)
    assert ids(loader) == expected[3]
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(StateError, match=r"fastshard\.torch\.DataLoader"):
        data.state_dict()
    assert loader.dataset.state_dict(8)["position"] == 8
    assert loader.dataset.state_dict(8)["epoch"] == 4
    data.load_state_dict(loader.state_dict())
    assert ids(loader) == expected[4][1:]


def test_two_iterators_at_once_are_two_epochs(make: Make) -> None:
    path = make([12])
    expected = reference(path, 2, batch_size=4, shuffle="global")
    loader = DataLoader(fs.ShardDataset(path, shuffle="global"), batch_size=4, num_workers=2)
    pairs = list(zip(loader, loader, strict=True))
    assert ids(first for first, _ in pairs) == expected[0]
    assert ids(second for _, second in pairs) == expected[1]


def test_persistent_workers_go_on_after_an_epoch_was_given_up(make: Make) -> None:
    path = make([40])
    expected = reference(path, 6, batch_size=4, shuffle="global")
    loader = DataLoader(
        fs.ShardDataset(path, shuffle="global"), batch_size=4, num_workers=3, persistent_workers=True
    )
    for epoch in range(5):
        assert next(iter(loader))["id"].tolist() == expected[epoch][0]
    assert ids(loader) == expected[5]


def collate(samples: list[dict[str, Any]]) -> tuple[int, list[int]]:
    return len(samples), [int(sample["id"]) for sample in samples]


def ten_times(sample: dict[str, Any]) -> dict[str, Any]:
    return {"id": sample["id"] * 10}


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_made_for_a_collate_function_or_a_transform(make: Make, workers: int) -> None:
    path = make([5])
    assert list(DataLoader(fs.ShardDataset(path), 2, num_workers=workers, collate_fn=collate)) == [
        (2, [0, 1]),
        (2, [2, 3]),
        (1, [4]),
    ]
    transformed = DataLoader(fs.ShardDataset(path, transform=ten_times), 3, num_workers=workers)
    assert ids(transformed) == [[0, 10, 20], [30, 40]]
    state = DataLoader(fs.ShardDataset(path), 2).dataset.state_dict(2)
    resumed = DataLoader(fs.ShardDataset(path), 2, num_workers=workers, collate_fn=collate)
    resumed.load_state_dict(state)
    assert list(resumed) == [(2, [2, 3]), (1, [4])]


def doubled(batch: fs.Batch) -> dict[str, Any]:
    return {"id": batch["id"] * 2}


def test_a_transform_of_batches_gets_batches(make: Make) -> None:
    data = fs.ShardDataset(make([5]), batch_size=3, batched=True, transform=doubled)
    loader = DataLoader(data, num_workers=1)
    assert ids(loader) == [[0, 2, 4], [6, 8]]
    assert len(loader.dataset) == 5


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shuffle": True}, "ShardDataset(path, shuffle=True)"),
        ({"sampler": [0]}, "sampler="),
        ({"batch_sampler": [[0]]}, "batch_sampler="),
        ({"in_order": False}, "in_order=False"),
        ({"batch_size": 3}, "batch_size=2; give it once"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"drop_last": True}, 'tail="exact"'),
        ({"collate_fn": collate}, "batched=True"),
    ],
)
def test_arguments_are_checked(make: Make, options: dict[str, Any], text: str) -> None:
    data = fs.ShardDataset(make([5]), batch_size=2, batched=True, tail="exact")
    with pytest.raises(InvalidError) as caught:
        DataLoader(data, **options)
    assert text in str(caught.value)


def test_other_data_sets_are_refused() -> None:
    with pytest.raises(InvalidError, match="for a ShardDataset, got list"):
        DataLoader([1, 2])  # type: ignore[arg-type]


def seeds(samples: list[dict[str, Any]]) -> tuple[int, float, float]:
    return int(torch.randint(1 << 40, ())), random.random(), float(np.random.rand())  # noqa: NPY002


def test_workers_are_seeded_by_torch_the_epoch_and_the_rank(make: Make) -> None:
    path = make([4])

    def drawn(seed: int, rank: int = 0) -> list[list[Any]]:
        torch.manual_seed(seed)
        data = fs.ShardDataset(path, rank=rank, world_size=2)
        loader = DataLoader(data, 1, num_workers=1, collate_fn=seeds)
        return [list(loader) for _ in range(2)]

    first, again, other, rank = drawn(1), drawn(1), drawn(2), drawn(1, 1)
    assert first == again
    numbers = [each[0][0] for each in (first[0], first[1], other[0], rank[0])]
    assert len(set(numbers)) == 4


def test_a_worker_init_function_runs(make: Make, tmp_path: Any) -> None:
    def init(worker: int) -> None:
        (tmp_path / str(worker)).touch()

    loader = DataLoader(fs.ShardDataset(make([4])), 2, num_workers=2)
    loader.worker_init_fn = init  # as trainers set it, after the loader was made
    list(loader)
    assert {name for name in os.listdir(tmp_path) if name.isdigit()} == {"0", "1"}


def fails(sample: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError(f"sample {int(sample['id'])}")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_transform_reaches_the_loop(make: Make, workers: int) -> None:
    loader = DataLoader(fs.ShardDataset(make([4]), transform=fails), 2, num_workers=workers)
    with pytest.raises(ZeroDivisionError, match="sample 0"):
        list(loader)


def test_batches_that_are_lost_on_their_way_are_missed(make: Make) -> None:
    """A worker's queue prints what it cannot send, and goes on."""
    loader = DataLoader(fs.ShardDataset(make([6])), 2)
    assert len(list(loader)) == 3
    progress = loader._progress
    assert progress is not None
    progress.batches = 0
    with pytest.raises(StorageError, match="of 3 batches of epoch 0, 2 arrived"):
        list(fastshard.torch._counted(progress, iter([1, 2])))


def test_it_leaves_nothing_open(make: Make) -> None:
    loader = DataLoader(fs.ShardDataset(make([40])), 2, num_workers=2)
    next(iter(loader))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        next(iter(loader))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
