"""Devices, page-locked memory, copies of loaders: on a machine with an accelerator or without."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastshard as fs
from fastshard.errors import InvalidError

Pair = namedtuple("Pair", ["x", "name"])
NO_CUDA = not torch.cuda.is_available()
MPS_IS_HERE = torch.backends.mps.is_available()


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    fs.write({"x": np.arange(20), "r": [list(range(i % 3)) for i in range(20)]}, tmp_path / "numbers")
    return str(tmp_path / "numbers")


def as_pair(batch: fs.Batch) -> Pair:
    return Pair(batch["x"], ["a", {"r": batch["r"]}])


def as_pairs(sample: dict[str, Any]) -> tuple[Any, int]:
    return sample["x"], 1


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "meta"])
def test_whatever_transforms_make_is_moved(numbers: str, device: Any) -> None:
    kind = torch.device(device).type
    batch = next(iter(fs.ShardLoader(numbers, batch_size=4, device=device)))
    assert (batch["x"].device.type, batch["r"].values.device.type) == (kind, kind)
    pair = next(iter(fs.ShardLoader(numbers, batch_size=4, device=device, transform=as_pair)))
    assert isinstance(pair, Pair)
    assert (pair.x.device.type, pair.name[0], pair.name[1]["r"].offsets.device.type) == (kind, "a", kind)
    x, ones = next(iter(fs.ShardLoader(numbers, batch_size=4, device=device, sample_transform=as_pairs)))
    assert (x.device.type, ones.device.type) == (kind, kind)
    plain = next(iter(fs.ShardLoader(numbers, batch_size=4, device=device, transform=dict)))
    assert (type(plain), plain["x"].device.type) == (dict, kind)
    assert next(iter(fs.ShardLoader(numbers, batch_size=4, device=device, transform=len))) == 2


@pytest.mark.parametrize(
    "device", ["nonsense", 3.5, "cuda:99", pytest.param("cuda", marks=pytest.mark.skipif("not NO_CUDA"))]
)
def test_a_device_that_is_not_here_is_refused_when_the_loader_is_made(numbers: str, device: Any) -> None:
    with pytest.raises(InvalidError, match=rf"device={device!r}: torch (cannot use it here|finds \d+ CUDA)"):
        fs.ShardLoader(numbers, batch_size=4, device=device)


@pytest.mark.parametrize("what", ["Batch", "Ragged"])
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("nonsense", "to: Expected one of cpu, cuda"),
        (
            "cuda:99",
            r"to\('cuda:99'\): torch finds \d+ CUDA devices here; (stay on \"cpu\"|this|they are \"cuda:0\")",
        ),
        pytest.param("cuda", r"to\('cuda'\): torch finds 0 CUDA", marks=pytest.mark.skipif("not NO_CUDA")),
        pytest.param(
            "mps", r"to\('mps'\): torch cannot use it here: ", marks=pytest.mark.skipif("MPS_IS_HERE")
        ),
    ],
)
def test_batches_are_not_moved_to_a_device_that_is_not_here(
    numbers: str, what: str, device: str, message: str
) -> None:
    batch = fs.open(numbers).take([0, 1, 2])
    moved = batch if what == "Batch" else batch["r"]
    with pytest.raises(InvalidError, match=f"^{what}.{message}"):
        moved.to(device)


def test_batches_are_pinned_where_that_is_of_use(numbers: str) -> None:
    here = torch.cuda.is_available()
    batch = fs.open(numbers).take([0, 1, 2])
    pinned = batch.pin_memory()
    assert [tensor.is_pinned() for tensor in pinned.tensors()] == [here] * 3
    assert (pinned["x"].tolist(), pinned["r"].to_list()) == ([0, 1, 2], [[], [0], [0, 1]])
    assert pinned.ids.tolist() == [0, 1, 2]
    ragged = batch["r"].pin_memory()
    assert (ragged.values.is_pinned(), ragged.to_list()) == (here, [[], [0], [0, 1]])
    for stock in torch.utils.data.DataLoader(  # which warns where no accelerator is
        fs.ShardDataset(numbers, batch_size=10, batched=True), batch_size=None, pin_memory=here
    ):
        assert stock["x"].is_pinned() == here


def test_memory_is_pinned_where_that_is_of_use(numbers: str) -> None:
    here = torch.cuda.is_available()
    for options in ({}, {"transform": as_pair}, {"sample_transform": as_pairs}):
        batch: Any = next(iter(fs.ShardLoader(numbers, batch_size=4, pin_memory=True, **options)))
        x = batch["x"] if isinstance(batch, dict) else batch[0]
        assert x.is_pinned() == here
        assert x.shape == (4,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pin_memory": "yes"}, "pin_memory='yes': must be True or False"),
        ({"read_timeout": "1"}, "read_timeout='1': must be seconds above 0, or None"),
        ({"read_timeout": float("inf")}, "read_timeout=inf: must be seconds"),
        ({"batch_size": None}, "batch_size=None: must be an integer"),
    ],
)
def test_options_that_cannot_be_used(numbers: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        fs.ShardLoader(numbers, **{"batch_size": 4, **options})


@pytest.mark.parametrize(
    "again", [lambda loader: pickle.loads(pickle.dumps(loader)), copy.deepcopy, copy.copy]
)
def test_a_loader_is_copied_as_its_options(numbers: str, again: Any) -> None:
    view = fs.open(numbers).filter("x > 3")
    loader = fs.ShardLoader(view, batch_size=4, shuffle=True, seed=3, transform=as_pair, threads=1)
    first = [pair.x.tolist() for pair in loader]
    running = iter(loader)
    next(running)
    other = again(loader)
    assert repr(other) == repr(loader)
    assert [pair.x.tolist() for pair in other] == first


def test_a_loader_shows_its_own_arguments(numbers: str) -> None:
    loader = fs.ShardLoader(numbers, batch_size=4, shuffle=True)
    assert repr(loader) == f"ShardLoader({numbers!r}, batch_size=4, shuffle='block', seed=0, tail='pad')"


def test_a_column_that_begins_with_null_shows_what_it_holds(tmp_path: Path) -> None:
    fs.write({"s": [None, "a"], "n": [None, None]}, tmp_path / "texts")
    batch = fs.open(tmp_path / "texts").take([0, 1])
    assert repr(batch) == "Batch(2 samples, {s: list of str, n: list of NoneType})"
