"""What users of other loaders ran into, as small cases with the right result. The numbers in the names are stable."""

from __future__ import annotations

import base64
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader

import fastshard as fs
import fastshard.torch
from fastshard import _core
from fastshard.errors import InvalidError

Make = Callable[..., str]
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def ids(batch: Any) -> list[int]:
    return [int(i) for i in batch["id"]]


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(lists))


def all_ids(batches: Any) -> list[list[int]]:
    return [ids(batch) for batch in batches]


def order(path: str, epoch: int = 0, **options: Any) -> list[int]:
    """The ids of one epoch, read in this process by one rank."""
    data = fs.ShardDataset(path, **options)
    data.set_epoch(epoch)
    return [int(sample["id"]) for sample in data]


# A. Hangs


def p01_rank(path: str, rank: int, gave_up: Any, results: Any) -> None:
    data = fs.ShardDataset(path, batch_size=2, rank=rank, world_size=2, shuffle="global")
    loader = DataLoader(data, batch_size=2, num_workers=2)
    if rank == 0:
        for _ in loader:
            break
        gave_up.set()
    else:
        list(loader)
        assert gave_up.wait(60)
    began = time.monotonic()
    batch = next(iter(loader))
    results.put((rank, ids(batch), time.monotonic() - began))


def test_p01_a_rank_that_gives_up_its_epoch_holds_back_nobody(make: Make) -> None:
    path = make([10])
    context = multiprocessing.get_context("fork")
    gave_up, results = context.Event(), context.Queue()
    processes = [context.Process(target=p01_rank, args=(path, rank, gave_up, results)) for rank in range(2)]
    for process in processes:
        process.start()
    got = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    expected = order(path, 1, shuffle="global")[:4]
    assert got[0][1] + got[1][1] == expected
    assert all(seconds < 10 for _, _, seconds in got)


# C. Resume and determinism


def test_p07_a_loaded_state_is_not_ignored(make: Make) -> None:
    path = make([12, 8])
    whole = order(path, shuffle=True)
    data = fs.ShardDataset(path, batch_size=1, shuffle=True)
    first = list(itertools.islice(DataLoader(data, batch_size=1), 5))
    assert [ids(batch)[0] for batch in first] == whole[:5]
    state = data.state_dict()

    data.load_state_dict(state)  # (a) the same object, a new loader
    assert [ids(batch)[0] for batch in DataLoader(data, batch_size=1)] == whole[5:]

    code = (  # (b) a new process
        "import json, sys, fastshard as fs\n"
        "data = fs.ShardDataset(sys.argv[1], batch_size=1, shuffle=True)\n"
        "data.load_state_dict(json.loads(sys.argv[2]))\n"
        "print([int(sample['id']) for sample in data])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, json.dumps(state)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout) == whole[5:]

    other = fs.ShardDataset(path, batch_size=1, shuffle=True)  # (c) after an extra state_dict()
    other.state_dict()
    other.load_state_dict(state)
    other.state_dict()
    assert [int(sample["id"]) for sample in other] == whole[5:]


@pytest.mark.parametrize(("after", "lengths"), [(24, [1, 25, 25]), (25, [25, 25])])
def test_p09_a_loaded_state_is_applied_once(make: Make, after: int, lengths: list[int]) -> None:
    path = make([60, 40])
    loader = fastshard.torch.DataLoader(fs.ShardDataset(path, shuffle=True), batch_size=4, num_workers=4)
    iterator = iter(loader)
    for _ in range(after):
        next(iterator)
    state = loader.state_dict()
    del iterator

    resumed = fastshard.torch.DataLoader(fs.ShardDataset(path, shuffle=True), batch_size=4, num_workers=4)
    resumed.load_state_dict(state)
    assert [len(list(resumed)) for _ in lengths] == lengths


def test_p10_persistent_workers_begin_new_epochs(make: Make) -> None:
    path = make([10])
    epochs = {}
    for persistent in (True, False):
        data = fs.ShardDataset(path, batch_size=1, shuffle="global")
        loader = DataLoader(data, batch_size=1, num_workers=2, persistent_workers=persistent)
        epochs[persistent] = [flat(all_ids(loader)) for _ in range(3)]
    assert epochs[True] == epochs[False]
    assert len({tuple(epoch) for epoch in epochs[True]}) == 3
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs[True])

    for persistent in (True, False):
        data = fs.ShardDataset(path, batch_size=1, shuffle="global")
        data.load_state_dict(data.state_dict(num_samples=7))
        loader = DataLoader(data, batch_size=1, num_workers=2, persistent_workers=persistent)
        resumed = [flat(all_ids(loader)) for _ in range(3)]
        assert resumed == [epochs[True][0][7:], *epochs[True][1:]]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("world", "size"), [(2, 3), (1, 6), (3, 2), (6, 1)])
