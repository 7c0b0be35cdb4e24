"""A small document that a process and its children share: no name, no file, no process to serve it."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from fastshard.errors import StorageError

__all__ = ["SharedCell"]

_LENGTH = struct.Struct("<q")
_HALVES = (4096, 4096 + (1 << 20))  # offsets; the page is sparse, untouched parts take no memory
_CAPACITY = _HALVES[1] - _HALVES[0] - _LENGTH.size


class SharedCell:
    """Bytes in anonymous shared memory, with a lock.

    Who shares it: processes forked from its maker, which inherit it, and processes that multiprocessing spawns, to
    which it is passed. Pickled in any other way, a new and empty cell arrives. All of them may read and write inside
    `locked()`; the lock excludes processes and threads and is released when its holder dies. A writer that dies
    leaves the old content, whole.

    One descriptor is held until the last reference in a process is gone.
    """

    __slots__ = ("_fd", "_identity", "_mutex", "_mutex_pid")

    def __init__(self) -> None:
        self._adopt(_anonymous_file())

    def _adopt(self, fd: int) -> None:
        self._fd = fd
        info = os.fstat(fd)
        self._identity = (info.st_dev, info.st_ino)
        self._mutex = threading.Lock()
        self._mutex_pid = os.getpid()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the cell for one reader or writer.

        Raises:
            StorageError: something closed the descriptor in this process.
        """
        if self._mutex_pid != os.getpid():  # a thread of the parent may have held it at the fork
            self._mutex, self._mutex_pid = threading.Lock(), os.getpid()
        with self._mutex:
            self._check()
            fcntl.lockf(self._fd, fcntl.LOCK_EX)  # a record lock: owned by the process, gone with it
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def read(self) -> bytes:
        """The content; empty at first. Only inside `locked()`."""
        half = _HALVES[self._active()]
        head = os.pread(self._fd, _LENGTH.size, half)
        if len(head) < _LENGTH.size:
            return b""
        return os.pread(self._fd, _LENGTH.unpack(head)[0], half + _LENGTH.size)

    def write(self, content: bytes) -> None:
        """Replaces the content. Only inside `locked()`.

        The other half is filled, then one byte makes it the content.
        """
        if len(content) > _CAPACITY:
            raise ValueError(f"{len(content)} bytes do not fit the {_CAPACITY} of a shared cell")
        other = 1 - self._active()
        data = memoryview(_LENGTH.pack(len(content)) + content)
        done = 0
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], _HALVES[other] + done)
        os.pwrite(self._fd, bytes([other]), 0)

    def _active(self) -> int:
        return int(os.pread(self._fd, 1, 0) == b"\x01")

    def _check(self) -> None:
        """A descriptor closed behind our back may be another file's by now."""
        try:
            info = os.fstat(self._fd)
        except OSError:
            info = None
        if info is None or (info.st_dev, info.st_ino) != self._identity:
            raise StorageError(
                f"descriptor {self._fd}, where a data set keeps its epoch, was closed in this process (by a library "
                "that closes all descriptors?); keep it open, or make the data set afterwards"
            )

    def __reduce__(self) -> tuple[Callable[..., SharedCell], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return SharedCell, ()
        return _from_parent, (reduction.DupFd(self._fd),)

    def __del__(self, fstat: Any = os.fstat, close: Any = os.close) -> None:  # `os` may be gone at exit
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd < 0:
            return
        try:
            info = fstat(fd)
            if (info.st_dev, info.st_ino) == self._identity:
                close(fd)
        except OSError:
            pass


def _from_parent(handle: Any) -> SharedCell:
    """In a spawned process: the cell of the process that spawned it."""
    cell = SharedCell.__new__(SharedCell)
    cell._adopt(handle.detach())
    return cell


def _anonymous_file() -> int:
    """A descriptor of memory that no path leads to."""
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("fastshard", os.MFD_CLOEXEC)
        except OSError:
            pass  # an old kernel or a sandbox: an unlinked file does as well
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())
