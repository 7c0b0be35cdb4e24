"""One write to a data set, from the lock to the commit (docs/format.md section 10).

    Transaction(path, mode)      lock, read the generation that stands, remove what dead writers left
      .temporary(name)           where to write a file that does not count yet
      .start(columns)            the tables, when appending with the shards that are there
      .add(entry, temporary)     a finished shard gets its final name and its place in the tables
      .commit(...)               tables, then index.json: the rename of that file is the commit
      .abort()                   remove every file that this transaction made

At every instant `index.json` names files that are there, whole: those of the old generation until the rename, those
of the new one after it. Commit or abort takes effect, once; a process that dies in between leaves files that nothing
names and that the next writer removes.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fastshard._directory import MountedDirectory, WriterDirectory, is_own_name, is_store, local_path
from fastshard._index import (
    FORMAT_VERSION,
    INDEX_NAME,
    ColumnStats,
    DatasetIndex,
    FieldText,
    FileRef,
    read_index,
)
from fastshard._storage import storage_errors, sync_file, write_durably
from fastshard.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from fastshard._tables import BlockTableWriter, ShardEntry, TableEntry

__all__ = ["Mode", "Transaction", "Vacuumed", "mark_tasks", "sweep_task_files", "task_prefix", "vacuum"]

Mode: TypeAlias = Literal["error", "overwrite", "append"]


class Transaction:
    """The one writer of a data set, and the files that it makes. Not thread-safe.

    One that is forgotten aborts. In a forked child it does nothing.

    Attributes:
        path: The data set's directory, absolute.
        base: The generation that stands, or None.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Mode,
        *,
        beside: Collection[str] | None = None,
        mounted: bool = False,
        identity: str | None = None,
    ) -> None:
        """Begin a write.

        Args:
            path: The data set's directory; made, with its parents, where it does not exist. With `mounted` it may be
                the URL of a folder in an object store.
            mode: `"error"` refuses a directory that holds anything, `"overwrite"` replaces a data set,
                `"append"` adds to it; both begin one where there is none.
            beside: Files in the directory that become shards as they are; then others may lie there too.
            mounted: The directory lies on a mounted object store, which takes one pass of writes into each file and
                nothing else: no lock, no rename. Files are made elsewhere and copied to their names.
            identity: 12 hexadecimal digits under which other processes wrote files before this transaction began
                (`task_prefix` tells where); None: new ones.

        Raises:
            InvalidError: Of the mode, or of a directory that the mode refuses.
            UnsupportedError: The path is of another machine, or a newer fastshard wrote the data set.
            CorruptError: The data set to append to is damaged.
            LockedError: Another writer is at work.
            StorageError: The directory cannot be made or written.
        """
        if mode not in ("error", "overwrite", "append"):
            raise InvalidError(f'mode={mode!r}: expected "error", "overwrite" or "append"')
        self._mode = mode
        self._tables: BlockTableWriter | None = None
        self._columns: list[ColumnStats] = []
        self._directory = _directory(path, identity, mounted=mounted)
        self.path = self._directory.path
        self._abort = weakref.finalize(self, self._directory.abort)
        try:
            with storage_errors("begin to write", self.path):
                self._directory.open()
                if mode == "error":
                    self._directory.refuse_occupied(beside=beside is not None)
                self.base = self._read_base()
                if self.base is None and mode != "overwrite":
                    self._directory.refuse_lost_index()
                self._directory.protected |= set(beside or ())
                self._directory.sweep(self._directory.protected)
        except BaseException:
            self._abort()
            raise

    def _read_base(self) -> DatasetIndex | None:
        """Read the generation that stands, and note its files."""
        directory = self._directory
        try:
            base = read_index(directory.index_folder)
            directory.current = _own_files_of(directory.index_folder, base)
            directory.protected = directory.current | set(base.previous)
            return base
        except NotFoundError:
            if not os.path.lexists(os.path.join(directory.index_folder, INDEX_NAME)):
                return None
            problem = "a table of its index is missing"
        except CorruptError as error:
            problem = str(error)
        if self._mode != "overwrite":
            raise CorruptError(
                f'{self.path}: cannot append to a damaged data set ({problem}); restore it or choose mode="overwrite"'
            )
        # Which files a reader may be using cannot be known any more: all of them stay until the next commit.
        directory.current = directory.protected = directory.own_files()
        return None

    @property
    def appending(self) -> bool:
        """Whether the samples of `base` stay."""
        return self._mode == "append" and self.base is not None

    @property
    def shards(self) -> int:
        """Shards taken so far, when appending with those that were there."""
        return 0 if self._tables is None else len(self._tables.entries)

    def temporary(self, name: str) -> str:
        """The path under which a file is written before it counts."""
        return self._directory.temporary(name)

    @property
    def task_prefix(self) -> str:
        """Begins the paths of files that other processes write for this transaction; a name of digits follows."""
        return self._directory.task_prefix

    def mark(self) -> str:
        """Make a file that is there until `sweep_tasks` or the end: as long as other processes are to write.

        Returns:
            Its path, or its URL without secrets.
        """
        return _marked(self._directory)

    def sweep_tasks(self) -> None:
        """Remove what other processes wrote under `task_prefix` and was not added: files of attempts that failed.

        Raises:
            StorageError: The system refuses.
        """
        taken = () if self._tables is None else (entry.path for entry in self._tables.entries)
        with storage_errors("remove files of failed tasks", self.path):
            self._directory.sweep_tasks(frozenset(taken))

    def names(self) -> frozenset[str]:
        """Of all that lies in the directory now; raises `StorageError`."""
        with storage_errors("list", self.path):
            return frozenset(self._directory.names())

    def start(self, column_count: int) -> None:
        """Start the tables; when appending, with the shards that are there."""
        from fastshard._tables import BlockTableWriter, read_tables

        path = self.temporary("blocks.arrow")
        with storage_errors("write the block table", path):
            self._tables = BlockTableWriter(path, column_count)
            self._directory.close_on_abort(self._tables.close)
            self._columns = [ColumnStats(0, 0)] * column_count
            if self.base is not None and self.appending:
                self._columns = [self.base.columns[field.name] for field in self.base.schema]
                with read_tables(self._directory.index_folder, self.base) as (entries, batches):
                    for entry, batch in zip(entries, batches, strict=True):
                        self._tables.add_batch(entry, batch)

    def add(self, entry: ShardEntry, temporary: str | None = None) -> None:
        """Take a shard into the data set, as the next in order.

        Args:
            entry: What the index holds of it.
            temporary: The complete and synced file, which gets its final name; None for a file that
                stands already under `entry.table.path`.
        """
        tables = self._started()
        if temporary is not None:
            name = f"shard-{self.shards:05d}-{entry.table.hash.hex()[:16]}.arrow"
            entry = replace(entry, table=replace(entry.table, path=name))
            with storage_errors("give the shard its name", os.path.join(self.path, name)):
                self._directory.publish(temporary, name)
        with storage_errors("write the block table", self.temporary("blocks.arrow")):
            tables.add(entry)
        self._columns = [old.merge(new) for old, new in zip(self._columns, entry.columns, strict=True)]

    def _started(self) -> BlockTableWriter:
        assert self._tables is not None, "start() comes first"
        return self._tables

    def commit(
        self,
        *,
        schema: Iterable[FieldText],
        schema_ipc: bytes,
        settings: Mapping[str, Any],
        provenance: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> DatasetIndex:
        """Publish the tables, then `index.json`: the data set's next generation.

        After an error nothing has changed, but for a device that fails to sync the directory after the rename.

        Raises:
            InvalidError: `metadata` or `provenance` are not JSON values.
            StorageError: The system refuses.
        """
        tables = self._started()
        shard_table, block_table = self._publish_tables(tables)
        index = self._describe(
            tuple(schema),
            schema_ipc,
            (shard_table, block_table),
            settings=dict(settings),
            provenance=dict(provenance),
            metadata=dict(metadata),
        )
        try:
            data = index.to_json()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidError(f"metadata= and provenance must be JSON values: {error}") from error
        temporary, final = self.temporary(INDEX_NAME), os.path.join(self.path, INDEX_NAME)
        with storage_errors("commit the index", final):
            write_durably(temporary, data)
            self._directory.sync()
            # From here on an interruption must not remove the new files: the rename may have happened.
            self._abort.detach()
            try:
                self._replace_index(temporary)
                self._directory.sync()
                outdated = self._directory.protected - self._directory.current
                self._directory.discard(outdated - _names(tables.entries, shard_table, block_table))
            finally:
                self._directory.release()
        return index

    def _replace_index(self, temporary: str) -> None:
        try:
            self._directory.replace(temporary, INDEX_NAME)
        except OSError:
            self._directory.abort()
            raise

    def _publish_tables(self, tables: BlockTableWriter) -> tuple[FileRef, FileRef]:
        from fastshard import _core

        def publish_table(temporary: str, kind: str) -> FileRef:
            sync_file(temporary)
            size, digest = os.path.getsize(temporary), _core.xxh3_128_file(temporary).hex()
            name = f"{kind}-{digest[:16]}.arrow"
            self._directory.publish(temporary, name)
            return FileRef(name, size, digest)

        blocks, shards = self.temporary("blocks.arrow"), self.temporary("index.arrow")
        with storage_errors("write the block table", blocks):
            tables.close()
        with storage_errors("write the shard table", shards):
            tables.write_shard_table(shards)
            return publish_table(shards, "index"), publish_table(blocks, "blocks")

    def _describe(
        self,
        fields: tuple[FieldText, ...],
        schema_ipc: bytes,
        tables: tuple[FileRef, FileRef],
        *,
        settings: Mapping[str, Any],
        provenance: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> DatasetIndex:
        from fastshard._tables import fingerprint, unit_blocks, window

        entries = self._started().entries
        rows, raw_bytes = sum(entry.rows for entry in entries), sum(entry.raw_bytes for entry in entries)
        return DatasetIndex(
            version=FORMAT_VERSION,
            generation=1 if self.base is None else self.base.generation + 1,
            rows=rows,
            shards=len(entries),
            blocks=sum(entry.blocks for entry in entries),
            bytes=sum(entry.bytes for entry in entries),
            raw_bytes=raw_bytes,
            fingerprint=fingerprint(entries),
            schema=fields,
            schema_ipc=schema_ipc,
            shard_table=tables[0],
            block_table=tables[1],
            columns={field.name: stats for field, stats in zip(fields, self._columns, strict=True)},
            window=window(rows, raw_bytes),
            unit_blocks=unit_blocks(entry.blocks for entry in entries),
            settings=settings,
            provenance=provenance,
            metadata=metadata,
            previous=tuple(sorted(self._directory.current - _names(entries, *tables))),
        )

    def abort(self) -> None:
        """Give up: remove the files that this transaction made. After a commit or an abort, do nothing."""
        self._abort()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _directory(path: str | os.PathLike[str], identity: str | None, *, mounted: bool) -> WriterDirectory:
    """What a writer holds: a directory, a mounted one, or a folder of an object store."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if mounted and isinstance(text, str) and is_store(text):
        from fastshard._store import StoreDirectory

        return StoreDirectory(text, identity)
    return (MountedDirectory if mounted else WriterDirectory)(local_path(path), identity)


@contextmanager
def _later(path: str, identity: str, *, mounted: bool) -> Iterator[WriterDirectory]:
    """The directory of a transaction that begins later under this identity, or does not begin."""
    directory = _directory(path, identity, mounted=mounted)
    try:
        yield directory
    finally:
        directory.release()


def task_prefix(path: str, identity: str, *, mounted: bool) -> str:
    """What `Transaction.task_prefix` will be of a transaction that begins later under this identity."""
    with _later(path, identity, mounted=mounted) as directory:
        return directory.task_prefix


def mark_tasks(path: str, identity: str, *, mounted: bool) -> str:
    """What `Transaction.mark` does, for a transaction that begins later under this identity."""
    with _later(path, identity, mounted=mounted) as directory:
        return _marked(directory)


def sweep_task_files(path: str, identity: str, *, mounted: bool) -> None:
    """Remove what other processes wrote under the `task_prefix` of a transaction that will not begin."""
    with _later(path, identity, mounted=mounted) as directory, suppress(OSError):
        directory.sweep_tasks(())  # the next writer sweeps what is left


def _marked(directory: WriterDirectory) -> str:
    path = os.path.join(directory.path, directory.marker)
    with storage_errors("write a file", path):
        directory.mark()
    return path


def _own_files_of(path: str, index: DatasetIndex) -> frozenset[str]:
    """The files of a generation that are fastshard's by their names."""
    from fastshard._tables import read_tables

    with read_tables(path, index) as (entries, _):
        return frozenset(filter(is_own_name, _names(entries, index.shard_table, index.block_table)))


def _names(entries: Iterable[TableEntry], *tables: FileRef) -> set[str]:
    """The files of a generation."""
    return {entry.path for entry in entries} | {ref.path for ref in tables}


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What `vacuum` removed."""

    files: int
    bytes: int


def vacuum(path: str | os.PathLike[str]) -> Vacuumed:
    """Remove every file of a data set that its current generation does not use.

    Those are the files of the generation before, which readers that opened it may still want, and what writers that
    died left. Files that fastshard did not name are never removed.

    Raises:
        NotFoundError: There is no data set, or a table of it is missing.
        InvalidError: The path names a part of a data set.
        CorruptError: The index is damaged: then nothing is removed.
        LockedError: A writer is at work.
        StorageError: The system refuses.
    """
    from fastshard.views import refuse_part

    refuse_part(path, "vacuum")
    directory = WriterDirectory(local_path(path))
    read_index(directory.path)
    try:
        with storage_errors("remove old files", directory.path):
            directory.open()
            keep = _own_files_of(directory.path, read_index(directory.path))
            return Vacuumed(*directory.sweep(keep))
    finally:
        directory.release()
