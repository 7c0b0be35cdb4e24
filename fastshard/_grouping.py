"""A word for each value of a column, so that equal values can be kept together: docs/order.md, section 8."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastshard import _core
from fastshard.errors import InvalidError

__all__ = ["value_words"]


def value_words(array: pa.Array, name: str) -> npt.NDArray[np.uint64]:
    """The xxh3-64 of each value's bytes: uint64 [len].

    Text counts as its UTF-8, numbers, dates and times as Arrow stores them (little-endian), bool as one byte 0 or 1, a
    null as no bytes.

    Args:
        array: The values.
        name: Of the column, for messages.

    Raises:
        InvalidError: Values of a nested type.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _core.xxh3_64(b""), np.uint64)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.uint8())
    if _is_bytes(kind):
        words = _of_bytes(array.cast(pa.large_binary()))
    else:
        words = _of_fixed(array, name)
    if array.null_count:
        words[np.asarray(array.is_null())] = _core.xxh3_64(b"")
    return words


def _is_bytes(kind: pa.DataType) -> bool:
    views = (getattr(pa.types, name, None) for name in ("is_string_view", "is_binary_view"))
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or any(check is not None and check(kind) for check in views)
    )


def _of_bytes(array: pa.LargeBinaryArray) -> npt.NDArray[np.uint64]:
    if not len(array):
        return np.zeros(0, np.uint64)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return _core.xxh3_64_each(data or b"", bounds)


def _of_fixed(array: pa.Array, name: str) -> npt.NDArray[np.uint64]:
    try:
        bits = (
            8 * array.type.byte_width if pa.types.is_fixed_size_binary(array.type) else array.type.bit_width
        )
    except ValueError:
        bits = -1
    if bits < 0 or bits % 8 or pa.types.is_nested(array.type):
        raise InvalidError(
            f"by={name!r}: samples cannot be divided by a column of type {array.type}; "
            "take one of numbers, text, bytes, dates or times"
        )
    width = bits // 8
    bounds: npt.NDArray[np.int64] = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
    return _core.xxh3_64_each(array.buffers()[1] or b"", bounds)
