"""A dict of columns (arrays, tensors, lists) as Arrow batches, without a copy where the values lie in one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard._infer import value_type_of
from fastshard._numbers import encode_array
from fastshard._values import Misfit, adapt
from fastshard.errors import SchemaError
from fastshard.samples import encode_column, infer_column

__all__ = ["columns_to_batches"]

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class _Column:
    """A field, and how to get rows [start, stop) of it."""

    field: pa.Field
    rows: int
    row_bytes: int
    part: Callable[[int, int], pa.Array]


def columns_to_batches(columns: Mapping[Any, Any]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Columns as batches.

    Args:
        columns: By name: arrays or tensors of shape [rows] or [rows, ...], Arrow arrays, pandas series, or sequences
            of values as samples have them. Arrays of shape [rows, n] become fixed-size lists, those of higher rank
            `arrow.fixed_shape_tensor`.

    Raises:
        SchemaError: Columns differ in length, or one cannot be stored; the message names it.
    """
    made = [_column(name, values) for name, values in columns.items()]
    if not made:
        raise SchemaError("there are no columns, and a data set needs at least one")
    for column in made:
        if column.rows != made[0].rows:
            raise SchemaError(
                f"column {column.field.name!r} has {column.rows} rows, column {made[0].field.name!r} has {made[0].rows}"
            )
    schema = pa.schema([column.field for column in made])
    row_bytes = max(1, sum(column.row_bytes for column in made))
    return schema, _batches(made, schema, max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes)))


def _batches(columns: list[_Column], schema: pa.Schema, step: int) -> Iterator[pa.RecordBatch]:
    rows = columns[0].rows
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        yield pa.RecordBatch.from_arrays([column.part(start, stop) for column in columns], schema=schema)


def _column(name: Any, values: Any) -> _Column:
    if not isinstance(name, str) or not name:
        raise SchemaError(f"{name!r} is not a column name; names are non-empty str")
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return _arrow_column(name, values)
    if hasattr(values, "dtype") and hasattr(values, "shape"):
        try:
            array = adapt(values)
        except Misfit as misfit:
            raise SchemaError(f"column {name!r}: {misfit.problem}") from None
        if isinstance(array, np.ndarray) and array.ndim:
            return _array_column(name, array)
        values = array
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise SchemaError(
            f"column {name!r} is {type(values).__name__}, not an array or a sequence of its values in all rows; "
            "a single sample goes in a list: [sample]"
        )
    return _value_column(name, values)


def _arrow_column(name: str, values: Any) -> _Column:
    try:
        array = pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise SchemaError(f"column {name!r} is no Arrow array: {error}") from error
    chunked = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])

    def part(start: int, stop: int) -> pa.Array:
        return _one_array(chunked.slice(start, stop - start))

    return _Column(pa.field(name, chunked.type), len(chunked), chunked.nbytes // max(1, len(chunked)), part)


def _one_array(chunked: pa.ChunkedArray) -> pa.Array:
    return chunked.chunk(0) if chunked.num_chunks == 1 else pa.concat_arrays(chunked.chunks)


def _array_column(name: str, array: np.ndarray) -> _Column:
    try:
        value_type = value_type_of([(0, array)])
    except Misfit as misfit:
        raise SchemaError(f"column {name!r}: {misfit.problem}") from None
    kind, shape = value_type, array.shape[1:]
    if len(shape) == 1:
        kind = pa.list_(value_type, shape[0])
    elif shape:
        kind = pa.fixed_shape_tensor(value_type, shape)

    def part(start: int, stop: int) -> pa.Array:
        rows = np.ascontiguousarray(array[start:stop])
        values = encode_array(rows.reshape(-1).view(type(array)), value_type, rounds=False)
        if not shape:
            return values
        storage = kind.storage_type if len(shape) > 1 else kind
        nested = pa.Array.from_buffers(storage, stop - start, [None], 0, 0, [values])
        return nested if len(shape) == 1 else pa.ExtensionArray.from_storage(kind, nested)

    return _Column(pa.field(name, kind), len(array), array.nbytes // max(1, len(array)), part)


def _value_column(name: str, values: Sequence[Any]) -> _Column:
    field = infer_column(name, values)

    def part(start: int, stop: int) -> pa.Array:
        return encode_column(values[start:stop], field, rounds=False, first_row=start)

    return _Column(field, len(values), 8, part)
