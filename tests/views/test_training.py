"""Views where a path is: in data sets for torch, loaders and states."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import fastshard as fs
import fastshard.torch
from fastshard.errors import StateError

READ = {"columns": ["id", "x"]}
ORDERS = [{"shuffle": False}, {"shuffle": "global", "seed": 5}, {"shuffle": "block", "seed": 5, "lanes": 4}]


def delivered(loader: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [id for batch in batches for id in batch]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(order["shuffle"]))
def test_every_sample_of_a_view_comes_once(path: str, order: dict[str, Any]) -> None:
    view = fs.open(path).filter("label == 3")
    options = {**READ, **order, "batch_size": 4}
    expected = view.ids().tolist()
    batches = delivered(fs.ShardDataset(view, batched=True, **options))
    assert sorted(flat(batches)) == expected
    if not order["shuffle"]:
        assert flat(batches) == expected
    samples = fs.ShardDataset(view, **options)
    assert [int(sample["id"]) for sample in samples] == flat(batches)
    loader = fs.ShardLoader(view, **options)
    assert delivered(loader) == batches
    assert len(loader) == len(batches)
    assert delivered(fastshard.torch.DataLoader(samples, batch_size=4)) != batches or not order["shuffle"]
    batch = next(iter(loader))
    assert batch.ids.tolist() == batch["id"].tolist()


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.05, 0.5, 1.0]),
    st.sampled_from([1, 2, 4, 64]),
    st.sampled_from(["global", "block"]),
    st.integers(0, 3),
)
@settings(max_examples=30, deadline=None)
def test_the_order_of_a_view_is_what_the_specification_says(
    path: str, reference: ModuleType, seed: int, share: float, lanes: int, kind: str, epoch: int
) -> None:
    with fs.open(path) as reader:
        mask = np.random.default_rng(seed).random(500) < share
        view = reader.select(mask)
        ids = np.flatnonzero(mask)
        first = 0
        shards = []
        core = reader.core
        for rows, blocks, block_rows in zip(
            core.shard_rows().tolist(),
            core.shard_blocks().tolist(),
            core.shard_block_rows().tolist(),
            strict=True,
        ):
            mine = int(mask[first : first + rows].sum())
            shards.append(reference.Shard(mine, min(blocks, mine), block_rows if mine == rows else 0))
            first += rows
        if kind == "global":
            places = reference.global_order(len(ids), seed, epoch, lanes, shards)
        else:
            places = reference.block_order(
                shards,
                seed,
                epoch,
                window=min(reader.index.window, len(ids)),
                unit_blocks=reader.index.unit_blocks,
                lanes=lanes,
            )
        dataset = fs.ShardDataset(
            view,
            batch_size=500,
            batched=True,
            shuffle=kind,
            seed=seed,
            lanes=lanes,
            tail="exact",
            columns=["id"],
        )
        dataset.set_epoch(epoch)
        batches = list(dataset)
        positions = np.concatenate([batch.positions.numpy() for batch in batches])
        got = np.concatenate([batch.ids.numpy() for batch in batches])
        assert got[np.argsort(positions)].tolist() == ids[places].tolist()


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("kind", ["filter", "split", "ids", "text"])
def test_restoring_from_every_state_gives_the_rest(path: str, world_size: int, kind: str) -> None:
    reader = fs.open(path, columns=["id"])
    samples: Any = {
        "filter": reader.filter("label in [3, 4]"),
        "split": reader.split(seed=1)["val"],
        "ids": reader.select(list(range(0, 500, 9))),
        "text": f"{path}?where=label in [3, 4]&split=:50%&seed=3",
    }[kind]
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "tail": "exact", "columns": ["id"]}

    def run(world: int, state: dict[str, Any] | None = None) -> list[list[int]]:
        loaders = [fs.ShardLoader(samples, rank=rank, world_size=world, **options) for rank in range(world)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        ids = [flat(delivered(loader)) for loader in loaders]
        return [sorted(flat(ids))]

    loader = fs.ShardLoader(samples, rank=0, world_size=1, **{**options, "batch_size": 4 * world_size})
    seen: list[int] = []
    everything = sorted(flat(delivered(fs.ShardLoader(samples, **options))))
    for batch in loader:
        seen += batch["id"].tolist()
        state = loader.state_dict()
        if len(seen) < len(everything):
            assert run(world_size, state) == [sorted(set(everything) - set(seen))]
    assert sorted(seen) == everything
    assert len(json.dumps(state)) < 1000


def test_a_state_says_what_it_belongs_to(path: str) -> None:
    parts = fs.open(path).split(seed=1)
    options = {"batch_size": 4, "shuffle": True, **READ}
    loader = fs.ShardLoader(parts["train"], **options)
    next(iter(loader))
    state = loader.state_dict()
    assert state["samples"]["view"] == ["split=0:0.9&seed=1"]
    assert state["samples"]["digest"] == parts["train"].digest
    with pytest.raises(StateError, match=r"belongs to other data: .*split=0:0.9&seed=1.*split=0.9:1&seed=1"):
        fs.ShardLoader(parts["val"], **options).load_state_dict(state)
    with pytest.raises(StateError, match="belongs to other data"):
        fs.ShardLoader(path, **options).load_state_dict(state)
    again = fs.ShardLoader(f"{path}?split=train&seed=1", **options)
    again.load_state_dict(state)


@pytest.mark.parametrize("samples", ["a view", 3, ["split=0:0.9"]])
def test_a_damaged_state_is_refused(path: str, samples: Any) -> None:
    loader = fs.ShardLoader(f"{path}?split=train", batch_size=4, **READ)
    state = {**loader.state_dict(), "samples": samples}
    with pytest.raises(StateError, match="the state is damaged: 'samples'"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.unsanitized
def test_workers_read_a_view(path: str, context: str) -> None:
    view = fs.open(path).split(seed=2, by="user")["val"]
    dataset = fs.ShardDataset(view, batch_size=7, shuffle=True, batched=True, **READ)
    alone = delivered(dataset)
    dataset = fs.ShardDataset(view, batch_size=7, shuffle=True, batched=True, **READ)
    assert (
        delivered(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context))
        == alone
    )


def test_a_data_set_of_a_view_pickles_small_and_opens_late(path: str, tmp_path: Path) -> None:
    reader = fs.open(path)
    for samples in (reader.split()["train"], reader.filter("label == 3"), f"{path}?split=val"):
        dataset = fs.ShardDataset(samples, batch_size=4, **READ)
        pickled = pickle.dumps(dataset)
        assert len(pickled) < 4096
        (tmp_path / "dataset").write_bytes(pickled)
        code = (
            "import pickle, sys\n"
            "dataset = pickle.loads(open(sys.argv[1], 'rb').read())\n"
            "assert dataset._source._data is None\n"
            "print(*(int(sample['id']) for sample in dataset))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "dataset")],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert list(map(int, result.stdout.split())) == [int(sample["id"]) for sample in dataset]
    missing = fs.ShardDataset("nowhere?where=label == 3", batch_size=4)
    pickle.loads(pickle.dumps(missing))


def test_a_view_is_read_as_it_was_opened_unless_told_otherwise(path: str) -> None:
    view = fs.open(path, columns=["id"], cast={"id": "int32"}).select([3, 4])
    (batch,) = fs.ShardLoader(view, batch_size=2)
    assert list(batch) == ["id"]
    assert str(batch["id"].dtype) == "torch.int32"
    (batch,) = fs.ShardLoader(view, batch_size=2, columns=["x"], cast={"float32": "float64"})
    assert list(batch) == ["x"]
    assert str(batch["x"].dtype) == "torch.float64"
    (batch,) = fs.ShardLoader(view, batch_size=2, add={"where": "__id__"})
    assert batch["where"].tolist() == [3, 4]


def test_a_filter_is_not_evaluated_again_where_the_view_is_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = fs.open(path).filter("label == 3")
    monkeypatch.setattr("fastshard._selecting.FilterStep.apply", None)
    assert len(fs.ShardDataset(view, batch_size=4, **READ)) == len(view)
    assert len(list(fs.ShardLoader(view, batch_size=len(view), **READ))) == 1


@pytest.mark.parametrize("bad", ["raise", "replace"])
def test_bad_samples_of_a_view(make: Callable[..., str], tmp_path: Path, bad: str) -> None:
    where = Path(make([60], path=tmp_path / "bad", compression="none"))
    (shard,) = where.glob("shard-*")
    with fs.open(where) as reader:
        block_rows = int(reader.core.shard_block_rows()[0])
    data = bytearray(shard.read_bytes())
    position = data.index(np.float32(30.25).tobytes())
    data[position] ^= 1
    shard.write_bytes(data)
    view = fs.open(where, columns=["x"]).select(slice(10, 60, 2))
    loader = fs.ShardLoader(view, batch_size=5, on_bad_sample=bad)
    if bad == "raise":
        with pytest.raises(fs.errors.CorruptError, match="shard-00000"):
            list(loader)
        return
    batches = list(loader)
    assert [len(batch["x"]) for batch in batches] == [5] * 5
    block = range(30 // block_rows * block_rows, 30 // block_rows * block_rows + block_rows)
    assert {sample.id for sample in loader.bad_samples} == set(block) & set(range(10, 60, 2))
    ids = np.concatenate([batch.ids.numpy() for batch in batches])
    assert not set(ids.tolist()) & set(block)
    assert set(ids.tolist()) <= set(range(10, 60, 2))


def test_an_empty_view_has_nothing_to_yield(path: str) -> None:
    view = fs.open(path).filter("id < 0")
    assert len(view) == 0
    assert view.to_arrow().num_rows == 0
    assert view["id"].tolist() == []
    with pytest.raises(fs.errors.InvalidError, match=r"id < 0.*no samples"):
        len(fs.ShardDataset(view, batch_size=2, **READ))
