"""A source of files: Parquet and Arrow files of any number, as one table.

    discover(paths)      which files, in which order                      (_discover)
    inspect(file)        schema, and the sizes of its row groups          (parquet, arrow)
    unify                one schema for all of them                       (_unify)
    cut                  tasks of about one shard, from those sizes alone
    task.parts()         read -> normalise -> conform, batch by batch

Reading is planned from metadata, so the tasks, and with them the bytes written, are the same wherever they run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters import _pruning, arrow, parquet
from fastshard.converters._discover import SourceFile, discover
from fastshard.converters._format import Contents, Piece, bounded, merged
from fastshard.converters._part import Part
from fastshard.converters._paths import public_name, source_error
from fastshard.converters._unify import conform, infer_partition_fields, unify_schemas
from fastshard.errors import SchemaError, SourceError

if TYPE_CHECKING:
    from fastshard.schema import Normaliser

__all__ = ["FilesSource", "FilesTask"]

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

_PARQUET_ENDINGS = (".parquet", ".pq", ".parq", ".pqt")
_ARROW_ENDINGS = (".arrow", ".arrows", ".feather", ".ipc", ".ftr")
_FORMATS: dict[str, ModuleType] = {"parquet": parquet, "arrow": arrow}
_INSPECT_THREADS = 16
# A task may be this many times a shard: what is left over after one goes into it.
_FULL = 1.125


@dataclass(frozen=True, slots=True)
class _Piece(Piece[SourceFile]):
    """Some units of a file of some format.

    Attributes:
        format: A key of `_FORMATS`.
        columns: Those of the file that are wanted.
    """

    format: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesTask:
    """A run of row groups of one or several files, brought to one schema."""

    pieces: tuple[_Piece, ...]
    schema: pa.Schema
    rows: int | None
    bytes: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (part.batch for part in self.parts())

    def parts(self) -> Iterator[Part]:
        for piece in self.pieces:
            yield from _read_piece(piece, self.schema)


class FilesSource:
    """Files that are read as one table, in their order.

    Attributes:
        files: What `discover` found.
        portable: Other processes can open the files.
    """

    def __init__(self, paths: Paths, *, files: list[SourceFile] | None = None) -> None:
        """List the files; none is opened yet.

        Args:
            paths: A file, directory, glob or URL, or a list of them.
            files: What they are, where that is known.

        Raises:
            NotFoundError, SourceError, InvalidError: See `discover`.
        """
        self._paths = paths
        self.files = discover(paths) if files is None else files
        self.portable = all(file.place.portable for file in self.files)
        self._columns: tuple[str, ...] | None = None
        self._condition: tuple[pc.Expression, tuple[pa.Field, ...]] | None = None
        self._left: set[int] | None = None  # of the files: those that the condition leaves, None for all

    @cached_property
    def _contents(self) -> list[tuple[str, Contents]]:
        if len(self.files) <= 1:
            return list(map(_inspect, self.files))
        with ThreadPoolExecutor(min(_INSPECT_THREADS, len(self.files)), "fastshard-inspect") as pool:
            return list(pool.map(_inspect, self.files))

    @property
    def refused(self) -> Mapping[str, SchemaError]:
        """Columns that cannot be stored, or not together, and why."""
        return self._settled[1]

    @property
    def _unified(self) -> pa.Schema:
        return self._settled[0]

    @cached_property
    def _settled(self) -> tuple[pa.Schema, dict[str, SchemaError]]:
        """What all files fit, without the columns for which there is no such type, and why not."""
        refused: dict[str, SchemaError] = {}
        normal: dict[pa.Schema, pa.Schema] = {}
        schemas = []
        for file, (_, contents) in zip(self.files, self._contents, strict=True):
            if contents.schema not in normal:
                normal[contents.schema], unfit = _storable(file.name, contents.schema)
                refused = {**unfit, **refused}
            schemas.append(normal[contents.schema])
        names = [file.name for file in self.files]
        keys = infer_partition_fields(file.partition for file in self.files)
        for key in keys:
            refused.pop(key.name, None)  # the directories' values win
        schema = unify_schemas(schemas, names, refused)
        for name in set(schema.names) & set(refused):
            schema = schema.remove(schema.get_field_index(name))
        for key in keys:
            index = schema.get_field_index(key.name)
            if index < 0:
                schema = schema.append(key)
            else:
                both = [pa.schema([schema.field(index)]), pa.schema([key])]
                field = unify_schemas(both, ["the files", f"the directory names ({key.name}=...)"]).field(0)
                schema = schema.set(index, field.with_nullable(True))
        return schema, refused

    @property
    def schema(self) -> pa.Schema:
        if self._columns is None:
            return self._unified

        return pa.schema(
            [self._unified.field(name) for name in self._columns], metadata=self._unified.metadata
        )

    @property
    def provenance(self) -> dict[str, Any]:
        formats = sorted({kind for kind, _ in self._contents})
        return {"source": self.name, "format": "+".join(formats), "files": len(self.files)}

    @property
    def name(self) -> str | list[str]:
        """What the user named, without secrets."""
        if isinstance(self._paths, str | os.PathLike):
            return public_name(os.fspath(self._paths))
        return [public_name(os.fspath(path)) for path in self._paths]

    def narrowed(
        self, columns: Sequence[str], condition: pc.Expression | None, condition_fields: Sequence[str]
    ) -> FilesSource:
        """The same source, reading some columns only, and passing over files and row groups that a condition rules out.

        Rows for which the condition is not true may still come.
        """
        narrowed = copy(self)  # with the metadata, if they have been read
        narrowed._columns = tuple(columns)
        if condition is not None and condition_fields:
            fields = tuple(self._unified.field(name) for name in condition_fields)
            narrowed._condition = condition, fields
            if any(file.partition for file in self.files):
                known = (_known(file, fields) for file in self.files)
                narrowed._left = _pruning.files_left(condition, fields, known)
        return narrowed

    def identity(self) -> object:
        if any(file.size < 0 and not file.stamp for file in self.files):
            return None
        return [
            [file.place.filesystem.type_name, file.place.path, file.size, file.stamp, file.partition]
            for file in self.files
        ]

    def peek(self) -> Iterator[Part]:
        for task in self.tasks(1):
            yield from task.parts()

    def tasks(self, shard_bytes: int) -> list[FilesTask]:
        """Cut the row groups of all files, in order, into runs of about `shard_bytes`."""
        tasks: list[FilesTask] = []
        pieces: list[_Piece] = []
        rows: int | None = 0
        size = 0
        for piece, unit_bytes in self._pieces():
            if size and size + unit_bytes > shard_bytes * _FULL:
                tasks.append(FilesTask(tuple(merged(pieces)), self.schema, rows, size))
                pieces, rows, size = [], 0, 0
            pieces.append(piece)
            rows = None if rows is None or piece.rows[0] is None else rows + piece.rows[0]
            size += unit_bytes
        if pieces:
            tasks.append(FilesTask(tuple(merged(pieces)), self.schema, rows, size))
        return tasks

    def _pieces(self) -> Iterator[tuple[_Piece, int]]:
        """Every unit that is to be read, with its size in memory as far as it is known."""
        counts = [contents.rows for _, contents in self._contents]
        numbered = None not in counts
        number = 0
        for index, (file, (kind, contents)) in enumerate(zip(self.files, self._contents, strict=True)):
            if not numbered:
                number = index << 40
            first_row = 0
            columns = self._columns_in(file, contents)
            ruled_out = self._left is not None and index not in self._left
            wanted = () if ruled_out else self._wanted_units(file, kind, contents)
            for i, (unit, size) in enumerate(zip(contents.units, contents.sizes(columns), strict=True)):
                if i in wanted and unit.rows != 0:
                    yield _Piece(file, (i,), (unit.rows,), (first_row,), number, kind, columns), size
                first_row += unit.rows or 0
            number += counts[index] or 0

    def _columns_in(self, file: SourceFile, contents: Contents) -> tuple[str, ...]:
        there = set(contents.schema.names) - {key for key, _ in file.partition}
        return tuple(name for name in self.schema.names if name in there)

    def _wanted_units(self, file: SourceFile, kind: str, contents: Contents) -> Iterable[int]:
        everything = range(len(contents.units))
        if self._condition is None or {key for key, _ in file.partition} & {
            f.name for f in self._condition[1]
        }:
            return everything
        condition, fields = self._condition
        return set(_FORMATS[kind].prune(file, contents, condition, fields))


def _known(file: SourceFile, fields: Sequence[pa.Field]) -> pc.Expression:
    """What the names of a file's directories tell of all of its rows."""
    partition = dict(file.partition)
    known = _pruning.nothing()
    for field in fields:
        if field.name in partition:
            value = pa.scalar(partition[field.name], pa.string()).cast(field.type)
            known &= _pruning.equal(field.name, value)
    return known


