"""Which samples an expression is true for, reading only the columns that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastshard.errors import InvalidError

if TYPE_CHECKING:
    from fastshard._sequence import SampleSequence

__all__ = ["matching", "referenced"]

_CHUNK_ROWS = 1 << 20
_CHUNK_BYTES = 64 << 20


def referenced(expression: pc.Expression, schema: pa.Schema, where: str) -> list[str]:
    """Names of the columns that an expression uses, in the schema's order.

    Args:
        expression: To be evaluated on samples of `schema`.
        schema: All columns.
        where: The expression, for messages.

    Raises:
        InvalidError: It cannot be evaluated on them.
    """
    problem = _problem(expression, schema)
    if problem is not None:
        raise InvalidError(
            f"{where}: cannot be evaluated on the columns {', '.join(schema.names)}: {problem}"
        )
    text = str(expression)
    return [
        field.name
        for place, field in enumerate(schema)
        if field.name in text and _problem(expression, schema.remove(place)) is not None
    ]


def _problem(expression: pc.Expression, schema: pa.Schema) -> str | None:
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        return str(error).split("\n")[0]
    return None


def matching(data: SampleSequence, expression: pc.Expression, where: str) -> Iterator[npt.NDArray[np.int64]]:
    """Places of the samples for which an expression is true and not null, in pieces.

    Raises:
        InvalidError: It cannot be evaluated on them.
    """
    schema = data.full_schema
    names = referenced(expression, schema, where) or schema.names[:1]  # a column to count rows by
    number = "number"
    while number in names:
        number += "_"
    first = 0
    for chunk in _chunks(data, names):
        places = np.arange(first, first + chunk.num_rows, dtype=np.int64)
        first += chunk.num_rows
        numbered = chunk.append_column(number, pa.array(places))
        try:
            found = numbered.filter(expression).column(len(names))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidError(f"{where}: cannot be evaluated: {error}") from None
        yield np.sort(found.to_numpy())


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
