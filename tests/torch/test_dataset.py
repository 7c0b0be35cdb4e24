"""`ShardDataset` as an object: what it checks, says, pickles and leaves alone."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import fastshard as fs
import fastshard.torch
from fastshard.errors import InvalidError, NotFoundError, NullError, StateError

Make = Callable[..., str]


def ids(items: Any) -> list[int]:
    return [int(sample["id"]) for sample in items]


def test_samples_are_dicts_of_numpy_values(make: Make) -> None:
    sample = next(iter(fs.ShardDataset(make([3]))))
    assert set(sample) == {"id", "x", "text"}
    assert sample["id"] == 0
    assert isinstance(sample["id"], np.int64)
    assert sample["x"].dtype == np.float32
    assert sample["x"].tolist() == [0.0, 0.25, 0.5, 0.75]
    assert sample["text"] == "sample 0"


def test_a_stock_loader_batches_samples(make: Make) -> None:
    batch = next(iter(DataLoader(fs.ShardDataset(make([6]), batch_size=4), batch_size=4)))
    assert batch["id"].tolist() == [0, 1, 2, 3]
    assert batch["x"].dtype == torch.float32
    assert batch["x"].shape == (4, 4)
    assert batch["text"] == [f"sample {i}" for i in range(4)]


def test_batches_are_tensors(make: Make) -> None:
    batches = list(fs.ShardDataset(make([6]), batch_size=4, batched=True, shuffle="global", seed=3))
    batch = batches[0]
    assert isinstance(batch, fs.Batch)
    assert isinstance(batch["x"], torch.Tensor)
    assert batch["x"].shape == (4, 4)
    assert batch.epoch == 0
    assert batch.ids.tolist() == batch["id"].tolist()
    assert batch.positions.tolist() == [0, 1, 2, 3]
    assert [len(each["id"]) for each in batches] == [4, 2]


def test_a_stock_loader_that_would_batch_batches_is_told_the_way_out(make: Make) -> None:
    data = fs.ShardDataset(make([6]), batch_size=2, batched=True)
    with pytest.raises(InvalidError, match="batch_size=None"):
        next(iter(DataLoader(data, batch_size=2)))


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_every_common_kind_collate(tmp_path: Path, workers: int) -> None:
    """Also as the first thing that a process does with a data set."""
    table = pa.table(
        {
            "decimal": pa.array([Decimal("12.34"), Decimal("-0.10")], pa.decimal128(10, 2)),
            "time": pa.array([1577836800000000, 0], pa.timestamp("us")),
            "date": pa.array([18262, 0], pa.date32()),
            "bytes": [b"ab", b""],
            "flag": [True, False],
            "struct": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
            "half": pa.array(np.array([1.5, -0.0], np.float16)),
        }
    )
    fs.write(table, tmp_path / "data")
    code = (
        "import sys, fastshard as fs\n"
        "from torch.utils.data import DataLoader\n"
        "data = fs.ShardDataset(sys.argv[1], batch_size=2)\n"
        "batch = next(iter(DataLoader(data, batch_size=2, num_workers=int(sys.argv[2]))))\n"
        "print({name: getattr(value, 'tolist', lambda: value)() for name, value in batch.items()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data"), str(workers)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == (
        "{'decimal': [Decimal('12.34'), Decimal('-0.10')], 'time': [1577836800000000, 0], 'date': [18262, 0], "
        "'bytes': [b'ab', b''], 'flag': [True, False], "
        "'struct': {'a': tensor([1, 2]), 'b': ['x', 'y']}, 'half': [1.5, -0.0]}"
    )


def test_columns_casts_and_additions(make: Make) -> None:
    path = make([5])
    options: dict[str, Any] = {
        "columns": ["x"],
        "cast": {"x": "float64"},
        "add": {"number": "__id__", "valid": "__valid__"},
        "rank": 1,
        "world_size": 2,
    }
    samples = list(fs.ShardDataset(path, **options))
    assert [set(sample) for sample in samples] == [{"x", "number", "valid"}] * 3
    assert samples[0]["x"].dtype == np.float64
    assert [int(sample["number"]) for sample in samples] == [1, 3, 0]
    assert [bool(sample["valid"]) for sample in samples] == [True, True, False]
    batch = next(iter(fs.ShardDataset(path, batch_size=3, batched=True, **options)))
    assert batch["number"].dtype == torch.int64
    assert (
        batch["valid"].tolist() == [True, True, False][: len(batch["valid"])] or batch.is_repeat is not None
    )
    collated = next(iter(DataLoader(fs.ShardDataset(path, batch_size=3, **options), batch_size=3)))
    assert collated["valid"].dtype == torch.bool


def test_transform_is_given_what_is_yielded(make: Make) -> None:
    path = make([4])
    assert list(fs.ShardDataset(path, transform=lambda sample: int(sample["id"]) * 10)) == [0, 10, 20, 30]
    batched = fs.ShardDataset(
        path, batch_size=3, batched=True, transform=lambda batch: batch["id"].sum().item()
    )
    assert list(batched) == [3, 3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 0}, "batch_size=0: must be at least 1"),
        ({"batch_size": 2.0}, "batch_size=2.0: must be an integer"),
        ({"batch_size": True}, "batch_size=True: must be an integer"),
        ({"batched": True}, "batched=True: give batch_size="),
        ({"shuffle": "blocks"}, "shuffle='blocks'"),
        ({"shuffle": 1}, "shuffle=1"),
        ({"shuffle": None}, "shuffle=None"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        ({"seed": 1 << 64}, "seed=18446744073709551616: must be at most"),
        ({"tail": "keep"}, "tail='keep'"),
        ({"drop_last": "yes"}, "drop_last='yes'"),
        ({"drop_last": True, "tail": "exact"}, "contradict each other"),
        ({"rank": 1}, "give both"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"rank": 0, "world_size": 3, "replication": 2}, "replication=2: 3 ranks cannot be divided"),
        ({"replication": 0}, "replication=0"),
        ({"epoch_size": 0}, "epoch_size=0"),
        ({"lanes": 0, "shuffle": True}, "lanes=0"),
        ({"lanes": 4}, "lanes=4: the order without a shuffle has one lane"),
        ({"lanes": 1 << 17, "shuffle": True}, "lanes=131072: must be at most"),
        ({"columns": "x"}, "columns='x'"),
        ({"lists": "padded"}, "lists"),
        ({"cast": {"x": "float31"}}, "float31"),
        ({"tensors": {"x": "float32"}}, "tensors"),
        ({"transform": 3}, "transform=3"),
        ({"add": {"id": "id"}}, "__id__"),
        ({"add": {"x": "__id__"}, "columns": ["x"]}, "choose another"),
        ({"verify": "often"}, "verify"),
    ],
)
def test_arguments_are_checked_at_once(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidError) as caught:
        fs.ShardDataset(tmp_path / "not opened", **options)
    assert text in str(caught.value)


def test_numpy_integers_are_integers(make: Make) -> None:
    data = fs.ShardDataset(make([4]), batch_size=np.int32(2), seed=np.uint64(3), shuffle="global")
    json.dumps(data.state_dict())
    assert isinstance(data.batch_size, int)


def test_it_opens_nothing_before_it_is_used(tmp_path: Path) -> None:
    data = fs.ShardDataset(tmp_path / "nowhere", batch_size=2)
    repr(data)
    pickle.dumps(data)
    for use in (len, lambda data: next(iter(data)), lambda data: data.state_dict()):
        with pytest.raises(NotFoundError, match="nowhere"):
            use(data)


def test_what_does_not_fit_the_data_is_named_when_it_is_opened(make: Make) -> None:
    path = make([4])
    with pytest.raises(InvalidError, match="'y'"):
        next(iter(fs.ShardDataset(path, columns=["y"])))
    with pytest.raises(InvalidError, match="choose another"):
        next(iter(fs.ShardDataset(path, add={"x": "__id__"})))
    with pytest.raises(InvalidError, match="epoch_size=5: there are 4 samples"):
        len(fs.ShardDataset(path, epoch_size=5))
    with pytest.raises(InvalidError, match="replication=3"):
        len(fs.ShardDataset(path, replication=3))


def test_an_empty_data_set_says_that_it_is(make: Make) -> None:
    path = make([0])
    with pytest.raises(InvalidError, match="no samples"):
        next(iter(fs.ShardDataset(path)))


def test_one_sample_is_an_epoch(make: Make) -> None:
    path = make([1])
    assert ids(fs.ShardDataset(path, shuffle=True)) == [0]
    assert [ids(fs.ShardDataset(path, rank=rank, world_size=3)) for rank in range(3)] == [[0]] * 3
    exact = [ids(fs.ShardDataset(path, rank=rank, world_size=3, tail="exact")) for rank in range(3)]
    assert exact == [[0], [], []]


def test_nulls_without_a_form_are_named_all_at_once(tmp_path: Path) -> None:
    samples = [{"age": None, "height": 1, "name": None}, {"age": 2, "height": None, "name": "a"}]
    fs.write(samples, tmp_path / "data")
    data = fs.ShardDataset(tmp_path / "data")
    with pytest.raises(NullError, match=r"(?s)age.*height"):
        next(iter(data))
    with pytest.raises(NullError, match=r"(?s)age.*height"):
        fastshard.torch.DataLoader(data, batch_size=2)
    filled = list(fs.ShardDataset(tmp_path / "data", fill_null={"age": -1, "height": 0}))
    assert [int(sample["age"]) for sample in filled] == [-1, 2]
    masked = list(fs.ShardDataset(tmp_path / "data", null_masks=True))
    assert [bool(sample["age__valid"]) for sample in masked] == [False, True]


# Copies


def test_it_pickles_small_and_does_not_grow_with_the_data(make: Make) -> None:
    sizes = []
    for name, shards in (("small", [2]), ("large", [3] * 40)):
        data = fs.ShardDataset(make(shards, name=name), batch_size=2, shuffle=True)
        list(data)
        sizes.append(len(pickle.dumps(data)))
    assert sizes[0] == sizes[1] < 4096


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_begins_anew(make: Make, clone: Callable[[Any], Any]) -> None:
    data = fs.ShardDataset(make([9]), shuffle="global", rank=1, world_size=2)
    first, second = ids(data), ids(data)
    other = clone(data)
    assert [ids(other), ids(other)] == [first, second]
    assert repr(other) == repr(data)


def test_a_relative_path_holds_elsewhere(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = make([3])
    monkeypatch.chdir(Path(path).parent)
    data = fs.ShardDataset(Path(path).name)
    monkeypatch.chdir(tmp_path.parent)
    assert ids(data) == [0, 1, 2]


def test_repr_says_what_it_is(make: Make) -> None:
    path = make([3])
    data = fs.ShardDataset(path, batch_size=2, batched=True, shuffle=True, seed=5, rank=0, world_size=2)
    assert repr(data) == (
        f"ShardDataset({path!r}, batch_size=2, batched=True, shuffle='block', seed=5, tail='pad', "
        "rank=0, world_size=2)"
    )


def test_data_sets_hold_one_descriptor_each_and_give_it_back(make: Make) -> None:
    path = make([3])
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        fs.ShardDataset(path)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# What it leaves alone


@pytest.mark.parametrize("kind", ["samples", "batches", "loader", "loader with workers"])
def test_iterating_touches_no_global_random_state(make: Make, kind: str) -> None:
    data = fs.ShardDataset(make([20]), batch_size=4, shuffle="global", batched=kind == "batches")
    workers = 2 if kind == "loader with workers" else 0
    loader = data if kind in ("samples", "batches") else fastshard.torch.DataLoader(data, num_workers=workers)
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state())  # noqa: NPY002
    for _ in range(2):
        list(loader)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert all(np.array_equal(a, b) for a, b in zip(before[2], np.random.get_state(), strict=True))  # noqa: NPY002


def shared_names(pid: int) -> set[str]:
    """Names of shared memory that a process has in use; what others use at the same time does not count."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split("/dev/shm/")[1] for line in lines if "/dev/shm/" in line}


