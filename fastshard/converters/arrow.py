"""Arrow IPC files (Feather V2), IPC streams and Feather V1: record batches as units."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters._discover import SourceFile
from fastshard.converters._format import READ_BYTES, Contents, Unit, row_width, rows_for
from fastshard.converters._paths import first_line, locate, source_error
from fastshard.errors import CorruptError, Error, SourceError

__all__ = ["FEATHER_V1_MAGIC", "FILE_MAGIC", "inspect", "prune", "read"]

FILE_MAGIC = b"ARROW1"
FEATHER_V1_MAGIC = b"FEA1"
_COPY_BYTES = 4 << 20


def inspect(file: SourceFile) -> Contents:
    """Read a file's schema and the sizes of its batches. See `Format.inspect`.

    The rows of a stream that is not on this machine are known only when it is read.
    """
    try:
        with _open(file) as source:
            return _contents(file, source)
    except Error:
        raise
    except Exception as error:
        raise source_error(file.name, error) from error


def _contents(file: SourceFile, source: pa.NativeFile) -> Contents:
    magic = source.read(len(FILE_MAGIC))
    source.seek(0)
    if magic == FILE_MAGIC:
        schema = pa.ipc.open_file(source).schema
        # One column is enough to learn how many rows a batch has.
        reader = pa.ipc.open_file(source, options=_only([0]) if len(schema) else None)
        counts = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        share = _size(file, source) / max(1, sum(counts))
        return Contents(schema, tuple(Unit(rows, int(rows * share)) for rows in counts), _shares(schema))
    size = _size(file, source)
    if magic.startswith(FEATHER_V1_MAGIC):
        table = _read_feather_v1(source)
        return Contents(table.schema, (Unit(table.num_rows, size),), _shares(table.schema))
    schema = pa.ipc.open_stream(source).schema
    rows = None
    if file.place.local:
        source.seek(0)
        rows = sum(
            batch.num_rows
            for batch in pa.ipc.open_stream(source, options=_only([0]) if len(schema) else None)
        )
    return Contents(schema, (Unit(rows, size),), _shares(schema))


def _shares(schema: pa.Schema) -> tuple[float, ...]:
    """What part of a file each column may have, by its type."""
    widths = [row_width(field.type) for field in schema]
    return tuple(width / max(1, sum(widths)) for width in widths)


def read(
    file: SourceFile, units: Sequence[int], columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read some record batches. See `Format.read`."""
    batch_number = -1
    try:
        with _whole(file) as whole, _open(whole) as source:
            for unit, batch in _batches(source, units, columns):
                batch_number += 1
                _validate(file, batch_number, batch)
                rows = rows_for(batch.nbytes / max(1, batch.num_rows), READ_BYTES)
                for start in range(0, batch.num_rows, rows):
                    yield unit, batch.slice(start, rows)
    except Error:
        raise
    except Exception as error:
        raise source_error(file.name, error) from error


def _batches(
    source: pa.NativeFile, units: Sequence[int], columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    magic = source.read(len(FILE_MAGIC))
    source.seek(0)
    if magic == FILE_MAGIC:
        schema = pa.ipc.open_file(source).schema
        reader = pa.ipc.open_file(source, options=_selection(schema, columns))
        for unit in units:
            yield unit, reader.get_batch(unit)
        return
    if magic.startswith(FEATHER_V1_MAGIC):
        table = _read_feather_v1(source)
        yield from (
            (0, batch) for batch in (table if columns is None else table.select(columns)).to_batches()
        )
        return
    schema = pa.ipc.open_stream(source).schema
    source.seek(0)
    yield from ((0, batch) for batch in pa.ipc.open_stream(source, options=_selection(schema, columns)))


def _selection(schema: pa.Schema, columns: Sequence[str] | None) -> Any:
    if columns is None or not columns:
        return None
    return _only([schema.get_field_index(name) for name in columns])


def _only(fields: list[int]) -> Any:
    return pa.ipc.IpcReadOptions(included_fields=fields)


@contextmanager
def _whole(file: SourceFile) -> Iterator[SourceFile]:
    """The file as it is read: a shard of a data set is on this machine, and held against its index.

    What is written anew would get a checksum that fits whatever was read.
    """
    if not file.digest:
        yield file
    elif file.place.local:
        _check_digest(file, file.place.path)
        yield file
    else:
        with tempfile.TemporaryDirectory(prefix="fastshard-") as folder:
            path = os.path.join(folder, "shard.arrow")
            with (
                file.place.filesystem.open_input_stream(file.place.path) as incoming,
                open(path, "wb") as out,
            ):
                shutil.copyfileobj(incoming, out, _COPY_BYTES)
            _check_digest(file, path)
            yield replace(file, place=locate(path))


def _check_digest(file: SourceFile, path: str) -> None:
    from fastshard import _core

    found = _core.xxh3_128_file(path).hex()
    if found != file.digest:
        raise CorruptError(
            f"{file.name}: its xxh3-128 is {found}, the index says {file.digest}; "
            'run "fastshard verify" or restore the file'
        )


def _open(file: SourceFile) -> pa.NativeFile:
    """Mapped where it is on this machine and can be, so that a record batch of any size is read bit by bit."""
    place = file.place
    if place.local and file.size > 0:
        try:
            return pa.memory_map(place.path)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return pa.OSFile(place.path)
    return place.filesystem.open_input_file(place.path)


def _size(file: SourceFile, source: pa.NativeFile) -> int:
    return file.size if file.size >= 0 else int(source.size())


def _read_feather_v1(source: pa.NativeFile) -> pa.Table:
    from pyarrow import feather

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return feather.read_table(source)


def _validate(file: SourceFile, number: int, batch: pa.RecordBatch) -> None:
    """Check what Arrow itself takes on trust: a wrong offset would be read through."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"{file.name}: record batch {number}, column {name!r}: not valid Arrow data: {first_line(error)}; "
                "write the file again"
            ) from error


def prune(
    file: SourceFile, contents: Contents, condition: pc.Expression, fields: Sequence[pa.Field]
) -> list[int]:
    """All units: Arrow files have no statistics. See `Format.prune`."""
    return list(range(len(contents.units)))
