"""Several processes write the same bytes as one; whatever ends a conversion early leaves no data set behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from outputs import files_of, stored

import fastshard as fs
from fastshard.converters import shuffle


def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "i", pc.negate(batch["i"]))


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.max(batch["i"]).as_py() > 1500:
        raise ValueError("no row above 1500")
    return batch


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of several sizes, of several row groups, with columns that differ."""
    folder = tmp_path_factory.mktemp("source")
    rng = np.random.default_rng(0)
    start = 0
    for part, (rows, group) in enumerate([(1000, 100), (0, 1), (10, 10), (700, 700), (300, 7)]):
        columns: dict[str, Any] = {
            "i": np.arange(start, start + rows),
            "s": ["x" * int(n) for n in rng.integers(0, 40, rows)],
        }
        if part % 2:
            columns["extra"] = rng.random(rows)
        path = folder / f"kind={'ab'[part % 2]}" / f"part-{part}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=group)
        start += rows
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "filter": pc.field("i") > 100,
            "cast": {"i": "int32"},
            "columns": ["kind", "i"],
            "compression": "zstd",
        },
        {"transform": negated, "shuffle_seed": 3},
    ],
    ids=["plain", "steps", "shuffled"],
)
def test_any_number_of_workers_writes_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(shuffle, "_RUN_MIN", 8000)  # many buckets, so that all workers take part
    monkeypatch.setattr(shuffle, "_RUN_MAX", 8000)
    for workers in (1, 3):
        fs.convert(source, tmp_path / f"{workers}", workers=workers, shard_bytes=10_000, **options)
    one, three = files_of(tmp_path / "1"), files_of(tmp_path / "3")
    assert one == three
    assert sum(name.startswith("shard-") for name in one) > 1


def test_an_error_in_a_worker_reaches_the_caller_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    for options in ({}, {"shuffle_seed": 1}):
        pattern = r"part-4\.parquet: row \d+ and on: transform= failed.*above 1500"
        with pytest.raises(fs.errors.SourceError, match=pattern):
            fs.convert(source, tmp_path / "out", transform=failing, workers=2, shard_bytes=5_000, **options)
        assert not (tmp_path / "out").exists()
    children = [child.cmdline() for child in psutil.Process().children()]
    assert not [line for line in children if "resource_tracker" not in " ".join(line)]


def test_a_transform_that_no_worker_can_have_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(fs.errors.InvalidError, match=r"cannot be sent to worker processes.*workers=1"):
        fs.convert(source, tmp_path / "out", transform=lambda batch: batch, workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", True])
def test_what_is_no_number_of_workers_is_refused(source: Path, tmp_path: Path, workers: Any) -> None:
    for data in (source, pa.table({"x": [1]})):
        for options in ({}, {"shuffle_seed": 1}):
            with pytest.raises(fs.errors.InvalidError, match="workers="):
                fs.convert(data, tmp_path / "out", workers=workers, **options)
    assert not (tmp_path / "out").exists()


def test_few_tasks_need_few_workers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "in.parquet")
    fs.convert(tmp_path / "in.parquet", tmp_path / "out", workers=8)
    assert stored(tmp_path / "out")["x"].to_pylist() == [1]


# Ended early

SLOW = """
import sys, time
import numpy as np, pyarrow as pa
import fastshard as fs

def slow(batch):
    time.sleep(0.01)
    return batch

def told(progress):
    print(progress.bytes, flush=True)

if __name__ == "__main__":
    source, dest, workers, seed, mode = sys.argv[1:]
    print("ready", flush=True)
    fs.convert(source, dest, transform=slow, workers=int(workers), mode=mode, progress=told,
               shuffle_seed=int(seed) if seed else None, shard_bytes=20_000, block_bytes=1000)
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for i in range(40):
        pq.write_table(pa.table({"i": np.arange(i * 1000, i * 1000 + 1000)}), folder / f"{i}.parquet")
    return folder


def start(
    source: Path, dest: Path, workers: int, seed: int | None, mode: str = "error"
) -> subprocess.Popen[str]:
    seed_text = "" if seed is None else str(seed)
    arguments = [sys.executable, "-c", SLOW, str(source), str(dest), str(workers), seed_text, mode]
    if workers > 1:  # spawned processes import the main module
        script = dest.parent / f"{dest.name}.py"
        script.write_text(SLOW)
        arguments[1:3] = [str(script)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_until_writing(process: subprocess.Popen[str], lines: int) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline().strip().isdigit()


def end(process: subprocess.Popen[str], number: int) -> str:
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    return errors


@pytest.mark.parametrize("seed", [None, 1], ids=["in order", "shuffled"])
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_nothing_and_no_process(
    many: Path, tmp_path: Path, workers: int, seed: int | None
) -> None:
    process = start(many, tmp_path / "out", workers, seed)
    wait_until_writing(process, 3)
    errors = end(process, signal.SIGINT)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seed", [None, 1], ids=["in order", "shuffled"])
@pytest.mark.parametrize("workers", [1, 2])
def test_sigkill_leaves_no_data_set_and_the_next_conversion_sweeps_up(
    many: Path, tmp_path: Path, workers: int, seed: int | None
) -> None:
    process = start(many, tmp_path / "out", workers, seed)
    wait_until_writing(process, 5)
    end(process, signal.SIGKILL)
    with pytest.raises(fs.errors.NotFoundError):
        fs.open(tmp_path / "out")
    assert any(name.startswith(".tmp-") for name in os.listdir(tmp_path / "out"))
    fs.convert(many, tmp_path / "out")
    assert stored(tmp_path / "out")["i"].to_pylist() == list(range(40_000))
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".tmp-")]


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_sigkill_at_any_moment_leaves_the_old_data_set_or_the_new_one(
    many: Path, tmp_path: Path, mode: str
) -> None:
    fs.convert(pa.table({"i": [-1, -2]}), tmp_path / "out")
    reader = fs.open(tmp_path / "out")
    new = [-1, -2, *range(40_000)] if mode == "append" else list(range(40_000))
    found = []
    for attempt in range(6):
        process = start(many, tmp_path / "out", 1, None, mode)
        time.sleep(0.1 + 0.1 * attempt)
        end(process, signal.SIGKILL)
        values = stored(tmp_path / "out")["i"].to_pylist()
        found.append(values == [-1, -2])
        assert values in ([-1, -2], new)
        assert [reader[i]["i"] for i in range(2)] == [-1, -2]
        if not found[-1]:
            break
    assert found[0]