def test_nothing_is_left_in_shared_memory(make: Make) -> None:
    data = fs.ShardDataset(make([20]), batch_size=4, shuffle="global")
    iterator: Any = iter(DataLoader(data, batch_size=4, num_workers=2))
    next(iterator)
    names = set().union(*(shared_names(pid) for pid in (os.getpid(), *(w.pid for w in iterator._workers))))
    # torch's batches, and multiprocessing's semaphores, which have lost their names already
    ours = {name for name in names if not name.startswith("torch_") and not name.endswith("(deleted)")}
    assert not ours
    del iterator
    gc.collect()
    left = {name for name in names if os.path.exists(f"/dev/shm/{name}")}
    assert not left


def test_no_thread_and_no_module_is_brought_by_making_one(make: Make) -> None:
    code = (
        "import sys, threading, fastshard as fs\n"
        "data = fs.ShardDataset(sys.argv[1])\n"
        "assert threading.active_count() == 1\n"
        "assert not {'pandas', 'pyarrow', 'pyspark'} & set(sys.modules), set(sys.modules)\n"
        "assert sum(1 for _ in data) == 5\n"
        "assert not {'pandas', 'pyarrow', 'pyspark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, make([5])], check=True, timeout=120)


def test_without_a_batch_size_several_workers_are_warned_about_once(make: Make) -> None:
    code = (
        "import sys, fastshard as fs\n"
        "from torch.utils.data import DataLoader\n"
        "data = fs.ShardDataset(sys.argv[1], batch_size=int(sys.argv[2]) or None)\n"
        "for _ in range(3):\n"
        "    assert len(list(DataLoader(data, batch_size=2, num_workers=2))) == 4\n"
    )
    path = make([8])
    said = []
    for size in ("0", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, path, size], capture_output=True, text=True, timeout=120, check=True
        )
        said.append(done.stderr.count("depends on num_workers"))
    assert said == [1, 0]


