"""What the index needs of a shard, as bytes that an executor sends to the driver: Arrow and JSON, nothing pickled."""

from __future__ import annotations

import json
from dataclasses import astuple

import numpy as np
import pyarrow as pa

from fastshard._index import ColumnStats
from fastshard._tables import ShardEntry, TableEntry

__all__ = ["decode_entry", "encode_entry"]

_ARRAYS = ("offset", "metadata_bytes", "body_bytes", "rows", "metadata_hash")
_KEY = b"fastshard"


def encode_entry(entry: ShardEntry) -> bytes:
    """All that the index holds of one shard file; some tens of bytes for each block and column."""
    table = entry.table
    document = {
        "table": [
            table.path,
            table.rows,
            table.bytes,
            table.blocks,
            table.block_rows,
            table.raw_bytes,
            table.hash.hex(),
        ],
        "columns": [astuple(column) for column in entry.columns],
    }
    arrays = [pa.array(getattr(entry, name)) for name in _ARRAYS]
    width = entry.column_hashes.shape[1]
    flat = pa.array(np.ascontiguousarray(entry.column_hashes).reshape(-1), pa.uint64())
    arrays.append(pa.FixedSizeListArray.from_arrays(flat, width))
    batch = pa.RecordBatch.from_arrays(arrays, names=[*_ARRAYS, "column_hashes"])
    batch = batch.replace_schema_metadata({_KEY: json.dumps(document).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def decode_entry(data: bytes | bytearray) -> ShardEntry:
    """The entry again."""
    with pa.ipc.open_stream(pa.py_buffer(bytes(data))) as stream:
        batch = stream.read_next_batch()
    document = json.loads(batch.schema.metadata[_KEY])
    path, rows, size, blocks, block_rows, raw_bytes, digest = document["table"]
    arrays = {name: batch.column(name).to_numpy(zero_copy_only=False).copy() for name in _ARRAYS}
    hashes = batch.column("column_hashes")
    width = hashes.type.list_size
    return ShardEntry(
        table=TableEntry(path, rows, size, blocks, block_rows, raw_bytes, bytes.fromhex(digest)),
        column_hashes=hashes.flatten().to_numpy(zero_copy_only=False).reshape(-1, width).copy(),
        columns=tuple(ColumnStats(*column) for column in document["columns"]),
        **arrays,
    )
