"""A data set for people: what is in it and how it is delivered."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from fastshard._index import DatasetIndex
from fastshard.forms import ColumnForm

__all__ = ["ColumnDescription", "Description", "describe"]


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """One column: its Arrow type, what a batch holds of it, its nulls, and its lengths (None where it has none)."""

    name: str
    type: str
    delivered_as: str
    null_count: int
    min_length: int | None
    max_length: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """Prints as a table.

    Attributes:
        bytes: Size of the shards on disk.
        raw_bytes: Before compression.
        of: For a view, samples of the data set that it selects from; else None.
        touched: For a view, shards in which it has samples; else None.
    """

    rows: int
    shards: int
    blocks: int
    bytes: int
    raw_bytes: int
    fingerprint: str
    generation: int
    columns: tuple[ColumnDescription, ...]
    of: int | None = None
    touched: int | None = None

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (c.name, c.type, c.delivered_as, str(c.null_count), _lengths(c.min_length, c.max_length))
            for c in self.columns
        ]

    def __str__(self) -> str:
        header = ("column", "type", "delivered as", "nulls", "lengths")
        rows = [header, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([self._summary(), *lines])

    __repr__ = __str__

    def _summary(self) -> str:
        whole = (
            f"{self.rows if self.of is None else self.of:,} samples in {self.shards:,} shards and "
            f"{self.blocks:,} blocks, {self.bytes:,} bytes ({self.raw_bytes:,} before compression)"
        )
        if self.of is None:
            return whole
        return f"{self.rows:,} samples, in {self.touched:,} shards, of {whole}"

    def _repr_html_(self) -> str:
        header = "".join(
            f"<th>{name}</th>" for name in ("column", "type", "delivered as", "nulls", "lengths")
        )
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self._rows()
        )
        table = f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p>{html.escape(self._summary())}</p>{table}"


def _lengths(low: int | None, high: int | None) -> str:
    if low is None:
        return ""
    return str(low) if low == high else f"{low} to {high}"


def describe(index: DatasetIndex, forms: Sequence[ColumnForm]) -> Description:
    """The description of a data set of which the columns `forms` are read."""
    columns = []
    for form in forms:
        stats = index.columns.get(form.name)
        columns.append(
            ColumnDescription(
                form.name,
                form.type,
                form.describe(),
                stats.null_count if stats else 0,
                stats.min_length if stats else None,
                stats.max_length if stats else None,
            )
        )
    return Description(
        index.rows,
        index.shards,
        index.blocks,
        index.bytes,
        index.raw_bytes,
        index.fingerprint,
        index.generation,
        tuple(columns),
    )