def _storable(name: str, schema: pa.Schema) -> tuple[pa.Schema, dict[str, SchemaError]]:
    """The columns of a file that can be stored, and why not, for each of the others."""
    from fastshard.schema import normalise_storable

    if len(schema) == 0:
        # A file without columns may stand among others; the data set's own schema is checked when it is written.
        return schema, {}
    try:
        normal, refused = normalise_storable(schema)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from error
    return normal, {column: SchemaError(f"{name}: {error}") for column, error in refused.items()}


def _inspect(file: SourceFile) -> tuple[str, Contents]:
    kind = _format_of(file)
    return kind, _FORMATS[kind].inspect(file)


def _format_of(file: SourceFile) -> str:
    """By the name's ending, else by the first bytes."""
    if file.size == 0:
        raise SourceError(
            f"{file.name}: the file is empty (0 bytes), which no table is; remove it or write it again"
        )
    ending = os.path.splitext(file.place.path)[1].lower()
    if ending in _PARQUET_ENDINGS:
        return "parquet"
    if ending in _ARROW_ENDINGS:
        return "arrow"
    try:
        with file.place.filesystem.open_input_file(file.place.path) as stream:
            magic = bytes(stream.read(8))
    except Exception as error:
        raise source_error(file.name, error) from error
    if magic.startswith((b"PAR1", b"PARE")):
        return "parquet"
    if magic.startswith((arrow.FILE_MAGIC, arrow.FEATHER_V1_MAGIC, b"\xff\xff\xff\xff")):
        return "arrow"
    raise SourceError(
        f"{file.name}: neither a Parquet nor an Arrow file (it begins with {magic!r}); "
        "name the files to convert with a glob, such as DIRECTORY/*.parquet"
    )


