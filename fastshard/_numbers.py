"""Numbers and times of NumPy and Python as Arrow arrays, exactly or not at all."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from fastshard._values import BFloat16Array, Misfit, describe
from fastshard.schema import BFloat16Type

__all__ = ["encode_array", "encode_floats", "encode_integers", "encode_temporal", "is_temporal"]

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_BFLOAT16_BITS = 8  # of the significand, the hidden one included


def is_temporal(kind: pa.DataType) -> bool:
    """Whether `encode_temporal` makes arrays of the type."""
    return bool(
        types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind) or types.is_duration(kind)
    )


def encode_array(array: np.ndarray, kind: pa.DataType, *, rounds: bool) -> pa.Array:
    """A NumPy array of rank 1 as an Arrow array; NaT becomes null.

    Args:
        array: Adapted (`fastshard._values`).
        kind: A type of numbers, booleans, times or bfloat16.
        rounds: Whether floats may be rounded to the width of `kind`.

    Raises:
        Misfit: An element does not fit.
    """
    if isinstance(kind, BFloat16Type):
        return pa.ExtensionArray.from_storage(kind, pa.array(_bfloat16_bits(array, rounds), pa.uint16()))
    if array.dtype.kind in "mM":
        return _cast_times(array, kind)
    dtype = _dtype_of(kind)
    if dtype is None or isinstance(array, BFloat16Array):
        raise Misfit(0, f"elements of {describe(array)} do not fit {kind}")
    return pa.array(_cast(np.ascontiguousarray(array), dtype, kind, rounds), kind)


def encode_integers(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's and NumPy's integers, none of them None; raises `Misfit` as `encode_array` does."""
    low, high = np.iinfo(kind.to_pandas_dtype()).min, np.iinfo(kind.to_pandas_dtype()).max
    if set(map(type, values)) != {int}:
        for index, value in enumerate(values):
            if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, np.integer)):
                raise Misfit(index, f"{describe(value)} does not fit {kind}")
        values = [int(value) for value in values]
    if values and (min(values) < low or max(values) > high):
        index = next(i for i, value in enumerate(values) if not low <= value <= high)
        raise Misfit(index, f"{values[index]} does not fit {kind}, which holds {low} to {high}")
    return pa.array(values, kind)


