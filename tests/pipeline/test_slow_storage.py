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

import fastshard as fs
from fastshard import _core
from fastshard._engine import choose_engine
from fastshard._gather_stream import GatherStream
from fastshard.errors import InvalidError, ReadTimeoutError

SLOW = """
import errno, os, stat, sys, threading, time
from fuse import FUSE, FuseOSError, Operations

class Mirror(Operations):
    '''A folder as it is, but for its last shard: that is slow (SECONDS) or fails (-1) beyond its first page.'''

    def __init__(self, root, seconds):
        self.root, self.seconds = root, seconds
        self.slow = sorted(name for name in os.listdir(root) if name.startswith("shard-"))[-1]

    def path(self, path):
        return os.path.join(self.root, path.lstrip("/"))

    def getattr(self, path, fh=None):
        try:
            found = os.lstat(self.path(path))
        except OSError as error:
            raise FuseOSError(error.errno)
        return {name: getattr(found, name) for name in
                ("st_mode", "st_size", "st_nlink", "st_uid", "st_gid", "st_atime", "st_mtime", "st_ctime")}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.path(path))]

    def open(self, path, flags):
        return os.open(self.path(path), os.O_RDONLY)

    def release(self, path, fh):
        os.close(fh)

    def read(self, path, size, offset, fh):
        if path.endswith(self.slow) and offset >= 4096:
            if self.seconds < 0:
                raise FuseOSError(errno.EIO)
            time.sleep(self.seconds)
        return os.pread(fh, size, offset)

FUSE(Mirror(sys.argv[1], float(sys.argv[3])), sys.argv[2], foreground=True, ro=True)
"""

READ = """
import sys, time
import fastshard as fs
from fastshard.errors import Error
path, engine = sys.argv[1:]
loader = fs.ShardLoader(path, batch_size=100, engine=engine, read_timeout=2.0, verify="never", prefetch=2)
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
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    if shutil.which("fusermount") is None:
        pytest.skip("FUSE is not installed (scripts/prepare-system.sh installs it where it may)")
    point = tmp_path / "mounted"
    point.mkdir()
    arguments = [str(two_shards(tmp_path / "d")), str(point), str(request.param)]
    server = subprocess.Popen([sys.executable, "-c", SLOW, *arguments], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not (point / "index.json").exists():
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.skip("this user may not mount FUSE file systems")  # no package could change that
            time.sleep(0.05)
        yield point, request.param < 0
    finally:
        server.kill()
        server.wait()
        subprocess.run(["fusermount", "-u", "-z", str(point)], check=False)


@pytest.mark.unsanitized
@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_a_read_that_does_not_come_or_fails_names_its_place(mounted: tuple[Path, bool], engine: str) -> None:
    """With read_timeout=2 the consumer hears of it within 5 s, by shard, bytes and attempts; of an EIO likewise."""
    path, fails = mounted
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), engine],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 45  # nothing waits for the sleeping read
    waited, _, said = done.stdout.partition(" ")
    assert re.search(r"shard-00001-\w+\.arrow", said), said
    if fails:
        assert said.startswith("StorageError"), said
    else:
        assert said.startswith("ReadTimeoutError"), said
        assert float(waited) < 5
        assert re.search(r"bytes \d+ to \d+", said), said
        assert "attempt 1" in said


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
