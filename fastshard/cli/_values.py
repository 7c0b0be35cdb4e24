"""Values of samples as JSON and as short text."""

from __future__ import annotations

import base64
import datetime
import decimal
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from fastshard.reader import ShardReader

__all__ = ["readable_columns", "to_json", "to_text"]

_SHOWN_ITEMS = 16  # of an array, for people


def to_json(value: Any) -> Any:
    """A value of a sample as JSON has it.

    Numbers stay exact. What JSON lacks becomes text: NaN and infinities `"NaN"`, `"Infinity"` and `"-Infinity"`, bytes
    base64, decimals their digits, dates and times ISO 8601.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _special(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, np.generic):
        # Nanoseconds become an int in item(), so that the text form is the one that says what it is.
        return str(value) if value.dtype.kind in "mM" else to_json(value.item())
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "mM":
            return value.astype(str).tolist()
        return to_json(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    return repr(value)


def readable_columns(reader: ShardReader) -> dict[str, Callable[[Any], Any]]:
    """For each column whose values in samples are numbers that stand for something else: what makes them readable.

    Dates and times become text such as `2020-01-01 12:00:00Z`, durations text with their unit.
    """
    columns: dict[str, Callable[[Any], Any]] = {}
    for field, form in zip(reader.schema, reader.plan.forms, strict=True):
        if form.shape == () and form.kind == "array" and _is_time(field.type):
            columns[field.name] = functools.partial(_time_text, kind=field.type)
    return columns


def _is_time(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return any(check(kind) for check in (types.is_timestamp, types.is_date, types.is_time, types.is_duration))


def _time_text(value: Any, *, kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_duration(kind):
        return str(np.timedelta64(int(value), kind.unit))
    bits = pa.scalar(int(value), pa.int32() if kind.bit_width == 32 else pa.int64())
    return str(bits.cast(kind).cast(pa.string()))


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_text(value: Any) -> str:
    """A value of a sample for people, long ones cut: `uint8[8, 8] 0 0 5 13 ...`, `b"..." (1,024 bytes)`."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value[:_SHOWN_ITEMS])
        more = "..." if len(value) > _SHOWN_ITEMS else ""
        return f"{len(value):,} bytes: {data.hex(' ')}{more}"
    if isinstance(value, np.ndarray):
        shown = " ".join(_item_text(item) for item in value.reshape(-1)[:_SHOWN_ITEMS])
        more = " ..." if value.size > _SHOWN_ITEMS else ""
        return f"{value.dtype}{list(value.shape)} {shown}{more}".rstrip()
    if isinstance(value, (float, np.floating)):
        return _item_text(value)
    plain = to_json(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _item_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
