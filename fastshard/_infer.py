"""The Arrow type that holds all values of a column, from the values."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard._values import BFloat16Array, Misfit, adapt_all, describe
from fastshard.schema import BFloat16Type, read_schema, schema_message

__all__ = ["VARIABLE_SHAPE", "infer_field", "value_type_of", "variable_shape_field"]

VARIABLE_SHAPE = "arrow.variable_shape_tensor"
_FINENESS = ("s", "ms", "us", "ns")
_TIME_UNITS = {"W": "s", "D": "s", "h": "s", "m": "s", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}
_PRECISIONS = ((38, pa.decimal128), (76, pa.decimal256))


def infer_field(name: str, values: list[Any], *, tensors: bool = True) -> pa.Field:
    """A nullable field that holds every value.

    Args:
        name: Of the field.
        values: Adapted (`fastshard._values`), None for nulls.
        tensors: Whether arrays of rank 2 and more become tensors; else lists of lists.

    Raises:
        Misfit: No type holds them all.
    """
    present = [(index, value) for index, value in enumerate(values) if value is not None]
    if not present:
        return pa.field(name, pa.null())
    kind = _kind_of(present[0][1])
    for index, value in present:
        if _kind_of(value) is not kind:
            raise Misfit(
                index, f"{describe(value)} does not go with {describe(present[0][1])}, which came first"
            )
    if kind is _sequence:
        return _sequence_field(name, present, tensors)
    return pa.field(name, kind(present))


def variable_shape_field(name: str, value_type: pa.DataType, rank: int) -> pa.Field:
    """A field of arrays of one rank and varying shape: the canonical extension type, which pyarrow cannot construct."""
    storage = pa.struct(
        [
            pa.field("data", pa.list_(value_type)),
            pa.field("shape", pa.list_(pa.field("item", pa.int32()), rank)),
        ]
    )
    metadata = {"ARROW:extension:name": VARIABLE_SHAPE, "ARROW:extension:metadata": json.dumps({})}
    field = pa.field(name, storage, metadata=metadata)
    # As a reader would see it: an extension type where this pyarrow knows it, else its storage and the metadata.
    return read_schema(schema_message(pa.schema([field]))).field(0)


_Present = list[tuple[int, Any]]


def _boolean(_: _Present) -> pa.DataType:
    return pa.bool_()


def _number(present: _Present) -> pa.DataType:
    dtypes = {np.dtype(type(value)) for _, value in present if isinstance(value, np.generic)}
    ints = [(index, value) for index, value in present if type(value) is int or isinstance(value, int)]
    if len(ints) + sum(isinstance(value, np.generic) for _, value in present) < len(present):
        dtypes.add(np.dtype(np.float64))  # Python's float
    if ints and not any(dtype.kind == "f" for dtype in dtypes):
        dtypes.add(_integer_dtype(ints))
    result = np.result_type(*dtypes) if dtypes else np.dtype(np.int64)
    if result.kind == "f":
        whole = ints + [(i, int(v)) for i, v in present if isinstance(v, np.integer)]
        if whole:
            result = np.dtype(np.float64)
        for index, value in whole:
            if int(float(value)) != value:
                raise Misfit(index, f"{value} is not exact as a float, and the column holds floats too")
    return pa.from_numpy_dtype(result)


def _integer_dtype(ints: _Present) -> np.dtype[Any]:
    low, high = min(value for _, value in ints), max(value for _, value in ints)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    index, value = max(ints, key=lambda item: abs(item[1]))
    raise Misfit(index, f"{value} needs more than 64 bits; store it as str, bytes or Decimal")


def _bfloat16(_: _Present) -> pa.DataType:
    return BFloat16Type()


def _string(_: _Present) -> pa.DataType:
    return pa.utf8()


def _binary(_: _Present) -> pa.DataType:
    return pa.binary()


def _decimal(present: _Present) -> pa.DataType:
    scale = whole = 0
    for index, value in present:
        if not value.is_finite():
            raise Misfit(index, f"{value!r} is no decimal number; store None in its place")
        exponent = int(value.as_tuple().exponent)
        scale = max(scale, -exponent)
        whole = max(whole, value.adjusted() + 1)
        if scale + whole > _PRECISIONS[-1][0]:
            raise Misfit(index, f"{value!r} brings the column to more than 76 digits; store it as str")
    # As wide as the width allows, since later values may have more digits before the point.
    precision, make = next(item for item in _PRECISIONS if scale + whole <= item[0])
    return make(precision, scale)


def _timestamp(present: _Present) -> pa.DataType:
    units: set[str] = set()
    zones: dict[str | None, int] = {}  # and where each came first
    for index, value in present:
        if isinstance(value, np.datetime64):
            units.add(_time_unit(index, value))
            zones.setdefault(None, index)
        else:
            units.add("us")
            zones.setdefault(pa.infer_type([value]).tz if value.tzinfo is not None else None, index)
    if None in zones and len(zones) > 1:
        raise Misfit(max(zones.values()), "times with and without a time zone in one column")
    zone = next(iter(zones)) if len(zones) == 1 else "UTC"
    return pa.timestamp(max(units, key=_FINENESS.index), zone)


def _date(_: _Present) -> pa.DataType:
    return pa.date32()


def _time(_: _Present) -> pa.DataType:
    return pa.time64("us")


def _duration(present: _Present) -> pa.DataType:
    units = {
        _time_unit(index, value) if isinstance(value, np.timedelta64) else "us" for index, value in present
    }
    return pa.duration(max(units, key=_FINENESS.index))


def _time_unit(index: int, value: Any) -> str:
    unit = np.datetime_data(value.dtype)[0]
    if unit not in _TIME_UNITS:
        raise Misfit(index, f"cannot store {describe(value)}; cast it to a unit from days to nanoseconds")
    return _TIME_UNITS[unit]


def _struct(present: _Present) -> pa.DataType:
    names = list(present[0][1])
    for index, value in present:
        check_keys(index, value, names)
    fields = []
    for name in names:
        try:
            fields.append(infer_field(name, adapt_all([value[name] for _, value in present])))
        except Misfit as misfit:
            raise misfit.within(f".{name}", present[misfit.index][0]) from None
    return pa.struct(fields)


def check_keys(index: int, value: dict[Any, Any], names: Sequence[str]) -> None:
    """Raise `Misfit` unless the keys of a dict are the names of fields."""
    if value.keys() == set(names):
        for name in value:
            if not isinstance(name, str):
                raise Misfit(index, f"the key {name!r} is not a str")
        return
    for name in names:
        if name not in value:
            raise Misfit(index, f"the key {name!r} is missing; store None where there is no value")
    extra = next(name for name in value if name not in names)
    raise Misfit(
        index, f"the key {extra!r} is not among {list(names)}; for keys that vary, pass a schema with a map"
    )


def _sequence(present: _Present) -> pa.DataType:
    raise AssertionError("a field, not a type: see _sequence_field")


def _sequence_field(name: str, present: _Present, tensors: bool) -> pa.Field:
    arrays = [(index, value) for index, value in present if isinstance(value, np.ndarray)]
    if len(arrays) < len(present) or len({array.ndim for _, array in arrays}) > 1:
        if tensors and len(arrays) == len(present) and min(array.ndim for _, array in arrays) > 1:
            rank = arrays[0][1].ndim
            index, other = next(item for item in arrays if item[1].ndim != rank)
            raise Misfit(index, f"{describe(other)} after arrays of rank {rank}; one column has one rank")
        for index, array in arrays:
            if isinstance(array, BFloat16Array):
                raise Misfit(index, f"{describe(array)} does not go with {describe(present[0][1])}")
        return pa.field(name, pa.list_(_element_field(present)))
    value_type = value_type_of(arrays)
    rank = arrays[0][1].ndim
    if rank == 1 or not tensors:
        kind = value_type
        for _ in range(rank):
            kind = pa.list_(kind)
        return pa.field(name, kind)
    shapes = {array.shape for _, array in arrays}
    if len(shapes) == 1:
        return pa.field(name, pa.fixed_shape_tensor(value_type, next(iter(shapes))))
    return variable_shape_field(name, value_type, rank)


def _element_field(present: _Present) -> pa.Field:
    elements = list(chain.from_iterable(value for _, value in present))
    owners = np.repeat([index for index, _ in present], [len(value) for _, value in present])
    try:
        return infer_field("item", adapt_all(elements), tensors=False)
    except Misfit as misfit:
        raise misfit.within("[]", int(owners[misfit.index])) from None


def value_type_of(arrays: _Present) -> pa.DataType:
    """The type of the elements of arrays: the widest of their dtypes, where all are of one kind."""
    if all(isinstance(array, BFloat16Array) for _, array in arrays):
        return BFloat16Type()
    first = arrays[0][1]
    result = first.dtype
    for index, array in arrays:
        wider = result if array.dtype == result else np.result_type(result, array.dtype)
        of_one_kind = array.dtype.kind == result.kind or (array.dtype.kind in "iu" and wider.kind in "iu")
        if not of_one_kind or isinstance(array, BFloat16Array) != isinstance(first, BFloat16Array):
            raise Misfit(index, f"{describe(array)} does not go with {describe(first)}, which came first")
        result = wider
    try:
        return pa.from_numpy_dtype(result)
    except pa.ArrowNotImplementedError:
        raise Misfit(arrays[0][0], f"cannot store {describe(first)}; cast it to another dtype") from None


_Kind = Callable[[_Present], pa.DataType]
_KINDS: dict[type, _Kind] = {
    bool: _boolean,
    int: _number,
    float: _number,
    str: _string,
    bytes: _binary,
    decimal.Decimal: _decimal,
    datetime.datetime: _timestamp,
    datetime.date: _date,
    datetime.time: _time,
    datetime.timedelta: _duration,
    list: _sequence,
    tuple: _sequence,
    dict: _struct,
}
# Subclasses, the narrower first.
_SUBCLASSES: tuple[tuple[type | tuple[type, ...], _Kind], ...] = (
    ((bool, np.bool_), _boolean),
    ((np.timedelta64, datetime.timedelta), _duration),  # before integers: NumPy's is one
    ((np.integer, np.floating, int, float), _number),
    (str, _string),
    ((bytes, bytearray), _binary),
    ((np.datetime64, datetime.datetime), _timestamp),
    (datetime.date, _date),
    (datetime.time, _time),
    (decimal.Decimal, _decimal),
    ((list, tuple, np.ndarray), _sequence),
    (dict, _struct),
)


def _kind_of(value: Any) -> _Kind:
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, BFloat16Array) and value.ndim == 0:
        return _bfloat16
    return next(kind for types, kind in _SUBCLASSES if isinstance(value, types))
