"""`fs.convert(df, dest)`: a Spark DataFrame brought to this machine as Arrow, with nothing installed on executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from fastshard.converters._format import READ_BYTES, rows_for
from fastshard.converters._part import Part
from fastshard.spark._frames import FrameKind, check_frame
from fastshard.spark._types import convert_batch, frame_schema

__all__ = ["FrameSource"]


class FrameSource:
    """A frame as one task of this process. Spark runs it once, when its rows are first asked for.

    Attributes:
        schema: Of the rows.
        portable: False: other processes do not have the session.
    """

    portable = False

    def __init__(self, frame: Any, columns: Sequence[str] | None = None) -> None:
        """Look at the schema; no job runs.

        Raises:
            SchemaError: A column's type cannot be stored.
        """
        self._kind = check_frame(frame, "fs.convert")
        self._frame = frame
        self._document = frame.schema.jsonValue()
        self._columns = frame_schema(self._document, columns)
        self.schema = self._columns.arrow

    def narrowed(self, columns: Sequence[str]) -> FrameSource:
        """The same with some columns, which are all that Spark then computes."""
        return self if list(columns) == self.schema.names else FrameSource(self._frame, list(columns))

    @property
    def provenance(self) -> dict[str, Any]:
        return {"source": "spark", "spark": str(self._frame.sparkSession.version)}

    def tasks(self, shard_bytes: int) -> list[FrameTask]:
        return [FrameTask(self)]

    def peek(self) -> Iterator[Part]:
        return self.parts()

    def parts(self) -> Iterator[Part]:
        """All rows, in batches of bounded size."""
        row = 0
        for batch in self._batches:
            rows = rows_for(batch.nbytes / max(1, batch.num_rows), READ_BYTES)
            for start in range(0, batch.num_rows, rows):
                part = convert_batch(batch.slice(start, rows), self.schema, self._columns.vectors)
                yield Part(part, "the frame", row, row)
                row += part.num_rows

    def identity(self) -> object:
        """None: whether a frame gives what it gave before cannot be known without running it."""
        return None

    @cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        frame = self._columns.spark_frame(self._frame)
        return _to_arrow(frame, self._kind, self._document)


def _to_arrow(frame: Any, kind: FrameKind, document: Mapping[str, Any]) -> list[pa.RecordBatch]:
    """The rows of a frame: by `toArrow()`, or by what that stands on.

    Spark before 4.0 has none, and it fails on a null struct whose fields Spark thinks are never null.
    """
    strict = any(_has_strict_fields(field["type"]) for field in document["fields"])
    if callable(getattr(frame, "toArrow", None)) and not strict:
        return list(frame.toArrow().to_batches())
    if kind == "classic":
        return list(frame._collect_as_arrow())
    if callable(getattr(frame, "_to_table", None)):
        return list(frame._to_table()[0].to_batches())
    client = frame._session.client
    return list(client.to_table(frame._plan.to_proto(client))[0].to_batches())


def _has_strict_fields(kind: Any) -> bool:
    """Whether a type, as JSON, has structs with fields that cannot be null."""
    if isinstance(kind, str):
        return False
    match kind["type"]:
        case "struct":
            return any(not field["nullable"] or _has_strict_fields(field["type"]) for field in kind["fields"])
        case "udt":
            return _has_strict_fields(kind["sqlType"])
    parts = (kind.get(name, "") for name in ("elementType", "keyType", "valueType"))
    return any(_has_strict_fields(part) for part in parts)


@dataclass(frozen=True, slots=True)
class FrameTask:
    """All rows of a frame."""

    source: FrameSource
    rows: None = None
    bytes: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (part.batch for part in self.source.parts())

    def parts(self) -> Iterator[Part]:
        return self.source.parts()
