"""Loaders begin, end and begin again: no process, thread, descriptor or memory is left, and no epoch waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs
from fastshard import _core

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

ONE_BATCH = """
import sys, time
from torch.utils.data import DataLoader
import fastshard as fs

def main():
    path, workers, stays = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "stay"
    dataset = fs.ShardDataset(path, batch_size=8, batched=True, shuffle=True)
    iterator = iter(DataLoader(dataset, batch_size=None, num_workers=workers))
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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("interrupted", [False, True])
def test_the_process_ends_with_batches_in_flight(
    plain_dataset: Path, workers: int, interrupted: bool
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_BATCH, str(plain_dataset), str(workers), "stay" if interrupted else "end"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        if interrupted:
            process.send_signal(signal.SIGINT)
        process.wait(30)  # 5 s on a machine that does nothing else
        assert interrupted or process.returncode == 0
        deadline = time.monotonic() + 20
        while in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert in_session(process.pid) == []
    finally:
        for pid in in_session(process.pid):
            os.kill(int(pid), signal.SIGKILL)
        process.wait(30)
        process.stdout.close()  # type: ignore[union-attr]


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


def test_samples_that_do_not_wait_for_the_next_epoch(tmp_path: Path) -> None:
    """A million small samples, two persistent workers: the first batch of epoch 1 comes as the others do."""
    from torch.utils.data import DataLoader

    fs.write({"x": np.arange(1_000_000)}, tmp_path / "d")
    dataset = fs.ShardDataset(tmp_path / "d", batch_size=10_000, batched=True, shuffle=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True, timeout=60)
    firsts = []
    for _ in range(3):
        begin = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        firsts.append(time.perf_counter() - begin)
        assert sum(1 for _ in iterator) == 99
    assert min(firsts[1:]) < 0.5
