"""A data set as Arrow: pyarrow over the mapped shards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fastshard import _core
from fastshard.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from fastshard.reader import ShardReader

__all__ = ["record_batches"]

_MAX_MAPPINGS = 4096  # beyond that shards are read into memory: a process may have 65,530 mappings


def record_batches(
    reader: ShardReader, columns: Sequence[str] | None = None, selection: _core.Selection | None = None
) -> Iterator[pa.RecordBatch]:
    """The samples of a data set, or those that are selected, in order; shards are opened as it comes to them.

    Args:
        reader: The data set.
        columns: Names of the columns; None for those that it reads.
        selection: Ids of the samples, or None for all. Shards without any are not touched.
    """
    core = reader.core
    names = reader.columns if columns is None else tuple(columns)
    full = reader.full_schema
    schema = pa.schema([full.field(name) for name in names], metadata=full.metadata)
    places = [full.get_field_index(name) for name in names]
    root = os.path.abspath(reader.path)
    rows, sizes = core.shard_rows(), core.shard_bytes()
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
    wanted = rows if selection is None else np.diff(selection.ranks(bounds))
    for shard in np.flatnonzero(wanted > 0).tolist():
        name = core.shard_path(shard)
        if reader.checking.mode != "never":
            core.check(shard, places)
        path = os.path.join(root, name)
        _check_size(path, name, int(sizes[shard]))
        try:
            source = pa.memory_map(path) if core.shards <= _MAX_MAPPINGS else pa.OSFile(path)
            first = int(bounds[shard])
            for batch in _read(source, places):
                columns_of_batch = [batch.column(field.name) for field in schema]
                whole = pa.RecordBatch.from_arrays(columns_of_batch, schema=schema)
                yield from [whole] if selection is None else _selected(whole, first, selection)
                first += batch.num_rows
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptError(f"{name}: pyarrow cannot read it: {error}") from error


def _check_size(path: str, name: str, expected: int) -> None:
    """Hold a file against the index once more: pyarrow's own mapping of it is not guarded."""
    try:
        found = os.stat(path).st_size
    except OSError as error:
        raise NotFoundError(
            f"{name}: {error.strerror}: a shard of this data set is gone; restore the file, or convert the source again"
        ) from error
    if found != expected:
        raise CorruptError(
            f"{name}: the file has {found} bytes, the index says {expected}: it was cut short or replaced; restore the "
            "file, or convert the source again"
        )


def _selected(batch: pa.RecordBatch, first: int, selection: _core.Selection) -> Iterator[pa.RecordBatch]:
    """The selected rows of a block whose first sample is `first`."""
    begin, end = selection.ranks(np.array([first, first + batch.num_rows])).tolist()
    if end - begin == batch.num_rows:
        yield batch
    elif end > begin:
        rows = selection.fill(begin, end - begin) - first
        if rows[-1] - rows[0] == len(rows) - 1:
            yield batch.slice(rows[0], len(rows))
        else:
            yield batch.take(pa.array(rows))


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
