"""Real ranks (gloo) with real workers, however they were started, and a run that is killed."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch.distributed
import torch.multiprocessing
from torch.utils.data import DataLoader

import fastshard as fs
import fastshard.torch

Make = Callable[..., str]
GLOBAL_BATCH = 12
METHODS = ("fork", "spawn", "forkserver")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@contextmanager
def process_group(rank: int, world: int, store: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


class Ranks:
    """Processes of a run, each at the head of a process group; all gone at the end, whatever happens."""

    def __init__(self, method: str, world: int, main: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context(method)
        self.processes = [
            context.Process(target=lead, args=(main, rank, world, *args)) for rank in range(world)
        ]

    def __enter__(self) -> Ranks:
        for process in self.processes:
            process.start()
        return self

    def join(self, timeout: float = 150) -> None:
        """Waits until all have ended well, or one has not: the others would wait for it."""
        deadline = time.monotonic() + timeout
        running = {process.sentinel: process for process in self.processes}
        while running:
            ended = multiprocessing.connection.wait(list(running), max(0, deadline - time.monotonic()))
            assert ended, f"{len(running)} of {len(self.processes)} ranks still run after {timeout} s"
            for sentinel in ended:
                process = running.pop(sentinel)  # type: ignore[call-overload]
                process.join()
                assert process.exitcode == 0

    def kill(self) -> None:
        for process in self.processes:
            assert process.pid is not None
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.kill()
            process.join(30)

    def __exit__(self, *_: object) -> None:
        self.kill()


def lead(main: Callable[..., None], rank: int, *args: Any) -> None:
    os.setpgid(0, 0)
    main(rank, *args)
    leave()


def leave() -> None:
    """Ends a rank that has done its work. torch with gloo now and then aborts where a spawned interpreter comes to its
    end (see torchrun.py); that ours ends well is tested without process groups."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def train(
    rank: int, world: int, data: Any, folder: Path, workers: int, method: str | None, batched: bool
) -> None:
    """Two epochs, the first of which is given up after two steps; writes what this rank got."""
    with process_group(rank, world, folder / "store"):
        if isinstance(data, str):
            data = fs.ShardDataset(data, shuffle=True, batch_size=GLOBAL_BATCH // world, batched=batched)
        loader: Any = DataLoader(
            data,
            batch_size=None if batched else GLOBAL_BATCH // world,
            num_workers=workers,
            multiprocessing_context=method if workers else None,
        )
        given_up = [batch["id"].tolist() for batch in itertools.islice(loader, 2)]
        whole = [batch["id"].tolist() for batch in loader]
        (folder / f"{rank}.json").write_text(json.dumps([given_up, whole]))
        torch.distributed.barrier()


def check(path: str, folder: Path, world: int) -> None:
    got = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    data = fs.ShardDataset(path, shuffle=True, batch_size=GLOBAL_BATCH, batched=True)
    expected = [[batch["id"].tolist() for batch in data] for _ in range(2)]
    for epoch, steps in enumerate((2, None)):
        joined = [
            sorted(itertools.chain.from_iterable(step))
            for step in zip(*(each[epoch] for each in got), strict=True)
        ]
        assert joined == [sorted(batch) for batch in expected[epoch][:steps]]


def run(
    make: Make, folder: Path, world: int, workers: int, method: str, *, inside: bool, batched: bool
) -> None:
    """60 samples, of which every world size gets 12 at a step. The data set is made in the launcher, or inside."""
    path = make([20, 25, 15])
    folder.mkdir()
    data: Any = path
    if not inside:
        data = fs.ShardDataset(path, shuffle=True, batch_size=GLOBAL_BATCH // world, batched=batched)
    with Ranks(method, world, train, data, folder, workers, method, batched) as ranks:
        ranks.join()
    check(path, folder, world)


@pytest.mark.parametrize(
    ("world", "workers", "method", "inside", "batched"),
    [
        (2, 0, "fork", False, False),
        (3, 2, "fork", False, False),
        (4, 1, "fork", True, True),
        (2, 2, "forkserver", False, True),
    ],
)
def test_ranks_see_the_same_global_batches(
    make: Make, tmp_path: Path, world: int, workers: int, method: str, inside: bool, batched: bool
) -> None:
    run(make, tmp_path / "run", world, workers, method, inside=inside, batched=batched)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_all_ranks_workers_and_ways_to_start_them(
    make: Make, tmp_path: Path, world: int, workers: int, method: str
) -> None:
    inside, batched = (world + workers) % 2 == 0, world % 2 == 0
    run(make, tmp_path / "run", world, workers, method, inside=inside, batched=batched)


def spawned(rank: int, data: fs.ShardDataset, folder: Path) -> None:
    assert "RANK" not in os.environ
    train(rank, 2, data, folder, 1, "spawn", False)
    leave()


def test_ranks_of_mp_spawn_take_their_place_from_the_process_group(make: Make, tmp_path: Path) -> None:
    path = make([20, 25, 15])
    data = fs.ShardDataset(path, shuffle=True, batch_size=GLOBAL_BATCH // 2)
    torch.multiprocessing.spawn(spawned, args=(data, tmp_path), nprocs=2, join=True)
    check(path, tmp_path, 2)


TORCHRUN = """
import itertools, json, os, pathlib, sys
import fastshard as fs
from torch.utils.data import DataLoader
path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
size = 12 // int(os.environ["WORLD_SIZE"])
loader = DataLoader(fs.ShardDataset(path, shuffle=True, batch_size=size), batch_size=size, num_workers=1)
given_up = [batch["id"].tolist() for batch in itertools.islice(loader, 2)]
whole = [batch["id"].tolist() for batch in loader]
(folder / (os.environ["RANK"] + ".json")).write_text(json.dumps([given_up, whole]))
"""


def test_torchrun_sets_what_is_read(make: Make, tmp_path: Path) -> None:
    """Without a process group: the environment alone."""
    path = make([20, 25, 15])
    script = tmp_path / "script.py"
    script.write_text(TORCHRUN)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*launcher, str(script), path, str(tmp_path)], check=True, timeout=150, capture_output=True
    )
    check(path, tmp_path, 2)


# Killed and resumed


def checkpointed(
    rank: int, world: int, path: str, folder: Path, batch_size: int, workers: int, pause: float
) -> None:
    """Trains with a checkpoint after each step: what was trained on, and the state, both or neither."""
    with process_group(rank, world, folder / f"store of {world}"):
        loader = fastshard.torch.DataLoader(
            fs.ShardDataset(path, shuffle=True, seed=3), batch_size=batch_size, num_workers=workers
        )
        checkpoint = folder / "checkpoint.json"
        trained: list[int] = []
        if checkpoint.exists():
            saved = json.loads(checkpoint.read_text())
            trained = saved["trained"]
            loader.load_state_dict(saved["state"])
        for batch in loader:
            everyone: list[Any] = [None] * world
            kept = batch.ids if batch.is_repeat is None else batch.ids[~batch.is_repeat]
            torch.distributed.all_gather_object(everyone, (kept.tolist(), loader.state_dict()))
            assert all(state == everyone[0][1] for _, state in everyone)
            trained += itertools.chain.from_iterable(ids for ids, _ in everyone)
            if rank == 0:
                temporary = folder / "checkpoint.tmp"
                temporary.write_text(json.dumps({"trained": trained, "state": everyone[0][1]}))
                temporary.rename(checkpoint)
            time.sleep(pause)
        if rank == 0:
            (folder / "done").touch()
        torch.distributed.barrier()


def test_a_run_killed_on_four_ranks_trains_on_exactly_the_rest_on_two(make: Make, tmp_path: Path) -> None:
    path = make([60, 71, 70])
    checkpoint = tmp_path / "checkpoint.json"
    with Ranks("fork", 4, checkpointed, path, tmp_path, 3, 1, 0.05) as ranks:
        deadline = time.monotonic() + 120
        while not checkpoint.exists() or len(json.loads(checkpoint.read_text())["trained"]) < 60:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ranks.kill()
    before = json.loads(checkpoint.read_text())["trained"]
    assert 60 <= len(before) < 201
    assert not (tmp_path / "done").exists()

    with Ranks("fork", 2, checkpointed, path, tmp_path, 5, 0, 0.0) as ranks:
        ranks.join()
    saved = json.loads(checkpoint.read_text())
    assert (tmp_path / "done").exists()
    assert saved["trained"][: len(before)] == before
    assert sorted(saved["trained"]) == list(range(201))
    assert (saved["state"]["epoch"], saved["state"]["position"]) == (1, 0)


def one_more(data: fs.ShardDataset, results: Any) -> None:
    results.put([int(sample["id"]) for sample in data])


@pytest.mark.parametrize("method", METHODS)
def test_a_process_of_the_users_own_gets_the_rank_of_its_parent(make: Make, method: str) -> None:
    """A prefetching process, say: it is no DataLoader worker and knows no process group."""
    path = make([9])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda: 1)
        patch.setattr(torch.distributed, "get_world_size", lambda: 3)
        data = fs.ShardDataset(path, shuffle="global")
        context = multiprocessing.get_context(method)
        results = context.Queue()
        process = context.Process(target=one_more, args=(data, results))
        process.start()
        got = results.get(timeout=60)
        process.join(30)
        assert got == [int(sample["id"]) for sample in data]
        assert len(got) == 3
