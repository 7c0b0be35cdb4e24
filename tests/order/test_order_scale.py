"""The order costs next to nothing, whatever the data set's size: limits several times what was measured."""

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from shards import columns, regular

from fastshard import _core


def best_seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Of this thread's own processor time: it runs alone, and other work on the machine must not fail a test."""
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


FIRST_BATCH = """
import time
from pathlib import Path
import numpy as np
from fastshard import _core

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024

shards = {{
    "shard_rows": np.full(100_000, 10_000),
    "shard_blocks": np.full(100_000, 10),
    "shard_block_rows": np.full(100_000, 1_000),
}}
positions = np.arange(1024, dtype=np.uint64)
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
begin = time.thread_time()
order = _core.EpochOrder(size=10**9, seed=1, epoch=2, window=500_000, unit_blocks=1, **{arguments}, **shards)
order.ids(positions)
print(time.thread_time() - begin, memory("VmHWM") - before)
"""


@pytest.mark.unsanitized
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "arguments",
    [{"kind": "none"}, {"kind": "global"}, {"kind": "global", "lanes": 64}, {"kind": "block"}],
    ids=str,
)
def test_a_billion_samples_in_a_hundred_thousand_shards_start_at_once(arguments):
    script = FIRST_BATCH.format(arguments=arguments)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    seconds, megabytes = map(float, result.stdout.split())
    assert seconds < 1
    assert megabytes < 200


@pytest.mark.unsanitized
def test_a_trillion_samples_start_in_ten_milliseconds():
    positions = np.arange(1024, dtype=np.uint64)
    order = {"kind": "global", "size": 10**12, "seed": 1}
    assert best_seconds(lambda: _core.EpochOrder(**order).ids(positions)) < 0.010


@pytest.mark.unsanitized
def test_seeking_is_fast_and_needs_nothing_before():
    size = 2**30
    positions = np.arange(size // 2, size // 2 + 256, dtype=np.uint64)
    for kind in ("none", "global"):
        assert (
            best_seconds(lambda k=kind: _core.EpochOrder(kind=k, size=size, epoch=7).ids(positions)) < 0.001
        )
    block = {"kind": "block", "size": size, "epoch": 7, "window": 2**19, "unit_blocks": 1}
    shards = columns([regular(2**16, 2**10)] * 2**14)  # 2^20 units
    assert best_seconds(lambda: _core.EpochOrder(**block, **shards).ids(positions), 9) < 0.050
    order = _core.EpochOrder(**block, **shards)
    assert best_seconds(lambda: order.ids(positions)) < 0.001


@pytest.mark.unsanitized
def test_the_permutation_is_fast():
    # 7 ns with AVX2 and 15 ns without are what benchmarks/order.py measures on a quiet machine.
    permutation = _core.Permutation(10**8 + 7, 1)
    for kernel in _core.permutation_kernels():
        seconds = best_seconds(lambda k=kernel: permutation.fill(12_345, 2**18, kernel=k), 9)
        assert seconds / 2**18 < 45e-9, kernel


@pytest.mark.parametrize("units", [32, 40, 72, 100, 127, 300, 520, 1000])
@pytest.mark.parametrize("batch_size", [16, 32, 128])
def test_four_ranks_together_read_few_units_twice(units, batch_size):
    rows = 100
    shards = [regular(units * rows // 4, rows)] * 4
    size = 4 * shards[0].rows
    order = _core.EpochOrder(
        kind="block", size=size, seed=3, epoch=1, window=64 * rows, unit_blocks=1, **columns(shards)
    )
    read = 0
    for rank in range(4):
        part = _core.Partition(size=size, lanes=order.lanes, batch_size=batch_size, world_size=4, rank=rank)
        positions = np.concatenate([part.batch(k)[0] for k in range(part.num_batches)])
        ids = order.ids(positions)
        unit = ids // shards[0].rows * 10_000 + ids % shards[0].rows // rows
        # A unit that is cut between lanes is read once for each of them.
        read += len(np.unique(np.stack([unit, positions % order.lanes]), axis=1).T)
    assert read <= 1.2 * 4 * shards[0].blocks
