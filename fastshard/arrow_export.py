"""A data set as Arrow: pyarrow over the mapped shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from fastshard.errors import CorruptError

if TYPE_CHECKING:
    from fastshard.reader import ShardReader

__all__ = ["stream", "table"]

_MAX_MAPPINGS = 4096  # beyond that shards are read into memory: a process may have 65,530 mappings


def table(reader: ShardReader) -> pa.Table:
    """All samples as a table."""
    return pa.Table.from_batches(list(_batches(reader)), schema=reader.schema)


def stream(reader: ShardReader) -> pa.RecordBatchReader:
    """All samples as a stream; shards are opened as it comes to them."""
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader))


def _batches(reader: ShardReader) -> Iterator[pa.RecordBatch]:
    core = reader.core
    schema = reader.schema
    root = os.path.abspath(reader.path)
    places = list(reader.plan.columns)
    for shard in range(core.shards):
        name = core.shard_path(shard)
        if reader.checks_columns:
            core.check(shard, places)
        path = os.path.join(root, name)
        try:
            source = pa.memory_map(path) if core.shards <= _MAX_MAPPINGS else pa.OSFile(path)
            for batch in _read(source, places):
                yield pa.RecordBatch.from_arrays(
                    [batch.column(field.name) for field in schema], schema=schema
                )
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptError(f"{name}: pyarrow cannot read it: {error}") from error


def _read(source: pa.NativeFile, places: list[int]) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcReadOptions(included_fields=places)
    magic = source.read(6)
    source.seek(0)
    if magic == b"ARROW1":
        file = pa.ipc.open_file(source, options=options)
        for block in range(file.num_record_batches):
            yield file.get_batch(block)
    else:
        yield from pa.ipc.open_stream(source, options=options)
