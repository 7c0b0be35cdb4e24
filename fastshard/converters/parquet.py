"""Parquet files: their row groups as units, read as streams of batches.

A row group may be far larger than memory: it is read column chunk by column chunk through small buffers, and decoded
a batch of about `READ_BYTES` at a time. How many rows that is follows from the metadata; where those do not tell
(values in a dictionary, of any size) the first rows are tried, and a batch that turns out much too large, or that
Arrow cannot build because its offsets would pass 2^31, makes the rest be read in smaller ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fastshard.converters._discover import SourceFile
from fastshard.converters._format import READ_BYTES, Contents, Unit, row_width, rows_for
from fastshard.converters._paths import first_line, source_error
from fastshard.errors import Error, SourceError

__all__ = ["inspect", "prune", "read"]

_PROBE_ROWS = 64
# A batch of more than this many times its target makes the next ones smaller.
_TOLERANCE = 4
# Row groups are read in one go as long as their batches would be of like sizes.
_ALIKE = 4
# Small row groups of remote files are fetched with few requests, large ones through buffers.
_PREFETCH_BYTES = 64 << 20
_BUFFERS_BYTES = 64 << 20
_BUFFER_MIN = 64 << 10
_BUFFER_LOCAL = 1 << 20
_BUFFER_REMOTE = 8 << 20


def inspect(file: SourceFile) -> Contents:
    """Read a file's footer. See `Format.inspect`."""
    with _Reader(file) as reader:
        metadata, schema = reader.parquet.metadata, reader.schema
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        units = tuple(Unit(group.num_rows, group.total_byte_size) for group in groups)
        shares = _shares(schema, next((group for group in groups if group.num_rows), None))
    return Contents(schema, units, shares)


