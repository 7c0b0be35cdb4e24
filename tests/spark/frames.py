"""Frames with every type that Spark has, and what is expected of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

# Column, SQL of a value, what a sample's Arrow value is as Python, and its Arrow type.
NEW_YORK_NOON = dt.datetime(2024, 7, 1, 16, 0, tzinfo=dt.timezone.utc)
CASES: list[tuple[str, str, Any, str]] = [
    ("a byte", "cast(-1 as tinyint)", -1, "int8"),
    ("a short", "cast(-2 as smallint)", -2, "int16"),
    ("an.int", "-3", -3, "int32"),
    ("Long", "-4L", -4, "int64"),
    ("bool", "true", True, "bool"),
    ("float", "cast(1.5 as float)", 1.5, "float"),
    ("double", "2.5D", 2.5, "double"),
    ("decimal", "cast(12.34 as decimal(10, 2))", Decimal("12.34"), "decimal128(10, 2)"),
    ("wide", "cast('12345678901234567890123456789012345678' as decimal(38, 0))",
     Decimal("12345678901234567890123456789012345678"), "decimal128(38, 0)"),
    ("date", "date'1969-12-31'", dt.date(1969, 12, 31), "date32[day]"),
    ("time stamp", "timestamp'2024-07-01 12:00:00'", NEW_YORK_NOON, "timestamp[us, tz=UTC]"),
    ("ntz", "timestamp_ntz'2024-07-01 12:00:00.000001'", dt.datetime(2024, 7, 1, 12, 0, 0, 1), "timestamp[us]"),
    ("days", "interval '1 02:03:04.5' day to second",
     dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5), "duration[us]"),
    ("months", "interval '1-2' year to month", 14, "int32"),
    ("years", "interval '3' year", 36, "int32"),
    ("text", "'Grüße'", "Grüße", "string"),
    ("char", "cast('ab' as varchar(5))", "ab", "string"),
    ("bytes", "X'0001ff'", b"\x00\x01\xff", "binary"),
    ("array", "array(1.0D, 2.0D, 3.0D)", [1.0, 2.0, 3.0], "list<element: double>"),
    ("nested", "array(array(1), array(2, cast(null as int)))", [[1], [2, None]], "list<element: list<element: int32>>"),
    ("times", "array(timestamp'2024-07-01 12:00:00')", [NEW_YORK_NOON], "list<element: timestamp[us, tz=UTC]>"),
    ("map", "map('k', 1)", [("k", 1)], "map<string, int32>"),
    ("struct", "named_struct('x', 1, 'y.z', 'b')", {"x": 1, "y.z": "b"}, "struct<x: int32, y.z: string>"),
    ("数", "1", 1, "int32"),
    ("`tick`", "'t'", "t", "string"),
    ("void", "null", None, "null"),
]  # fmt: skip


def every_type(spark: Any) -> Any:
    """Three rows in one partition: of values, of nulls, and of values."""
    names = [name.replace("`", "``") for name, *_ in CASES]
    values = ", ".join(f"{sql} AS `{name}`" for name, (_, sql, _, _) in zip(names, CASES, strict=True))
    nulls = ", ".join(
        f"if(id = 1, null, `{name}`) AS `{name}`" if case[1] != "null" else f"`{name}`"
        for name, case in zip(names, CASES, strict=True)
    )
    spark.range(0, 3, 1, 1).selectExpr("id").createOrReplaceTempView("three")
    return spark.sql(f"SELECT {nulls} FROM (SELECT id, {values} FROM three)")


def vectors(spark: Any) -> Any:
    """ML vectors, dense and sparse, of one size; one null in the second column."""
    from pyspark.ml.linalg import Vectors

    rows = [
        (Vectors.dense([1.0, 2.0, 3.0]), Vectors.dense([1.0])),
        (Vectors.sparse(3, [1], [5.0]), None),
        (Vectors.sparse(3, [0, 2], [7.0, 8.0]), Vectors.sparse(2, [1], [4.0])),
        (Vectors.sparse(3, [], []), Vectors.dense([])),
    ]
    return spark.createDataFrame(rows, ["v", "w"])
