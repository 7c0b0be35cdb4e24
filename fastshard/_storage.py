"""What writing needs of the system: durable files, atomic publishing, the writer's lock, errors that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from fastshard.errors import LockedError, StorageError

try:
    import fcntl
except ImportError:  # no advisory locks on this platform: leftovers are then told by their age
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "DirectoryLock",
    "NoLock",
    "copy_sequentially",
    "publish",
    "remove_if_there",
    "storage_errors",
    "sync_directory",
    "sync_file",
    "write_durably",
]

_ADVICE = {
    errno.ENOSPC: "free space on that file system or write to another one",
    errno.EDQUOT: "the disk quota is used up: free space or write to another place",
    errno.EFBIG: "the file system or a limit of this process allows no larger file: choose a smaller shard_bytes",
    errno.EACCES: "check the permissions of the directory",
    errno.EPERM: "check the permissions of the directory",
    errno.EROFS: "the file system is mounted read-only: write to another place",
    errno.EMFILE: "too many files are open in this process: raise the limit (ulimit -n) or lower workers=",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOTDIR: "a part of the path is a file: choose another path",
    errno.EIO: "the device failed: check the disk and the system log",
}
# What a file system says that does not offer an operation at all.
_NOT_OFFERED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS)
_COPY_BYTES = 4 << 20


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StorageError` that names the file and what to do.

    Args:
        action: What is attempted, as in "write the shard".
        path: The file or directory that it is attempted on.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if type(error).__module__.startswith("fastshard."):
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = _ADVICE.get(error.errno or 0, "")
        failure = StorageError(f"{path}: could not {action}: {reason}{'; ' + advice if advice else ''}")
        failure.errno = error.errno
        raise failure from error


def sync_file(path: str) -> None:
    """Have the operating system put a file's bytes on the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Have the operating system put a directory's names on the device; where it cannot be asked to, do nothing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(descriptor)


def write_durably(path: str, data: bytes) -> None:
    """Write a new file and sync it. Nobody must rely on its name before `publish`."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def copy_sequentially(source: str, target: str) -> None:
    """Copy a file to a new one by nothing but one pass of writes, as mounted object stores demand.

    Synced where the file system lets itself be asked to; there closing is what publishes.
    """
    with open(source, "rb") as incoming, open(target, "wb", buffering=0) as outgoing:
        while piece := incoming.read(_COPY_BYTES):
            view = memoryview(piece)
            while view:
                view = view[outgoing.write(view) :]
        try:
            os.fsync(outgoing.fileno())
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise


def publish(temporary: str, final: str) -> None:
    """Give a complete and synced file its final name, replacing what bears it, atomically.

    The name itself is durable after `sync_directory`.
    """
    os.replace(temporary, final)


def remove_if_there(path: str) -> bool:
    """Remove a file; tell whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


class DirectoryLock:
    """The one writer's lock of a data set: an exclusive `flock` on a file in its directory.

    The system frees it when the process dies. Where the file system has no locks, `exclusive` is False and the
    writer must not assume that it is alone.
    """

    NAME = ".fastshard.lock"

    def __init__(self, directory: str) -> None:
        """Take the lock.

        Raises:
            LockedError: Another writer holds it.
            OSError: The lock file cannot be made.
        """
        self._path = os.path.join(directory, self.NAME)
        self._directory = directory
        self._pid = os.getpid()
        self._descriptor = -1
        self.exclusive = True
        while not self._try_take():
            pass

    def _try_take(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self.exclusive = self._flock(descriptor)
            # A writer that gave up may have removed the file between our open and our lock: then the lock is on
            # a file that nobody else will ever see.
            try:
                current = os.stat(self._path)
            except FileNotFoundError:
                current = None
            mine = os.fstat(descriptor)
            if current is None or (current.st_dev, current.st_ino) != (mine.st_dev, mine.st_ino):
                return False
            self._descriptor, descriptor = descriptor, -1
            return True
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _flock(self, descriptor: int) -> bool:
        if fcntl is None:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{self._directory}: another writer is at work on this data set (it holds {self.NAME}); "
                "wait until it is done, or write to another directory"
            ) from None
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL):
                return False
            raise
        return True

    def release(self, *, remove: bool = False) -> None:
        """Free the lock; with `remove`, its file goes too. A second call does nothing, and so does a forked child's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if os.getpid() == self._pid:
            if remove:
                remove_if_there(self._path)
            if self.exclusive and fcntl is not None:
                # Unlocked by hand, since a forked child may hold a copy of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class NoLock:
    """Stands for the lock where the file system has none, and is known to have none."""

    exclusive = False

    def release(self, *, remove: bool = False) -> None:
        """Do nothing."""