def test_p11_resuming_on_any_number_of_ranks(make: Make, world: int, size: int, lanes: int) -> None:
    path = make([7, 9, 8])

    def run(
        world: int, size: int, state: Any = None, steps: int | None = None
    ) -> tuple[list[list[int]], Any]:
        ranks = [
            fs.ShardDataset(
                path,
                batch_size=size,
                batched=True,
                rank=rank,
                world_size=world,
                shuffle="global",
                lanes=lanes,
            )
            for rank in range(world)
        ]
        for rank in ranks:
            if state is not None:
                rank.load_state_dict(state)
        found = []
        for batches in itertools.islice(zip(*ranks, strict=True), steps):
            found.append(sorted(flat(ids(batch) for batch in batches)))
        return found, ranks[-1].state_dict()

    whole, _ = run(2, 3)
    assert sorted(flat(whole)) == list(range(24))
    head, state = run(2, 3, steps=1)
    assert head == whole[:1]
    assert run(world, size, state)[0] == whole[1:]


def p13_epochs(path: str, workers: int) -> list[list[int]]:
    data = fs.ShardDataset(path, batch_size=1, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=1, num_workers=workers)
    found = [flat(all_ids(loader)) for _ in range(3)]
    threaded = fs.ShardLoader(path, batch_size=1, shuffle=True, seed=1, threads=workers, columns=["id"])
    assert [flat(all_ids(threaded)) for _ in range(3)] == found
    return found


def test_p13_runs_do_not_differ(make: Make) -> None:
    path = make([2, 2, 2, 2, 2])
    code = "import json, sys, test_cases\nprint(json.dumps(test_cases.p13_epochs(sys.argv[1], int(sys.argv[2]))))"
    runs = []
    for workers in (1, 8):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, path, str(workers)],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=Path(__file__).parent,
        )
        runs.append(json.loads(done.stdout))
    assert runs[0] == runs[1]
    assert len({tuple(epoch) for epoch in runs[0]}) == 3
    assert order(path, 2, shuffle=True, seed=1) == runs[0][2]


def test_p14_resuming_late_reads_nothing_earlier(make: Make) -> None:
    path = make([10_000] * 100, name="large")
    data = fs.ShardDataset(path)
    data.load_state_dict(data.state_dict(num_samples=999_000))
    fresh = fs.ShardDataset(path)
    state = data.state_dict()
    began = time.monotonic()
    fresh.load_state_dict(state)
    iterator = iter(fresh)
    first = next(iterator)
    seconds = time.monotonic() - began
    assert first["id"] == 999_000
    assert seconds < 1
    assert sum(1 for _ in iterator) == 999
    assert fresh._source.open().stats()["shards_opened"] <= 2


# D. Wrong, repeated or lost samples


@pytest.mark.parametrize(("tail", "sizes"), [("exact", [3, 3, 2, 2]), ("pad", [3, 3, 3, 3])])
def test_p16_one_shard_is_enough_for_many_ranks(make: Make, tail: str, sizes: list[int]) -> None:
    path = make([10])
    found = [order(path, rank=rank, world_size=4, tail=tail) for rank in range(4)]
    assert [len(each) for each in found] == sizes
    assert set().union(*found) == set(range(10))
    if tail == "exact":
        assert sorted(flat(found)) == list(range(10))


def p18_rank(rank: int, path: str, store: str, results: Any) -> None:
    data = fs.ShardDataset(path, batch_size=1)
    loader = DataLoader(data, batch_size=1, num_workers=2)
    before = len(data)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        results.put((rank, before, len(data), flat(all_ids(loader))))
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def test_p18_a_data_set_made_before_the_process_group_is_split(make: Make, tmp_path: Any) -> None:
    path = make([10])
    context = torch.multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=p18_rank, args=(rank, path, str(tmp_path / "store"), results))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    got = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert [(before, after) for _, before, after, _ in got] == [(10, 5), (10, 5)]
    assert sorted(got[0][3] + got[1][3]) == list(range(10))


