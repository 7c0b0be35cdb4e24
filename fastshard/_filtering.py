"""Which samples an expression is true for, reading only the columns that it names."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastshard._evaluate import empty_batch, evaluate, needed
from fastshard.errors import InvalidError

if TYPE_CHECKING:
    from fastshard._sequence import SampleSequence

__all__ = ["checked", "matching"]

_CHUNK_ROWS = 1 << 20
_CHUNK_BYTES = 64 << 20


def checked(expression: pc.Expression, schema: pa.Schema, where: str) -> pc.Expression:
    """The expression, if it gives true or false for samples of `schema` and pickles.

    Args:
        expression: Of pyarrow.
        schema: All columns.
        where: The expression, for messages.

    Raises:
        InvalidError: It does not.
    """
    try:
        kind = evaluate(expression, empty_batch(schema)).type
        pickle.dumps(expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        if "non-name field_refs" in reason:
            reason = "it must name columns, as in pc.field('x'), not count them"
        raise InvalidError(
            f"{where}: cannot be evaluated on the columns {', '.join(schema.names)}: {reason}"
        ) from None
    if kind != pa.bool_():
        raise InvalidError(f"{where}: it gives values of type {kind}, a filter gives true or false")
    return expression


def matching(data: SampleSequence, expression: pc.Expression, where: str) -> Iterator[npt.NDArray[np.int64]]:
    """Places of the samples for which an expression is true and not null, in pieces.

    Args:
        data: The samples.
        expression: As `checked` gives it.
        where: The expression, for messages.

    Raises:
        InvalidError: It cannot be evaluated on a value.
    """
    schema = data.full_schema
    names = needed(expression, schema) or schema.names[:1]  # a column to count rows by
    first = 0
    for chunk in _chunks(data, names):
        try:
            found = evaluate(expression, chunk)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidError(f"{where}: cannot be evaluated: {error}") from None
        yield np.flatnonzero(found.fill_null(False)) + first
        first += chunk.num_rows


def _chunks(data: SampleSequence, names: list[str]) -> Iterator[pa.Table]:
    """All samples as tables of moderate size."""
    schema = pa.schema([data.full_schema.field(name) for name in names])
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in data.record_batches(names):
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield _table(batches, schema)
            batches, rows, size = [], 0, 0
    if batches:
        yield _table(batches, schema)


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], schema=schema)