def _read_piece(piece: _Piece, schema: pa.Schema) -> Iterator[Part]:
    """The rows of a piece as batches of the unified schema."""
    from fastshard.schema import Normaliser

    name = piece.file.name
    constants = [(key, value) for key, value in piece.file.partition if key in schema.names]
    normaliser: Normaliser | None = None
    for row, batch in _placed(piece):
        slices: Iterable[pa.RecordBatch] = [batch]
        if batch.num_columns:
            if normaliser is None:
                normaliser = Normaliser(batch.schema)
            slices = _normalised(batch, normaliser, row)
        for normal in slices:
            part = Part(normal, name, row, piece.number + row)
            yield Part(conform(normal, schema, constants, part.where), name, part.row, part.number)
            row += normal.num_rows


def _placed(piece: _Piece) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of a piece, each with the place of its first row in the file."""
    first_rows = dict(zip(piece.units, piece.first_rows, strict=True))
    current, row = -1, 0
    for unit, batch in _FORMATS[piece.format].read(piece.file, piece.units, piece.columns):
        if unit != current:
            current, row = unit, first_rows[unit]
        yield row, batch
        row += batch.num_rows


def _normalised(batch: pa.RecordBatch, normaliser: Normaliser, row: int) -> Iterator[pa.RecordBatch]:
    for slice_ in bounded(batch):
        for normal in normaliser.batches(slice_, row):
            yield normal
            row += normal.num_rows
