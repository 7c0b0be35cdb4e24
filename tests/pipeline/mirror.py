"""A folder seen through FUSE whose last shard is slow or fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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


@dataclass
class Mounted:
    """A data set through FUSE: beyond the first page its last shard is slow, or fails. `server` answers."""

    path: Path
    fails: bool
    server: subprocess.Popen[bytes]


@contextmanager
def mounted(folder: Path, point: Path, *, seconds: float) -> Iterator[Mounted]:
    """The folder at `point`. Each read of its last shard beyond the first page takes `seconds`, or is an EIO (-1)."""
    if shutil.which("fusermount") is None:
        pytest.skip("FUSE is not installed (scripts/prepare-system.sh installs it where it may)")
    point.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(folder), str(point), str(seconds)], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 20
        while not (point / "index.json").exists():
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.skip("this user may not mount FUSE file systems")  # no package could change that
            time.sleep(0.05)
        yield Mounted(point, seconds < 0, server)
    finally:
        server.kill()
        server.wait()
        subprocess.run(["fusermount", "-u", "-z", str(point)], check=False)
