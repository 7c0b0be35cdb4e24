"""What Composer asks of a DataLoader, held against `fastshard.torch.DataLoader`.

Composer pins an old torch, so it does not run here; its calls are these. It wants a torch DataLoader with an int
`batch_size`; it takes `len(dataloader.dataset)` as the samples of a rank, and the state of the data from the dataset:
`dataset.state_dict(num_samples, True)` with the samples that all ranks have trained on in this epoch. To resume, it
gives that state to `dataset.load_state_dict` before it iterates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch.utils.data

import fastshard as fs
import fastshard.torch


def loader(path: str, rank: int = 0, world_size: int = 1, workers: int = 0) -> fastshard.torch.DataLoader:
    dataset = fs.ShardDataset(path, shuffle=True, seed=3, rank=rank, world_size=world_size)
    return fastshard.torch.DataLoader(dataset, batch_size=4, num_workers=workers)


def test_it_is_a_loader_of_torch(data: Callable[..., str]) -> None:
    made = loader(data(26), rank=1, world_size=2)
    assert isinstance(made, torch.utils.data.DataLoader)
    assert type(made.batch_size) is int
    assert len(made.dataset) == 13  # type: ignore[arg-type]
    assert sum(len(batch["id"]) for batch in made) == 13
    assert len(made) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_state_by_samples(workers: int, data: Callable[..., str]) -> None:
    path = data(40)
    ranks = [loader(path, rank, 2, workers) for rank in range(2)]
    for made in ranks:
        list(made)  # an epoch before, so that the epoch is part of what is restored
    seen: list[int] = []
    for made in ranks:
        for batch in itertools.islice(made, 3):
            seen += batch["id"].tolist()
    states = [made.dataset.state_dict(len(seen), True) for made in ranks]
    assert states[0] == states[1]

    resumed = [loader(path, rank, 2, workers) for rank in range(2)]
    rest: list[int] = []
    for made in resumed:
        made.dataset.load_state_dict(states[0])
        for batch in made:
            rest += batch["id"].tolist()
    assert sorted(seen + rest) == list(range(40))
    uninterrupted = [loader(path, rank, 2) for rank in range(2)]
    for made in uninterrupted:
        made.dataset.set_epoch(1)
        ids = [id for batch in made for id in batch["id"].tolist()]
        which = uninterrupted.index(made)
        assert ids[12:] == rest[8 * which : 8 * which + 8]


def test_state_counts_from_the_beginning_of_the_epoch_after_a_resume(data: Callable[..., str]) -> None:
    path = data(40)
    made = loader(path)
    made.dataset.load_state_dict(made.dataset.state_dict(12, True))
    assert sum(len(batch["id"]) for batch in itertools.islice(made, 2)) == 8
    assert made.dataset.state_dict(20, True) == made.state_dict()
    assert made.dataset.state_dict(8, False) == made.state_dict()