@pytest.mark.parametrize("workers", [0, 1, 3, 16])
def test_p19_workers_do_not_multiply_an_epoch(make: Make, workers: int) -> None:
    path = make([24])
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "batch_size": 3}
        loader = DataLoader(fs.ShardDataset(path, **options), batch_size=3, num_workers=workers)
        assert [len(batch["id"]) for batch in loader] == [3] * 4
        ready = DataLoader(
            fs.ShardDataset(path, batched=True, **options), batch_size=None, num_workers=workers
        )
        assert [len(batch["id"]) for batch in ready] == [3] * 4


@pytest.mark.parametrize(
    ("count", "size", "workers", "full", "last"), [(1000, 128, 10, 7, 104), (46, 8, 3, 5, 6)]
)
def test_p20_drop_last_drops_one_batch_at_most(
    make: Make, count: int, size: int, workers: int, full: int, last: int
) -> None:
    path = make([count])
    for drop_last, sizes in ((True, [size] * full), (False, [size] * full + [last])):
        loaders = [
            DataLoader(
                fs.ShardDataset(path, batch_size=size),
                batch_size=size,
                num_workers=workers,
                drop_last=drop_last,
            ),
            fastshard.torch.DataLoader(
                fs.ShardDataset(path), batch_size=size, num_workers=workers, drop_last=drop_last
            ),
            DataLoader(
                fs.ShardDataset(path, batch_size=size, batched=True, drop_last=drop_last),
                batch_size=None,
                num_workers=workers,
            ),
        ]
        for loader in loaders:
            assert len(loader) == len(sizes)
            assert [len(batch["id"]) for batch in loader] == sizes


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("shuffle", ["global", "block"])
def test_p22_no_short_batch_in_the_middle(make: Make, shuffle: str, workers: int) -> None:
    path = make([30, 10])
    for seed in range(3):
        data = fs.ShardDataset(path, batch_size=8, shuffle=shuffle, seed=seed)
        found = all_ids(DataLoader(data, batch_size=8, num_workers=workers))
        assert [len(batch) for batch in found] == [8] * 5
        assert sorted(flat(found)) == list(range(40))


def test_p24_a_plain_loader_repeats_nothing(make: Make) -> None:
    path = make([40])
    found = flat(all_ids(DataLoader(fs.ShardDataset(path), num_workers=4)))
    assert sorted(found) == list(range(40))


def test_ranks_of_compressed_data_in_block_order_decompress_each_block_once(
    make: Make, tmp_path: Path
) -> None:
    """Four ranks in one epoch; each keeps to its lanes."""
    count = 1 << 18
    fs.write({"id": np.arange(count)}, tmp_path / "zstd", compression="zstd", block_bytes=4096)
    blocks = fs.open(tmp_path / "zstd").index.blocks
    decompressed, seen = 0, []
    for rank in range(4):
        data = fs.ShardDataset(
            tmp_path / "zstd", batch_size=256, batched=True, shuffle=True, rank=rank, world_size=4
        )
        seen += [batch["id"].numpy() for batch in data]
        decompressed += data._source.open().stats()["columns_decompressed"]
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(count))
    assert decompressed <= 1.2 * blocks


# H. Start-up and the epoch boundary


P35 = """
import json, re, sys, time
import fastshard as fs, torch, pyarrow

def memory(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

before, began = memory("VmRSS"), time.monotonic()
data = fs.ShardDataset(sys.argv[1], batch_size=256, batched=True, shuffle=sys.argv[2] == "block" or sys.argv[2])
progress = data._begin(None)
ids = progress.plan.batch(0).places
print(json.dumps([time.monotonic() - began, memory('VmHWM') - before, len(set(ids.tolist())), int(ids.max())]))
"""