# State


def test_a_state_is_small_and_plain(make: Make) -> None:
    data = fs.ShardDataset(make([9]), batch_size=2, batched=True, shuffle="global", seed=4)
    iterator = iter(data)
    next(iterator)
    state = data.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 1024
    assert (state["version"], state["epoch"], state["position"], state["seed"]) == (1, 0, 2, 4)
    assert state["fingerprint"] == fs.open(data.path).fingerprint


def test_states_before_between_and_after_epochs(make: Make) -> None:
    data = fs.ShardDataset(make([4]), batch_size=2, batched=True)

    def place() -> tuple[int, int]:
        state = data.state_dict()
        return state["epoch"], state["position"]

    assert place() == (0, 0)
    iterator = iter(data)
    assert place() == (0, 0)
    next(iterator)
    assert place() == (0, 2)
    next(iterator)
    assert place() == (1, 0)
    assert next(iterator, None) is None
    assert place() == (1, 0)
    for _ in data:
        break
    assert place() == (1, 2)
    data.set_epoch(7)
    assert place() == (7, 0)


def test_a_state_within_a_shared_batch_is_refused(make: Make) -> None:
    data = fs.ShardDataset(make([8]), batch_size=4, rank=0, world_size=2)
    iterator = iter(data)
    next(iterator)
    with pytest.raises(StateError, match="1 samples of a batch of 4"):
        data.state_dict()
    alone = fs.ShardDataset(make([8], name="alone"), batch_size=4)
    iterator = iter(alone)
    next(iterator)
    assert alone.state_dict()["position"] == 1


