"""Spark's types as Arrow types, and how the batches that Spark hands out become those of a data set.

Read from `df.schema.jsonValue()`, so that neither pyspark nor a job is needed to find a column that cannot be stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters._steps import chosen_columns
from fastshard.errors import InvalidError, SchemaError
from fastshard.spark._frames import quoted

__all__ = ["FrameColumn", "FrameSchema", "convert_batch", "frame_schema", "vectors_to_lists"]

_PLAIN = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.utf8(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval": pa.month_day_nano_interval(),
    "void": pa.null(),
    "null": pa.null(),
}
_PATTERNS: tuple[tuple[re.Pattern[str], pa.DataType], ...] = (
    (re.compile(r"string collate .+|(var)?char\(\d+\)"), pa.utf8()),
    (re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?"), pa.duration("us")),
    (re.compile(r"time(\(\d\))?"), pa.time64("ns")),
)
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")
_MONTHS = re.compile(r"interval (year|month)( to month)?")
# Spark hands these out in no form that says what they mean to anyone but Spark.
_ADVICE = {
    "variant": "make it text in Spark, df.withColumn({name!r}, F.to_json({name!r}))",
    "geometry": "make it bytes in Spark, df.withColumn({name!r}, F.expr('ST_AsBinary({quoted})'))",
    "geography": "make it bytes in Spark, df.withColumn({name!r}, F.expr('ST_AsBinary({quoted})'))",
}
_VECTORS = ("pyspark.ml.linalg.VectorUDT", "pyspark.mllib.linalg.VectorUDT")
_VECTOR_CLASSES = ("org.apache.spark.ml.linalg.VectorUDT", "org.apache.spark.mllib.linalg.VectorUDT")


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """One column of a frame.

    Attributes:
        name: As the frame has it.
        place: Its place in the frame.
        type: Under which it is stored.
        expression: SQL that Spark has to apply first, with `{}` for the column.
        vector: It holds vectors of Spark's ML library, which become lists of float64.
    """

    name: str
    place: int
    type: pa.DataType
    expression: str = "{}"
    vector: bool = False


@dataclass(frozen=True, slots=True)
class FrameSchema:
    """The columns of a frame that are wanted. `spark_frame` is for the driver, `convert` for wherever the batches are.

    Attributes:
        columns: In order.
        width: How many the frame has.
    """

    columns: tuple[FrameColumn, ...]
    width: int

    @property
    def arrow(self) -> pa.Schema:
        """What is stored. As in files that Spark writes, any column may hold nulls: the index counts them."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def spark_frame(self, frame: Any) -> Any:
        """The frame with these columns, in forms that Arrow has, named by their places.

        Spark finds columns by name when it runs Python: names with dots, or that differ by case alone, would not do.
        """
        numbered = frame.toDF(*(f"c{place}" for place in range(self.width)))
        return numbered.selectExpr(*(column.expression.format(f"c{column.place}") for column in self.columns))

    @property
    def vectors(self) -> tuple[bool, ...]:
        return tuple(column.vector for column in self.columns)


def convert_batch(batch: pa.RecordBatch, schema: pa.Schema, vectors: Sequence[bool]) -> pa.RecordBatch:
    """A batch that Spark handed out, in the schema of `FrameSchema.arrow`."""
    arrays = []
    for array, field, vector in zip(batch.columns, schema, vectors, strict=True):
        if vector:
            array = vectors_to_lists(array)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def frame_schema(document: Mapping[str, Any], columns: Sequence[str] | None = None) -> FrameSchema:
    """The schema of a frame, narrowed to some columns.

    Args:
        document: `df.schema.jsonValue()`.
        columns: Their names, in the order wanted; None: all.

    Raises:
        InvalidError: There is no such column.
        SchemaError: A column's type cannot be stored, or two have one name; the message says what to do.
    """
    fields = {}
    for field in document["fields"]:
        if field["name"] in fields:
            raise SchemaError(
                f"two columns of the frame are named {field['name']!r}; rename one: df.toDF(*names)"
            )
        fields[field["name"]] = field["type"]
    chosen = chosen_columns(list(fields), columns)
    places = {name: place for place, name in enumerate(fields)}
    return FrameSchema(tuple(_column(name, places[name], fields[name]) for name in chosen), len(fields))


