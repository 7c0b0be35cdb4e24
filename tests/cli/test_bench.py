"""`fastshard bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs

pytestmark = pytest.mark.unsanitized


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fs.write({"x": np.arange(8000, dtype=np.float32).reshape(2000, 4)}, tmp_path / "d", compression="lz4")
    return tmp_path / "d"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastshard", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_says_how_fast_and_what_limits(data: Path) -> None:
    done = run(str(data), "--seconds", "0.3", "-b", "64")
    assert done.returncode == 0, done.stderr
    for word in ("samples/s", "first batch", "waited", "engine", "limit", "decompressed"):
        assert word in done.stdout


def test_a_cold_epoch_as_json_with_a_picture(data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "bench.png"
    done = run(
        str(data),
        "--seconds",
        "20",
        "-b",
        "10",
        "--cold",
        "--engine",
        "threads",
        "--json",
        "--plot",
        str(picture),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["epochs"], found["batches"], found["samples"]) == (1, 199, 1990)  # after the first
    assert found["engine"] == "threads"
    assert found["bytes_read"] > 0
    assert 0 <= found["wait_seconds"] <= found["seconds"]  # the wait for the first batch is told by itself
    assert found["samples_per_second"] == pytest.approx(1990 / found["seconds"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_measured_is_one_line(data: Path, tmp_path: Path) -> None:
    done = run(str(tmp_path / "nothing"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = run(str(data), "--seconds", "0.2", "--plot", "bench.txt")
    assert done.returncode == 1
    assert "bench.txt" in done.stderr
    done = run(str(data), "--seconds", "300", "--plot", str(tmp_path / "nothing" / "bench.png"))
    assert done.returncode == 1
    assert f"there is no directory {tmp_path / 'nothing'}" in done.stderr
