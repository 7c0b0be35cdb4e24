"""Data in memory, and streams of it: whatever `fs.write` takes, and pyarrow's own data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard import _core
from fastshard._intake import Batches, take_in
from fastshard.converters._format import READ_BYTES, bounded, rows_for
from fastshard.converters._part import Part
from fastshard.errors import Error, SchemaError, SourceError
from fastshard.samples import capture, check_sample, infer_schema, samples_to_batch, size_hint
from fastshard.schema import Normaliser, normalise_storable
from fastshard.source import Data

__all__ = ["MemorySource", "MemoryTask"]

# Samples are Python objects many times the size of what they hold: no more than these are kept at a time.
_BLOCK_BYTES = 1 << 20
_BLOCK_SAMPLES = 1 << 14
_DIGEST_ROWS = 1 << 16


class MemorySource:
    """Rows of this process, as one task.

    Attributes:
        schema: Of the rows, without the columns that cannot be stored.
        refused: Those, and why.
        portable: False: other processes do not have the data.
    """

    portable = False

    def __init__(self, data: Any) -> None:
        """See what the data are. Of a stream, the first batch is read.

        Args:
            data: As for `fs.write`; or a `pyarrow.dataset.Dataset` or `Scanner`.

        Raises:
            InvalidError: They are nothing that holds rows.
            SchemaError: Their columns have no names, or one name twice.
        """
        self._data = _reader_of(data)
        self._again = _is_there_again(self._data)
        self._taken: Batches | None = self._take()
        self._kind = self._taken.kind
        self._raw_schema = self._taken.schema
        self._seen: list[Part] = []
        self._coming: Iterator[Part] | None = None
        self.schema, self.refused = normalise_storable(self._raw_schema)

    def _take(self) -> Batches:
        taken = take_in(self._data)
        return taken if isinstance(taken, Batches) else _batches_of_samples(taken.samples, taken.kind)

    @property
    def provenance(self) -> dict[str, Any]:
        if isinstance(self._data, Data):
            return {"source": self._data.recipe.where, "format": "fastshard"}
        return {"source": self._kind}

    def tasks(self, shard_bytes: int) -> list[MemoryTask]:
        rows = len(self._data) if self._again and not isinstance(self._data, dict) else None
        size = getattr(self._data, "nbytes", None)
        return [MemoryTask(rows, size if isinstance(size, int) else 0, self)]

    def parts(self) -> Iterator[Part]:
        """All rows; of a stream, those that are left, the ones that were peeked at included."""
        if self._again:
            yield from self._read()
            return
        seen, self._seen = self._seen, []
        seen.reverse()
        while seen:
            yield seen.pop()
        yield from self._rest()

    def peek(self) -> Iterator[Part]:
        if self._again:
            yield from self._read()
            return
        yield from self._seen
        for part in self._rest():
            self._seen.append(part)
            yield part

    def identity(self) -> object:
        """A hash of all values; None for what can be read only once, or is made anew by each reading."""
        if not self._again:
            return None
        if getattr(self._data, "cache_files", None):  # a Hugging Face data set on disk knows what it is
            return str(self._data._fingerprint)
        table = pa.Table.from_batches(_told(self._fresh()), self._raw_schema)
        digests = [_core.xxh3_128(self._raw_schema.serialize())]
        for start in range(0, table.num_rows, _DIGEST_ROWS):
            for batch in table.slice(start, _DIGEST_ROWS).combine_chunks().to_batches():
                digests.append(_core.xxh3_128(batch.serialize()))
        return [table.num_rows, _core.xxh3_128(b"".join(digests)).hex()]

    def _rest(self) -> Iterator[Part]:
        if self._coming is None:
            self._coming = self._read()
        return self._coming

    def _fresh(self) -> Batches:
        taken, self._taken = self._taken, None
        return self._take() if taken is None else taken

    def _read(self) -> Iterator[Part]:
        names = self.schema.names
        normaliser = Normaliser(
            pa.schema([self._raw_schema.field(name) for name in names], self._raw_schema.metadata)
        )
        row = 0
        for batch in _told(self._fresh()):
            if self.refused:
                batch = batch.select(names)
            rows = rows_for(batch.nbytes / max(1, batch.num_rows), READ_BYTES)
            for start in range(0, batch.num_rows, rows):
                for slice_ in bounded(batch.slice(start, rows)):
                    for normal in normaliser.batches(slice_, row):
                        yield Part(normal, self._kind, row, row)
                        row += normal.num_rows


@dataclass(frozen=True, slots=True)
class MemoryTask:
    """All rows of a source in memory."""

    rows: int | None
    bytes: int
    source: MemorySource

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (part.batch for part in self.parts())

    def parts(self) -> Iterator[Part]:
        return self.source.parts()


def _reader_of(data: Any) -> Any:
    """pyarrow's data sets and scanners as what they read; anything else as it is."""
    if type(data).__module__.startswith("pyarrow._dataset"):
        scanner = data.scanner() if callable(getattr(data, "scanner", None)) else data
        return scanner.to_reader()
    return data


def _is_there_again(data: Any) -> bool:
    """Whether data can be read more than once, and give the same rows each time."""
    if isinstance(data, dict | list | tuple | np.ndarray | pa.Table | pa.RecordBatch):
        return True
    package = type(data).__module__.partition(".")[0]
    return package in ("pandas", "polars", "datasets") and callable(getattr(type(data), "__len__", None))


def _told(taken: Batches) -> Iterator[pa.RecordBatch]:
    """The batches; what goes wrong in making them becomes an error that names the source."""
    try:
        yield from taken.batches
    except Error:
        raise
    except Exception as error:
        raise SourceError(f"{taken.kind}: reading failed: {type(error).__name__}: {error}") from error


def _batches_of_samples(samples: Iterator[Any], kind: str) -> Batches:
    blocks = _blocks(samples)
    first = next(blocks, None)
    if first is None:
        raise SchemaError(f"{kind}: it gives no samples, and so no schema; fs.write takes one as schema=")
    schema = infer_schema(first)
    return Batches(schema, _encoded(chain([first], blocks), schema), kind)


def _blocks(samples: Iterator[Any]) -> Iterator[list[dict[str, Any]]]:
    block: list[dict[str, Any]] = []
    size = 0
    names: list[str] | None = None
    for row, sample in enumerate(samples):
        check_sample(sample, row, names)
        names = names or list(sample)
        # Taken now: the caller may fill the same array with the next sample.
        taken = {name: capture(value) for name, value in sample.items()}
        block.append(taken)
        size += sum(map(size_hint, taken.values()))
        if size >= _BLOCK_BYTES or len(block) >= _BLOCK_SAMPLES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _encoded(blocks: Iterable[list[dict[str, Any]]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    row = 0
    for block in blocks:
        yield samples_to_batch(block, schema, rounds=False, first_row=row)
        row += len(block)
