"""Reading: each shard is a partition, its blocks become batches in Spark's types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fastshard
from fastshard.errors import InvalidError, SchemaError
from fastshard.schema import BFloat16Type
from fastshard.spark._types import frame_schema

__all__ = ["DatasetReader", "dataset_schema", "spark_form"]

_FORMS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_utf8(): pa.utf8(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
}


@dataclass
class _Rows(InputPartition):  # type: ignore[misc]
    """The samples [first, stop)."""

    first: int
    stop: int


class DatasetReader(DataSourceReader):  # type: ignore[misc]
    """One read of the generation that stands when it is planned."""

    def __init__(self, path: str, schema: Any) -> None:
        self._path = path
        self._schema = schema
        with fastshard.open(path) as reader:
            self._fingerprint = reader.fingerprint
            self._rows = reader.core.shard_rows().tolist()
            missing = [name for name in schema.names if name not in reader.columns]
        if missing:
            raise InvalidError(f"{path}: there is no column {missing[0]!r}; the columns are {reader.columns}")

    def partitions(self) -> list[_Rows]:
        ends = np.cumsum([0, *self._rows]).tolist()
        return [_Rows(first, stop) for first, stop in pairwise(ends) if stop > first] or [_Rows(0, 0)]

    def read(self, partition: _Rows) -> Iterator[pa.RecordBatch]:
        """The samples of one partition, on an executor."""
        target = frame_schema(self._schema.jsonValue()).arrow
        with fastshard.open(self._path, columns=list(self._schema.names)) as reader:
            if reader.fingerprint != self._fingerprint:
                raise InvalidError(
                    f"{self._path}: the data set changed since the job was planned; read it again"
                )
            if partition.stop == partition.first:
                return
            for batch in reader.select(range(partition.first, partition.stop)).record_batches():
                arrays = [_as_spark(batch.column(field.name), field.type) for field in target]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)


def dataset_schema(path: str) -> Any:
    """The columns of a data set as Spark's StructType.

    Raises:
        SchemaError: Spark has no type for a column; the message names it.
        NotFoundError, CorruptError: As `fs.open`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    with fastshard.open(path) as reader:
        fields = [pa.field(field.name, spark_form(field.type, field.name)) for field in reader.schema]
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)


def spark_form(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type, among those that Spark knows, that holds every value of `kind`; of tensors, the flat values.

    Raises:
        SchemaError: There is none.
    """
    if kind in _FORMS:
        return _FORMS[kind]
    if isinstance(kind, BFloat16Type):
        return pa.float32()
    if isinstance(kind, pa.FixedShapeTensorType):
        return pa.list_(spark_form(kind.value_type, column))
    if isinstance(kind, pa.BaseExtensionType):
        return spark_form(kind.storage_type, column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(spark_form(kind.value_type, column))
    if types.is_map(kind):
        return pa.map_(spark_form(kind.key_type, column), spark_form(kind.item_type, column))
    if types.is_struct(kind):
        return pa.struct(
            [
                pa.field(kind.field(i).name, spark_form(kind.field(i).type, column))
                for i in range(kind.num_fields)
            ]
        )
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_duration(kind):
        return pa.duration("us")
    if types.is_time(kind):
        return pa.time64("ns")
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return pa.binary()
    if types.is_decimal(kind) and not types.is_decimal128(kind):
        if kind.precision <= 38:
            return pa.decimal128(kind.precision, kind.scale)
    elif not types.is_interval(kind):
        return kind
    raise SchemaError(
        f"column {column!r} is {kind}, and Spark has no type for it; read the others: "
        "fs.convert(path, dest, columns=[...]), then load that"
    )


def _as_spark(array: pa.Array, kind: pa.DataType) -> pa.Array:
    from fastshard.converters._cast import cast_array

    if isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    return cast_array(array, kind, lambda row: f"row {row} of a batch")