def encode_floats(values: Sequence[Any], kind: pa.DataType, *, rounds: bool) -> pa.Array:
    """Python's and NumPy's numbers as floats or bfloat16, none of them None; raises as `encode_array` does."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and issubclass(next(iter(kinds)), np.floating):
        return encode_array(np.array(values), kind, rounds=rounds)
    if kinds == {BFloat16Array}:
        return encode_array(np.array(values, np.uint16).view(BFloat16Array), kind, rounds=rounds)
    if kinds != {float}:
        for index, value in enumerate(values):
            number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
            if not number or isinstance(value, np.timedelta64):
                raise Misfit(index, f"{describe(value)} does not fit {kind}")
            if isinstance(value, (int, np.integer)) and not _is_exact(int(value)):
                raise Misfit(index, f"{value} is not exact as a float")
    return encode_array(np.array([float(value) for value in values], np.float64), kind, rounds=rounds)


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _dtype_of(kind: pa.DataType) -> np.dtype[Any] | None:
    numeric = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype()) if numeric else None


def _cast(array: np.ndarray, dtype: np.dtype[Any], kind: pa.DataType | str, rounds: bool) -> np.ndarray:
    """The array in another dtype, every element unchanged, or rounded where that is allowed."""
    if array.dtype == dtype:
        return array
    source, target = array.dtype.kind, dtype.kind
    if source in "iu" and target in "iu":
        limits = np.iinfo(dtype)
        bad = (array < limits.min) | (array > limits.max)
    elif source in "iu" and target == "f":
        # Beyond the significand only some integers are floats: those few are looked at one by one.
        limit = 2 ** (np.finfo(dtype).nmant + 1)
        bad = (array > limit) | (array < -limit) if source == "i" else array > limit
        for place in np.flatnonzero(bad):
            with np.errstate(over="ignore"):
                number = dtype.type(array[place])
            bad[place] = not np.isfinite(number) or int(number) != int(array[place])
    elif source == "f" and target == "f":
        with np.errstate(over="ignore"):
            changed = array.astype(dtype)
        bad = np.isinf(changed) & ~np.isinf(array)
        if not rounds:
            bad |= (changed.astype(array.dtype) != array) & ~np.isnan(array)
    else:
        raise Misfit(0, f"elements of {array.dtype} do not fit {kind}")
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise Misfit(index, f"{array[index].item()!r} of {array.dtype} is not exact as {kind}; cast it first")
    return array.astype(dtype)


def _bfloat16_bits(array: np.ndarray, rounds: bool) -> np.ndarray:
    """uint16 bits of numbers as bfloat16, rounded to nearest, ties to even."""
    if isinstance(array, BFloat16Array):
        return np.ascontiguousarray(array).view(np.ndarray)
    single = _cast(array, np.dtype(np.float32), "bfloat16", rounds)
    bits = np.ascontiguousarray(single).view(np.uint32)
    nan = np.isnan(single)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = np.where(nan, (bits >> 16).astype(np.uint16) | np.uint16(0x0040), rounded)
    back = (rounded.astype(np.uint32) << 16).view(np.float32)
    bad = (np.isinf(back) & ~np.isinf(single)) | ((back != single) & ~nan & (not rounds))
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise Misfit(index, f"{array[index].item()!r} is not exact as bfloat16; cast it first")
    return rounded


def _cast_times(array: np.ndarray, kind: pa.DataType) -> pa.Array:
    """datetime64 and timedelta64 in the unit of an Arrow type."""
    target = _time_dtype(kind)
    if target is None or target.kind != array.dtype.kind:
        raise Misfit(0, f"elements of {describe(array)} do not fit {kind}")
    changed = array.astype(target)
    missing = np.isnat(array)
    bad = (changed.astype(array.dtype) != array) & ~missing
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise Misfit(index, f"{array[index]!r} is not exact as {kind}")
    return _from_units(changed.view(np.int64), kind, missing if missing.any() else None)


def _time_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    if types.is_date32(kind):
        return np.dtype("M8[D]")
    if types.is_date64(kind):
        return np.dtype("M8[ms]")
    if types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    return np.dtype(f"m8[{kind.unit}]") if types.is_duration(kind) else None


def _from_units(numbers: np.ndarray, kind: pa.DataType, missing: np.ndarray | None = None) -> pa.Array:
    wide = kind.bit_width == 64
    return pa.array(numbers if wide else numbers.astype(np.int32), mask=missing).view(kind)


def encode_temporal(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's and NumPy's dates, times and durations, none of them None; raises as `encode_array` does.

    Raises:
        Misfit: A value is of another kind, has a time zone where the type has none or the reverse, or does not
            come out even in the unit of the type.
    """
    units = []
    for index, value in enumerate(values):
        nanoseconds = _nanoseconds(value, kind)
        if nanoseconds is None:
            raise Misfit(index, f"{describe(value)} does not fit {kind}{_zone_hint(value, kind)}")
        number, rest = divmod(nanoseconds, _unit_nanoseconds(kind))
        if rest:
            raise Misfit(index, f"{describe(value)} does not come out even in the unit of {kind}")
        if not -(2**63) < number < 2**63:
            raise Misfit(index, f"{describe(value)} is out of range for {kind}")
        units.append(number)
    return _from_units(np.array(units, np.int64), kind)


def _unit_nanoseconds(kind: pa.DataType) -> int:
    if types.is_date32(kind):
        return 86_400 * 10**9
    return 10**6 if types.is_date64(kind) else _NANOSECONDS[kind.unit]


def _zone_hint(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, datetime.datetime) and types.is_timestamp(kind):
        return ": one has a time zone, the other has none"
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        return ": its time zone would be lost"
    return ""


_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.timezone.utc)
_TIMEDELTA_NANOSECONDS = {
    "W": 7 * 86_400 * 10**9,
    "D": 86_400 * 10**9,
    "h": 3600 * 10**9,
    "m": 60 * 10**9,
    **_NANOSECONDS,
}


def _nanoseconds(value: Any, kind: pa.DataType) -> int | None:
    """The value as nanoseconds since its zero, or None where it is of another kind than the type."""
    if isinstance(value, np.datetime64):
        unit = np.datetime_data(value.dtype)[0]
        accepted = (types.is_timestamp(kind) and kind.tz is None) or (types.is_date(kind) and unit == "D")
        return _numpy_nanoseconds(value) if accepted else None
    if isinstance(value, np.timedelta64):
        return _numpy_nanoseconds(value) if types.is_duration(kind) else None
    if isinstance(value, datetime.datetime):
        if not types.is_timestamp(kind) or (kind.tz is None) != (value.tzinfo is None):
            return None
        return _duration_nanoseconds(value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC))
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days * 86_400 * 10**9 if types.is_date(kind) else None
    if isinstance(value, datetime.timedelta):
        return _duration_nanoseconds(value) if types.is_duration(kind) else None
    if isinstance(value, datetime.time) and types.is_time(kind) and value.tzinfo is None:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 10**6 + value.microsecond) * 1000
    return None


def _duration_nanoseconds(value: datetime.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


def _numpy_nanoseconds(value: np.datetime64 | np.timedelta64) -> int | None:
    unit, step = np.datetime_data(value.dtype)
    factor = _TIMEDELTA_NANOSECONDS.get(unit)
    return None if factor is None else int(value.astype(np.int64)) * step * factor
