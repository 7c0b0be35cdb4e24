"""What a file format tells about a file, and the sizes that reading keeps to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters._discover import SourceFile

__all__ = [
    "READ_BYTES",
    "Contents",
    "Format",
    "Piece",
    "Unit",
    "bounded",
    "decoded_bytes",
    "merged",
    "row_width",
    "rows_for",
]

FileT = TypeVar("FileT")
PieceT = TypeVar("PieceT", bound="Piece[Any]")

# What one batch read from a file aims at, and how many times that it may be before it is read in smaller ones.
READ_BYTES = 16 << 20
READ_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest piece of a file that is read by itself: a row group, a record batch, a whole stream.

    Attributes:
        rows: Rows; None where only reading tells.
        bytes: Their size in the file, before compression.
    """

    rows: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file's metadata tell.

    Attributes:
        schema: Of its batches, as read: not normalised.
        units: Its pieces, in order.
        shares: Of each column, what part it has of the units' bytes.
    """

    schema: pa.Schema
    units: tuple[Unit, ...]
    shares: tuple[float, ...]

    @property
    def rows(self) -> int | None:
        rows = [unit.rows for unit in self.units]
        return None if None in rows else sum(row for row in rows if row is not None)

    def sizes(self, columns: Collection[str]) -> Iterator[int]:
        """What some columns of each unit take in memory, as far as the metadata tell."""
        chosen = [i for i, name in enumerate(self.schema.names) if name in columns]
        share = sum(self.shares[i] for i in chosen)
        width = sum(row_width(self.schema.field(i).type) for i in chosen)
        return (max(int(unit.bytes * share), (unit.rows or 0) * width) for unit in self.units)


@dataclass(frozen=True, slots=True)
class Piece(Generic[FileT]):
    """Some units of a file.

    Attributes:
        file: The file.
        units: Places in its `Contents.units`, ascending.
        rows: Rows of each of them; None where only reading tells.
        first_rows: Place of the first row of each of them in the file.
        number: Number of the file's first row in the whole source.
    """

    file: FileT
    units: tuple[int, ...]
    rows: tuple[int | None, ...]
    first_rows: tuple[int, ...]
    number: int


def merged(pieces: Iterable[PieceT]) -> Iterator[PieceT]:
    """Join consecutive pieces of one file, so that it is opened once."""
    for _, group in groupby(pieces, key=lambda piece: id(piece.file)):
        parts = list(group)
        yield replace(
            parts[0],
            units=tuple(unit for part in parts for unit in part.units),
            rows=tuple(rows for part in parts for rows in part.rows),
            first_rows=tuple(row for part in parts for row in part.first_rows),
        )


class Format(Protocol):
    """A file format: a module with these functions."""

    def inspect(self, file: SourceFile) -> Contents:
        """Read a file's metadata.

        Raises:
            SourceError: The file cannot be read, or is of another format.
        """

    def read(
        self, file: SourceFile, units: Sequence[int], columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read some units of a file, in order, in bounded memory where the format allows it.

        Args:
            file: The file.
            units: Places in `Contents.units`, ascending.
            columns: Names of top-level columns to read, all there are; None: all.

        Yields:
            The unit at which a run of adjacent units begins, and a batch of the next rows of that run.

        Raises:
            SourceError: The file cannot be read; the message names it and, where that is known, the column.
        """

    def prune(
        self, file: SourceFile, contents: Contents, condition: pc.Expression, fields: Sequence[pa.Field]
    ) -> list[int]:
        """The units that may hold rows for which `condition` on `fields` is true."""


def row_width(type_: pa.DataType) -> int:
    """The least bytes that a value takes in memory."""
    if isinstance(type_, pa.BaseExtensionType):
        return row_width(type_.storage_type)
    if pa.types.is_struct(type_):
        return sum(row_width(type_.field(i).type) for i in range(type_.num_fields))
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * row_width(type_.value_type)
    if pa.types.is_dictionary(type_):
        return row_width(type_.value_type)
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:
        return 4  # an offset


def rows_for(bytes_per_row: float, target: int = READ_BYTES) -> int:
    """How many rows make a batch of about `target` bytes."""
    return max(1, min(READ_ROWS, int(target / max(bytes_per_row, 1.0))))


def bounded(batch: pa.RecordBatch, target: int = READ_BYTES) -> Iterator[pa.RecordBatch]:
    """A batch in slices whose dictionaries take about `target` bytes when they are decoded."""
    sizes = [size for size in map(decoded_bytes, batch.columns) if size is not None]
    rows = batch.num_rows
    total = np.sum(sizes, axis=0) if sizes else np.zeros(rows, np.int64)
    if rows == 0 or total.sum() <= target:
        yield batch
        return
    ends = total.cumsum()
    start = 0
    while start < rows:
        used = ends[start - 1] if start else 0
        stop = max(start + 1, int(ends.searchsorted(used + target, side="right")))
        yield batch.slice(start, stop - start)
        start = stop


def decoded_bytes(array: pa.Array) -> npt.NDArray[np.int64] | None:
    """What the dictionaries in each row of an array take when decoded, int64 [rows]; None where it has none."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return decoded_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        lengths = _value_bytes(array.dictionary)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return lengths[codes] if len(lengths) else np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        sizes = [decoded_bytes(field) for field in array.flatten()]
        found = [size for size in sizes if size is not None]
        return np.sum(found, axis=0) if found else None
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        inner = decoded_bytes(array.values.slice(array.offset * width, len(array) * width))
        return None if inner is None else inner.reshape(len(array), width).sum(axis=1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        children = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        found = [size for size in map(decoded_bytes, children) if size is not None]
        if not found:
            return None
        ends = np.concatenate([[0], np.sum(found, axis=0).cumsum()])
        offsets = array.offsets.to_numpy()
        per_row: npt.NDArray[np.int64] = np.diff(ends[offsets])
        return per_row
    return None


def _value_bytes(values: pa.Array) -> npt.NDArray[np.int64]:
    kind = values.type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if any(test(kind) for test in tests):
        lengths: npt.NDArray[np.int64] = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64)
    return np.full(len(values), values.nbytes // max(1, len(values)), np.int64)
