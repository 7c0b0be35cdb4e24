"""Batches of DataLoader workers reach the main process in memory that both map."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import fastshard as fs
from fastshard import _core, _handover
from fastshard.errors import CorruptError, InvalidError, StorageError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memfd_create is Linux's")


def batch_in(shared: _core.SharedBatch, rows: int = 100) -> fs.Batch:
    """A batch whose column x lies in shared memory and whose other columns do not."""
    _, _, room = shared.lease(rows * 8)
    x = torch.from_numpy(room).view(torch.int64)
    x.copy_(torch.arange(rows))
    lists = fs.Ragged(torch.arange(6.0), torch.tensor([0, 2, 6]))
    columns = {
        "x": x,
        "y": torch.arange(rows, dtype=torch.bfloat16),
        "text": ["é"] * rows,
        "lists": lists,
        "struct": {"a": torch.zeros(rows, 0), "b": [torch.ones(2), None]},
        "strided": torch.arange(20).view(4, 5).t(),
        "one": torch.tensor(True),
    }
    batch = fs.Batch(columns, ids=torch.arange(rows), epoch=3)
    batch._shared = shared
    return batch


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        bits = [each.contiguous().view(-1).view(torch.uint8) for each in (a, b)]  # NaN is like NaN
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if isinstance(a, fs.Ragged):
        return same(a.values, b.values) and same(a.offsets, b.offsets)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def test_a_batch_is_handed_over_whole_and_once() -> None:
    _handover.register()
    pool = _core.SharedPool()
    batch = batch_in(pool.batch(1000))
    message = bytes(ForkingPickler.dumps(batch))
    again = pickle.loads(message)
    assert same(again, batch)
    assert same(again.ids, batch.ids)
    assert (again.epoch, again.positions) == (3, None)
    batch["x"][0] = 77  # the same memory
    assert again["x"][0] == 77
    with pytest.raises(InvalidError, match="once"):
        pickle.loads(message)
    assert same(pickle.loads(pickle.dumps(batch)), batch)  # a copy, as often as wanted
    torch_way = bytes(ForkingPickler.dumps(batch))  # it is on its way already: a copy in /dev/shm
    assert same(pickle.loads(torch_way), batch)


def test_memory_is_used_again_when_the_receiver_lets_go() -> None:
    _handover.register()
    pool = _core.SharedPool()
    kept = []
    for _ in range(3):  # in the consumer's hands: not to be touched
        kept.append(pickle.loads(ForkingPickler.dumps(batch_in(pool.batch(1000)))))
    assert pool.fresh_pieces == 3
    for i in range(3):
        kept[i]["x"][:] = i
    kept.pop()
    for _ in range(5):
        pickle.loads(ForkingPickler.dumps(batch_in(pool.batch(1000))))
    assert pool.fresh_pieces == 3
    assert [int(batch["x"][-1]) for batch in kept] == [0, 1]


def test_a_child_of_the_receiver_keeps_what_it_inherited() -> None:
    _handover.register()
    pool = _core.SharedPool()
    batch = pickle.loads(ForkingPickler.dumps(batch_in(pool.batch(1000))))
    reads, writes = os.pipe()
    goes, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(goes, 1)
        os.write(writes, b"y" if batch["x"][-1] == 99 else b"n")
        os._exit(0)
    del batch
    for _ in range(3):
        pickle.loads(ForkingPickler.dumps(batch_in(pool.batch(1000))))["x"][:] = 5
    os.write(tell, b"g")
    assert os.read(reads, 1) == b"y"
    os.waitpid(pid, 0)
    for fd in (reads, writes, goes, tell):
        os.close(fd)


def test_a_ticket_of_a_dead_sender_is_an_error() -> None:
    with pytest.raises(StorageError, match="gone"):
        _core.ReceivedMemory(2**22 - 1, 3, 0, 17, 100)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_deliver_what_one_process_does(dataset: Path, method: str) -> None:
    options: dict[str, Any] = {"batch_size": 32, "batched": True, "shuffle": True, "seed": 3}
    expected = list(fs.ShardDataset(dataset, **options))
    loader = DataLoader(
        fs.ShardDataset(dataset, **options),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context(method),
        persistent_workers=True,
        timeout=60,
    )
    for epoch in range(2):
        batches = list(loader)
        assert all(batch.epoch == epoch for batch in batches)
        if epoch == 0:
            assert len(batches) == len(expected)
            assert all(map(same, batches, expected))
            assert all(
                same(a.ids, b.ids) and same(a.positions, b.positions)
                for a, b in zip(batches, expected, strict=True)
            )
            assert not any(batch["id"].is_shared() for batch in batches)  # not torch's kind


def test_descriptors_do_not_grow_with_batches_that_are_kept(plain_dataset: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    dataset = fs.ShardDataset(plain_dataset, batch_size=8, batched=True)
    kept = list(DataLoader(dataset, batch_size=None, num_workers=2, timeout=60))
    assert len(kept) == 250
    assert len(os.listdir("/proc/self/fd")) - before < 20
    assert [id for batch in kept for id in batch["id"].tolist()] == list(range(2000))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_is_cut_short_is_an_error_in_the_consumer(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "d"
    fs.write(pa.table({"x": np.arange(400_000)}), path, compression="none", block_bytes=8192)
    (shard,) = path.glob("shard-*.arrow")
    dataset = fs.ShardDataset(path, batch_size=256, batched=True)
    iterator = iter(DataLoader(dataset, batch_size=None, num_workers=workers))
    next(iterator)
    os.truncate(shard, 500_000)
    with pytest.raises((CorruptError, StorageError), match=shard.name):
        list(iterator)


def test_bytes_lie_in_the_batch_too() -> None:
    _handover.register()
    pool = _core.SharedPool()
    shared = pool.batch(1000)
    batch = batch_in(shared)
    batch["blob"] = [b"", None, b"\x00\xff" * 40_000, b"end"] * 25
    batch["few"] = [b"a", b"b"] * 50
    batch["mixed"] = [b"a" * 100_000, "b"] * 50
    message = bytes(ForkingPickler.dumps(batch))
    assert b"\x00\xff" * 100 not in message
    again = pickle.loads(message)
    assert same(again, batch)
    assert all(type(a) is type(b) for a, b in zip(again["blob"], batch["blob"], strict=True))
