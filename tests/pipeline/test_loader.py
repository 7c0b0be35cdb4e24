"""`ShardLoader`: what it delivers, whatever makes it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batches import with_engine
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard import _core
from fastshard._engine import choose_engine
from fastshard.errors import CorruptError, InvalidError, StateError, StorageError
from fastshard.ragged import Ragged


def comparable(value: Any) -> Any:
    """A value of a batch as something that == compares."""
    if isinstance(value, dict):
        return {name: comparable(child) for name, child in value.items()}
    if isinstance(value, Ragged):
        return value.to_list()
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes(), str(value.dtype), tuple(value.shape)
    if isinstance(value, np.ndarray):
        return value.tobytes(), f"torch.{value.dtype}", value.shape
    return value


def contents(batches: Any) -> list[tuple[bytes, Any]]:
    return [(batch.ids.numpy().tobytes(), comparable(batch)) for batch in batches]


def loader(path: Path, **options: Any) -> fs.ShardLoader:
    return fs.ShardLoader(path, **{"batch_size": 32, "shuffle": True, "seed": 5, **options})


@pytest.mark.parametrize("shuffle", ["none", "global", "block"])
def test_batches_are_those_of_the_reader(dataset: Path, shuffle: str) -> None:
    reader = fs.open(dataset)
    seen = []
    for batch in loader(dataset, shuffle=shuffle):
        expected = reader.take(batch.ids.numpy())
        assert comparable(batch) == comparable(expected.to_torch())
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(700))
    assert (seen == list(range(700))) == (shuffle == "none")


@settings(max_examples=40, deadline=None)
@given(
    shuffle=st.sampled_from(["none", "global", "block"]),
    engine=st.sampled_from(["mmap", "threads", "scrambled:1", "scrambled:2", "scrambled:3"]),
    threads=st.integers(1, 4),
    prefetch=st.integers(1, 9),
    memory=st.sampled_from([0, 1, 4096, 1 << 20]),
    verify=st.sampled_from(["once", "never", "auto"]),
    batch_size=st.integers(1, 90),
)
def test_nothing_but_the_order_decides_what_a_batch_holds(
    dataset: Path,
    shuffle: str,
    engine: str,
    threads: int,
    prefetch: int,
    memory: int,
    verify: Any,
    batch_size: int,
) -> None:
    options = {"shuffle": shuffle, "batch_size": batch_size, "epoch_size": 300}
    expected = contents(fs.ShardDataset(dataset, batched=True, seed=5, **options))
    made = loader(dataset, threads=threads, prefetch=prefetch, memory=memory, verify=verify, **options)
    assert contents(with_engine(made, engine)) == expected


@pytest.mark.skipif(_core.uring_refusal() is not None, reason="the kernel or a policy forbids io_uring")
@pytest.mark.parametrize("shuffle", ["none", "block"])
def test_uring_delivers_the_same(dataset: Path, shuffle: str) -> None:
    made = loader(dataset, shuffle=shuffle, engine="uring")
    assert contents(made) == contents(loader(dataset, shuffle=shuffle, engine="mmap"))
    assert made.stats().engine == "uring"


def test_each_block_is_read_once_where_the_budget_holds_a_window(dataset: Path) -> None:
    made = loader(dataset, engine="threads")
    for _ in made:
        pass
    stats = made.stats()
    assert stats.blocks_read == fs.open(dataset).index.blocks
    assert stats.bytes_read > 0


def test_a_budget_of_nothing_reads_again_and_says_so(plain_dataset: Path) -> None:
    made = loader(plain_dataset, engine="threads", memory=0, shuffle="global")
    assert sum(batch.num_samples for batch in made) == 2000
    blocks = fs.open(plain_dataset).index.blocks
    assert made.stats().blocks_read > blocks
    assert "memory=" in made.stats().limit


def test_epochs_and_length(dataset: Path) -> None:
    made = loader(dataset, batch_size=64)
    first, second = contents(made), contents(made)
    assert len(first) == len(second) == len(made) == 11
    assert first != second
    made.set_epoch(0)
    assert contents(made) == first


def test_state_counts_what_was_delivered(dataset: Path) -> None:
    made = loader(dataset, prefetch=8)
    whole = contents(loader(dataset))
    iterator = iter(made)
    for _ in range(5):
        next(iterator)
    state = json.loads(json.dumps(made.state_dict()))
    resumed = loader(dataset, threads=3)
    resumed.load_state_dict(state)
    assert contents(resumed) == whole[5:]
    assert len(contents(resumed)) == len(whole)  # the state was for one iteration
    other = loader(dataset, batch_size=16)
    other.load_state_dict(state)
    assert sum(batch.num_samples for batch in other) == 700 - 5 * 32
    with pytest.raises(StateError, match="seed"):
        loader(dataset, seed=6).load_state_dict(state)
    iterator.close()  # type: ignore[attr-defined]


def test_two_loaders_and_two_iterations_at_once(dataset: Path) -> None:
    made = loader(dataset)
    expected = [contents(loader(dataset))]
    pairs = list(zip(made, loader(dataset), strict=True))
    assert [contents([a]) for a, _ in pairs] == [contents([b]) for _, b in pairs]
    assert contents([a for a, _ in pairs]) == expected[0]


def test_a_batch_outlives_the_loader(plain_dataset: Path) -> None:
    made = loader(plain_dataset)
    batch = next(iter(made))
    ids = batch.ids.tolist()
    made.close()
    del made
    assert batch["id"].tolist() == ids


def test_global_random_states_stay(dataset: Path) -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
    for _ in loader(dataset):
        pass
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # type: ignore[index] # noqa: NPY002


def test_memory_is_used_again_from_epoch_to_epoch(plain_dataset: Path) -> None:
    made = loader(plain_dataset, prefetch=4, threads=2)
    for _ in range(6):
        for _batch in made:
            del _batch
    at_once = 4 + 2 + 2  # in the ring, being made, and with the consumer
    assert made.stats().batches == 6 * 63
    assert made.stats().reads["fresh_buffers"] <= 2 * at_once  # two columns


def test_options_are_checked(plain_dataset: Path) -> None:
    for bad in (
        {"threads": 0},
        {"prefetch": 0},
        {"memory": -1},
        {"engine": "tape"},
        {"on_bad_sample": "ignore"},
        {"transform_backend": "fibers"},
        {"read_timeout": 0},
        {"transform": 3},
    ):
        with pytest.raises(InvalidError, match=next(iter(bad))):
            loader(plain_dataset, **bad)


def test_100_samples_make_no_batch_of_101(tmp_path: Path) -> None:
    fs.write({"x": np.arange(100)}, tmp_path / "d")
    with pytest.raises(InvalidError, match="101"):
        len(fs.ShardLoader(tmp_path / "d", batch_size=101, drop_last=True))


def corrupt(path: Path, needle: bytes) -> None:
    """Flips one byte of the only place where `needle` stands."""
    for shard in path.glob("shard-*.arrow"):
        data = bytearray(shard.read_bytes())
        at = data.find(needle)
        if at >= 0:
            data[at] ^= 0xFF
            shard.write_bytes(data)
            return
    raise AssertionError("not found")


def eight_samples(path: Path) -> Path:
    """Eight samples, each a block of its own, number 5 corrupt."""
    fs.write({"x": [f"sample {i}" * 40 for i in range(8)]}, path, compression="none", block_bytes=64)
    assert fs.open(path).index.blocks == 8
    corrupt(path, b"sample 5")
    return path


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_a_bad_sample_is_replaced_and_reported(tmp_path: Path, engine: str) -> None:
    path = eight_samples(tmp_path / "d")
    found: list[Any] = []
    for rank in (0, 1):
        made = fs.ShardLoader(
            path,
            batch_size=2,
            on_bad_sample="replace",
            rank=rank,
            world_size=2,
            verify="once",
            engine=engine,  # type: ignore[arg-type]
        )
        batches = list(made)
        assert [batch.num_samples for batch in batches] == [2, 2]
        ids = [id for batch in batches for id in batch.ids.tolist()]
        assert 5 not in ids
        found += made.bad_samples
        if made.bad_samples:
            (bad,) = made.bad_samples
            assert bad.id == 5
            assert bad.shard.startswith("shard-00000")
            assert bad.replaced_by == 6
            assert sum(int(batch.is_repeat.sum()) for batch in batches if batch.is_repeat is not None) == 1
    assert len(found) == 1
    with pytest.raises(CorruptError, match=r"shard-00000.*block 5"):
        list(fs.ShardLoader(path, batch_size=2, verify="once", engine=engine))  # type: ignore[arg-type]


def test_bad_samples_beyond_the_limit_raise(tmp_path: Path) -> None:
    path = tmp_path / "d"
    fs.write({"x": [f"sample {i:02}" * 40 for i in range(40)]}, path, compression="none", block_bytes=64)
    for i in range(20):
        corrupt(path, f"sample {i:02}".encode())
    with pytest.raises(CorruptError, match="bad samples in epoch 0"):
        list(fs.ShardLoader(path, batch_size=4, on_bad_sample="replace", verify="once"))


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_batches_before_the_failure_come_and_the_failure_stays(tmp_path: Path, engine: str) -> None:
    path = eight_samples(tmp_path / "d")
    iterator = iter(fs.ShardLoader(path, batch_size=2, verify="once", prefetch=4, engine=engine))  # type: ignore[arg-type]
    assert [next(iterator).ids.tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(CorruptError, match="block 5"):
        next(iterator)


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_a_shard_cut_short_while_open_is_an_error(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "d"
    fs.write({"x": np.arange(200_000)}, path, compression="none", block_bytes=8192)
    (shard,) = path.glob("shard-*.arrow")
    iterator = iter(fs.ShardLoader(path, batch_size=256, prefetch=1, threads=1, engine=engine, memory=0))  # type: ignore[arg-type]
    next(iterator)
    os.truncate(shard, 500_000)
    with pytest.raises((CorruptError, StorageError), match=shard.name):
        list(iterator)


def scaled(batch: fs.Batch) -> fs.Batch:
    batch["x"] = batch["x"] * 2
    return batch


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"id": sample["id"], "noise": rng.random(3)}


def shifted(batch: fs.Batch, rng: np.random.Generator) -> fs.Batch:
    batch["shift"] = torch.from_numpy(rng.random(1))
    return batch


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_transforms_run_in_order_with_randomness_of_their_own(plain_dataset: Path, backend: Any) -> None:
    options: dict[str, Any] = {"transform_backend": backend, "epoch_size": 200}
    plain = contents(loader(plain_dataset, epoch_size=200))
    doubled = list(loader(plain_dataset, transform=scaled, **options))
    assert [batch.ids.numpy().tobytes() for batch in doubled] == [ids for ids, _ in plain]
    made = loader(plain_dataset, sample_transform=noisy, **options)
    noise = {}
    for batch in made:
        assert batch["noise"].shape == (batch.num_samples, 3)
        noise.update(zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True))
    again = {}
    for rank in (0, 1):  # another division, the same augmentation
        for batch in loader(
            plain_dataset, sample_transform=noisy, batch_size=7, rank=rank, world_size=2, **options
        ):
            again.update(zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True))
    assert again == noise
    shifts = [float(batch["shift"]) for batch in loader(plain_dataset, transform=shifted, **options)]
    assert len(set(shifts)) == len(shifts)
    assert shifts == [float(batch["shift"]) for batch in loader(plain_dataset, transform=shifted, **options)]


def broken(sample: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no such thing")


def test_a_transform_that_fails_says_so(plain_dataset: Path) -> None:
    with pytest.raises(RuntimeError, match="no such thing"):
        list(loader(plain_dataset, sample_transform=broken))


def test_added_columns_and_nulls_pass_through(dataset: Path) -> None:
    made = loader(
        dataset, add={"sample": "__id__", "valid": "__valid__"}, null_masks=True, tail="pad", batch_size=33
    )
    for batch in made:
        assert torch.equal(batch["sample"], batch.ids)
        assert batch["score__valid"].tolist() == [i % 11 != 0 for i in batch.ids.tolist()]


def test_the_engine_is_chosen_by_what_is_found(tmp_path: Path) -> None:
    small = choose_engine("auto", str(tmp_path), 1 << 20, largest_batch=1 << 20, read_timeout=None)
    assert small.name == "mmap"
    large = choose_engine("auto", str(tmp_path), 1 << 50, largest_batch=1 << 20, read_timeout=None)
    assert large.name in ("uring", "threads") or "memory" in small.reason
    wide = choose_engine("auto", str(tmp_path), 1 << 50, largest_batch=1 << 30, read_timeout=None)
    assert wide.name == "mmap"
    if os.path.isdir("/dev/shm"):
        memory = choose_engine("auto", "/dev/shm", 1 << 50, largest_batch=1 << 20, read_timeout=None)
        assert (memory.name, memory.reason) == ("mmap", "the files lie in memory (tmpfs)")


def test_batches_copy_and_pickle(dataset: Path) -> None:
    batch = next(iter(loader(dataset)))
    for again in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert comparable(again) == comparable(batch)
        assert torch.equal(again.ids, batch.ids)
