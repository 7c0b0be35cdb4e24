"""What the golden data sets hold, as Arrow tables made from plain Python values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard.samples import variable_shape_field
from fastshard.schema import BFloat16Type

ROWS = 6
INF, NAN = float("inf"), float("nan")

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (pa.null(), [None] * ROWS),
    "bool": (pa.bool_(), [True, False, None, True, None, False]),
    "int8": (pa.int8(), [-128, 127, None, 0, 1, -1]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1, None, 0, 1, -1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1, None, 0, 1, -1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, None, 0, 1, -1]),
    "uint8": (pa.uint8(), [0, 255, None, 1, 2, 3]),
    "uint16": (pa.uint16(), [0, 2**16 - 1, None, 1, 2, 3]),
    "uint32": (pa.uint32(), [0, 2**32 - 1, None, 1, 2, 3]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, None, 1, 2, 3]),
    "float16": (pa.float16(), [*map(np.float16, [65504, -0.0]), None, *map(np.float16, [INF, 0.5, 6e-8])]),
    "float32": (pa.float32(), [1.5, -0.0, None, -INF, 2.0**-149, 16777216.0]),
    "float64": (pa.float64(), [0.1, -0.0, None, INF, 5e-324, 1.7976931348623157e308]),
    "decimal128": (
        pa.decimal128(10, 2),
        [Decimal("12.34"), Decimal("-0.01"), None, Decimal("99999999.99"), Decimal(0), Decimal(1)],
    ),
    "decimal256": (
        pa.decimal256(60, 3),
        [Decimal("1e50"), Decimal("-0.001"), None, Decimal(0), Decimal(1), Decimal(2)],
    ),
    "date32": (
        pa.date32(),
        [
            dt.date(2020, 1, 1),
            dt.date(1, 1, 1),
            None,
            dt.date(9999, 12, 31),
            dt.date(1970, 1, 1),
            dt.date(1969, 12, 31),
        ],
    ),
    "date64": (
        pa.date64(),
        [
            dt.date(2020, 1, 1),
            dt.date(1, 1, 1),
            None,
            dt.date(9999, 12, 31),
            dt.date(1970, 1, 1),
            dt.date(1969, 12, 31),
        ],
    ),
    "time32_s": (pa.time32("s"), [dt.time(23, 59, 59), dt.time(0), None, dt.time(1), dt.time(2), dt.time(3)]),
    "time32_ms": (
        pa.time32("ms"),
        [dt.time(23, 59, 59, 999000), dt.time(0), None, dt.time(1), dt.time(2), dt.time(3)],
    ),
    "time64_us": (
        pa.time64("us"),
        [dt.time(23, 59, 59, 999999), dt.time(0), None, dt.time(1), dt.time(2), dt.time(3)],
    ),
    "timestamp_s": (
        pa.timestamp("s"),
        [
            dt.datetime(2020, 1, 1),
            dt.datetime(1969, 1, 1),
            None,
            *[dt.datetime(2000, 1, i) for i in (1, 2, 3)],
        ],
    ),
    "timestamp_us_utc": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2020, 1, 1, 1, 2, 3, 4, dt.timezone.utc),
            None,
            None,
            *[dt.datetime(2000, 1, i, tzinfo=dt.timezone.utc) for i in (1, 2, 3)],
        ],
    ),
    "duration_us": (
        pa.duration("us"),
        [dt.timedelta(days=-1), dt.timedelta(microseconds=1), None, *[dt.timedelta(i) for i in (1, 2, 3)]],
    ),
    "interval": (
        pa.month_day_nano_interval(),
        [(1, 2, 3), (-1, -2, -3), None, (0, 0, 0), (12, 30, 10**9), (1, 0, 0)],
    ),
    "utf8": (pa.utf8(), ["a", "", None, "é☃", "nul\0inside", "x" * 40]),
    "large_utf8": (pa.large_utf8(), ["a", "", None, "é☃", "nul\0inside", "x" * 40]),
    "binary": (pa.binary(), [b"a", b"", None, b"\xff\0", b"12345678", b"x" * 40]),
    "large_binary": (pa.large_binary(), [b"a", b"", None, b"\xff\0", b"12345678", b"x" * 40]),
    "fixed_binary": (pa.binary(3), [b"abc", b"\0\0\0", None, b"\xff\xff\xff", b"123", b"xyz"]),
    "list": (pa.list_(pa.int32()), [[1, 2], [], None, [None], [3], [4, 5, 6]]),
    "large_list": (pa.large_list(pa.utf8()), [["a", "bc"], [], None, [None], ["é"], ["", ""]]),
    "fixed_list": (
        pa.list_(pa.float32(), 2),
        [[1.0, 2.0], [0.5, -0.5], None, [INF, 0.0], [3.0, None], [4.0, 5.0]],
    ),
    "list_of_lists": (
        pa.list_(pa.list_(pa.int32())),
        [[[1, 2], [3]], [], None, [[]], [None], [[4], [], [5, None]]],
    ),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.utf8()))]),
        [
            {"a": 1, "b": ["x"]},
            {"a": None, "b": []},
            None,
            {"a": 2, "b": None},
            {"a": 3, "b": [None]},
            {"a": 4, "b": ["y", "z"]},
        ],
    ),
    "map": (
        pa.map_(pa.utf8(), pa.int32()),
        [[("k", 1), ("l", None)], [], None, [("k", 2)], [("", 3)], [("é", 4), ("é", 5)]],
    ),
    "empty_struct": (pa.struct([]), [{}, {}, None, {}, {}, {}]),
}


def every_type() -> pa.Table:
    """120 rows of every type that a data set stores."""
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in VALUES.items()})
    return pa.concat_tables([table] * 20)


def tensors() -> pa.Table:
    """Three rows of each sort of tensor, and of bfloat16 alone and in lists."""
    brain = BFloat16Type()
    bits = pa.array([0x3FC0, 0xC000, 0x7F80, 0x7FC1, 0x8000, 0x0001], pa.uint16())
    in_brain = pa.ExtensionArray.from_storage(brain, bits)
    pairs = pa.FixedSizeListArray.from_arrays(in_brain, type=pa.list_(brain, 2))
    image = pa.fixed_shape_tensor(pa.uint8(), (2, 3))
    pixels = pa.array([[1, 2, 3, 4, 5, 6], None, [250, 251, 252, 253, 254, 255]], image.storage_type)
    varying = variable_shape_field("varying", pa.float32(), 2)
    storage = varying.type.storage_type if isinstance(varying.type, pa.BaseExtensionType) else varying.type
    values = [
        {"data": [1.0, 2.0], "shape": [1, 2]},
        {"data": [], "shape": [0, 5]},
        {"data": [3.0], "shape": [1, 1]},
    ]
    varied = pa.array(values, storage)
    if storage is not varying.type:
        varied = pa.ExtensionArray.from_storage(varying.type, varied)
    columns = {
        "fixed": pa.ExtensionArray.from_storage(image, pixels),
        "fixed_brain": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(brain, (2,)), pairs),
        "varying": varied,
        "brain": in_brain.slice(0, 3),
        "brains": pa.ListArray.from_arrays(pa.array([0, 2, 2, 6], pa.int32()), in_brain),
        "flag": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
    }
    fields = [
        varying if name == "varying" else pa.field(name, column.type) for name, column in columns.items()
    ]
    return pa.Table.from_arrays(
        list(columns.values()), schema=pa.schema(fields, metadata={"golden": "tensors"})
    )


def numbers(first: int, count: int) -> pa.Table:
    """Rows that tell their id, of fixed and of varying width."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "square": pa.array([i * i for i in ids], pa.int64()),
            "text": pa.array([None if i % 7 == 3 else "abc" * (i % 5) for i in ids], pa.utf8()),
            "tail": pa.array([list(range(i % 4)) for i in ids], pa.list_(pa.int16())),
        }
    )
