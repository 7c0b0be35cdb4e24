"""Workers that were forked share the index with the process that opened the data set, and go on sharing it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs

SHARDS = 100_000
ROWS = 10  # of each

READ = """
import json, multiprocessing, sys
import numpy as np
import fastshard as fs

def own_memory():
    with open("/proc/self/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))

def read(reader, seed, results, all_done):
    ids = np.random.default_rng(seed).integers(0, len(reader), 100_000)
    before = own_memory()
    for i in ids:
        assert reader[int(i)]["x"] == i
    all_done.wait(300)  # what the others have mapped is shared as long as they live
    results.put(own_memory() - before)
    all_done.wait(300)

context = multiprocessing.get_context("fork")
reader = fs.open(sys.argv[1])
assert reader[0]["x"] == 0
results, all_done = context.Queue(), context.Barrier(8)
workers = [context.Process(target=read, args=(reader, seed, results, all_done)) for seed in range(8)]
for worker in workers: worker.start()
print(json.dumps([results.get(timeout=400) for _ in workers]))
for worker in workers: worker.join()
"""


@pytest.mark.slow  # 100,000 files
@pytest.mark.unsanitized
@pytest.mark.timeout(900)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_p31_forked_workers_keep_no_memory_of_what_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight, 100,000 random reads each from 100,000 shards: less than 20 MB of its own for each."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    result = fs.write({"x": np.arange(SHARDS * ROWS)}, tmp_path / "d", shard_bytes=1, block_bytes=ROWS * 8)
    assert result.shards == SHARDS
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "d")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert len(grown) == 8
    assert max(grown) < 20_000_000, grown
