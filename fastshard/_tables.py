"""The shard table and the block table: written in one pass as shards come, read again to append to them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from fastshard import _core
from fastshard._index import ColumnStats, DatasetIndex, FileRef, check_path
from fastshard.errors import CorruptError, NotFoundError

__all__ = [
    "BlockTableWriter",
    "ShardEntry",
    "TableEntry",
    "fingerprint",
    "read_tables",
    "unit_blocks",
    "window",
]

_SHARD_TABLE = pa.schema(
    [
        pa.field("path", pa.utf8(), nullable=False),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in ("rows", "bytes", "blocks", "block_rows", "raw_bytes")
        ),
        pa.field("hash", pa.binary(16), nullable=False),
        pa.field("table_offset", pa.int64(), nullable=False),
        pa.field("table_bytes", pa.int64(), nullable=False),
        pa.field("table_hash", pa.uint64(), nullable=False),
    ]
)
_IPC = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)
_Bytes: TypeAlias = bytes  # `bytes` is a field below
_UNITS_MAX = 1 << 22
_WINDOW_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One row of the shard table, before its place in the block table is known."""

    path: str
    rows: int
    bytes: int
    blocks: int
    block_rows: int
    raw_bytes: int
    hash: _Bytes


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """All that the index holds of one shard file. Picklable: workers send it home.

    Attributes:
        table: Its row of the shard table; `path` is set when the shard gets its name.
        offset, metadata_bytes, body_bytes, rows: int64 [blocks].
        metadata_hash: uint64 [blocks].
        column_hashes: uint64 [blocks, columns].
        columns: Statistics, by place.
    """

    table: TableEntry
    offset: np.ndarray
    metadata_bytes: np.ndarray
    body_bytes: np.ndarray
    rows: np.ndarray
    metadata_hash: np.ndarray
    column_hashes: np.ndarray
    columns: tuple[ColumnStats, ...]

    @classmethod
    def of_file(cls, indexed: _core.IndexedFile, path: str) -> ShardEntry:
        """The entry of a file that the native core has indexed."""
        table = TableEntry(
            path,
            indexed.rows,
            indexed.bytes,
            indexed.blocks,
            indexed.block_rows,
            indexed.raw_bytes,
            indexed.hash,
        )
        return cls(
            table,
            indexed.offset,
            indexed.metadata_bytes,
            indexed.body_bytes,
            indexed.rows_of_block,
            indexed.metadata_hash,
            indexed.column_hashes,
            tuple(ColumnStats(*column) for column in indexed.columns),
        )


def _block_table_schema(columns: int) -> pa.Schema:
    return pa.schema(
        [
            *(
                pa.field(name, pa.int64(), nullable=False)
                for name in ("offset", "metadata_bytes", "body_bytes", "rows")
            ),
            pa.field("metadata_hash", pa.uint64(), nullable=False),
            pa.field(
                "column_hashes",
                pa.list_(pa.field("item", pa.uint64(), nullable=False), columns),
                nullable=False,
            ),
        ]
    )


class BlockTableWriter:
    """Writes the block table, one record batch a shard; then the shard table, which names where each batch lies."""

    def __init__(self, path: str, columns: int) -> None:
        """Start the block table in a new file.

        Args:
            path: The file.
            columns: Top-level columns of the data set.
        """
        self._path = path
        self._columns = columns
        self._schema = _block_table_schema(columns)
        self._sink = pa.OSFile(path, "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema, options=_IPC)
        self.entries: list[TableEntry] = []

    def add(self, entry: ShardEntry) -> None:
        """Append a new shard."""
        hashes = pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(entry.column_hashes).reshape(-1), pa.uint64()),
            type=self._schema.field("column_hashes").type,
        )
        arrays = [
            *(
                pa.array(values, pa.int64())
                for values in (entry.offset, entry.metadata_bytes, entry.body_bytes, entry.rows)
            ),
            pa.array(entry.metadata_hash, pa.uint64()),
            hashes,
        ]
        self.add_batch(entry.table, pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def add_batch(self, entry: TableEntry, batch: pa.RecordBatch) -> None:
        """Append a shard whose record batch exists, in an older generation's table."""
        self._writer.write_batch(batch)
        self.entries.append(entry)

    def close(self) -> None:
        """Finish the file, or give it up; a second call does nothing."""
        if not self._sink.closed:
            try:
                self._writer.close()
            finally:
                self._sink.close()

    def write_shard_table(self, path: str) -> None:
        """Write the shard table into a new file, once the block table is closed."""
        offsets, sizes, hashes = _batch_places(self._path, len(self.entries))
        columns: dict[str, pa.Array] = {
            "path": pa.array([entry.path for entry in self.entries], pa.utf8()),
            "hash": pa.array([entry.hash for entry in self.entries], pa.binary(16)),
            "table_offset": pa.array(offsets, pa.int64()),
            "table_bytes": pa.array(sizes, pa.int64()),
            "table_hash": pa.array(hashes, pa.uint64()),
        }
        for name in ("rows", "bytes", "blocks", "block_rows", "raw_bytes"):
            columns[name] = pa.array([getattr(entry, name) for entry in self.entries], pa.int64())
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, _SHARD_TABLE, options=_IPC) as writer:
            if self.entries:
                arrays = [columns[field.name] for field in _SHARD_TABLE]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SHARD_TABLE))


