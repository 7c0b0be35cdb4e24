"""Arrow expressions on batches: what they give for each row, and which columns they need."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["empty_batch", "evaluate", "needed"]


def evaluate(expression: pc.Expression, batch: pa.RecordBatch | pa.Table) -> pa.Array:
    """What an expression gives for each row of a batch, in the rows' order."""
    from pyarrow import acero

    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
    ]
    result = acero.Declaration.from_sequence(steps).to_table(use_threads=False).column(0)
    return result.combine_chunks() if result.num_chunks != 1 else result.chunk(0)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows, of any schema: `schema.empty_table()` does not know every extension type."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def needed(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Names of the columns without which an expression cannot be evaluated, in the schema's order.

    Args:
        expression: That can be evaluated on rows of `schema`, and names its columns.
        schema: Of all columns.
    """
    text = str(expression)
    return [
        field.name
        for place, field in enumerate(schema)
        if field.name in text and not _can_evaluate(expression, schema.remove(place))
    ]


def _can_evaluate(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        evaluate(expression, empty_batch(schema))
    except (pa.ArrowException, TypeError):
        return False
    return True
