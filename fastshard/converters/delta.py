"""Delta tables: the files that a version of the log names, read one by one in an order that never changes.

deltalake reads the log, and we read the files, since what deltalake reads comes in no stable order, and what pyarrow
reads of a table knows neither column mapping nor deletion vectors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from fastshard.converters import _pruning, parquet
from fastshard.converters._delta_schema import DeltaField, Mapped, fields_of, find, to_table
from fastshard.converters._delta_statistics import DeltaStatistics
from fastshard.converters._discover import SourceFile, natural_key
from fastshard.converters._format import Contents, Piece, bounded, merged
from fastshard.converters._part import Part
from fastshard.converters._paths import Place, first_line, locate, public_name
from fastshard.delta import Delta
from fastshard.errors import SourceError, UnsupportedError

__all__ = ["DeltaSource", "DeltaTask"]

# What a reader must know of a table to read it right; a feature that is not named here may change what rows mean.
_KNOWN = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
_MODES: dict[str, Mapped] = {"none": "none", "name": "name", "id": "id"}
_INSPECT_THREADS = 16
_FULL = 1.125


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the table.

    Attributes:
        file: The Parquet file.
        partition: Values of the columns that the table is partitioned by, of the table's types.
        deleted: Rows that are no longer there, ascending; None for none.
        action: Its place among those of the log.
    """

    file: SourceFile
    partition: dict[str, pa.Scalar]
    deleted: npt.NDArray[np.int64] | None
    action: int

    def live_before(self, row: int) -> int:
        """Rows before `row` of the file that are still there."""
        return row if self.deleted is None else row - int(np.searchsorted(self.deleted, row))


@dataclass(frozen=True, slots=True)
class _Piece(Piece[_File]):
    """Some row groups of a file; rows that are deleted count.

    Attributes:
        columns: What the file calls each wanted column of the table; None where it has none.
    """

    columns: tuple[str | None, ...]

    @property
    def live(self) -> int:
        """Rows that are still there."""
        return sum(
            self.file.live_before(first + (rows or 0)) - self.file.live_before(first)
            for first, rows in zip(self.first_rows, self.rows, strict=True)
        )


@dataclass(frozen=True, slots=True)
class DeltaTask:
    """A run of row groups of one or several files of a table."""

    pieces: tuple[_Piece, ...]
    fields: tuple[DeltaField, ...]
    mapped: Mapped
    rows: int | None
    bytes: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (part.batch for part in self.parts())

    def parts(self) -> Iterator[Part]:
        for piece in self.pieces:
            yield from _read(piece, self.fields, self.mapped)


