"""Data in memory, and streams of it: whatever speaks Arrow, pandas, polars, DuckDB, Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from fastshard.converters._format import READ_BYTES, bounded, rows_for
from fastshard.converters._part import Part
from fastshard.errors import Error, InvalidError, SourceError

__all__ = ["MemorySource", "memory_source"]

_HUGGING_FACE_ROWS = 1000
_DIGEST_ROWS = 1 << 16


@dataclass(slots=True)
class _Rows:
    """Batches that may come only once.

    Attributes:
        schema: Theirs.
        batches: Begins to give them; called once where `once` is set.
        name: What to call them.
        once: They come only once.
        rows: How many rows; None where only reading tells.
        bytes: Their size, 0 where only reading tells.
        identity: Changes when the data do, as far as that can be told; see `LocatedSource.identity`.
    """

    schema: pa.Schema
    batches: Callable[[], Iterable[pa.RecordBatch]]
    name: str
    once: bool
    rows: int | None = None
    bytes: int = 0
    identity: Callable[[], object] = field(default=lambda: None)


class MemorySource:
    """Batches of this process, as one task.

    Attributes:
        portable: False: other processes do not have the data.
    """

    portable = False

    def __init__(self, rows: _Rows) -> None:
        from fastshard.schema import normalise_schema

        self._rows = rows
        self._seen: list[Part] = []
        self._coming: Iterator[Part] | None = None
        self.schema = normalise_schema(rows.schema)

    @property
    def provenance(self) -> dict[str, Any]:
        return {"source": self._rows.name}

    def identity(self) -> object:
        return self._rows.identity()

    def tasks(self, shard_bytes: int) -> list[MemoryTask]:
        return [MemoryTask(self._rows.rows, self._rows.bytes, self._parts)]

    def peek(self) -> Iterator[Part]:
        if not self._rows.once:
            yield from self._read()
            return
        yield from self._seen
        for part in self._rest():
            self._seen.append(part)
            yield part

    def _parts(self) -> Iterator[Part]:
        if not self._rows.once:
            return self._read()
        if self._coming is None and self._seen:
            raise InvalidError(f"{self._rows.name}: it can be read only once, and was")
        return self._read_once()

    def _read_once(self) -> Iterator[Part]:
        while self._seen:
            yield self._seen.pop(0)
        yield from self._rest()

    def _rest(self) -> Iterator[Part]:
        if self._coming is None:
            self._coming = self._read()
        return self._coming

    def _read(self) -> Iterator[Part]:
        from fastshard.schema import Normaliser

        normaliser = Normaliser(self._rows.schema)
        row = 0
        for batch in _told(self._rows):
            rows = rows_for(batch.nbytes / max(1, batch.num_rows), READ_BYTES)
            for start in range(0, batch.num_rows, rows):
                for slice_ in bounded(batch.slice(start, rows)):
                    for normal in normaliser.batches(slice_, row):
                        yield Part(normal, self._rows.name, row, row)
                        row += normal.num_rows


@dataclass(frozen=True, slots=True)
class MemoryTask:
    """All rows of a source in memory."""

    rows: int | None
    bytes: int
    read: Callable[[], Iterator[Part]]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (part.batch for part in self.parts())

    def parts(self) -> Iterator[Part]:
        return self.read()


def _told(rows: _Rows) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows.batches()
    except Error:
        raise
    except Exception as error:
        raise SourceError(f"{rows.name}: reading failed: {type(error).__name__}: {error}") from error


def memory_source(data: Any) -> MemorySource | None:
    """A source of an object in memory, or None where the object is nothing that gives Arrow data.

    Args:
        data: A pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner; a pandas or polars frame; a DuckDB
            relation; a Hugging Face data set; anything with `__arrow_c_stream__` or `__arrow_c_array__`.
    """
    kind = _kind_of(data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return MemorySource(_of_table(data, kind))
    if isinstance(data, pa.RecordBatchReader):
        return MemorySource(_Rows(data.schema, lambda: data, kind, once=True))
    for make in (_of_pyarrow_dataset, _of_hugging_face, _of_pandas, _of_polars_lazy):
        rows = make(data, kind)
        if rows is not None:
            return MemorySource(rows)
    if _offers(data, "__arrow_c_stream__"):
        return MemorySource(_of_stream(data, kind))
    if _offers(data, "__arrow_c_array__"):
        return MemorySource(_of_table(pa.Table.from_batches([pa.record_batch(data)]), kind))
    return None


def _kind_of(data: Any) -> str:
    return f"{type(data).__module__.partition('.')[0]}.{type(data).__name__}"


def _offers(data: Any, method: str) -> bool:
    return callable(getattr(type(data), method, None))


def _of_table(table: pa.Table, name: str) -> _Rows:
    return _Rows(
        table.schema, table.to_batches, name, once=False, rows=table.num_rows, bytes=table.nbytes,
        identity=lambda: _digest(table.schema, table.to_batches()),
    )  # fmt: skip


def _digest(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> object:
    """A hash of the values, whatever the chunks are."""
    from fastshard import _core

    table = pa.Table.from_batches(batches, schema)
    digests = [_core.xxh3_128(schema.serialize())]
    for start in range(0, table.num_rows, _DIGEST_ROWS):
        for batch in table.slice(start, _DIGEST_ROWS).combine_chunks().to_batches():
            digests.append(_core.xxh3_128(batch.serialize()))
    return [table.num_rows, _core.xxh3_128(b"".join(digests)).hex()]


def _of_stream(data: Any, name: str) -> _Rows:
    reader = pa.RecordBatchReader.from_stream(data)
    # Readers, and whatever else hands out its data, are used up; frames are not.
    if _offers(data, "__len__"):
        again = pa.RecordBatchReader.from_stream
        return _Rows(
            reader.schema, lambda: again(data), name, once=False, rows=len(data),
            identity=lambda: _digest(reader.schema, again(data)),
        )  # fmt: skip
    return _Rows(reader.schema, lambda: reader, name, once=True)


def _of_pyarrow_dataset(data: Any, name: str) -> _Rows | None:
    if not type(data).__module__.startswith("pyarrow._dataset"):
        return None
    scanner = data.scanner() if _offers(data, "scanner") else data
    reader = scanner.to_reader()
    return _Rows(reader.schema, lambda: reader, name, once=True)


def _of_hugging_face(data: Any, name: str) -> _Rows | None:
    if type(data).__module__.partition(".")[0] != "datasets":
        return None
    if isinstance(data, dict):
        raise InvalidError(
            f"{name}: it has the splits {sorted(data)}; convert each by itself, as data[{sorted(data)[0]!r}]"
        )
    arrow = data.with_format("arrow")

    def batches() -> Iterator[pa.RecordBatch]:
        for table in arrow.iter(batch_size=_HUGGING_FACE_ROWS):
            yield from table.to_batches()

    if _offers(data, "__len__"):
        first = next(iter(arrow.iter(batch_size=1)), None) if len(data) else None
        schema = data.features.arrow_schema if first is None else first.schema
        return _Rows(
            schema,
            batches,
            name,
            once=False,
            rows=len(data),
            identity=lambda: getattr(data, "_fingerprint", None),
        )
    peeked = iter(batches())
    head = next(peeked, None)
    if head is None:
        raise SourceError(f"{name}: it gives no rows, and so no schema")
    return _Rows(head.schema, lambda: _chain(head, peeked), name, once=True)


def _chain(head: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield head
    yield from rest


def _of_pandas(data: Any, name: str) -> _Rows | None:
    if type(data).__module__.partition(".")[0] != "pandas" or type(data).__name__ != "DataFrame":
        return None
    try:
        return _of_table(pa.Table.from_pandas(data), name)
    except pa.ArrowException as error:
        raise SourceError(
            f"{name}: {str(error).splitlines()[0]}; give the column one type, or leave it out"
        ) from error


def _of_polars_lazy(data: Any, name: str) -> _Rows | None:
    if type(data).__module__.partition(".")[0] != "polars" or type(data).__name__ != "LazyFrame":
        return None
    return _of_stream(data.collect(), name)
