"""`cast=`: columns, or every value of a type, stored as another type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard.converters._types import parse_type, with_leaf
from fastshard.errors import InvalidError, SourceError

__all__ = ["cast_array", "cast_targets", "first_bad_row"]


def cast_targets(schema: pa.Schema, cast: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Which columns `cast=` changes, and to what.

    A key is a column's name, or else the name of a type: then it means every value of that type, those in lists
    and structs included. A column's own entry wins. A column of lists that is cast to a plain type stays one of
    lists: its values are cast.

    Raises:
        InvalidError: A key names neither a column nor a type, or a value names no type.
    """
    by_column: dict[str, pa.DataType] = {}
    by_type: dict[pa.DataType, pa.DataType] = {}
    for key, value in cast.items():
        target = parse_type(value, f"cast={{{key!r}: ...}}")
        if key in schema.names:
            by_column[key] = target
            continue
        try:
            by_type[parse_type(key, "cast=")] = target
        except InvalidError:
            raise InvalidError(
                f"cast={{{key!r}: ...}}: neither a column nor a type has this name; the columns are {schema.names}"
            ) from None
    targets = {}
    for field in schema:
        if field.name in by_column:
            target = by_column[field.name]
            new = target
            if not pa.types.is_nested(target) and not isinstance(target, pa.BaseExtensionType):
                new = with_leaf(field.type, _always(target))
        else:
            new = with_leaf(field.type, lambda leaf: by_type.get(leaf, leaf))
        if new != field.type:
            targets[field.name] = new
    return targets


def _always(type_: pa.DataType) -> Callable[[pa.DataType], pa.DataType]:
    return lambda _: type_


def cast_array(array: pa.Array, target: pa.DataType, where: Callable[[int], str]) -> pa.Array:
    """Cast, raising where an integer would lose digits or a value does not fit.

    Args:
        array: The values.
        target: Their new type.
        where: Names a row of `array`, for the message: `part-0.parquet: row 17, column 'x'`.

    Raises:
        SourceError: A value cannot be had in the new type; the message names its row.
    """
    if array.type == target:
        return array
    try:
        return _cast(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        row = first_bad_row(array, lambda part: _cast(part, target))
        raise SourceError(
            f"{where(row)}: cannot cast {array.type} to {target}: {str(error).splitlines()[0]}"
        ) from error


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    from fastshard.schema import BFloat16Type

    if target == BFloat16Type():
        return _to_bfloat16(array)
    if array.type == BFloat16Type():
        return _from_bfloat16(array).cast(target)
    if isinstance(array.type, pa.FixedShapeTensorType) and isinstance(target, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(target, array.storage.cast(target.storage_type))
    if pa.types.is_nested(array.type):
        # Arrow casts the values of all lists, those before and after a slice included.
        array = pa.concat_arrays([array])
    return array.cast(target)


def _to_bfloat16(array: pa.Array) -> pa.Array:
    """Round to the nearest bfloat16, ties to even, as torch does; NaN stays NaN."""
    from fastshard.schema import BFloat16Type

    floats = array.cast(pa.float32())
    bits = floats.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded[is_nan] = ((bits[is_nan] >> 16) | 0x40).astype(np.uint16)
    storage = pa.array(rounded, mask=floats.is_null().to_numpy(zero_copy_only=False))
    return pa.ExtensionArray.from_storage(BFloat16Type(), storage)


def _from_bfloat16(array: pa.Array) -> pa.Array:
    bits = array.storage.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint32) << 16
    return pa.array(bits.view(np.float32), mask=array.is_null().to_numpy(zero_copy_only=False))


def first_bad_row(array: pa.Array, attempt: Callable[[pa.Array], Any]) -> int:
    """The first row that `attempt` fails on, when it fails on the whole and works row by row; by bisection."""
    start, rows = 0, len(array)
    while rows > 1:
        half = rows // 2
        try:
            attempt(array.slice(start, half))
            start, rows = start + half, rows - half
        except (pa.ArrowException, ValueError):
            rows = half
    return start
