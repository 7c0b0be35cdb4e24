"""What the metadata of a Parquet file tell of the sizes of its columns, and what they do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters._format import row_width

__all__ = ["bytes_per_row", "column_shares", "dictionary_leaves", "largest_values"]


def column_shares(schema: pa.Schema, group: Any) -> tuple[float, ...]:
    """What part of a row group each column has; that of one group stands for all.

    Args:
        schema: Of the file.
        group: Metadata of a row group, or None.
    """
    if group is None:
        return (0.0,) * len(schema)
    sizes = _column_sizes(group, schema.names)
    total = max(1, sum(sizes.values()))
    return tuple(sizes.get(name, 0) / total for name in schema.names)


def bytes_per_row(schema: pa.Schema, group: Any, columns: Sequence[str]) -> float:
    """What a row of some columns takes in memory: at least what it does in the file, and what its types say."""
    rows: int = group.num_rows
    if rows == 0:
        return 1.0
    if len(columns) == len(schema):
        size: int = group.total_byte_size
    else:
        size = sum(_column_sizes(group, set(columns)).values())
    return max(size / rows, sum(row_width(schema.field(name).type) for name in columns))


def dictionary_leaves(group: Any, columns: Collection[str]) -> dict[str, float]:
    """Leaves with values of any length in a dictionary, of which a file's size says little; and their values a row."""
    found = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page:
            path = chunk.path_in_schema
            if _owner(path, columns) is not None:
                found[path] = chunk.num_values / max(1, group.num_rows)
    return found


def largest_values(array: pa.Array) -> int:
    """The longest value of each dictionary in an array, in bytes, added up."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return int(pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    if pa.types.is_map(kind):
        return largest_values(array.keys) + largest_values(array.items)
    if pa.types.is_struct(kind):
        return sum(largest_values(array.field(i)) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return largest_values(array.values)
    return 0


def _column_sizes(group: Any, columns: Collection[str]) -> dict[str, int]:
    """Bytes of some columns of a row group, before compression."""
    sizes: dict[str, int] = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        name = _owner(chunk.path_in_schema, columns)
        if name is not None:
            sizes[name] = sizes.get(name, 0) + chunk.total_uncompressed_size
    return sizes


def _owner(path: str, columns: Collection[str]) -> str | None:
    """The column, of some, that a leaf belongs to."""
    parts = path.split(".")
    prefixes = (".".join(parts[:i]) for i in range(1, len(parts) + 1))
    return next((prefix for prefix in prefixes if prefix in columns), None)
