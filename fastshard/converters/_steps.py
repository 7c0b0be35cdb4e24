"""What `convert` does to each batch: filter, choose columns, cast, make tensors, transform, in this order.

Planned once against the source's schema, where wrong arguments are found; then applied to every batch, in any process.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastshard._evaluate import empty_batch, evaluate
from fastshard.conditions import parse_where
from fastshard.converters._cast import cast_array, cast_targets
from fastshard.converters._part import Part
from fastshard.converters._paths import first_line
from fastshard.converters._tensors import TensorSpec, tensor_specs, to_tensors
from fastshard.errors import InvalidError, SchemaError, SourceError
from fastshard.schema import read_schema, schema_message

__all__ = ["Selected", "Steps", "Transform", "chosen_columns", "plan_steps"]

Transform: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]"


@dataclass(frozen=True, slots=True)
class Selected:
    """What became of a part.

    Attributes:
        batch: The rows that are left.
        numbers: Their numbers in the source, int64 [rows]; where a transform changed how many rows there are, that of
            the first row that went in, for all.
        ranks: Tell rows of one number apart, int64 [rows]; None where each has its own.
    """

    batch: pa.RecordBatch
    numbers: Any
    ranks: Any = None


@dataclass(frozen=True, slots=True)
class Steps:
    """The plan. Picklable where the transform is.

    Attributes:
        reads: Columns that the source has to read.
        condition: Rows for which it is not true (false or null) go.
        condition_fields: The columns that it looks at.
        columns: Those that stay, in order.
        casts: New types by column.
        tensors: By column.
        transform: Called last, with each batch.
        schema: Of what comes out; None until the transform has been seen at work.
    """

    reads: tuple[str, ...]
    condition: pc.Expression | None
    condition_fields: tuple[str, ...]
    columns: tuple[str, ...]
    casts: Mapping[str, pa.DataType]
    tensors: Mapping[str, TensorSpec]
    transform: Transform | None
    schema: pa.Schema | None

    def __reduce__(self) -> tuple[Any, ...]:
        # Types go as messages of schemas, since pickled ones forget names of nested fields.
        rest = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        casts = schema_message(pa.schema(list(self.casts.items())))
        schema = None if self.schema is None else schema_message(self.schema)
        return _unpickled, ({**rest, "casts": casts, "schema": schema},)

    def with_schema(self, schema: pa.Schema) -> Steps:
        return replace(self, schema=schema)

    @property
    def only_selects(self) -> bool:
        """Whether all rows stay as they are, but for columns that go."""
        return self.condition is None and not self.casts and not self.tensors and self.transform is None

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that stay; not every source can read only those."""
        return batch if batch.schema.names == list(self.columns) else batch.select(list(self.columns))

    @property
    def provenance(self) -> dict[str, Any]:
        """For people: what was done to the rows."""
        told: dict[str, Any] = {}
        if self.condition is not None:
            told["filter"] = str(self.condition)
        if self.casts:
            told["cast"] = {name: str(type_) for name, type_ in self.casts.items()}
        if self.tensors:
            told["tensors"] = {name: str(spec) for name, spec in self.tensors.items()}
        if self.transform is not None:
            told["transform"] = getattr(self.transform, "__qualname__", type(self.transform).__qualname__)
        return told

    def apply(self, part: Part) -> Iterator[Selected]:
        """Run the steps on a batch of the source.

        Yields:
            The batches that came of it: one, but for a transform that gave several or none; never an empty one.

        Raises:
            SourceError: A value cannot be cast or is no tensor, or the transform failed; the message names the row.
        """
        kept, places = self._filtered(part)
        if kept.num_rows == 0:
            return
        numbers = part.number + (np.arange(kept.num_rows) if places is None else places)
        batch = self._converted(kept, part, places)
        if self.transform is None:
            yield Selected(batch, numbers)
            return
        results = self._transformed(batch, part)
        total = sum(result.num_rows for result in results)
        start = 0
        for result in results:
            if result.num_rows == 0:
                continue
            stop = start + result.num_rows
            if total == batch.num_rows:
                yield Selected(result, numbers[start:stop])
            else:
                yield Selected(result, np.full(result.num_rows, numbers[0]), np.arange(start, stop))
            start = stop

    def first_output(self, part: Part) -> pa.Schema | None:
        """The schema of what the transform makes of a part, or None where the filter leaves no row of it."""
        kept, places = self._filtered(part)
        if kept.num_rows == 0:
            return None
        return self.output_of(self._converted(kept, part, places), part)

    def output_of(self, batch: pa.RecordBatch, part: Part) -> pa.Schema:
        """The schema of what the transform makes of a batch that the other steps are done with."""
        return self._call(batch, part).schema

    def converted_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of what goes into the transform."""
        fields = []
        for name in self.columns:
            field = schema.field(name)
            if name in self.casts:
                field = field.with_type(self.casts[name])
            if name in self.tensors:
                field = field.with_type(self.tensors[name].arrow_type)
            fields.append(field)
        return pa.schema(fields, metadata=schema.metadata)

    def _filtered(self, part: Part) -> tuple[pa.RecordBatch, Any]:
        """The rows that stay, and their places in the part: None for all."""
        if self.condition is None:
            return part.batch, None
        try:
            mask = evaluate(self.condition, part.batch)
        except (pa.ArrowException, TypeError) as error:
            raise SourceError(
                f"{part.where(0)} and on: filter={self.condition}: {first_line(error)}"
            ) from error
        kept = part.batch.filter(mask, null_selection_behavior="drop")
        return kept, np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))

    def _converted(self, batch: pa.RecordBatch, part: Part, places: Any) -> pa.RecordBatch:
        def where(name: str, row: int) -> str:
            return part.where(row if places is None else int(places[row]), name)

        if batch.schema.names == list(self.columns) and not self.casts and not self.tensors:
            return batch
        arrays = []
        for name in self.columns:
            array = batch.column(batch.schema.get_field_index(name))
            if name in self.casts:
                array = cast_array(array, self.casts[name], partial(where, name))
            if name in self.tensors:
                array = to_tensors(array, self.tensors[name], partial(where, name))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.converted_schema(batch.schema))

    def _call(self, batch: pa.RecordBatch, part: Part) -> pa.RecordBatch | pa.Table:
        assert self.transform is not None
        try:
            result = self.transform(batch)
        except Exception as error:
            raise SourceError(
                f"{part.where(0)} and on: transform= failed on a batch of {batch.num_rows} rows: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, pa.RecordBatch | pa.Table):
            raise SchemaError(
                f"{part.where(0)}: transform= must return a pyarrow.RecordBatch or Table, not {type(result).__name__}"
            )
        return result

    def _transformed(self, batch: pa.RecordBatch, part: Part) -> list[pa.RecordBatch]:
        assert self.schema is not None
        result = self._call(batch, part)
        batches = result.to_batches() if isinstance(result, pa.Table) else [result]
        return [_fitted(batch, self.schema, part) for batch in batches]


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, part: Part) -> pa.RecordBatch:
    """A later output of the transform, held to the schema of its first one."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise SchemaError(
            f"{part.where(0)}: transform= returned the columns {batch.schema.names}, at first it was {schema.names}; "
            "it must always return the same ones"
        )
    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"{part.where(0)}: transform= returned column {field.name!r} as {array.type}, at first it was "
                f"{field.type}; give the type in the transform, as pa.array(values, type)"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _unpickled(state: dict[str, Any]) -> Steps:
    casts = {field.name: field.type for field in read_schema(state["casts"])}
    schema = None if state["schema"] is None else read_schema(state["schema"])
    return Steps(**{**state, "casts": casts, "schema": schema})


