"""Storage that does not answer: a read past `read_timeout` is an error in the consumer, whatever reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mirror import Mounted, mounted

import fastshard as fs
from fastshard import _core
from fastshard._engine import choose_engine
from fastshard._gather_stream import GatherStream
from fastshard.errors import InvalidError, ReadTimeoutError

READ = """
import sys, time
import fastshard as fs
from fastshard.errors import Error
path, engine, shuffle = sys.argv[1:]
options = {"batch_size": 100, "verify": "never", "prefetch": 2}
if shuffle == "global":
    options |= {"shuffle": "global", "batch_size": 8, "memory": 0}  # rows are read by themselves
loader = fs.ShardLoader(path, engine=engine, read_timeout=2.0, **options)
iterator = iter(loader)
begin = time.monotonic()
try:
    for batch in iterator: begin = time.monotonic()
    print("delivered all")
except Error as error:
    print(f"{time.monotonic() - begin:.1f} {type(error).__name__}: {error}", flush=True)
"""


def two_shards(path: Path) -> Path:
    fs.write(
        {"x": np.zeros((400, 1024), np.float32)},
        path,
        compression="none",
        shard_bytes=1 << 20,
        block_bytes=1 << 18,
    )
    assert fs.open(path).index.shards == 2
    return path


@pytest.fixture(params=[60.0, -1.0], ids=["slow", "failing"])
def stuck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mounted]:
    with mounted(two_shards(tmp_path / "d"), tmp_path / "mounted", seconds=request.param) as mount:
        yield mount


@pytest.mark.unsanitized
@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_a_read_that_does_not_come_or_fails_names_its_place(stuck: Mounted, engine: str) -> None:
    """With read_timeout=2 the consumer hears of it within 5 s, by shard, bytes and attempts; of an EIO likewise."""
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", READ, str(stuck.path), engine, "none"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 45  # nothing waits for the sleeping read
    check_what_was_said(done.stdout, stuck.fails)


@pytest.mark.unsanitized
def test_rows_that_do_not_come_or_fail_name_their_place(stuck: Mounted) -> None:
    """Read by themselves. The kernel keeps a process that ends until its reads of a few pages are answered."""
    arguments = [sys.executable, "-c", READ, str(stuck.path), "threads", "global"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        begin = time.monotonic()
        said = process.stdout.readline()
        assert time.monotonic() - begin < 45
        check_what_was_said(said, stuck.fails)
        assert re.search(r"block \d+ at offset \d+", said), said
    finally:
        stuck.server.kill()  # answers whatever waits
        process.kill()
        process.wait(30)
        process.stdout.close()  # type: ignore[union-attr]


def check_what_was_said(text: str, fails: bool) -> None:
    waited, _, said = text.partition(" ")
    assert re.search(r"shard-00001-\w+\.arrow", said), said
    if fails:
        assert said.startswith("StorageError"), said
    else:
        assert said.startswith("ReadTimeoutError"), said
        assert float(waited) < 5
        assert re.search(r"bytes \d+ to \d+", said), said
        assert "attempt 1" in said


TOGETHER = """
import sys
import fastshard as fs
from fastshard.errors import Error
kind, good, stuck = sys.argv[1:]
data = fs.concat([good, stuck]) if kind == "concat" else fs.mix({"good": good, "stuck": stuck})
options = {} if kind == "concat" else {"epoch_size": 800}
loader = fs.ShardLoader(data, batch_size=100, read_timeout=2.0, verify="never", **options)
try:
    for batch in loader: pass
    print("delivered all")
except Error as error:
    print(f"{type(error).__name__}: {error}", flush=True)
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("kind", ["concat", "mix"])
def test_a_process_ends_though_one_of_several_data_sets_does_not_answer(tmp_path: Path, kind: str) -> None:
    """After the timeout of a read that takes a minute nothing waits for it, the interpreter's exit neither."""
    stuck = two_shards(tmp_path / "d")
    good = shutil.copytree(stuck, tmp_path / "good")
    with mounted(stuck, tmp_path / "mounted", seconds=60.0) as mount:
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", TOGETHER, kind, str(good), str(mount.path)],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ReadTimeoutError: "), done.stdout
        assert time.monotonic() - begin < 45


def test_uring_is_refused_where_its_submissions_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_core, "file_system", lambda path: "fuse")
    with pytest.raises(InvalidError, match=r"FUSE.*threads"):
        choose_engine("uring", str(tmp_path), 1, largest_batch=1, read_timeout=None)


def test_threads_around_the_gather_keep_the_timeout_too() -> None:
    stream = GatherStream(
        lambda index: time.sleep(3),
        1,
        threads=1,
        prefetch=1,
        describe=lambda index: f"batch {index} of shard-7",
    )
    begin = time.monotonic()
    with pytest.raises(ReadTimeoutError, match=r"batch 0 of shard-7.*0.2 s \(attempt 1\)"):
        stream.next(0.2)
    stream.stop()
    assert time.monotonic() - begin < 2.5
