"""What the log of a Delta table tells of the values in each file."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from fastshard.converters._delta_schema import DeltaField, Mapped
from fastshard.converters._pruning import between, equal, nothing

__all__ = ["DeltaStatistics"]

# Writers cut times to milliseconds, the greatest one of a file too.
_CUT = pa.scalar(timedelta(milliseconds=1), pa.duration("us"))


class DeltaStatistics:
    """Bounds of the columns in each file, where they can be relied on.

    Rows that a deletion vector marks count, so bounds may be wider than need be. Not looked at are floating-point
    columns, whose bounds pass over NaN; decimals, which JSON may have rounded; and what is neither a number, a text, a
    date nor a time.
    """

    def __init__(self, actions: pa.Table, mapped: Mapped) -> None:
        """Notes what deltalake tells of the files.

        Args:
            actions: `DeltaTable.get_add_actions(flatten=False)`.
            mapped: How columns are mapped: where they are, the log has their names in the files.
        """
        self._actions = actions
        self._mapped = mapped

    def facts(self, field: DeltaField) -> list[pc.Expression]:
        """What holds for all values of a column of the table in each file, in the order of `actions`."""
        unknown = [nothing()] * self._actions.num_rows
        if not _is_reliable(field.type):
            return unknown
        name = field.name if self._mapped == "none" else field.physical
        try:
            rows = self._actions.column("num_records")
            nulls, low, high = (
                pc.struct_field(self._actions.column(kind), name) for kind in ("null_count", "min", "max")
            )
            low, high = low.cast(field.type), high.cast(field.type)
            if pa.types.is_timestamp(field.type):
                low, high = pc.subtract_checked(low, _CUT), pc.add_checked(high, _CUT)
        except (pa.ArrowException, KeyError):
            return unknown  # the log does not tell, or another version of deltalake tells it otherwise
        facts = []
        for row_count, null_count, least, greatest in zip(
            rows.to_pylist(), nulls.to_pylist(), low, high, strict=True
        ):
            if row_count is not None and null_count == row_count:
                facts.append(equal(field.name, pa.scalar(None, field.type)))
            elif least.is_valid and greatest.is_valid:
                facts.append(between(field.name, least, greatest, nulls=null_count != 0))
            else:
                facts.append(nothing())
        return facts


def _is_reliable(type_: pa.DataType) -> bool:
    types = pa.types
    return any(test(type_) for test in (types.is_integer, types.is_string, types.is_date, types.is_timestamp))