def test_workers_keep_the_main_process_from_knowing(make: Make) -> None:
    data = fs.ShardDataset(make([8]), batch_size=2)
    iterator = iter(DataLoader(data, batch_size=2, num_workers=2))
    next(iterator)
    with pytest.raises(StateError) as caught:
        data.state_dict()
    assert "ShardLoader" in str(caught.value)
    assert "fastshard.torch.DataLoader" in str(caught.value)
    state = data.state_dict(num_samples=2)
    assert (state["epoch"], state["position"]) == (0, 2)
    list(iterator)
    fresh = fs.ShardDataset(data.path, batch_size=2)
    fresh.load_state_dict(state)
    assert ids(fresh) == list(range(2, 8))


def test_counting_from_the_beginning_or_from_the_resume(make: Make) -> None:
    path = make([20])
    data = fs.ShardDataset(path, batch_size=2, batched=True)
    data.load_state_dict(data.state_dict(num_samples=6))
    assert data.state_dict()["position"] == 6
    iterator = iter(data)
    next(iterator)
    next(iterator)
    assert data.state_dict()["position"] == 10
    assert data.state_dict(10)["position"] == 10
    assert data.state_dict(4, from_beginning=False)["position"] == 10
    assert data.state_dict(1000)["epoch"] == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"seed": 1}, "seed is 0 in the state and 1 here"),
        ({"shuffle": "none"}, "shuffle is 'global' in the state and 'none' here"),
        ({"lanes": 2}, "lanes is 1 in the state and 2 here"),
        ({"epoch_size": 5}, "epoch_size is None in the state and 5 here"),
    ],
)
def test_a_state_of_another_order_is_refused(make: Make, change: dict[str, Any], text: str) -> None:
    path = make([9])
    state = fs.ShardDataset(path, shuffle="global").state_dict()
    other = fs.ShardDataset(path, **{"shuffle": "global", **change})
    with pytest.raises(StateError) as caught:
        other.load_state_dict(state)
    assert text in str(caught.value)


