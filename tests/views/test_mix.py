"""Data sets mixed by weights."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import fastshard as fs
from fastshard.errors import InvalidError, StateError
from fastshard.mixing import whole_weights


@pytest.fixture(scope="session")
def paths(make: Callable[..., str]) -> list[str]:
    """Data sets of 40, 7 and 150 samples; ids of the samples in steps of 1000."""
    return [make([25, 15]), make([7], first=1000), make([100, 50], first=2000)]


def mixed(paths: list[str], weights: list[int], **options: Any) -> fs.ShardDataset:
    samples = fs.mix(dict(zip("abc", paths, strict=False)), weights=weights, columns=["id"])
    return fs.ShardDataset(samples, batched=True, **options)


def by_position(dataset: fs.ShardDataset, epoch: int) -> list[tuple[int, int]]:
    """(source, id) at each position of an epoch."""
    dataset.set_epoch(epoch)
    found = [
        (int(position), int(source), int(id))
        for batch in dataset
        for position, source, id in zip(batch.positions, batch.source, batch.ids, strict=True)
    ]
    return [(source, id) for _, source, id in sorted(found)]


def shards_of(reference: ModuleType, path: str) -> list[Any]:
    core = fs.open(path).core
    columns = (core.shard_rows(), core.shard_blocks(), core.shard_block_rows())
    return [reference.Shard(*numbers) for numbers in zip(*(c.tolist() for c in columns), strict=True)]


@given(
    st.sampled_from(["none", "global", "block"]),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.sampled_from([1, 3, 8]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 7),
    st.sampled_from([None, 1, 50, 700]),
)
@settings(max_examples=40, deadline=None)
def test_samples_come_where_the_specification_says(
    paths: list[str],
    reference: ModuleType,
    kind: str,
    weights: list[int],
    lanes: int,
    seed: int,
    epoch: int,
    epoch_size: int | None,
) -> None:
    lanes = 1 if kind == "none" else lanes
    readers = [fs.open(path) for path in paths]
    sizes = [len(reader) for reader in readers]
    end = epoch_size or sum(sizes)
    positions = reference.mixed_positions(weights, lanes, end)
    counts = [sum(source == j for source, _ in positions) for j in range(3)]
    orders: dict[tuple[int, int], list[int]] = {}
    expected = []
    for j, q in positions:
        turn, place = divmod(epoch * counts[j] + q, sizes[j])
        if (j, turn) not in orders:
            own = reference.key_of(reference.SOURCE, seed, j)
            shards = shards_of(reference, paths[j])
            orders[j, turn] = {
                "none": lambda j=j: reference.none_order(sizes[j]),
                "global": lambda j=j, own=own, turn=turn, shards=shards: reference.global_order(
                    sizes[j], own, turn, lanes, shards
                ),
                "block": lambda j=j, own=own, turn=turn, shards=shards: reference.block_order(
                    shards, own, turn, window=readers[j].index.window, unit_blocks=1, lanes=lanes
                ),
            }[kind]()
        expected.append((j, orders[j, turn][place]))
    dataset = mixed(
        paths,
        weights,
        batch_size=16,
        shuffle=kind,
        lanes=lanes,
        seed=seed,
        epoch_size=epoch_size,
        tail="exact",
    )
    assert by_position(dataset, epoch) == expected


def test_every_prefix_has_each_source_by_its_share(paths: list[str]) -> None:
    weights = [5, 1, 2]
    found = by_position(mixed(paths, weights, batch_size=10, shuffle=True, lanes=1, epoch_size=800), 0)
    sources = np.array([source for source, _ in found])
    for j, weight in enumerate(weights):
        shares = np.arange(1, 801) * weight / 8
        assert np.abs(np.cumsum(sources == j) - shares).max() < 1


def test_sources_go_on_from_epoch_to_epoch(paths: list[str]) -> None:
    """Each sample of a source comes once before any comes again, over the borders of mixed epochs too."""
    dataset = mixed(paths, [1, 1, 2], batch_size=10, shuffle="global", epoch_size=60)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for epoch in range(12):
        for source, id in by_position(dataset, epoch):
            seen[source].append(id)
    for source, size in enumerate((40, 7, 150)):
        for first in range(0, len(seen[source]) - size, size):
            assert sorted(seen[source][first : first + size]) == list(range(size))
    assert len(seen[1]) == 12 * 15
    assert seen[1][:7] != seen[1][7:14]


def test_a_batch_says_where_samples_are_from(paths: list[str]) -> None:
    samples = fs.mix({"small": paths[1], "large": paths[2]}, weights={"large": 3, "small": 1}, columns=["id"])
    assert samples.sources == ("small", "large")
    assert len(samples) == 157
    assert repr(samples) == "Mix(small: 7 samples at 25.0%, large: 150 samples at 75.0%)"
    loader = fs.ShardLoader(
        samples, batch_size=8, shuffle=True, add={"from": "__source__", "where": "__id__"}
    )
    for batch in loader:
        assert batch.source.tolist() == [0 if id < 2000 else 1 for id in batch["id"].tolist()]
        assert batch.ids.tolist() == [id % 1000 for id in batch["id"].tolist()]
        assert batch["from"].tolist() == batch.source.tolist()
        assert batch["where"].tolist() == batch.ids.tolist()
    with pytest.raises(InvalidError, match=r"only the samples of fs\.mix have a source"):
        len(fs.ShardDataset(paths[0], batch_size=4, add={"from": "__source__"}))


@pytest.mark.parametrize("shuffle", ["none", "global", "block"])
def test_restoring_from_every_state_gives_the_rest(paths: list[str], shuffle: str) -> None:
    samples = fs.mix(
        [
            paths[0],
            fs.open(paths[2]).filter("label == 3"),
            f"{paths[1]}?select=:5",
        ],
        weights=[2, 1, 0.5],
        columns=["id"],
    )
    options = {"shuffle": shuffle, "seed": 3, "tail": "exact", "epoch_size": 90}

    def rest(world: int, state: dict[str, Any]) -> list[tuple[int, int]]:
        found = []
        for rank in range(world):
            loader = fs.ShardLoader(samples, batch_size=5, rank=rank, world_size=world, **options)
            loader.load_state_dict(json.loads(json.dumps(state)))
            for batch in loader:
                found += zip(batch.positions.tolist(), batch["id"].tolist(), strict=True)
        return sorted(found)

    whole = fs.ShardLoader(samples, batch_size=6, **options)
    everything, states = [], []
    for batch in whole:
        everything += zip(batch.positions.tolist(), batch["id"].tolist(), strict=True)
        states.append(whole.state_dict())
    everything.sort()
    assert [position for position, _ in everything] == list(range(90))
    for k, state in list(enumerate(states, 1))[:-1:4]:
        for world in (1, 2, 3):
            assert rest(world, state) == everything[6 * k :]
    assert states[0]["samples"]["mix"][2]["weight"] == 1


def test_a_state_of_another_mix_is_refused(paths: list[str]) -> None:
    def loader(weights: list[int]) -> fs.ShardLoader:
        return fs.ShardLoader(fs.mix(paths, weights=weights, columns=["id"]), batch_size=4, shuffle=True)

    first = loader([1, 2, 3])
    next(iter(first))
    loader([2, 4, 6]).load_state_dict(first.state_dict())  # the same weights
    with pytest.raises(StateError, match="belongs to other data"):
        loader([1, 2, 4]).load_state_dict(first.state_dict())


@pytest.mark.unsanitized
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_and_pickles(paths: list[str], context: str) -> None:
    options = {"batch_size": 6, "shuffle": True, "seed": 8}
    alone = [batch["id"].tolist() for batch in mixed(paths, [1, 1, 1], **options)]
    dataset = mixed(paths, [1, 1, 1], **options)
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 4096
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context)
    assert [batch["id"].tolist() for batch in loader] == alone
    assert [batch["id"].tolist() for batch in pickle.loads(pickled)] == alone


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([1, 1], (1, 1)),
        ([30, 20], (3, 2)),
        ([0.7, 0.3], (7, 3)),
        ([0.1, 0.2], (1, 2)),
        (["1/3", "2/3"], (1, 2)),
        ([Fraction(1, 2), 1], (1, 2)),
        (np.array([0.25, 0.75]), (1, 3)),
        ([1e-3, 0.999], (1, 999)),
    ],
)
def test_weights_become_small_integers(weights: Any, whole: tuple[int, ...]) -> None:
    assert whole_weights(weights, "ab") == whole


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0], "the weight of 'b' is above 0"),
        ([1, -1], "above 0"),
        ([1, float("nan")], "the weight of 'b' is a number"),
        ([1, float("inf")], "a number"),
        ([1, "many"], "a number"),
        ([1, None], "a number"),
        ([1, True], "a number"),
        ([1], "1 weights for 2 sources"),
        ({"a": 1, "c": 2}, r"weights are for \['a', 'c'\], and the sources are \['a', 'b'\]"),
        (3, "weights are numbers"),
        ("12", "weights are numbers"),
        ([0.123456, 0.654321], "at most 65536 is allowed: round them"),
    ],
)
def test_what_are_no_weights(paths: list[str], weights: Any, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        fs.mix({"a": paths[0], "b": paths[1]}, weights=weights)


def test_what_cannot_be_mixed(paths: list[str], tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="at least one"):
        fs.mix([])
    with pytest.raises(InvalidError, match="takes data sets by name, or a list"):
        fs.mix(paths[0])
    with pytest.raises(InvalidError, match="mix takes data sets, views and concatenations"):
        fs.mix([fs.mix(paths)])
    with pytest.raises(InvalidError, match="have names"):
        fs.mix({1: paths[0]})
    with pytest.raises(InvalidError, match=r"'b' .* has no samples; leave it out"):
        fs.mix({"a": paths[0], "b": fs.open(paths[1]).select([])})
    with pytest.raises(InvalidError, match="epoch_size"):
        fs.ShardDataset(fs.mix(paths), batch_size=4, epoch_size=0)
