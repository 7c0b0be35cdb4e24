"""Parquet files: their row groups as units, read as streams of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fastshard.converters._discover import SourceFile
from fastshard.converters._format import Contents, Unit
from fastshard.converters._parquet_reader import ParquetReader
from fastshard.converters._parquet_sizes import column_shares
from fastshard.errors import SourceError

__all__ = ["inspect", "prune", "read"]


def inspect(file: SourceFile) -> Contents:
    """Read a file's footer. See `Format.inspect`."""
    with ParquetReader(file) as reader:
        groups = [reader.metadata.row_group(i) for i in range(reader.metadata.num_row_groups)]
        units = tuple(Unit(group.num_rows, group.total_byte_size) for group in groups)
        shares = column_shares(reader.schema, next((group for group in groups if group.num_rows), None))
    return Contents(reader.schema, units, shares)


def read(
    file: SourceFile, units: Sequence[int], columns: Sequence[str] | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read some row groups. See `Format.read`."""
    with ParquetReader(file) as reader:
        names = reader.schema.names if columns is None else list(columns)
        for run, rows_per_batch in reader.runs(units, names):
            expected = sum(reader.metadata.row_group(group).num_rows for group in run)
            found = 0
            for batch in reader.batches(run, names, rows_per_batch):
                found += batch.num_rows
                yield run[0], batch
            if found != expected:
                raise SourceError(
                    f"{file.name}: row groups {run[0]} to {run[-1]} hold {found} rows, and {expected} by the footer; "
                    "write the file again"
                )


def prune(
    file: SourceFile, contents: Contents, condition: pc.Expression, fields: Sequence[pa.Field]
) -> list[int]:
    """Row groups that the statistics do not rule out. See `Format.prune`.

    Floating-point columns are not looked at: their statistics pass over NaN, and Arrow takes them for all values.
    """
    everything = list(range(len(contents.units)))
    for field in fields:
        index = contents.schema.get_field_index(field.name)
        if (
            index < 0
            or contents.schema.field(index).type != field.type
            or not _has_sound_statistics(field.type)
        ):
            return everything
    try:
        fragment = ds.ParquetFileFormat().make_fragment(file.place.path, file.place.filesystem)
        return [group.id for group in fragment.subset(filter=condition, schema=pa.schema(fields)).row_groups]
    except (pa.ArrowException, OSError):
        return everything  # a help only; reading will meet the error and name it


def _has_sound_statistics(type_: pa.DataType) -> bool:
    types = pa.types
    tests = (
        types.is_integer,
        types.is_boolean,
        types.is_date,
        types.is_timestamp,
        types.is_time,
        types.is_string,
    )
    return any(test(type_) for test in tests)