class DeltaSource:
    """A version of a Delta table, its files in natural order of their paths.

    Attributes:
        portable: Other processes can open the files.
    """

    portable = True

    def __init__(self, delta: Delta) -> None:
        """Lists the files.

        Raises:
            UnsupportedError: The table uses a feature that is not known here.
            SourceError: What the log says cannot be understood.
        """
        self._delta = delta
        self.name = public_name(_path_of(delta.uri) or delta.uri)
        table = delta.table
        unknown = sorted(set(table.protocol().reader_features or ()) - _KNOWN)
        if unknown:
            raise UnsupportedError(
                f"{self.name}: readers of this Delta table must know {', '.join(map(repr, unknown))}, and this one "
                "does not; convert it with Spark (fs.spark.write), or write a table without it"
            )
        metadata = table.metadata()
        mode = metadata.configuration.get("delta.columnMapping.mode", "none")
        if mode not in _MODES:
            raise UnsupportedError(
                f"{self.name}: delta.columnMapping.mode is {mode!r}, which is not known here"
            )
        self._mapped = _MODES[mode]
        self._id = str(metadata.id)
        self._partitions: list[str] = list(metadata.partition_columns)
        self._fields = tuple(fields_of(json.loads(table.schema().to_json()), self.name))
        self._files = self._list()
        self._ruled_out = 0
        self._condition: tuple[pc.Expression, tuple[pa.Field, ...]] | None = None

    def _list(self) -> list[_File]:
        actions = pa.table(self._delta.table.get_add_actions(flatten=False))
        # Older versions of deltalake have another name for it.
        values = next((n for n in ("partition", "partition_values") if n in actions.column_names), None)
        types = {field.name: field.type for field in self._fields}
        deleted = self._deleted()
        self._statistics = DeltaStatistics(actions, self._mapped)
        files = []
        for index, path in enumerate(actions.column("path").to_pylist()):
            partition = {}
            for name in self._partitions:
                found = None if values is None else actions.column(values)[index].get(name)
                value = None if found is None else found.as_py()
                partition[name] = pa.scalar(value, types[name])
            place = self._place(path)
            size, written = (
                int(actions.column(n)[index].as_py()) for n in ("size_bytes", "modification_time")
            )
            source = SourceFile(place, size, str(written))
            files.append(_File(source, partition, deleted.pop(path, None), index))
        if deleted:
            raise SourceError(
                f"{self.name}: rows are deleted of {min(deleted)!r}, which is no file of the table"
            )
        return sorted(files, key=lambda file: natural_key(file.file.place.path))

    def _deleted(self) -> dict[str, npt.NDArray[np.int64]]:
        """By path as the log has it: which rows of a file are deleted."""
        table = self._delta.table
        if not callable(getattr(table, "deletion_vectors", None)):
            if "deletionVectors" in (table.protocol().reader_features or ()):
                raise UnsupportedError(
                    f"{self.name}: the table may have deletion vectors, which this deltalake does not read; "
                    "run pip install --upgrade deltalake"
                )
            return {}
        try:
            batches = list(pa.RecordBatchReader.from_stream(table.deletion_vectors()))
        except Exception as error:  # deltalake and Arrow raise exceptions of many kinds
            raise SourceError(
                f"{self.name}: which rows are deleted cannot be read: {first_line(error)}; restore the table's files"
            ) from error
        found = {}
        root = self._delta.uri.rstrip("/") + "/"
        for batch in batches:
            for path, kept in zip(batch.column(0), batch.column(1), strict=True):
                rows = np.flatnonzero(~kept.values.to_numpy(zero_copy_only=False))
                found[path.as_py().removeprefix(root)] = rows.astype(np.int64)
        return found

    def _place(self, path: str) -> Place:
        """Where a file of the table lies, by its path in the log: relative and percent-encoded, or a URL."""
        if "://" in path or path.startswith("/"):  # of another table, which this one is a shallow clone of
            local = _path_of(path) or (unquote(path) if path.startswith("/") else None)
            return locate(path if local is None else local)
        relative = unquote(path)
        root = _path_of(self._delta.uri)
        if root is not None:
            return locate(root).child(relative)
        return Place(_filesystem(self._delta), relative, f"{self.name.rstrip('/')}/{relative}", False, True)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field.arrow for field in self._fields])

    @property
    def provenance(self) -> dict[str, Any]:
        told = {"source": self.name, "format": "delta", "table": self._id, "version": self._delta.version}
        return {**told, "files": len(self._files) + self._ruled_out}

    def narrowed(
        self, columns: Sequence[str], condition: pc.Expression | None, condition_fields: Sequence[str]
    ) -> DeltaSource:
        """The same table, reading some columns only, and passing over files and row groups that a condition rules out.

        Rows for which the condition is not true may still come. Files are ruled out by the log alone: by the values
        that the table is partitioned by, and by the statistics of the others.
        """
        narrowed = copy(self)
        by_name = {field.name: field for field in self._fields}
        narrowed._fields = tuple(by_name[name] for name in columns)
        if condition is None or not condition_fields:
            return narrowed
        looked_at = [by_name[name] for name in condition_fields]
        fields = tuple(field.arrow for field in looked_at)
        left = _pruning.files_left(condition, fields, self._known(looked_at))
        narrowed._files = [file for place, file in enumerate(self._files) if place in left]
        narrowed._ruled_out = len(self._files) - len(narrowed._files)
        narrowed._condition = condition, fields
        narrowed.__dict__.pop("_contents", None)  # footers of more files than are left
        return narrowed

    def _known(self, fields: Sequence[DeltaField]) -> Iterator[pc.Expression]:
        """What the log tells of all rows of each file, of some columns."""
        facts = {
            field.name: self._statistics.facts(field)
            for field in fields
            if field.name not in self._partitions
        }
        for file in self._files:
            known = _pruning.nothing()
            for field in fields:
                if field.name in facts:
                    known &= facts[field.name][file.action]
                else:
                    known &= _pruning.equal(field.name, file.partition[field.name])
            yield known

    def identity(self) -> object:
        return ["delta", self._id, self._delta.version, [file.file.place.path for file in self._files]]

    def peek(self) -> Iterator[Part]:
        for task in self.tasks(1):
            yield from task.parts()

    @cached_property
    def _contents(self) -> list[Contents]:
        with ThreadPoolExecutor(_INSPECT_THREADS, "fastshard-inspect") as pool:
            return list(pool.map(lambda file: parquet.inspect(file.file), self._files))

    def tasks(self, shard_bytes: int) -> list[DeltaTask]:
        """Cut the row groups of all files, in order, into runs of about `shard_bytes`."""
        tasks: list[DeltaTask] = []
        pieces: list[_Piece] = []
        size = 0

        def finish() -> None:
            rows = sum(piece.live for piece in pieces)
            tasks.append(DeltaTask(tuple(merged(pieces)), self._fields, self._mapped, rows, size))

        for piece, unit_bytes in self._pieces():
            if size and size + unit_bytes > shard_bytes * _FULL:
                finish()
                pieces, size = [], 0
            pieces.append(piece)
            size += unit_bytes
        if pieces:
            finish()
        return tasks

    def _pieces(self) -> Iterator[tuple[_Piece, int]]:
        number = 0
        for file, contents in zip(self._files, self._contents, strict=True):
            total = contents.rows or 0
            if file.deleted is not None and len(file.deleted) and file.deleted[-1] >= total:
                raise SourceError(
                    f"{file.file.name}: row {file.deleted[-1]} is deleted by the log, and the file has {total} rows; "
                    "restore the file that the log means"
                )
            columns = tuple(self._name_in(contents.schema, field) for field in self._fields)
            sizes = contents.sizes({name for name in columns if name is not None})
            wanted = self._wanted_units(file, contents)
            first = 0
            for unit, size in zip(range(len(contents.units)), sizes, strict=True):
                rows = contents.units[unit].rows or 0
                piece = _Piece(file, (unit,), (rows,), (first,), number, columns)
                if unit in wanted and piece.live:
                    yield piece, size
                first += rows
            number += file.live_before(total)

    def _wanted_units(self, file: _File, contents: Contents) -> Collection[int]:
        """Row groups that a file's own statistics do not rule out."""
        # Where columns are mapped, a name of the condition may be that of another column in the file.
        if self._condition is None or self._mapped != "none":
            return range(len(contents.units))
        condition, fields = self._condition
        if any(field.name in self._partitions for field in fields):
            return range(len(contents.units))
        return set(parquet.prune(file.file, contents, condition, fields))

    def _name_in(self, schema: pa.Schema, field: DeltaField) -> str | None:
        """What a file calls a column of the table; None if it has none, as for those that partition the table."""
        place = -1 if field.name in self._partitions else find(list(schema), field, self._mapped)
        return None if place < 0 else str(schema.names[place])


