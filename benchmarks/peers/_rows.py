"""What the peers share: rows of a Parquet file for their writers, and batches of what their collate functions make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["arrow_columns", "as_it_is", "collate", "column", "row_batches", "rows_of"]


def row_batches(parquet: Path, rows: int = 1000) -> Iterator[list[dict[str, Any]]]:
    """Rows as dicts: lists of numbers as arrays, the rest as Python values."""
    with pq.ParquetFile(parquet) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield rows_of(batch)


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of one batch."""
    columns = {name: _values(batch.column(i)) for i, name in enumerate(batch.schema.names)}
    return [{name: values[row] for name, values in columns.items()} for row in range(batch.num_rows)]


def _values(array: pa.Array) -> Sequence[Any]:
    if pa.types.is_fixed_size_list(array.type):
        rows: np.ndarray = array.flatten().to_numpy().reshape(len(array), array.type.list_size)
        return [row.copy() for row in rows]
    if pa.types.is_list(array.type):
        return [row.values.to_numpy().copy() for row in array]
    values: list[Any] = array.to_pylist()
    return values


def collate(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Numbers as tensors, str and bytes as lists, arrays of varying length as (values, offsets)."""
    import torch

    batch: dict[str, Any] = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        if isinstance(first, (str, bytes)):
            batch[name] = values
        elif isinstance(first, (np.ndarray, torch.Tensor)) and np.ndim(first) == 1:
            arrays = [np.asarray(value) for value in values]
            offsets = np.zeros(len(values) + 1, dtype=np.int64)
            np.cumsum([len(array) for array in arrays], out=offsets[1:])
            batch[name] = (torch.from_numpy(np.concatenate(arrays)), torch.from_numpy(offsets))
        else:
            batch[name] = torch.as_tensor(np.asarray(values))
    return batch


def as_it_is(batch: Any) -> Any:
    """For `collate_fn`: torch's default looks at every str and bytes of a finished batch."""
    return batch


def arrow_columns(table: pa.Table) -> dict[str, Any]:
    """A table as tensors, lists of str and bytes, and (values, offsets) for lists."""
    return {name: _arrow_column(table.column(name).combine_chunks()) for name in table.column_names}


def _arrow_column(array: Any) -> Any:
    import torch

    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_fixed_size_list(array.type):
        return torch.from_numpy(array.flatten().to_numpy().copy()).view(len(array), array.type.list_size)
    if pa.types.is_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values.to_numpy()[offsets[0] : offsets[-1]].copy()
        return torch.from_numpy(values), torch.from_numpy(offsets - offsets[0])
    if pa.types.is_primitive(array.type):
        return torch.from_numpy(array.to_numpy().copy())
    return array.to_pylist()


def column(value: Any) -> Any:
    """A column of a batch as `Workload.check` wants it: tensors as arrays."""
    if isinstance(value, (list, tuple)):
        kind = type(value)
        return kind(column(item) for item in value)
    return value.numpy() if hasattr(value, "numpy") else value
