"""Samples as dicts become Arrow batches.

| in a sample | in the data set, where the schema is not given |
|---|---|
| `bool`, `int`, `float`, `str`, `bytes` | bool, int64 (uint64 where needed), float64, utf8, binary |
| NumPy scalar, tensor or array of rank 0 | its dtype |
| array or tensor of rank 1 | list of its dtype |
| array or tensor of rank 2 and more | `arrow.fixed_shape_tensor`; `arrow.variable_shape_tensor` where shapes differ |
| list, tuple | list; arrays in it: lists of lists |
| dict | struct |
| `Decimal` | decimal128 (decimal256 where needed), with the scale of the first block |
| `datetime`, `date`, `time`, `timedelta` | timestamp[us] (with its time zone), date32, time64[us], duration[us] |
| None | null |

torch.bfloat16 is kept bit by bit, under the extension type `fastshard.bfloat16`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastshard._encode import encode
from fastshard._infer import infer_field, variable_shape_field
from fastshard._values import Misfit, adapt_all, capture, size_hint
from fastshard.errors import SchemaError

__all__ = [
    "capture",
    "check_sample",
    "encode_column",
    "infer_column",
    "infer_schema",
    "samples_to_batch",
    "size_hint",
    "variable_shape_field",
]


def check_sample(sample: Any, row: int, names: Sequence[str] | None) -> None:
    """Check that a sample is a mapping with str keys, and the ones expected.

    Args:
        sample: What the user passed.
        row: Its number, for errors.
        names: The columns, where they are known.

    Raises:
        SchemaError: The message names the row and the column.
    """
    if not isinstance(sample, (dict, Mapping)):
        raise SchemaError(
            f"row {row}: a sample is a dict from column to value, not {type(sample).__name__}"
            + ('; name its parts, as in {"x": ..., "y": ...}' if isinstance(sample, (tuple, list)) else "")
        )
    if names is None:
        if not sample:
            raise SchemaError(f"row {row}: a sample without columns")
        for name in sample:
            if not isinstance(name, str) or not name:
                raise SchemaError(f"row {row}: {name!r} is not a column name; names are non-empty str")
        return
    if sample.keys() == set(names):
        return
    for name in names:
        if name not in sample:
            raise SchemaError(f"row {row}: column {name!r} is missing; store None where there is no value")
    extra = next(name for name in sample if name not in names)
    raise SchemaError(f"row {row}: column {extra!r} is not among the data set's columns {list(names)}")


def infer_schema(samples: Sequence[Mapping[str, Any]], first_row: int = 0) -> pa.Schema:
    """The schema that holds all samples, whose keys have been checked.

    Raises:
        SchemaError: The values of a column have no type in common; the message names row and column.
    """
    return pa.schema(
        [infer_column(name, [sample[name] for sample in samples], first_row) for name in samples[0]]
    )


def samples_to_batch(
    samples: Sequence[Mapping[str, Any]], schema: pa.Schema, *, rounds: bool, first_row: int = 0
) -> pa.RecordBatch:
    """Samples, whose keys have been checked, as a batch of a normalised schema.

    Args:
        samples: The rows.
        schema: Of the batch.
        rounds: Whether floats may be rounded to the schema's widths: the user asked for them.
        first_row: The number of the first sample, for errors.

    Raises:
        SchemaError: A value does not fit; the message names row and column.
    """
    columns = [
        encode_column([sample[field.name] for sample in samples], field, rounds=rounds, first_row=first_row)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def infer_column(name: str, values: Sequence[Any], first_row: int = 0) -> pa.Field:
    """The field that holds all values of a column; raises as `infer_schema` does."""
    try:
        return infer_field(name, adapt_all(values))
    except Misfit as misfit:
        raise _error(misfit, name, first_row) from None


def encode_column(values: Sequence[Any], field: pa.Field, *, rounds: bool, first_row: int = 0) -> pa.Array:
    """Values as an array of a normalised field; raises as `samples_to_batch` does."""
    try:
        return encode(adapt_all(values), field, rounds=rounds)
    except Misfit as misfit:
        raise _error(misfit, field.name, first_row) from None


def _error(misfit: Misfit, column: str, first_row: int) -> SchemaError:
    return SchemaError(f"row {first_row + misfit.index}: column {column + misfit.path!r}: {misfit.problem}")
