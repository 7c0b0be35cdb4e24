"""Hugging Face data sets as Arrow batches: rows as they are seen, not as they lie; arrays of one shape as tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from fastshard.errors import InvalidError, SchemaError

__all__ = ["from_hugging_face"]

# At a time, as the library's own writer does.
_ROWS = 1000


def from_hugging_face(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows of a `datasets.Dataset` or `IterableDataset`, in its order.

    Its `Array2D` to `Array5D` become `arrow.fixed_shape_tensor` where their shape is fixed.

    Raises:
        InvalidError: It is a dict of splits.
        SchemaError: Nothing tells its schema; or, of the batches, an array has not the shape that was announced.
    """
    if isinstance(data, dict):
        raise InvalidError(f"a {type(data).__name__} has several splits; choose one of {list(data)}")
    tables = data.with_format("arrow").iter(_ROWS)
    if data.features is not None:
        schema = data.features.arrow_schema
    else:
        first = next(tables, None)
        if first is None:
            raise SchemaError("the data set has no rows and no features, so that its schema is not known")
        schema, tables = first.schema, chain([first], tables)
    wanted = pa.schema([_field(field) for field in schema], metadata=schema.metadata)
    return wanted, (_converted(batch) for table in tables for batch in pa.table(table).to_batches())


def _shape(kind: pa.DataType) -> tuple[int, ...] | None:
    """The shape of the library's array types, where it is fixed."""
    if not type(kind).__module__.startswith("datasets.") or not isinstance(kind, pa.BaseExtensionType):
        return None
    shape = getattr(kind, "shape", None)
    if not isinstance(shape, (tuple, list)) or not all(isinstance(extent, int) for extent in shape):
        return None
    return tuple(shape)


def _field(field: pa.Field) -> pa.Field:
    shape = _shape(field.type)
    if shape is None:
        return field
    element = field.type.storage_type
    for _ in shape:
        element = element.value_type
    return field.with_type(pa.fixed_shape_tensor(element, shape))


def _converted(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields = [_field(field) for field in batch.schema]
    columns = [
        column if field.type == column.type else _tensors(column, field)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _tensors(array: pa.ExtensionArray, field: pa.Field) -> pa.Array:
    """Lists of lists of one shape as tensors."""
    shape = field.type.shape
    present = array.storage.drop_null()
    values = present
    for extent in shape:
        lengths = values.value_lengths()
        if values.null_count or (len(values) and lengths.unique().to_pylist() != [extent]):
            raise SchemaError(
                f"column {field.name!r}: an array has not the shape {tuple(shape)} of its feature"
            )
        values = values.flatten()
    storage = pa.Array.from_buffers(field.type.storage_type, len(present), [None], 0, 0, [values])
    assert len(values) == len(present) * math.prod(shape)
    if len(present) < len(array):
        valid = array.storage.is_valid().to_numpy(zero_copy_only=False)
        storage = storage.take(pa.array(valid.cumsum() - 1, mask=~valid))
    return pa.ExtensionArray.from_storage(field.type, storage)
