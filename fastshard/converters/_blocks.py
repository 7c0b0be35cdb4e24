"""Where shards and blocks end: a function of the batches of one task alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

__all__ = ["OFFSET_LIMIT", "Block", "BlockCutter", "offset_spans"]

OFFSET_LIMIT = 2**31 - 1
_LOOKAHEAD_BLOCKS = 16
_MOST_TIMES = 4
_ROWS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """A record batch of a shard.

    Attributes:
        batch: The rows.
        starts_shard: Whether the shard before has to end.
        raw_bytes: Size before compression, about.
        rest_bytes: Size of the rows still to come, about, where no more rows can come; else None.
    """

    batch: pa.RecordBatch
    starts_shard: bool
    raw_bytes: int
    rest_bytes: int | None


class BlockCutter:
    """Cuts a stream of batches into blocks of R rows (docs/format.md section 8).

    R comes from the mean size of the rows ahead, up to 16 blocks of them. A shard ends, and R is chosen anew, where
    R rows would exceed 4 x `block_bytes` or an offset `offset_limit`, and where R has become four times too small.

    Memory: the batches that hold the rows ahead; a batch that is mostly used up is let go by copying its rest.
    """

    def __init__(self, schema: pa.Schema, *, block_bytes: int, offset_limit: int = OFFSET_LIMIT) -> None:
        """Set up for batches of one schema.

        Args:
            schema: Normalised (`fastshard.schema`).
            block_bytes: Size that a block's body aims at.
            offset_limit: The largest 32-bit offset; smaller in tests.
        """
        self._block_bytes = block_bytes
        self._offset_limit = offset_limit
        # Offsets count bytes, or elements of at least a byte: then the limit on bytes is the stricter one.
        self._check_offsets = _MOST_TIMES * block_bytes > offset_limit or any(
            _has_tiny_elements(field.type) for field in schema
        )
        self._ahead = _Ahead(uniform=all(_is_uniform(field.type) for field in schema))
        self._rows = 0  # R of the shard at hand, 0 between shards

    def push(self, batch: pa.RecordBatch) -> Iterator[Block]:
        """Take the next rows, and give the blocks that can be cut now. To be exhausted before the next call."""
        self._ahead.append(batch)
        target = _LOOKAHEAD_BLOCKS * self._block_bytes
        while self._ahead.bytes >= target or self._ahead.rows >= _LOOKAHEAD_BLOCKS * _ROWS_MAX:
            yield self._next(last=False)
        self._ahead.let_go(target)

    def finish(self) -> Iterator[Block]:
        """The blocks of the rows that are left."""
        while self._ahead.rows:
            yield self._next(last=True)

    def _next(self, *, last: bool) -> Block:
        ahead, rows = self._ahead, self._rows
        if rows and self._too_small(rows, ahead):
            rows = 0
        starts = rows == 0
        if starts:
            rows = self._choose_rows(ahead)
        count = self._fitting(ahead, rows)
        batch, size = ahead.take(count)
        # Only the last block of a shard has fewer rows.
        self._rows = rows if count == rows else 0
        return Block(batch, starts, size, ahead.bytes if last else None)

    def _choose_rows(self, ahead: _Ahead) -> int:
        rows = max(1, min(_ROWS_MAX, ahead.rows * self._block_bytes // max(1, ahead.bytes)))
        return self._fitting(ahead, rows)

    def _too_small(self, rows: int, ahead: _Ahead) -> bool:
        if (
            rows >= min(ahead.rows, _ROWS_MAX // _MOST_TIMES)
            or ahead.size_of(rows) * _MOST_TIMES >= self._block_bytes
        ):
            return False
        return ahead.rows * self._block_bytes >= _MOST_TIMES * rows * max(1, ahead.bytes)

    def _fitting(self, ahead: _Ahead, rows: int) -> int:
        """How many of the next `rows` rows make a block: all, or the most within the limits. One row always does."""
        high = min(rows, ahead.rows)
        if high == 1 or self._fits(ahead, high):
            return high
        low = 1  # low rows fit, or are one; high rows do not fit
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(ahead, middle):
                low = middle
            else:
                high = middle
        return low

    def _fits(self, ahead: _Ahead, rows: int) -> bool:
        if ahead.size_of(rows) > _MOST_TIMES * self._block_bytes:
            return False
        return not self._check_offsets or ahead.offset_span(rows) <= self._offset_limit


class _Part:
    """What is left of a batch.

    Attributes:
        batch: The rows.
        bytes: Their size, about.
        came_with: The size of the batch when it came: its memory, which lives as long as any row of it.
    """

    def __init__(self, batch: pa.RecordBatch, uniform: bool) -> None:
        self.batch = batch
        self.bytes: int = batch.nbytes
        self.came_with = self.bytes
        self._uniform = uniform

    def size_of(self, rows: int) -> int:
        """Size of the first `rows` rows in bytes."""
        if rows == self.batch.num_rows:
            return self.bytes
        if self._uniform:
            return int(self.bytes * rows // self.batch.num_rows)
        return int(self.batch.slice(0, rows).nbytes)

    def drop(self, rows: int) -> None:
        """Let the first `rows` rows go."""
        # Sizes of slices add up to a little more than the whole.
        self.bytes = max(0, self.bytes - self.size_of(rows))
        self.batch = self.batch.slice(rows)


class _Ahead:
    """The rows ahead: batches that were taken from the source and not yet cut."""

    def __init__(self, *, uniform: bool) -> None:
        """Set up.

        Args:
            uniform: Whether all rows of a batch are of one size, so that it need not be asked for each slice.
        """
        self._uniform = uniform
        self._parts: deque[_Part] = deque()
        self._sized = (0, 0)  # rows and size, as found last
        self.rows = 0
        self.bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end."""
        if batch.num_rows:
            part = _Part(batch, self._uniform)
            self._parts.append(part)
            self.rows += batch.num_rows
            self.bytes += part.bytes
            self._sized = (0, 0)

    def let_go(self, worth: int) -> None:
        """Free the memory of a batch of more than `worth` bytes that is mostly used up, by copying its rest."""
        if self._parts and self._parts[0].came_with > max(worth, 2 * self._parts[0].bytes):
            part = _Part(_joined([self._parts[0].batch]), self._uniform)
            self.bytes += part.bytes - self._parts[0].bytes
            self._parts[0] = part

    def _first(self, rows: int) -> Iterator[tuple[_Part, int]]:
        """The parts that hold the next `rows` rows, and how many of each."""
        for part in self._parts:
            count = min(rows, part.batch.num_rows)
            yield part, count
            rows -= count
            if rows == 0:
                return

    def size_of(self, rows: int) -> int:
        """Size of the next `rows` rows in bytes."""
        if self._sized[0] != rows:
            self._sized = (rows, sum(part.size_of(count) for part, count in self._first(rows)))
        return self._sized[1]

    def offset_span(self, rows: int) -> int:
        """The largest 32-bit offset that the next `rows` rows would have as one batch."""
        batches = [part.batch.slice(0, count) for part, count in self._first(rows)]
        spans = [[offset_spans(column) for column in batch.columns] for batch in batches]
        return max(
            (sum(level) for column in zip(*spans, strict=True) for level in zip(*column, strict=True)),
            default=0,
        )

    def take(self, rows: int) -> tuple[pa.RecordBatch, int]:
        """Remove the next `rows` rows: one batch, copied only where it joins several; and its size in bytes."""
        size = self.size_of(rows)
        batches = []
        for part, count in list(self._first(rows)):
            batches.append(part.batch.slice(0, count))
            self.bytes -= part.bytes
            if count < part.batch.num_rows:
                part.drop(count)
                self.bytes += part.bytes
            else:
                self._parts.popleft()
        self.rows -= rows
        self._sized = (0, 0)
        return batches[0] if len(batches) == 1 else _joined(batches), size


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    columns = [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def offset_spans(array: pa.Array) -> list[int]:
    """For each 32-bit offsets buffer of an array and its descendants, parents first: what its slice spans."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return offset_spans(array.storage)
    if types.is_struct(kind):
        return [span for i in range(kind.num_fields) for span in offset_spans(array.field(i))]
    if types.is_fixed_size_list(kind):
        width = kind.list_size
        return offset_spans(array.values.slice(array.offset * width, len(array) * width))
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        first, last = _ends(array, np.int32)
    elif types.is_large_list(kind):
        first, last = _ends(array, np.int64)
    else:
        return []
    own = [] if types.is_large_list(kind) else [last - first]
    if types.is_map(kind):
        children = [array.keys, array.items]
    elif types.is_list(kind) or types.is_large_list(kind):
        children = [array.values]
    else:
        children = []
    return own + [span for child in children for span in offset_spans(child.slice(first, last - first))]


def _ends(array: pa.Array, dtype: type[np.signedinteger[Any]]) -> tuple[int, int]:
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None or buffer.size == 0:
        return 0, 0
    offsets = np.frombuffer(buffer, dtype)
    return int(offsets[array.offset]), int(offsets[array.offset + len(array)])


def _is_uniform(kind: pa.DataType) -> bool:
    """Whether all values of the type are of one size."""
    if isinstance(kind, pa.BaseExtensionType):
        return _is_uniform(kind.storage_type)
    if types.is_fixed_size_list(kind):
        return _is_uniform(kind.value_type)
    if types.is_struct(kind):
        return all(_is_uniform(kind.field(i).type) for i in range(kind.num_fields))
    return bool(
        types.is_primitive(kind)
        or types.is_null(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_decimal(kind)
    )


def _has_tiny_elements(kind: pa.DataType) -> bool:
    """Whether a list inside may have more elements than bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return _has_tiny_elements(kind.storage_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        children = [kind.key_type, kind.item_type] if types.is_map(kind) else [kind.value_type]
        return all(_is_tiny(child) for child in children) or any(map(_has_tiny_elements, children))
    return any(_has_tiny_elements(kind.field(i).type) for i in range(kind.num_fields))


def _is_tiny(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_tiny(kind.storage_type)
    if types.is_boolean(kind) or types.is_null(kind):
        return True
    if types.is_fixed_size_binary(kind):
        return bool(kind.byte_width == 0)
    if types.is_fixed_size_list(kind):
        return kind.list_size == 0 or _is_tiny(kind.value_type)
    return bool(types.is_struct(kind)) and all(_is_tiny(kind.field(i).type) for i in range(kind.num_fields))
