"""Spark's own speculation, on a cluster of two executors: in local mode Spark never runs a second copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("classic")
@pytest.mark.timeout(600)
def test_two_copies_of_a_task_leave_no_row_twice_and_no_file(tmp_path: Path) -> None:
    program = Path(__file__).with_name("speculation.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, timeout=560, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ended"] == ["0-0", "1-0", "2-0", "2-1", "3-0"]  # two copies of one task came to its end
    with fs.open(tmp_path / "out") as reader:
        assert reader["id"].tolist() == np.arange(4000).tolist()
        assert (len(reader), reader.index.shards) == (found["rows"], found["shards"])
        names = set(os.listdir(tmp_path / "out"))
        shards = {name for name in names if name.startswith("shard-")}
        assert len(shards) == found["shards"]
        assert not {name for name in names if name.startswith(".tmp-")}
        assert not reader.verify()
