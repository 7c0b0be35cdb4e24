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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fastshard._encode import encode
from fastshard._infer import infer_field, variable_shape_field
from fastshard._values import Misfit, adapt_all, capture, size_hint
from fastshard.errors import SchemaError

__all__ = ["SampleBlock", "check_sample", "encode_column", "infer_column", "variable_shape_field"]


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


class SampleBlock:
    """Samples collected by column: far fewer Python objects than a dict for each.

    Attributes:
        rows: Samples taken.
        bytes: About how much they take in columns.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """An empty block of some columns."""
        self._columns: dict[str, list[Any]] = {name: [] for name in names}
        self.rows = 0
        self.bytes = 0

    def add(self, sample: Mapping[str, Any]) -> None:
        """Take a sample, whose keys have been checked, as it is now: its arrays may be filled anew afterwards."""
        columns = self._columns
        size = 0
        for name, value in sample.items():
            taken = capture(value)
            columns[name].append(taken)
            size += size_hint(taken)
        self.rows += 1
        self.bytes += size

    def schema(self, first_row: int = 0) -> pa.Schema:
        """The schema that holds all samples.

        Args:
            first_row: The number of the first sample, for errors.

        Raises:
            SchemaError: The values of a column have no type in common; the message names row and column.
        """
        return pa.schema([infer_column(name, values, first_row) for name, values in self._columns.items()])

    def batch(self, schema: pa.Schema, *, rounds: bool, first_row: int = 0) -> pa.RecordBatch:
        """The samples as a batch of a normalised schema.

        Args:
            schema: Of the batch.
            rounds: Whether floats may be rounded to the schema's widths: the user asked for them.
            first_row: The number of the first sample, for errors.

        Raises:
            SchemaError: A value does not fit, or an interruption cut a sample in two; the message names row and column.
        """
        for name, values in self._columns.items():
            if len(values) != self.rows:
                raise SchemaError(
                    f"row {first_row + self.rows}: column {name!r}: the sample was taken in part only"
                )
        columns = [
            encode_column(self._columns[field.name], field, rounds=rounds, first_row=first_row)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def infer_column(name: str, values: Sequence[Any], first_row: int = 0) -> pa.Field:
    """The field that holds all values of a column; raises as `SampleBlock.schema` does."""
    try:
        return infer_field(name, adapt_all(values))
    except Misfit as misfit:
        raise _error(misfit, name, first_row) from None


def encode_column(values: Sequence[Any], field: pa.Field, *, rounds: bool, first_row: int = 0) -> pa.Array:
    """Values as an array of a normalised field; raises as `SampleBlock.batch` does."""
    try:
        return encode(adapt_all(values), field, rounds=rounds)
    except Misfit as misfit:
        raise _error(misfit, field.name, first_row) from None


def _error(misfit: Misfit, column: str, first_row: int) -> SchemaError:
    return SchemaError(f"row {first_row + misfit.index}: column {column + misfit.path!r}: {misfit.problem}")