def _column(name: str, place: int, kind: Any) -> FrameColumn:
    if isinstance(kind, str) and _MONTHS.fullmatch(kind):
        # Spark gives Arrow a type that pyarrow lacks; as whole months it fits an int32, and no cast can fail.
        return FrameColumn(name, place, pa.int32(), "CAST(CAST({} AS INTERVAL MONTH) AS INT)")
    if _is_vector(kind):
        return FrameColumn(name, place, pa.list_(pa.field("element", pa.float64())), vector=True)
    return FrameColumn(name, place, _arrow_type(kind, name, name))


def _is_vector(kind: Any) -> bool:
    return isinstance(kind, Mapping) and (
        kind.get("pyClass") in _VECTORS or kind.get("class") in _VECTOR_CLASSES
    )


def _arrow_type(kind: Any, place: str, name: str) -> pa.DataType:
    """The Arrow type of a Spark type, given as JSON; `place` says where in the column it stands."""
    if isinstance(kind, str):
        return _leaf_type(kind, place, name)
    match kind["type"]:
        case "array":
            return pa.list_(pa.field("element", _arrow_type(kind["elementType"], f"{place}[]", name)))
        case "map":
            return pa.map_(
                _arrow_type(kind["keyType"], f"the keys of {place}", name),
                _arrow_type(kind["valueType"], f"the values of {place}", name),
            )
        case "struct":
            names = [field["name"] for field in kind["fields"]]
            if not names:
                raise SchemaError(f"column {name!r}: {place} is a struct without fields; {_skip(name)}")
            return pa.struct(
                [
                    pa.field(f["name"], _arrow_type(f["type"], f"{place}.{f['name']}", name))
                    for f in kind["fields"]
                ]
            )
        case "udt":
            return _arrow_type(kind["sqlType"], place, name)
    raise _refusal(str(kind["type"]), place, name)


def _leaf_type(kind: str, place: str, name: str) -> pa.DataType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    for pattern, type_ in _PATTERNS:
        if pattern.fullmatch(kind):
            return type_
    raise _refusal(kind, place, name)


def _refusal(kind: str, place: str, name: str) -> SchemaError:
    if _MONTHS.fullmatch(kind):
        advice = "cast it to INTERVAL MONTH and then to INT in Spark"
    else:
        family = re.split(r"[ (]", kind)[0]
        advice = _ADVICE.get(family, "cast it to a plain type in Spark, as to STRING or BINARY")
        advice = advice.format(name=name, quoted=quoted(name))
    where = f"column {name!r}" if place == name else f"column {name!r}: {place}"
    return SchemaError(
        f"{where} has the Spark type {kind}, which cannot be stored; {advice}, or {_skip(name)}"
    )


def _skip(name: str) -> str:
    return f"leave it out: df.drop({name!r})"


def vectors_to_lists(array: pa.StructArray) -> pa.ListArray:
    """Vectors of Spark's ML library, dense and sparse, as lists of float64; null stays null.

    Args:
        array: Structs of `type` (0 sparse, 1 dense), `size`, `indices` and `values`.
    """
    kinds, sizes, indices, values = array.flatten()
    kind = kinds.fill_null(1).to_numpy(zero_copy_only=False)
    value_ends = _ends(values)
    lengths = np.diff(value_ends)
    sparse = kind == 0
    numbers = values.flatten().to_numpy(zero_copy_only=False)
    if sparse.any():
        lengths = np.where(sparse, sizes.fill_null(0).to_numpy(zero_copy_only=False), lengths)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidError(
            f"{len(array)} vectors in one batch have {offsets[-1]} elements, and a batch of Spark's may have 2^31; "
            "lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )
    if sparse.any():
        # Each stored number goes to the beginning of its row, plus its index or (dense) its place in the row.
        rows = np.repeat(np.arange(len(array)), np.diff(value_ends))
        places = np.arange(value_ends[-1]) - value_ends[rows]
        stored = indices.flatten().to_numpy(zero_copy_only=False)
        places[sparse[rows]] = stored
        filled = np.zeros(offsets[-1])
        filled[offsets[rows] + places] = numbers
        numbers = filled
    mask = array.is_null() if array.null_count else None
    kind_of_list = pa.list_(pa.field("element", pa.float64()))
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), pa.array(numbers), type=kind_of_list, mask=mask
    )


def _ends(lists: pa.ListArray) -> np.ndarray:
    """Where each list begins in the flattened values, and the last one ends: int64 [rows + 1]; null lists are empty."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
