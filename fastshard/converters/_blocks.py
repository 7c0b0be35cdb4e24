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
        self._ahead = _Ahead()
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


class _Ahead:
    """The rows ahead: batches that were taken from the source and not yet cut."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch] = deque()
        self._head_bytes = 0  # of the first batch, when it came
        self.rows = 0
        self.bytes = 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end."""
        if batch.num_rows == 0:
            return
        size = batch.nbytes
        if not self._batches:
            self._head_bytes = size
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += size

    def let_go(self, worth: int) -> None:
        """Free the memory of a batch of more than `worth` bytes that is mostly used up, by copying its rest."""
        if self._batches and self._head_bytes > worth and self._batches[0].nbytes * 2 < self._head_bytes:
            self._batches[0] = _joined([self._batches[0]])
            self._head_bytes = self._batches[0].nbytes

    def _first(self, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if rows <= batch.num_rows:
                yield batch.slice(0, rows)
                return
            rows -= batch.num_rows
            yield batch

    def size_of(self, rows: int) -> int:
        """Size of the next `rows` rows in bytes."""
        return sum(batch.nbytes for batch in self._first(rows))

    def offset_span(self, rows: int) -> int:
        """The largest 32-bit offset that the next `rows` rows would have as one batch."""
        spans = [[offset_spans(column) for column in batch.columns] for batch in self._first(rows)]
        return max(
            (sum(level) for column in zip(*spans, strict=True) for level in zip(*column, strict=True)),
            default=0,
        )

    def take(self, rows: int) -> tuple[pa.RecordBatch, int]:
        """Remove the next `rows` rows: one batch, copied only where it joins several; and its size in bytes."""
        parts = list(self._first(rows))
        size = sum(part.nbytes for part in parts)
        for part in parts:
            head = self._batches.popleft()
            if part.num_rows < head.num_rows:
                self._batches.appendleft(head.slice(part.num_rows))
            elif self._batches:
                self._head_bytes = self._batches[0].nbytes
        self.rows -= rows
        # Counted anew, since the sizes of slices do not add up exactly.
        self.bytes = sum(batch.nbytes for batch in self._batches)
        return parts[0] if len(parts) == 1 else _joined(parts), size


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
