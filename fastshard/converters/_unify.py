"""One schema for files that differ, and their batches brought to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from fastshard.converters._cast import cast_array
from fastshard.errors import SchemaError, SourceError

__all__ = ["conform", "infer_partition_fields", "unify_schemas"]


def unify_schemas(
    schemas: Sequence[pa.Schema], names: Sequence[str], refused: dict[str, SchemaError] | None = None
) -> pa.Schema:
    """The schema that all of these fit, as pyarrow's permissive promotion has it.

    Columns stand in the order of their first appearance; one that some schema lacks is nullable.

    Args:
        schemas: At least one, normalised (`fastshard.schema`), in the order of the files.
        names: What to call each of them.
        refused: Takes, by name, why a column's types cannot be brought together; the rest is unified without it.
            None: that is raised.

    Raises:
        SchemaError: A column's types cannot be brought together, or a name stands twice in a schema.
    """

    distinct: dict[pa.Schema, str] = {}
    for schema, name in zip(schemas, names, strict=True):
        if schema not in distinct:
            _refuse_duplicates(schema, name)
            distinct[schema] = name
    while True:
        try:
            unified = pa.unify_schemas(list(distinct), promote_options="permissive")
            break
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            column, conflict = _conflict(distinct, error)
            if refused is None or column is None:
                raise conflict from error
            refused[column] = conflict
            rest: dict[pa.Schema, str] = {}
            for schema, name in distinct.items():
                rest.setdefault(_without(schema, column), name)
            distinct = rest
    if len(distinct) == 1:
        return next(iter(distinct))
    for i, field in enumerate(unified):
        if not field.nullable and any(schema.get_field_index(field.name) < 0 for schema in distinct):
            unified = unified.set(i, field.with_nullable(True))
    return unified


def _without(schema: pa.Schema, column: str) -> pa.Schema:
    index = schema.get_field_index(column)
    return schema if index < 0 else schema.remove(index)


def _refuse_duplicates(schema: pa.Schema, name: str) -> None:
    if len(set(schema.names)) < len(schema.names):
        twice = next(column for column in schema.names if schema.names.count(column) > 1)
        raise SchemaError(f"{name}: two columns are named {twice!r}; rename one of them in the source")


def _conflict(schemas: dict[pa.Schema, str], error: Exception) -> tuple[str | None, SchemaError]:
    """The first column whose types do not fit, and an error that names it and the two files."""

    first: dict[str, tuple[pa.Field, str]] = {}
    for schema, name in schemas.items():
        for field in schema:
            if field.name not in first:
                first[field.name] = (field, name)
                continue
            merged, other = first[field.name]
            try:
                merged = pa.unify_schemas(
                    [pa.schema([merged]), pa.schema([field])], promote_options="permissive"
                ).field(0)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return field.name, SchemaError(
                    f"{name}: column {field.name!r} is of type {field.type}, but {merged.type} in {other}; "
                    "convert the files apart, or leave the column out with columns="
                )
            first[field.name] = (merged, other)
    return None, SchemaError(f"the files' schemas cannot be brought together: {error}")


def infer_partition_fields(partitions: Iterable[Sequence[tuple[str, str | None]]]) -> list[pa.Field]:
    """Fields for Hive keys, typed as pyarrow does: int32 where every value is one, else string."""

    values: dict[str, dict[str | None, None]] = {}
    for partition in partitions:
        for key, value in partition:
            values.setdefault(key, {})[value] = None
    fields = []
    for key, distinct in values.items():
        strings = pa.array(list(distinct), pa.string())
        type_ = pa.string()
        if strings.null_count < len(strings):
            try:
                strings.cast(pa.int32())
                type_ = pa.int32()
            except pa.ArrowInvalid:
                pass
        fields.append(pa.field(key, type_))
    return fields


def conform(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    constants: Sequence[tuple[str, str | None]],
    where: Callable[[int, str], str],
) -> pa.RecordBatch:
    """Bring a batch of one file to the unified schema.

    Args:
        batch: Of the file's own schema, normalised.
        schema: What all files fit.
        constants: Columns of one value, as text: Hive keys. They win over a column of the file.
        where: Names a row of a column, for messages.

    Raises:
        SourceError: A value does not fit the unified type, or a null stands where none may.
    """

    fixed = dict(constants)
    rows = batch.num_rows
    arrays = []
    for field in schema:
        if field.name in fixed:
            value = pa.scalar(fixed[field.name], pa.string()).cast(field.type)
            arrays.append(pa.repeat(value, rows))
            continue
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            array = pa.nulls(rows, field.type)
        else:
            array = cast_array(batch.column(index), field.type, _in_column(where, field.name))
        if not field.nullable and array.null_count:
            row = array.is_null().index(True).as_py()
            raise SourceError(f"{where(row, field.name)}: null, in a column that says it holds none")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_column(where: Callable[[int, str], str], column: str) -> Callable[[int], str]:
    return lambda row: where(row, column)
