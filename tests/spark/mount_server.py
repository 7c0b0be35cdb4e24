"""A file system that takes one pass of writes into each file and refuses all else, as mounted object stores do.

    python mount_server.py BACKING POINT

It keeps what it holds in BACKING, where it also notes what it refused (`.refused`), and fails to write `index.json`
once for each file named `.fail` that is put there.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from typing import Any

from fuse import FUSE, FuseOSError, Operations


class Mounted(Operations):  # type: ignore[misc]  # fusepy has no types
    def __init__(self, backing: str) -> None:
        self._backing = backing
        self._written: dict[int, tuple[str, int]] = {}  # by handle: the path, and how far

    def _place(self, path: str) -> str:
        return os.path.join(self._backing, path.lstrip("/"))

    def _refuse(self, what: str) -> Any:
        with open(os.path.join(self._backing, ".refused"), "a") as log:
            log.write(what + "\n")
        raise FuseOSError(errno.ENOTSUP)

    def getattr(self, path: str, fh: Any = None) -> Any:
        found = self._told(os.lstat, self._place(path))
        names = ["st_mode", "st_size", "st_nlink", "st_uid", "st_gid", "st_atime", "st_mtime", "st_ctime"]
        return {name: getattr(found, name) for name in names}

    def _told(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            raise FuseOSError(error.errno) from None

    def readdir(self, path: str, fh: Any) -> Any:
        return [".", "..", *os.listdir(self._place(path))]

    def mkdir(self, path: str, mode: int) -> None:
        self._told(os.mkdir, self._place(path))

    def rmdir(self, path: str) -> None:
        self._told(os.rmdir, self._place(path))

    def unlink(self, path: str) -> None:
        self._told(os.unlink, self._place(path))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._begin(path)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return int(self._told(os.open, self._place(path), os.O_RDONLY))
        if flags & os.O_ACCMODE == os.O_RDWR or flags & os.O_APPEND:
            self._refuse(f"open {flags:o} {path}")
        return self._begin(path)

    def _begin(self, path: str) -> int:
        handle = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._written[handle] = (path, 0)
        return handle

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        name, end = self._written[fh]
        if offset != end:
            self._refuse(f"write at {offset}, after {end} {path}")
        if name.endswith("/index.json") and os.path.exists(os.path.join(self._backing, ".fail")):
            os.unlink(os.path.join(self._backing, ".fail"))
            raise FuseOSError(errno.EIO)
        done = os.write(fh, data)
        self._written[fh] = (name, end + done)
        return done

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def release(self, path: str, fh: int) -> None:
        self._written.pop(fh, None)
        os.close(fh)

    def truncate(self, path: str, length: int, fh: Any = None) -> None:
        if length:
            self._refuse(f"truncate to {length} {path}")
        os.truncate(self._place(path), 0)  # what opening a file to write it anew does first

    def rename(self, old: str, new: str) -> None:
        self._refuse(f"rename {old}")

    def link(self, target: str, source: str) -> None:
        self._refuse(f"link {target}")

    def symlink(self, target: str, source: str) -> None:
        self._refuse(f"symlink {target}")

    def lock(self, path: str, fh: int, cmd: int, lock: int) -> None:
        if ctypes.c_short.from_address(lock).value != fcntl.F_UNLCK:  # closing a file unlocks it
            self._refuse(f"lock {path}")
        raise FuseOSError(errno.ENOTSUP)

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        raise FuseOSError(errno.ENOTSUP)  # and not noted: closing is what stores do instead


if __name__ == "__main__":
    # Without the page cache nothing can be mapped to be shared.
    FUSE(Mounted(sys.argv[1]), sys.argv[2], foreground=True, direct_io=True)
