"""What samples hold, worked out value by value from pyarrow's arrays, as docs/types.md says it."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

_TEMPORAL = (types.is_temporal, types.is_duration)


def dtype_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """The dtype of the numbers of a type, or None for a type of something else."""
    if types.is_interval(kind) or types.is_decimal(kind):
        return None
    if types.is_date32(kind) or types.is_time32(kind):
        return np.dtype(np.int32)
    if types.is_temporal(kind):
        return np.dtype(np.int64)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    return None


def samples_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a top-level column in samples."""
    values = [value for chunk in column.chunks for value in chunk]
    kind = column.type
    if is_list(kind):
        lengths = {len(value.values) if value.is_valid else None for value in values}
        shape = fixed_shape(kind.value_type)
        if len(lengths) == 1 and None not in lengths and shape is not None:
            return [shaped(value, (len(value.values), *shape), innermost(kind)) for value in values]
    return [sample(value, kind) for value in values]


def is_list(kind: pa.DataType) -> bool:
    checks = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view)
    return any(check(kind) for check in checks)


def innermost(kind: pa.DataType) -> pa.DataType:
    while is_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind


def fixed_shape(kind: pa.DataType) -> tuple[int, ...] | None:
    """The shape of one value of nested fixed-size lists of numbers, () for numbers themselves."""
    if types.is_fixed_size_list(kind):
        inner = fixed_shape(kind.value_type)
        return None if inner is None else (kind.list_size, *inner)
    return () if dtype_of(kind) is not None else None


def sample(value: pa.Scalar, kind: pa.DataType) -> Any:
    dtype = dtype_of(kind)
    if dtype is not None:
        if value.is_valid:
            return number(value, dtype)
        return dtype.type(np.nan) if dtype.kind == "f" else None
    if not value.is_valid:
        return None
    if types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return {field.name: sample(value[i], field.type) for i, field in enumerate(fields)}
    shape = fixed_shape(kind)
    if shape is not None:
        return shaped(value, shape, innermost(kind))
    if is_list(kind) and dtype_of(kind.value_type) is not None:
        return shaped(value, (len(value.values),), kind.value_type)
    return plain(value, kind)


def number(value: pa.Scalar, dtype: np.dtype[Any]) -> Any:
    """The very bits, as a NumPy scalar."""
    one = pa.repeat(value, 1)
    if dtype == np.bool_:
        return np.bool_(value.as_py())
    return np.frombuffer(one.buffers()[1], dtype, 1, offset=one.offset * dtype.itemsize)[0]


def shaped(value: pa.Scalar, shape: tuple[int, ...], kind: pa.DataType) -> Any:
    """An array of numbers, NaN for null; or nested lists, None for null, of what has no NaN."""
    dtype = dtype_of(kind)
    assert dtype is not None
    flat = list(flattened(value, shape))
    if dtype.kind != "f" and any(item is None for item in flat):
        return nested(iter([None if item is None else number(item, dtype).item() for item in flat]), shape)
    array = np.empty(len(flat), dtype)
    for i, item in enumerate(flat):
        array[i : i + 1] = np.nan if item is None else number(item, dtype)
    return array.reshape(shape)


def flattened(value: pa.Scalar | None, shape: tuple[int, ...]) -> Any:
    if not shape:
        yield value if value is not None and value.is_valid else None
    elif value is None or not value.is_valid:
        yield from [None] * math.prod(shape)
    else:
        for item in value.values:
            yield from flattened(item, shape[1:])


def nested(items: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(items)
    return [nested(items, shape[1:]) for _ in range(shape[0])]


def plain(value: pa.Scalar, kind: pa.DataType) -> Any:
    """A value as plain Python objects."""
    if not value.is_valid:
        return None
    if types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return {field.name: plain(value[i], field.type) for i, field in enumerate(fields)}
    if types.is_map(kind):
        keys, items = value.values.field(0), value.values.field(1)
        return [
            (plain(key, kind.key_type), plain(item, kind.item_type))
            for key, item in zip(keys, items, strict=True)
        ]
    if is_list(kind) or types.is_fixed_size_list(kind):
        return [plain(item, kind.value_type) for item in value.values]
    if types.is_interval(kind):
        return tuple(value.as_py())
    dtype = dtype_of(kind)
    return value.as_py() if dtype is None else number(value, dtype).item()


def same(found: Any, expected: Any) -> bool:
    """Equal to the bit and of one type, but for NaNs that went through Python floats."""
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.dtype == expected.dtype
            and found.shape == expected.shape
            and found.tobytes() == expected.tobytes()
        )
    if isinstance(expected, np.generic):
        return type(found) is type(expected) and found.tobytes() == expected.tobytes()
    if type(found) is not type(expected):
        return False
    if isinstance(expected, float):
        return repr(found) == repr(expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, Decimal):
        return bool(found == expected)
    return bool(found == expected)