def plan_steps(
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
    tensors: Mapping[str, Any] | None = None,
    cast: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
) -> Steps:
    """Hold the arguments of `convert` against the source's schema.

    Raises:
        InvalidError: An argument is malformed or names a column that is not there.
        SchemaError: A column cannot become tensors.
    """
    chosen = chosen_columns(schema.names, columns)
    if isinstance(filter, str):
        filter = parse_where(filter, schema)
    fields = () if filter is None else _condition_fields(schema, filter)
    reads = tuple(name for name in schema.names if name in {*chosen, *fields})
    if transform is not None and not callable(transform):
        raise InvalidError(f"transform= must be a function of a batch, not {type(transform).__name__}")
    steps = Steps(reads, filter, fields, chosen, {}, {}, transform, None)
    selected = steps.converted_schema(schema)
    steps = replace(steps, casts=cast_targets(selected, _mapping(cast, "cast")))
    cast_schema = steps.converted_schema(schema)
    steps = replace(steps, tensors=tensor_specs(cast_schema, _mapping(tensors, "tensors")))
    return steps if transform is not None else steps.with_schema(steps.converted_schema(schema))


def _mapping(value: Any, argument: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidError(f"{argument}= must be a dict, not {type(value).__name__}: {value!r}")
    return value


def chosen_columns(names: Sequence[str], columns: Sequence[str] | None) -> tuple[str, ...]:
    """What `columns=` stands for: names, in the order wanted.

    Args:
        names: The columns that there are.
        columns: Those that are wanted; None for all.

    Raises:
        InvalidError: One is not there or named twice, or it is no list of names.
    """
    if columns is None:
        return tuple(names)
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidError(f"columns= must be a list of names, not {type(columns).__name__}: {columns!r}")
    if not columns:
        raise InvalidError("columns= is empty; a data set needs at least one column")
    for name in columns:
        if name not in names:
            close = difflib.get_close_matches(str(name), names, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {list(names)}"
            raise InvalidError(f"columns=: there is no column {name!r}; {hint}")
    if len(set(columns)) < len(columns):
        raise InvalidError(f"columns= names a column twice: {list(columns)}")
    return tuple(columns)


def _condition_fields(schema: pa.Schema, condition: pc.Expression) -> tuple[str, ...]:
    """The columns that an expression looks at: those that it cannot be bound without.

    Raises:
        InvalidError: It is no expression of these columns that is true or false.
    """
    if not isinstance(condition, pc.Expression):
        raise InvalidError(
            "filter= must be a pyarrow expression or a text, such as pc.field('x') > 0 or 'x > 0', not "
            f"{type(condition).__name__}"
        )
    try:
        kind = evaluate(condition, empty_batch(schema)).type
    except (pa.ArrowException, TypeError) as error:
        raise InvalidError(
            f"filter={condition}: {str(error).splitlines()[0]}; the columns are {schema.names}"
        ) from error
    if kind != pa.bool_():
        raise InvalidError(f"filter={condition}: it gives {kind} for each row, and must give true or false")
    text = str(condition)
    if "FieldPath" in text:  # it counts columns, and must find all of them in their places
        return tuple(schema.names)
    return tuple(name for name in schema.names if name in text and not _binds(condition, schema, name))


def _binds(condition: pc.Expression, schema: pa.Schema, without: str) -> bool:
    rest = schema.remove(schema.get_field_index(without))
    if len(rest) == 0:  # Arrow has no table of no columns
        rest = pa.schema([pa.field(without + "_", pa.null())])
    try:
        evaluate(condition, empty_batch(rest))
    except pa.ArrowException:
        return False
    return True
