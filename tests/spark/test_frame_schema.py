"""Frames told apart and their schemas read, without pyspark."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.spark._frames import check_frame, frame_kind
from fastshard.spark._types import frame_schema, vectors_to_lists


def frame_class(module: str, *bases: type) -> type:
    return type("DataFrame", bases or (object,), {"__module__": module})


# The classes of Spark 3.5 and 4, and what a platform derives from them.
PARENT = frame_class("pyspark.sql.dataframe")
FRAMES = {
    "classic": [PARENT, frame_class("pyspark.sql.classic.dataframe", PARENT)],
    "connect": [
        frame_class("pyspark.sql.connect.dataframe"),
        frame_class("pyspark.sql.connect.dataframe", PARENT),
        type("Derived", (frame_class("pyspark.sql.connect.dataframe", PARENT),), {}),
    ],
}


@pytest.mark.parametrize(("kind", "cls"), [(kind, cls) for kind, found in FRAMES.items() for cls in found])
def test_frames_are_told_apart(kind: str, cls: type) -> None:
    assert frame_kind(cls()) == kind
    assert check_frame(cls(), "write") == kind


def test_what_is_no_frame_of_spark_is_refused() -> None:
    assert frame_kind(frame_class("pandas.core.frame")()) is None
    with pytest.raises(fs.errors.InvalidError, match=r"frame\.to_spark\(\)"):
        check_frame(frame_class("pyspark.pandas.frame")(), "write")
    with pytest.raises(fs.errors.InvalidError, match=r"spark\.table\('a\.b'\)"):
        check_frame("a.b", "write")
    with pytest.raises(
        fs.errors.InvalidError, match=r"not dict; data that are not in Spark are for fs\.convert"
    ):
        fs.spark.write({}, "nowhere")


def test_pyspark_is_not_imported() -> None:
    code = (
        "import sys, fastshard as fs; fs.spark.write; print('pyspark' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "False"]


def one(kind: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("time(6)", pa.time64("ns")),
        ("time", pa.time64("ns")),
        ("string collate UTF8_LCASE", pa.utf8()),
        ("varchar(10)", pa.utf8()),
        ("char(3)", pa.utf8()),
        ("interval day to second", pa.duration("us")),
        ("interval hour", pa.duration("us")),
        ("interval", pa.month_day_nano_interval()),
        ("interval year to month", pa.int32()),
        ("interval month", pa.int32()),
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ("void", pa.null()),
        ({"type": "udt", "class": "a.B", "pyClass": "a.B", "sqlType": "double"}, pa.float64()),
    ],
)
def test_types_by_their_names(kind: Any, expected: pa.DataType) -> None:
    assert frame_schema(one(kind)).arrow.field("x").type == expected


@pytest.mark.parametrize("kind", ["variant", "geometry(4326)", "geography(4326)", "object", "time travel"])
def test_unknown_types_are_refused_with_column_type_and_advice(kind: str) -> None:
    with pytest.raises(fs.errors.SchemaError) as caught:
        frame_schema(one({"type": "array", "elementType": kind, "containsNull": True}))
    assert f"column 'x': x[] has the Spark type {kind}" in str(caught.value)
    assert "leave it out: df.drop('x')" in str(caught.value)


def test_a_column_that_is_not_wanted_may_have_any_type() -> None:
    document = one("variant")
    document["fields"].append({"name": "y", "type": "long", "nullable": False, "metadata": {}})
    assert frame_schema(document, ["y"]).arrow.names == ["y"]


def vectors(rows: list[Any]) -> pa.StructArray:
    kind = pa.struct(
        [
            ("type", pa.int8()),
            ("size", pa.int32()),
            ("indices", pa.list_(pa.int32())),
            ("values", pa.list_(pa.float64())),
        ]
    )
    return pa.array(rows, kind)


def dense(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size: int, **values: float) -> dict[str, Any]:
    places = {int(name[1:]): value for name, value in values.items()}
    return {"type": 0, "size": size, "indices": list(places), "values": list(places.values())}


@pytest.mark.parametrize("start", [0, 1, 3])
def test_vectors_of_any_kind_sliced_or_not(start: int) -> None:
    rows = [dense(1, 2), None, sparse(3, i1=5), dense(), sparse(4), sparse(2, i0=1, i1=2), dense(9)]
    expected = [[1, 2], None, [0, 5, 0], [], [0, 0, 0, 0], [1, 2], [9]]
    array = vectors(rows).slice(start)
    assert vectors_to_lists(array).to_pylist() == expected[start:]
    only_dense = vectors([dense(1, 2), None, dense(3, 4)]).slice(min(start, 2))
    assert vectors_to_lists(only_dense).to_pylist() == [[1, 2], None, [3, 4]][min(start, 2) :]
    assert vectors_to_lists(vectors([])).to_pylist() == []