def huge_index(folder: Path, shards: int, rows: int) -> None:
    """The index of a data set whose shards are not there, written from the specification alone."""
    folder.mkdir()
    each, rng = np.full(shards, rows), np.random.default_rng(0)
    hashes = rng.bytes(16 * shards)
    table = pa.table(
        {
            "path": [
                f"shard-{number:05d}-{hashes[16 * number :][:8].hex()}.arrow" for number in range(shards)
            ],
            "rows": each,
            "bytes": each * 100,
            "blocks": np.full(shards, rows // 500),
            "block_rows": np.full(shards, 500),
            "raw_bytes": each * 100,
            "hash": pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), shards, [None, pa.py_buffer(hashes)]),
            "table_offset": np.arange(shards) * 1024 + 8,
            "table_bytes": np.full(shards, 1024),
            "table_hash": np.zeros(shards, np.uint64),
        }
    )
    table = table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    name = f"index-{_core.xxh3_128(content)[:8].hex()}.arrow"
    (folder / name).write_bytes(content)
    blocks = "blocks-" + "0" * 16 + ".arrow"
    with (folder / blocks).open("wb") as file:
        file.truncate(shards * 1024 + 16)
    numbers = np.stack([each, each * 100], axis=1).astype("<i8").tobytes()
    places = [numbers[16 * n : 16 * n + 16] + hashes[16 * n : 16 * n + 16] for n in range(shards)]
    schema = pa.schema([pa.field("x", pa.float32())])
    index = {
        "format": "fastshard",
        "version": 1,
        "generation": 1,
        "rows": shards * rows,
        "shards": shards,
        "blocks": shards * (rows // 500),
        "bytes": shards * rows * 100,
        "raw_bytes": shards * rows * 100,
        "fingerprint": _core.xxh3_128(b"".join(places)).hex(),
        "schema": [{"name": "x", "type": "float", "nullable": True}],
        "schema_ipc": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        "shard_table": {"path": name, "bytes": len(content), "hash": _core.xxh3_128(content).hex()},
        "block_table": {"path": blocks, "bytes": shards * 1024 + 16, "hash": "0" * 32},
        "columns": {"x": {"null_count": 0, "child_null_count": 0, "min_length": None, "max_length": None}},
        "order": {"window": (1 << 29) // 100, "unit_blocks": 1},
        "settings": {"compression": "none", "level": None, "block_bytes": 1 << 20, "shard_bytes": 1 << 28},
        "provenance": {},
        "metadata": {},
        "previous": [],
    }
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("shuffle", ["none", "global", "block"])
def test_p35_a_huge_index_is_quick_to_open_and_to_shuffle(tmp_path: Path, shuffle: str) -> None:
    """From 100,000 shards of 10,000 samples to the first batch's ids, in a process of its own."""
    huge_index(tmp_path / "huge", 100_000, 10_000)
    done = subprocess.run(
        [sys.executable, "-c", P35, str(tmp_path / "huge"), shuffle],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seconds, memory, different, largest = json.loads(done.stdout)
    assert different == 256
    assert largest < 10**9
    assert seconds < 3
    assert memory < 200_000_000


def test_p36_the_next_epoch_begins_at_once(make: Make) -> None:
    path = make([250_000] * 4, name="large")
    data = fs.ShardDataset(path, batch_size=10_000, batched=True, shuffle=True, columns=["id"])
    loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True)
    firsts, waits = [], []
    for _ in range(4):  # the best of three, since other processes may keep this one waiting
        iterator = iter(loader)
        began = time.monotonic()
        for place in range(len(loader)):
            next(iterator)
            (waits if place else firsts).append(time.monotonic() - began)
            began = time.monotonic()
        assert next(iterator, None) is None
    assert min(firsts[1:]) < 0.5
    assert min(firsts[1:]) < max(10 * statistics.median(waits), 0.05)


# M. Error messages


@pytest.mark.parametrize("batched", [False, True])
def test_p50_a_setting_that_yields_nothing_says_so(make: Make, batched: bool) -> None:
    path = make([100])
    data = fs.ShardDataset(path, batch_size=101, drop_last=True, batched=batched)
    for use in (len, lambda data: next(iter(data))):
        with pytest.raises(ValueError, match="100 samples make no batch of 101"):
            use(data)
    loader = fastshard.torch.DataLoader(fs.ShardDataset(path), batch_size=101, drop_last=True)
    with pytest.raises(InvalidError, match="100 samples make no batch of 101"):
        iter(loader)
    for rank in range(4):
        data = fs.ShardDataset(path, batch_size=30, drop_last=True, batched=batched, rank=rank, world_size=4)
        with pytest.raises(ValueError, match=r"100 samples .* 120 are needed"):
            next(iter(data))
