"""Which files may hold rows for which a condition is true, by what is known of all rows of a file.

Nothing is read: Arrow simplifies the condition under what is known, and a file goes where the result is never true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

__all__ = ["between", "equal", "files_left", "nothing"]


def nothing() -> pc.Expression:
    """Nothing is known."""
    return pc.scalar(True)


def equal(name: str, value: pa.Scalar) -> pc.Expression:
    """A column has one value in all rows, null perhaps."""
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()


def between(name: str, low: pa.Scalar, high: pa.Scalar, *, nulls: bool) -> pc.Expression:
    """The values of a column are from `low` to `high`; with `nulls`, or null."""
    field = pc.field(name)
    above, below = field >= low, field <= high
    # Arrow sees through an "or null" of one comparison, not of both together.
    return (above | field.is_null()) & (below | field.is_null()) if nulls else above & below


def files_left(
    condition: pc.Expression, fields: Sequence[pa.Field], known: Iterable[pc.Expression]
) -> set[int]:
    """The files that may hold rows for which `condition` is true.

    Args:
        condition: On `fields`.
        fields: The columns that it looks at, in their order.
        known: What holds for all rows of each file.

    Returns:
        Places of files in `known`; all of them where Arrow does not understand the condition.
    """
    format_, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        format_.make_fragment(str(place), nowhere, partition_expression=facts)
        for place, facts in enumerate(known)
    ]
    try:
        dataset = ds.FileSystemDataset(fragments, pa.schema(fields), format_, nowhere)
        return {int(fragment.path) for fragment in dataset.get_fragments(filter=condition)}
    except (pa.ArrowException, TypeError):
        return set(range(len(fragments)))