def read(
    file: SourceFile, units: Sequence[int], columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read some row groups. See `Format.read`."""
    with _Reader(file) as reader:
        names = reader.schema.names if columns is None else list(columns)
        for run, rows_per_batch in reader.runs(units, names):
            expected = sum(reader.parquet.metadata.row_group(group).num_rows for group in run)
            found = 0
            for batch in reader.batches(run, names, rows_per_batch):
                found += batch.num_rows
                yield run[0], batch
            if found != expected:
                raise SourceError(
                    f"{file.name}: row groups {run[0]} to {run[-1]} hold {found} rows, and {expected} by the footer; "
                    "write the file again"
                )


def prune(
    file: SourceFile, contents: Contents, condition: pc.Expression, fields: Sequence[pa.Field]
) -> list[int]:
    """Row groups that the statistics do not rule out. See `Format.prune`.

    Floating-point columns are not looked at: their statistics pass over NaN, and Arrow takes them for all values.
    """

    everything = list(range(len(contents.units)))
    for field in fields:
        index = contents.schema.get_field_index(field.name)
        if (
            index < 0
            or contents.schema.field(index).type != field.type
            or not _has_sound_statistics(field.type)
        ):
            return everything
    try:
        fragment = ds.ParquetFileFormat().make_fragment(file.place.path, file.place.filesystem)
        return [group.id for group in fragment.subset(filter=condition, schema=pa.schema(fields)).row_groups]
    except (pa.ArrowException, OSError):
        return everything  # a help only; reading will meet the error and name it


def _shares(schema: pa.Schema, group: Any) -> tuple[float, ...]:
    """What part of a row group each column has; that of one group stands for all."""
    if group is None:
        return (0.0,) * len(schema)
    sizes = _column_sizes(group, schema.names)
    total = max(1, sum(sizes.values()))
    return tuple(sizes.get(name, 0) / total for name in schema.names)


def _column_sizes(group: Any, columns: Collection[str]) -> dict[str, int]:
    """Bytes of some columns of a row group, before compression."""
    sizes: dict[str, int] = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        name = _owner(chunk.path_in_schema, columns)
        if name is not None:
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
    return sizes


def _owner(path: str, columns: Collection[str]) -> str | None:
    """The column, of some, that a leaf belongs to."""
    parts = path.split(".")
    prefixes = (".".join(parts[:i]) for i in range(1, len(parts) + 1))
    return next((prefix for prefix in prefixes if prefix in columns), None)


def _has_sound_statistics(type_: pa.DataType) -> bool:
    tests = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_time,
    )
    return any(test(type_) for test in tests) or type_ in (pa.string(), pa.large_string())


class _Reader:
    """One open Parquet file, and what its errors are called."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self.parquet: pq.ParquetFile
        self.schema: pa.Schema

    def __enter__(self) -> _Reader:
        try:
            self.parquet = self._open(prefetch=False)
            self.schema = self.parquet.schema_arrow
        except Error:
            raise
        except Exception as error:
            raise source_error(self._file.name, error) from error
        return self

    def __exit__(self, *details: object) -> None:
        self.parquet.close(force=True)

    def _open(self, *, prefetch: bool, metadata: Any = None) -> pq.ParquetFile:
        place = self._file.place
        source = place.path if place.local else place.filesystem.open_input_file(place.path)
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=prefetch,
            buffer_size=0 if prefetch else self._buffer_size(metadata),
            page_checksum_verification=True,
        )
        if metadata is None and self._buffer_size(file.metadata) != self._buffer_size(None):
            known = file.metadata
            file.close(force=True)
            return self._open(prefetch=prefetch, metadata=known)
        return file

    def _buffer_size(self, metadata: Any) -> int:
        """Each column chunk being read has a buffer of its own."""
        most = _BUFFER_LOCAL if self._file.place.local else _BUFFER_REMOTE
        columns = 1 if metadata is None else max(1, metadata.num_columns)
        return max(_BUFFER_MIN, min(most, _BUFFERS_BYTES // columns))

    def runs(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[list[int], int]]:
        """Adjacent row groups to read in one go, and how many rows a batch of them has."""
        run: list[int] = []
        least = most = 0
        for group in groups:
            rows = rows_for(self._bytes_per_row(group, columns))
            is_alike = group == run[-1] + 1 and max(most, rows) <= _ALIKE * min(least, rows) if run else False
            if is_alike and self._file.place.local:
                run.append(group)
                least, most = min(least, rows), max(most, rows)
                continue
            if run:
                yield run, least
            run, least, most = [group], rows, rows
        if run:
            yield run, least

    def _bytes_per_row(self, group: int, columns: Sequence[str]) -> float:
        metadata = self.parquet.metadata.row_group(group)
        rows: int = metadata.num_rows
        if rows == 0:
            return 1.0
        if len(columns) == len(self.schema):
            size: int = metadata.total_byte_size
        else:
            size = sum(_column_sizes(metadata, set(columns)).values())
        return max(size / rows, sum(row_width(self.schema.field(name).type) for name in columns))

    def batches(self, run: list[int], columns: list[str], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        parquet, close = self._for_run(run)
        try:
            rows_per_batch = min(rows_per_batch, self._probe(parquet, run, columns))
            done = 0
            while True:
                too_large = False
                try:
                    for batch in _skip(_iterate(parquet, run, columns, rows_per_batch), done):
                        done += batch.num_rows
                        size = batch.nbytes
                        yield batch
                        if size > _TOLERANCE * READ_BYTES and batch.num_rows > 1:
                            rows_per_batch = rows_for(size / batch.num_rows)
                            too_large = True
                            break
                except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                    # Arrow could not build so large a batch: nested values past 2 GiB, say.
                    if rows_per_batch == 1:
                        raise
                    rows_per_batch //= 2
                    too_large = True
                if not too_large:
                    return
        except Error:
            raise
        except Exception as error:
            raise self._blame(run, columns, error) from error
        finally:
            if close:
                parquet.close(force=True)

    def _for_run(self, run: list[int]) -> tuple[pq.ParquetFile, bool]:
        size = sum(self.parquet.metadata.row_group(group).total_byte_size for group in run)
        if self._file.place.local or size > _PREFETCH_BYTES:
            return self.parquet, False
        return self._open(prefetch=True, metadata=self.parquet.metadata), True

    def _probe(self, parquet: pq.ParquetFile, run: list[int], columns: list[str]) -> int:
        """How many rows make a batch, by the first rows of the columns of which the metadata do not tell."""
        group = max(run, key=lambda index: self.parquet.metadata.row_group(index).num_rows)
        unknown = self._dictionary_columns(group, columns)
        if not unknown or self.parquet.metadata.row_group(group).num_rows <= _PROBE_ROWS:
            return rows_for(1)
        try:
            first = next(_iterate(parquet, [group], unknown, _PROBE_ROWS), None)
        except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
            return 1
        return rows_for(1) if not first else rows_for(first.nbytes / first.num_rows)

    def _dictionary_columns(self, group: int, columns: list[str]) -> list[str]:
        """Columns with values of any length in dictionaries: the file's size says little about theirs."""
        wanted = set(columns)
        metadata = self.parquet.metadata.row_group(group)
        found: dict[str, None] = {}
        for i in range(metadata.num_columns):
            chunk = metadata.column(i)
            if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
                continue
            name = _owner(chunk.path_in_schema, wanted)
            if name is not None:
                found[name] = None
        return list(found)

    def _blame(self, run: list[int], columns: list[str], error: Exception) -> Exception:
        """Find the column and the row group that cannot be read."""
        for group in run:
            for column in columns:
                try:
                    for _ in _iterate(
                        self.parquet, [group], [column], rows_for(self._bytes_per_row(group, columns))
                    ):
                        pass
                except Exception as found:
                    return SourceError(
                        f"{self._file.name}: row group {group}, column {column!r}: cannot be read: "
                        f"{first_line(found)}; write the file again, or leave the column out with columns="
                    )
        return source_error(self._file.name, error)


def _iterate(
    parquet: pq.ParquetFile, groups: list[int], columns: list[str], rows_per_batch: int
) -> Iterator[pa.RecordBatch]:
    names = set(columns)
    for batch in parquet.iter_batches(batch_size=rows_per_batch, row_groups=groups, columns=columns):
        # A name with dots also selects the column of a struct that is spelled alike.
        if batch.num_columns != len(names):
            yield batch.select([name for name in batch.schema.names if name in names])
        else:
            yield batch


def _skip(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows >= batch.num_rows > 0:
            rows -= batch.num_rows
            continue
        yield batch.slice(rows) if rows else batch
        rows = 0
