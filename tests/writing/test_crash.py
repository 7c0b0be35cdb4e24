"""A writer killed at any moment: a reader finds the old data set or the new one, whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from killed_writer import ROWS, content
from written import read_back

import fastshard as fs
from fastshard._index import read_index
from fastshard.errors import NotFoundError

SCRIPT = str(Path(__file__).with_name("killed_writer.py"))


def run_and_kill(path: Path, mode: str, delay: float) -> None:
    with subprocess.Popen([sys.executable, SCRIPT, str(path), mode], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(delay)
        finally:
            writer.kill()
        assert writer.wait(30) == -signal.SIGKILL


def check_whole(table: pa.Table, mode: str) -> None:
    """Every row belongs to the one generation, or to consecutive ones that were appended."""
    generation = table["generation"].to_numpy()
    starts = generation[::ROWS]
    assert len(table) == ROWS * len(starts)
    assert mode == "append" or len(starts) == 1
    for number, start in enumerate(starts):
        part = table.slice(number * ROWS, ROWS)
        expected = content(int(start))
        assert np.array_equal(part["generation"].to_numpy(), expected["generation"])
        assert np.array_equal(part["x"].to_numpy(), expected["x"])
        assert part["v"].combine_chunks().flatten().to_numpy().tolist() == expected["v"].reshape(-1).tolist()


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_killed_at_twenty_moments(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "d"
    fs.write(content(1), path)
    seed = random.Random(mode)
    generations = set()
    for _ in range(20):
        open_before = fs.open(path)
        rows_before = open_before.take([0, ROWS - 1])
        run_and_kill(path, mode, seed.uniform(0, 0.25))
        table = read_back(path)
        check_whole(table, mode)
        assert fs.open(path).to_arrow().equals(table)
        generations.add(read_index(path).generation)
        assert np.array_equal(rows_before["x"], open_before.take([0, ROWS - 1])["x"])
        fs.write(content(1), path, mode="overwrite")  # and the next writer has a clean start
        assert len(read_back(path)) == ROWS
    assert len(generations) > 2


def test_a_first_write_killed_is_no_data_set(tmp_path: Path) -> None:
    seed = random.Random(0)
    for number in range(6):
        path = tmp_path / str(number)
        run_and_kill(path, "overwrite", seed.uniform(0, 0.02))
        try:
            check_whole(read_back(path), "overwrite")
        except FileNotFoundError:
            with pytest.raises(NotFoundError):
                fs.open(path)
        fs.write(content(1), path, mode="overwrite")
        check_whole(read_back(path), "overwrite")


def test_at_every_instant_there_is_one_whole_data_set(tmp_path: Path) -> None:
    path = tmp_path / "d"
    fs.write(content(1), path)
    with subprocess.Popen([sys.executable, SCRIPT, str(path), "overwrite"], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            seen = set()
            begin = time.monotonic()
            # A machine that is busy takes longer to commit.
            while time.monotonic() < begin + 3 or (len(seen) <= 2 and time.monotonic() < begin + 60):
                reader = fs.open(path)
                try:
                    sample, last = reader[0], reader[ROWS - 1]
                except NotFoundError:
                    # The files of a generation stay for one commit more; this process was away for two.
                    assert read_index(path).generation >= reader.index.generation + 2
                    continue
                assert len(reader) == ROWS
                assert sample["generation"] == last["generation"]
                assert last["x"] == (ROWS - 1) * last["generation"]
                seen.add(int(sample["generation"]))
        finally:
            writer.kill()
    assert len(seen) > 2