def _read(piece: _Piece, fields: Sequence[DeltaField], mapped: Mapped) -> Iterator[Part]:
    """The rows of a piece that are still there, with the table's columns."""
    file = piece.file
    first_rows = dict(zip(piece.units, piece.first_rows, strict=True))
    current, row = -1, 0
    for unit, batch in _batches(piece):
        if unit != current:
            current, row = unit, first_rows[unit]
        live = file.live_before(row)
        kept = _kept(batch, file.deleted, row)
        row += batch.num_rows
        for part in bounded(kept):
            made = _table_batch(part, fields, piece, mapped)
            yield Part(made, file.file.name, live, piece.number + live)
            live += part.num_rows


def _batches(piece: _Piece) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What `parquet.read` gives; where no column is in the file, batches of as many rows without columns."""
    columns = [name for name in piece.columns if name is not None]
    if columns:
        yield from parquet.read(piece.file.file, piece.units, columns)
        return
    for unit, rows in zip(piece.units, piece.rows, strict=True):
        nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        yield unit, pa.RecordBatch.from_struct_array(nothing)


def _kept(batch: pa.RecordBatch, deleted: npt.NDArray[np.int64] | None, row: int) -> pa.RecordBatch:
    """The rows of a batch, of which the first is row `row` of its file, that are not deleted."""
    if deleted is None:
        return batch
    begin, end = np.searchsorted(deleted, [row, row + batch.num_rows])
    if begin == end:
        return batch
    mask = np.ones(batch.num_rows, dtype=np.bool_)
    mask[deleted[begin:end] - row] = False
    return batch.filter(pa.array(mask))


def _table_batch(
    batch: pa.RecordBatch, fields: Sequence[DeltaField], piece: _Piece, mapped: Mapped
) -> pa.RecordBatch:
    arrays = []
    for field, name in zip(fields, piece.columns, strict=True):
        if name is None:
            value = piece.file.partition.get(field.name)
            nulls = value is None or not value.is_valid
            arrays.append(pa.nulls(batch.num_rows, field.type) if nulls else pa.repeat(value, batch.num_rows))
            continue
        column = batch.column(name)
        try:
            arrays.append(to_table(column, field, mapped))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{piece.file.file.name}: column {field.name!r}: {column.type} in the file does not fit {field.type} "
                f"of the table: {first_line(error)}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field.arrow for field in fields]))


def _path_of(uri: str) -> str | None:
    """The path of a URL of this machine's; None for another place."""
    path = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else None
    return path if path is None or path == "/" else path.rstrip("/")


def _filesystem(delta: Delta) -> pafs.FileSystem:
    """The table's root as deltalake opens it."""
    from deltalake.fs import DeltaStorageHandler

    return pafs.PyFileSystem(DeltaStorageHandler.from_table(delta.table._table, delta.storage_options))
