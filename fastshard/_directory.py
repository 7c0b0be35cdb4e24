"""The directory of a data set as its writer holds it: locked, fastshard's names told from the user's."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from fastshard._index import INDEX_NAME
from fastshard._storage import (
    DirectoryLock,
    NoLock,
    copy_sequentially,
    publish,
    remove_if_there,
    storage_errors,
    sync_directory,
)
from fastshard.errors import CorruptError, InvalidError, UnsupportedError

__all__ = ["MountedDirectory", "WriterDirectory", "is_own_name", "is_store", "is_temporary", "local_path"]

_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{12}-.+", re.DOTALL)
_OWN = re.compile(r"(shard-[0-9]{5,}|index|blocks)-[0-9a-f]{16}\.arrow")
_OLD_ENOUGH = 24 * 3600.0


def is_own_name(name: str) -> bool:
    """Whether only fastshard gives such a name to a shard or table. No other file is ever removed."""
    return _OWN.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Whether a writer gives such a name to a file that does not count yet."""
    return _TEMPORARY.fullmatch(name) is not None


def is_store(path: str) -> bool:
    """Whether it is the URL of a folder in an object store."""
    return "://" in path and not path.lower().startswith(("file:", "dbfs:"))


def local_path(path: str | os.PathLike[str]) -> str:
    """The absolute path of a local destination.

    Raises:
        InvalidError: It is no path.
        UnsupportedError: It is a URL of another place than this machine.
    """
    if not isinstance(path, (str, PurePath)) and not isinstance(path, os.PathLike):
        raise InvalidError(
            f"{path!r} is not a path: expected a str or os.PathLike, found {type(path).__name__}"
        )
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise InvalidError(f"{text!r} is not a path of a directory")
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise UnsupportedError(
                f"{text}: data sets are written to local directories; write there, then copy the directory"
            )
        text = unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


