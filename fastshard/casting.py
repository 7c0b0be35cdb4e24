"""Conversions between dtypes, bfloat16 among them. NumPy has no bfloat16: its arrays hold the bits as uint16."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastshard.errors import InvalidError
from fastshard.forms import ColumnForm

__all__ = ["cast_array", "fill_value", "nan_of", "to_bfloat16"]

_BFLOAT16_NAN = np.uint16(0x7FC0)


def cast_array(array: Any, form: ColumnForm) -> Any:
    """The values of a column as the dtype that it is delivered in (bfloat16: uint16 bits).

    Args:
        array: of `form.dtype`, any shape.

    Raises:
        InvalidError: An integer or bool type cannot hold one of the values. Floating-point types round.
    """
    target = form.cast
    if target is None:
        return array
    if form.bfloat16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if target == "bfloat16":
        return to_bfloat16(array.astype(np.float32))
    dtype = np.dtype(target)
    with np.errstate(invalid="ignore", over="ignore"):
        out = array.astype(dtype)
        if dtype.kind in "iub":
            lost = _lost(array, out)
            if lost.any():
                raise InvalidError(
                    f"cast of column {form.path!r} from {form.stored} to {target} would lose "
                    f"{array[lost].flat[0]!r}; choose a wider type"
                )
    return out


def _lost(array: Any, out: Any) -> Any:
    """Where integers or bools `out` are not the numbers of `array` that they were cast from."""
    lost = out.astype(array.dtype) != array  # NaN differs from everything
    if array.dtype.kind == "f":
        # 2^63 and the like wrap around on the way there and round up on the way back.
        return lost | (array < _lowest(out.dtype)) | (array >= _beyond(out.dtype))
    return lost | ((out < 0) != (array < 0))


def _lowest(dtype: np.dtype[Any]) -> float:
    return 0.0 if dtype.kind == "b" else float(np.iinfo(dtype).min)


def _beyond(dtype: np.dtype[Any]) -> float:
    """The smallest number above the range, which is a power of two and so exact in every floating-point type."""
    return 2.0 if dtype.kind == "b" else float(np.iinfo(dtype).max + 1)


def to_bfloat16(array: Any) -> Any:
    """uint16 bits of the nearest bfloat16 to each float32, ties to even; NaN stays NaN."""
    bits = array.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    out = (rounded >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(array)
    out[nan] = ((bits[nan] >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return out


def nan_of(form: ColumnForm) -> Any:
    """What stands for null in a column that is delivered as floating-point numbers."""
    return _BFLOAT16_NAN if form.delivers_bfloat16 else np.nan


def fill_value(form: ColumnForm, value: Any, option: str = "fill_null") -> Any:
    """`value` as the dtype in which a column is delivered. `option` says in messages where it is from.

    Raises:
        InvalidError: It is no number, or one that the dtype cannot hold.
    """
    dtype = np.dtype(np.float32) if form.delivers_bfloat16 else np.dtype(form.cast or form.dtype)
    try:
        given = np.asarray(value)
        with np.errstate(invalid="ignore", over="ignore"):
            filled = given.astype(dtype)
        fits = (
            given.ndim == 0 and given.dtype.kind in "iufb" and (dtype.kind == "f" or not _lost(given, filled))
        )
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise InvalidError(f"{option}[{form.path!r}]: {value!r} is not a value of {form.delivered}")
    return to_bfloat16(filled.reshape(1))[0] if form.delivers_bfloat16 else filled