def test_a_state_of_other_data_is_refused(make: Make) -> None:
    state = fs.ShardDataset(make([9])).state_dict()
    with pytest.raises(StateError, match="other data"):
        fs.ShardDataset(make([3, 9], name="other")).load_state_dict(state)


@pytest.mark.parametrize("shuffle", ["none", "global", "block"])
def test_grown_data_end_the_epoch_on_the_old_samples(make: Make, shuffle: str) -> None:
    path = make([6, 5])
    data = fs.ShardDataset(path, batch_size=3, batched=True, shuffle=shuffle)
    whole = [int(i) for batch in data for i in batch["id"]]
    data.set_epoch(0)
    iterator = iter(data)
    next(iterator)
    state = data.state_dict()
    make([4])
    grown = fs.ShardDataset(path, batch_size=3, shuffle=shuffle)
    with pytest.raises(StateError, match="allow_growth=True"):
        grown.load_state_dict(state)
    grown.load_state_dict(state, allow_growth=True)
    assert ids(grown) == whole[3:]
    assert sorted(ids(grown)) == list(range(15))
    grown.load_state_dict(state, allow_growth=True)
    half = iter(DataLoader(grown, batch_size=3))
    next(half)
    again = fs.ShardDataset(path, batch_size=3, shuffle=shuffle)
    again.load_state_dict(grown.state_dict(), allow_growth=True)
    assert ids(DataLoader(again, batch_size=1)) == whole[6:]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "what state_dict() of fastshard returned"),
        (3, "got 3"),
        ({"epoch": 1}, "what state_dict() of fastshard returned"),
        ({"format": "fastshard.state", "version": 99}, "version 99"),
        ({"format": "fastshard.state", "version": 1, "epoch": 0}, "damaged"),
    ],
)
def test_what_is_no_state_is_refused(make: Make, state: Any, text: str) -> None:
    data = fs.ShardDataset(make([3]))
    with pytest.raises(StateError) as caught:
        data.load_state_dict(state)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["epoch", "position", "rows", "lanes", "fingerprint", "kind", "seed"])
@pytest.mark.parametrize("value", [None, -1, "x", 1.5, True])
def test_a_damaged_state_is_refused(make: Make, name: str, value: Any) -> None:
    data = fs.ShardDataset(make([3]))
    state = data.state_dict() | {name: value}
    with pytest.raises(StateError):
        data.load_state_dict(state)


@pytest.mark.parametrize("epoch", [-1, 1.5, "2", True])
def test_set_epoch_is_checked(make: Make, epoch: Any) -> None:
    with pytest.raises(InvalidError, match="set_epoch"):
        fs.ShardDataset(make([3])).set_epoch(epoch)


def test_len_follows_torch_without_warnings(make: Make) -> None:
    loader = DataLoader(fs.ShardDataset(make([10]), batch_size=4), batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(loader) == len(list(loader)) == 3
