"""Loaders begin, end and begin again: no process, thread, descriptor or memory is left, and no epoch waits."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import fastshard as fs
import fastshard.torch
from fastshard import _core

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

ONE_BATCH = """
import sys, time
from torch.utils.data import DataLoader
import fastshard as fs
import fastshard.torch

def make(kind, path, workers):
    if kind == "ShardLoader":
        return fs.ShardLoader(path, batch_size=8, shuffle=True)
    if kind == "fastshard.torch":
        return fastshard.torch.DataLoader(fs.ShardDataset(path, shuffle=True), 8, num_workers=workers)
    batched = kind == "batches"
    dataset = fs.ShardDataset(path, batch_size=8, batched=batched, shuffle=True)
    return DataLoader(dataset, batch_size=None if batched else 8, num_workers=workers)

def main():
    kind, path, workers, stays = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "stay"
    iterator = iter(make(kind, path, workers))
    next(iterator)
    print("one", flush=True)
    end = time.monotonic() + 60
    while stays and time.monotonic() < end:
        time.sleep(0.01)  # a signal that comes just before a sleep begins does not end it

main()
"""


def in_session(session: int) -> list[str]:
    """Processes of a session that still live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(pid)
    return found


KINDS = [("ShardLoader", 0)]
KINDS += [(kind, workers) for kind in ("samples", "batches", "fastshard.torch") for workers in (0, 2)]


@pytest.mark.parametrize(
    ("kind", "workers", "interrupted"),
    [(*kind, interrupted) for kind in KINDS for interrupted in ("", "process")]
    + [(*kind, "terminal") for kind in KINDS if kind[1]],
)
def test_the_process_ends_with_batches_in_flight(
    plain_dataset: Path, kind: str, workers: int, interrupted: str
) -> None:
    """Within 5 s of its last line, or of Ctrl-C, which a terminal sends to the workers as well; no child is left."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_BATCH, kind, str(plain_dataset), str(workers), "stay" * bool(interrupted)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert (
            process.stdout.readline() == "one\n"
        )  # imports are behind it, and a busy machine takes long for them
        begin = time.monotonic()
        if interrupted == "process":
            process.send_signal(signal.SIGINT)
        elif interrupted == "terminal":
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert time.monotonic() - begin < 5
        while in_session(process.pid) and time.monotonic() - begin < 5:
            time.sleep(0.01)
        assert in_session(process.pid) == []
        if interrupted:
            assert process.returncode == -signal.SIGINT
            assert "KeyboardInterrupt" in errors
        else:
            assert (process.returncode, errors) == (0, "")
    finally:
        for pid in in_session(process.pid):
            os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.communicate()


FRESH = """
import gc, os, sys
import fastshard as fs
from fastshard import _core

def status():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    resident = int(fields["VmRSS"].split()[0]) * 1024
    return resident, _core.memory_taken(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

found = []
for epoch in range(6):
    loader = fs.ShardLoader(sys.argv[1], batch_size=512, shuffle=True, engine=sys.argv[2])
    assert sum(batch.num_samples for batch in loader) == 62_000
    del loader
    gc.collect()
    found.append(status())
print(found)
assert found[5][0] - found[1][0] <= 10 << 20
assert {counted[1] for counted in found} == {0}
assert found[5][2:] == found[1][2:]
"""


@pytest.mark.parametrize(
    ("engine", "compression"), [("mmap", "none"), ("threads", "none"), ("uring", "none"), ("mmap", "lz4")]
)
def test_a_new_loader_each_epoch_costs_nothing_that_stays(
    tmp_path: Path, engine: str, compression: str
) -> None:
    """62 MB, six loaders."""
    if engine == "uring" and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)
    values = (
        np.zeros((62_000, 250), np.float32)
        if compression == "none"
        else np.arange(62_000 * 250, dtype=np.float32)
    )
    fs.write({"x": values.reshape(62_000, 250)}, tmp_path / "d", compression=compression)
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path / "d"), engine],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Zeros(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.zeros(8) for _ in range(100))


def waits(loader: Any) -> tuple[list[float], float]:
    """Seconds until the first batch of each of five epochs, and the median wait inside the first of them."""
    firsts, inside = [], list[float]()
    for epoch in range(5):
        begin = time.perf_counter()
        for number, _ in enumerate(loader):
            waited = time.perf_counter() - begin
            if number == 0:
                firsts.append(waited)
            elif epoch == 0:
                inside.append(waited)
            begin = time.perf_counter()
    return firsts, statistics.median(inside)


@pytest.mark.parametrize("kind", ["samples", "batches", "fastshard.torch"])
def test_no_epoch_begins_with_a_wait(tmp_path: Path, kind: str) -> None:
    """A million small samples, two persistent workers: the first batch of another epoch comes as the others do.

    Of several boundaries the best counts, as the machine may be busy. Finished batches come faster than torch itself
    can begin an epoch with workers that stay, so what that takes is granted there.
    """
    fs.write({"x": np.arange(1_000_000)}, tmp_path / "d")
    stays = {"num_workers": 2, "persistent_workers": True, "timeout": 60}
    torch_alone = 0.0
    if kind == "samples":
        dataset = fs.ShardDataset(tmp_path / "d", batch_size=4000, shuffle=True)
        loader = DataLoader(dataset, batch_size=4000, **stays)
    else:
        size = 10_000
        torch_alone = min(waits(DataLoader(Zeros(), batch_size=None, **stays))[0][1:])
        if kind == "batches":
            dataset = fs.ShardDataset(tmp_path / "d", batch_size=size, batched=True, shuffle=True)
            loader = DataLoader(dataset, batch_size=None, **stays)
        else:
            loader = fastshard.torch.DataLoader(fs.ShardDataset(tmp_path / "d", shuffle=True), size, **stays)
    firsts, median = waits(loader)
    assert min(firsts[1:]) < 10 * median + 3 * torch_alone
    assert min(firsts[1:]) < 0.5