def _batch_places(path: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offset, size and xxh3-64 of each encapsulated record batch of a block table."""
    if count == 0:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty.astype(np.uint64)
    indexed = _core.index_file(path, kind="file")
    offsets, sizes = indexed.offset, indexed.metadata_bytes + indexed.body_bytes
    with _mapped(path) as data:
        hashes = [
            _core.xxh3_64(data[offset : offset + size])
            for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
        ]
    return offsets, sizes, np.array(hashes, np.uint64)


@contextmanager
def _mapped(path: str) -> Iterator[memoryview]:
    """The bytes of a file that is not empty."""
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        yield view


@contextmanager
def read_tables(
    directory: str, index: DatasetIndex
) -> Iterator[tuple[list[TableEntry], Iterable[pa.RecordBatch]]]:
    """The shards of a data set and, lazily, their record batches of the block table, both checked by their hashes.

    Raises:
        NotFoundError: A table is missing.
        CorruptError: A table is not what the index says.
    """
    shard_table = _verified(directory, index.shard_table)
    block_table = _verified(directory, index.block_table)
    with _opened(shard_table) as shards, _opened(block_table) as blocks:
        try:
            table = pa.ipc.open_file(shards).read_all()
            if table.schema != _SHARD_TABLE:
                raise CorruptError(f"{shard_table}: its columns are not those of a shard table")
            reader = pa.ipc.open_file(blocks)
            if reader.schema != _block_table_schema(len(index.schema)):
                raise CorruptError(f"{block_table}: its columns are not those of a block table")
        except pa.ArrowInvalid as error:
            raise CorruptError(f"{directory}: a table of the index is not an Arrow file: {error}") from error
        names = ("path", "rows", "bytes", "blocks", "block_rows", "raw_bytes", "hash")
        entries = [TableEntry(*row) for row in zip(*(table[name].to_pylist() for name in names), strict=True)]
        if not len(entries) == reader.num_record_batches == index.shards:
            raise CorruptError(
                f"{directory}: the index counts {index.shards} shards, the shard table {len(entries)}, "
                f"the block table {reader.num_record_batches}"
            )
        for entry in entries:
            check_path(entry.path, f"{shard_table}: a shard's path")
        yield entries, (reader.get_batch(i) for i in range(len(entries)))


def _opened(path: str) -> pa.NativeFile:
    """A table's file: mapped, or read into memory where the file system cannot map."""
    try:
        return pa.memory_map(path)
    except OSError:
        with open(path, "rb") as file:
            return pa.BufferReader(file.read())


def _verified(directory: str, ref: FileRef) -> str:
    path = os.path.join(directory, ref.path)
    try:
        size, found = os.path.getsize(path), _core.xxh3_128_file(path).hex()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: missing, though the index names it; restore the file") from None
    if (size, found) != (ref.bytes, ref.hash):
        raise CorruptError(
            f"{path}: {size} bytes with xxh3-128 {found}; the index says {ref.bytes} bytes with {ref.hash}; "
            "restore the file"
        )
    return path


def fingerprint(entries: Sequence[TableEntry]) -> str:
    """The data set's fingerprint (docs/format.md section 5), as 32 hexadecimal digits."""
    rows = np.zeros(len(entries), np.dtype([("rows", "<i8"), ("bytes", "<i8"), ("hash", "V16")]))
    rows["rows"] = [entry.rows for entry in entries]
    rows["bytes"] = [entry.bytes for entry in entries]
    rows["hash"] = np.frombuffer(b"".join(entry.hash for entry in entries), "V16")
    return bytes(_core.xxh3_128(rows.tobytes())).hex()


def window(rows: int, raw_bytes: int) -> int:
    """Samples of a shuffle window: about 512 MiB of them (docs/format.md section 7)."""
    return rows if raw_bytes == 0 else min(rows, max(1, rows * _WINDOW_BYTES // raw_bytes))


def unit_blocks(blocks: Iterable[int]) -> int:
    """The smallest power of two r for which the shards have at most 2^22 units of r blocks.

    With more shards than that there is none: then it is the smallest for which each shard is one unit.
    """
    counts = np.fromiter(blocks, np.int64)
    units, limit = 1, max(_UNITS_MAX, len(counts))
    while int((-(-counts // units)).sum()) > limit:
        units *= 2
    return units
