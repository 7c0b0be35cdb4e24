"""Folders of object stores, as pyarrow.fs and fsspec open them: files that appear whole or not at all.

Stores know neither locks nor renames. A writer makes its files on this machine and puts them under names that nothing
uses yet; the last one, `index.json`, is the commit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyarrow import fs as pafs

from fastshard._directory import MountedDirectory
from fastshard._index import INDEX_NAME, DatasetIndex, read_index
from fastshard._storage import NoLock
from fastshard.converters._paths import first_line, locate
from fastshard.errors import Error, StorageError, UnsupportedError

__all__ = ["Store", "StoreDirectory", "fetch_index"]

_COPY_BYTES = 4 << 20


class Store:
    """A folder of an object store.

    Attributes:
        name: Its URL without secrets: what to call it.
    """

    def __init__(self, url: str) -> None:
        """Resolve the URL; nothing is opened yet.

        Raises:
            InvalidError, MissingDependencyError: See `locate`.
            UnsupportedError: The URL is of a place that other processes do not see.
        """
        self._place = locate(url)
        self.name = self._place.name.partition("?")[0].rstrip("/")
        if not self._place.portable:
            raise UnsupportedError(f"{self.name}: only this process sees what is written there")

    def path(self, name: str) -> str:
        return f"{self._place.path.rstrip('/')}/{name}"

    def infos(self) -> list[pafs.FileInfo]:
        """What lies in the folder; nothing where there is no such folder."""
        with self._errors("list", self.name):
            selector = pafs.FileSelector(self._place.path.rstrip("/"), allow_not_found=True)
            infos: list[pafs.FileInfo] = self._place.filesystem.get_file_info(selector)
            return infos

    def info(self, name: str) -> pafs.FileInfo:
        with self._errors("look at", f"{self.name}/{name}"):
            return self._place.filesystem.get_file_info(self.path(name))

    def has(self, name: str) -> bool:
        return bool(self.info(name).type != pafs.FileType.NotFound)

    def put(self, local: str, name: str) -> None:
        """Copy a file of this machine to the store, and see that all of it is there."""
        size = os.path.getsize(local)
        with (
            self._errors("write", f"{self.name}/{name}"),
            open(local, "rb") as incoming,
            self._place.filesystem.open_output_stream(self.path(name)) as outgoing,
        ):
            shutil.copyfileobj(incoming, outgoing, _COPY_BYTES)
        found = self.info(name).size
        if found is not None and found != size:
            raise StorageError(f"{self.name}/{name}: {size} bytes were written, and {found} are there")

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with (
            self._errors("write", f"{self.name}/{name}"),
            self._place.filesystem.open_output_stream(self.path(name)) as outgoing,
        ):
            outgoing.write(data)

    def read(self, name: str) -> bytes | None:
        """A small file; None if it is not there."""
        with self._errors("read", f"{self.name}/{name}"):
            try:
                with self._place.filesystem.open_input_stream(self.path(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def get(self, name: str, local: str) -> bool:
        """Copy a file of the store to this machine; tell whether it was there."""
        with self._errors("read", f"{self.name}/{name}"):
            try:
                incoming = self._place.filesystem.open_input_stream(self.path(name))
            except FileNotFoundError:
                return False
            with incoming, open(local, "wb") as outgoing:
                shutil.copyfileobj(incoming, outgoing, _COPY_BYTES)
            return True

    def delete(self, name: str) -> None:
        """Remove a file that is there."""
        with self._errors("remove", f"{self.name}/{name}"), suppress(FileNotFoundError):
            self._place.filesystem.delete_file(self.path(name))

    @contextmanager
    def _errors(self, action: str, where: str) -> Iterator[None]:
        """Turn whatever pyarrow or fsspec raise into a `StorageError` that names the place."""
        try:
            yield
        except Error:
            raise
        except Exception as error:
            raise StorageError(f"{where}: could not {action}: {first_line(error)}") from error


def fetch_index(store: Store, folder: str) -> DatasetIndex:
    """Bring the index of a data set, and the tables that it names, to a folder of this machine.

    Raises:
        NotFoundError: There is no data set.
        CorruptError, UnsupportedError, StorageError: As `read_index`.
    """
    os.makedirs(folder, exist_ok=True)
    store.get(INDEX_NAME, os.path.join(folder, INDEX_NAME))
    index = read_index(folder)
    for table in (index.shard_table, index.block_table):
        store.get(table.path, os.path.join(folder, table.path))
    return index


class StoreDirectory(MountedDirectory):
    """A data set's folder in an object store, in the hands of its one writer."""

    def __init__(self, url: str, identity: str | None = None) -> None:
        self._store = Store(url)
        super().__init__(self._store.name, identity)
        self._unsure = False  # whether the commit took place

    @property
    def index_folder(self) -> str:
        return os.path.join(self._folder, "standing")

    def open(self) -> None:
        self._lock = NoLock()
        self._standing = self._store.read(INDEX_NAME)
        if self._standing is not None:
            with suppress(Error):  # the transaction reads it again, and says what is wrong
                fetch_index(self._store, self.index_folder)

    def names(self) -> list[str]:
        return [info.base_name for info in self._store.infos()]

    def modified(self, name: str) -> float:
        written: Any = self._store.info(name).mtime_ns
        return 0.0 if written is None else written / 1e9

    def delete(self, name: str) -> int | None:
        info = self._store.info(name)
        if info.type == pafs.FileType.NotFound:
            return None
        self._store.delete(name)
        return int(info.size or 0)

    def mark(self) -> None:
        self._store.write(self.marker, b"")

    def replace(self, temporary: str, name: str) -> None:
        if name == INDEX_NAME:
            self._commit(temporary)
        else:
            self._store.put(temporary, name)
        os.unlink(temporary)

    def _commit(self, temporary: str) -> None:
        if self._store.read(INDEX_NAME) != self._standing:
            raise StorageError(f"{self.path}: another writer committed meanwhile; nothing was changed")
        with open(temporary, "rb") as file:
            data = file.read()
        try:
            self._store.write(INDEX_NAME, data)
        except StorageError as error:
            self._look_again(data, error)

    def _look_again(self, data: bytes, error: StorageError) -> None:
        """After a failed write: it may have reached the store nevertheless."""
        try:
            found = self._store.read(INDEX_NAME)
        except StorageError:
            self._unsure = True
            raise StorageError(
                f"{error}; whether the commit took place is not known: the new files stay; open the data set to see"
            ) from error
        if found != data:
            raise error

    def abort(self) -> None:
        if self._unsure:
            self.release()
        else:
            super().abort()