class WriterDirectory:
    """A data set's directory in the hands of its one writer.

    It knows what the writer made, so that giving up leaves the directory as it was. After a fork, a child's copy
    does nothing.

    Attributes:
        path: Absolute path.
        current: Files of the generation that stands.
        protected: Those, and the files of the generation before, which a reader may still use.
    """

    def __init__(self, path: str, identity: str | None = None) -> None:
        """Set up; `identity` is that of an earlier object whose files this one takes over: 12 hexadecimal digits."""
        self.path = path
        self.current: frozenset[str] = frozenset()
        self.protected: frozenset[str] = frozenset()
        self._id = os.urandom(6).hex() if identity is None else identity
        self._pid = os.getpid()
        self._lock: DirectoryLock | NoLock | None = None
        self._made_directories: list[str] = []  # the deepest first
        self._made_lock = False
        self._published: list[str] = []
        self._closers: list[Callable[[], None]] = []

    def open(self) -> None:
        """Make the directory where it is missing, and lock it.

        Raises:
            LockedError: Another writer is at work.
            OSError: The system refuses.
        """
        self._make_directory()
        self._made_lock = not os.path.exists(os.path.join(self.path, DirectoryLock.NAME))
        try:
            self._lock = DirectoryLock(self.path)
        except BaseException:
            self._made_lock = False
            raise

    @property
    def index_folder(self) -> str:
        """Where the index and the tables of the generation that stands can be read."""
        return self.path

    def names(self) -> list[str]:
        """Of all that lies in the directory."""
        return os.listdir(self.path)

    def modified(self, name: str) -> float:
        """When a file was last written, in seconds; long ago if it is not there."""
        try:
            return os.lstat(os.path.join(self.path, name)).st_mtime
        except FileNotFoundError:
            return 0.0

    def delete(self, name: str) -> int | None:
        """Remove a file; give its size, or None if it was not there."""
        path = os.path.join(self.path, name)
        size = os.lstat(path).st_size if os.path.lexists(path) else 0
        return size if remove_if_there(path) else None

    def _make_directory(self) -> None:
        missing, parent = [], self.path
        while not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for directory in reversed(missing):
            try:
                os.mkdir(directory)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise NotADirectoryError(20, "a file is in the way", directory) from None
            else:
                self._made_directories.insert(0, directory)

    def temporary(self, name: str) -> str:
        """The path under which this writer writes a file that does not count yet."""
        return os.path.join(self.path, f".tmp-{self._id}-{name}")

    @property
    def task_prefix(self) -> str:
        """Begins the paths of files that other processes write for this writer."""
        return self.temporary("task-")

    @property
    def marker(self) -> str:
        """The name of a file that is there as long as other processes are to write for this writer."""
        return f".tmp-{self._id}-wanted"

    def mark(self) -> None:
        """Make the marker."""
        with open(os.path.join(self.path, self.marker), "wb"):
            pass

    def sweep_tasks(self, taken: Collection[str]) -> None:
        """Remove files under `task_prefix`, but for those whose names are in `taken`.

        The marker goes first: who finds it after writing a file wrote it before the sweep, and who does not removes it.
        """
        self.delete(self.marker)
        prefix = os.path.basename(self.task_prefix)
        self.remove([n for n in self.names() if n.startswith(prefix) and n not in taken])

    def publish(self, temporary: str, name: str) -> None:
        """Give a complete and synced file its final name."""
        # Noted first, so that no interruption leaves a file that nobody knows.
        self._published.append(name)
        self.replace(temporary, name)

    def replace(self, temporary: str, name: str) -> None:
        """Give a complete and synced file a name that another one may bear."""
        publish(temporary, os.path.join(self.path, name))

    def sync(self) -> None:
        """Make the names of the files durable."""
        sync_directory(self.path)

    def close_on_abort(self, close: Callable[[], None]) -> None:
        """Have `close` called when the writer gives up, before its files go."""
        self._closers.append(close)

    def refuse_occupied(self, *, beside: bool) -> None:
        """Raise `InvalidError` if the directory holds a data set.

        Or, unless `beside`, anything but what a dead writer left.
        """
        names = sorted(self.names())
        if INDEX_NAME in names:
            raise InvalidError(
                f'{self.path}: a data set is there already; choose mode="overwrite" (--overwrite) to replace it, '
                'mode="append" (--append) to add to it, or another directory'
            )
        others = [n for n in names if n != DirectoryLock.NAME and not is_temporary(n) and not is_own_name(n)]
        if others and not beside:
            raise InvalidError(
                f"{self.path}: the directory is not empty (it holds {others[0]!r}); choose another one, "
                'or mode="overwrite" to write beside what is there'
            )

    def refuse_lost_index(self) -> None:
        """Raise `CorruptError` if the directory holds a shard table and no index: its shards are not leftovers."""
        for name in sorted(self.own_files()):
            if name.startswith("index-"):
                raise CorruptError(
                    f"{self.path}: {INDEX_NAME} is gone, though there is a shard table ({name}); "
                    'restore it, or choose mode="overwrite" to write the data set anew'
                )

    def own_files(self) -> frozenset[str]:
        """Every shard and table in the directory, by its name."""
        return frozenset(name for name in self.names() if is_own_name(name))

    def sweep(self, keep: Collection[str]) -> tuple[int, int]:
        """Remove what dead writers left: temporary files, and shards and tables that are not in `keep`.

        Returns:
            How many files went, and their bytes.
        """
        assert self._lock is not None
        now = time.time()
        own = os.path.basename(self.task_prefix)
        names = []
        for name in self.names():
            if name.startswith(own):  # what others wrote for this writer before it began
                continue
            leftover = is_temporary(name) or (is_own_name(name) and name not in keep)
            # Without a lock a living writer may be at work: then only old files are surely nobody's.
            if leftover and (self._lock.exclusive or now - self.modified(name) > _OLD_ENOUGH):
                names.append(name)
        return self.remove(names)

    def remove(self, names: Collection[str]) -> tuple[int, int]:
        """Remove files; those that are not fastshard's by their name stay. Returns as `sweep` does."""
        count = size = 0
        for name in names:
            if not is_own_name(name) and not is_temporary(name):
                continue
            with storage_errors("remove an old file", os.path.join(self.path, name)):
                length = self.delete(name)
            if length is not None:
                count, size = count + 1, size + length
        return count, size

    def discard(self, names: Collection[str]) -> None:
        """Remove files as `remove` does; what cannot be removed stays, a leftover for the next writer."""
        for name in names:
            if is_own_name(name):
                self._try_delete(name)

    def _try_delete(self, name: str) -> None:
        with suppress(OSError):  # what stays is a leftover like a dead writer's: the next writer tries again
            self.delete(name)

    def release(self) -> None:
        """Free the lock and keep all files. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def abort(self) -> None:
        """Remove all that this writer made and free the lock. A second call does nothing."""
        if os.getpid() != self._pid:
            self.release()
            return
        for close in self._closers:
            with suppress(OSError):  # the file that could not be finished goes next
                close()
        if self._lock is not None:
            self._try_delete(self.marker)
            prefix = f".tmp-{self._id}-"
            with suppress(OSError):
                for name in {n for n in self.names() if n.startswith(prefix)}:
                    self._try_delete(name)
            for name in set(self._published) - self.protected:
                self._try_delete(name)
            lock, self._lock = self._lock, None
            lock.release(remove=self._made_lock)
        for directory in self._made_directories:
            try:
                os.rmdir(directory)
            except OSError:  # somebody else uses it by now
                break
        self._made_directories.clear()


class MountedDirectory(WriterDirectory):
    """The same on a mounted object store, which takes one pass of writes into each file and nothing else.

    Files are made in a folder of this machine and copied to their names. Nothing is locked: that nobody else writes
    the data set is up to whoever calls. Nor is anything renamed: an index.json that is seen half written fails its
    checksum, and where it cannot be written whole the one that stood is put back.
    """

    def __init__(self, path: str, identity: str | None = None) -> None:
        super().__init__(path, identity)
        self._folder = tempfile.mkdtemp(prefix="fastshard-")
        self._standing: bytes | None = None  # index.json when this writer began

    def open(self) -> None:
        self._make_directory()
        self._lock = NoLock()
        with suppress(FileNotFoundError):
            self._standing = Path(self.path, INDEX_NAME).read_bytes()

    def temporary(self, name: str) -> str:
        return os.path.join(self._folder, name)

    @property
    def task_prefix(self) -> str:
        return os.path.join(self.path, f"shard-{int(self._id, 16):015d}")

    def replace(self, temporary: str, name: str) -> None:
        final = os.path.join(self.path, name)
        try:
            copy_sequentially(temporary, final)
        except OSError:
            if name == INDEX_NAME:
                self._put_back(final)
            raise
        os.unlink(temporary)

    def _put_back(self, final: str) -> None:
        with suppress(OSError):
            if self._standing is None:
                os.unlink(final)
            else:
                Path(final).write_bytes(self._standing)

    def sync(self) -> None:
        """Closing a file is what makes it durable."""

    def release(self) -> None:
        super().release()
        if os.getpid() == self._pid:
            shutil.rmtree(self._folder, ignore_errors=True)

    def abort(self) -> None:
        if os.getpid() == self._pid and self._lock is not None:
            with suppress(OSError):
                self.sweep_tasks(())
        super().abort()
        if os.getpid() == self._pid:
            shutil.rmtree(self._folder, ignore_errors=True)
