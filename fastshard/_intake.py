"""Whatever holds rows in memory, as Arrow batches or as samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard._columns import columns_to_batches
from fastshard._hugging_face import from_hugging_face
from fastshard._sequence import SampleSequence
from fastshard.errors import InvalidError, SchemaError

__all__ = ["Batches", "Samples", "is_arrow", "take_in"]


@dataclass(frozen=True, slots=True)
class Batches:
    """Rows as Arrow batches of one schema, read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    kind: str


@dataclass(frozen=True, slots=True)
class Samples:
    """Rows as dicts, read once and not yet looked at."""

    samples: Iterator[Any]
    kind: str


def is_arrow(data: Any) -> bool:
    """Whether an object hands out Arrow data by the Arrow PyCapsule interface."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def take_in(data: Any) -> Batches | Samples:
    """See what holds rows, and how to get them.

    Args:
        data: Anything with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, DuckDB), a pandas frame, a
            Hugging Face data set, a dict of columns, a structured NumPy array, a map-style data set of dicts, or an
            iterable of dicts, of Arrow batches or of frames.

    Raises:
        InvalidError: It is none of these; the message says what to do.
        SchemaError: Its columns cannot be stored.
    """
    kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
    package = kind.partition(".")[0]
    if isinstance(data, (str, bytes, os.PathLike)):
        raise InvalidError(f"{data!r} is a path, and this takes data in memory; use fastshard.convert")
    if package == "pandas":
        return _from_pandas(data, kind)
    if package == "datasets":
        return Batches(*from_hugging_face(data), kind)
    if package == "polars" and kind.endswith(".LazyFrame"):
        data = data.collect()
    if isinstance(data, SampleSequence):  # not as a stream, which turns errors into pyarrow's
        return Batches(data.schema, data.record_batches(), kind)
    if is_arrow(data):
        return _from_arrow(data, kind)
    if isinstance(data, np.ndarray) and data.dtype.names:
        data = {name: data[name] for name in data.dtype.names}
    if isinstance(data, Mapping):
        return Batches(*columns_to_batches(data), kind)
    if not hasattr(data, "dtype"):  # arrays and tensors are one column without a name
        if isinstance(data, Iterable):
            return _from_iterable(iter(data), kind)
        if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            return Samples((data[i] for i in range(len(data))), kind)
    raise InvalidError(
        f"cannot write {kind}: expected an Arrow table or stream, a frame, a dict of columns, or an iterable of dicts"
        + ('; name the array, as in {"x": array}' if hasattr(data, "dtype") else "")
    )


def _from_arrow(data: Any, kind: str) -> Batches:
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = (
                data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
            )
            return Batches(reader.schema, iter(reader), kind)
        batch = data if isinstance(data, pa.RecordBatch) else pa.record_batch(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InvalidError(
            f"{kind} gives no Arrow table ({error}); an array is one column: pass {{name: array}}"
        ) from error
    return Batches(batch.schema, iter([batch]), kind)


def _from_pandas(data: Any, kind: str) -> Batches:
    if type(data).__name__ == "Series":
        data = data.to_frame(name=data.name if data.name is not None else "value")
    if not hasattr(data, "columns"):
        raise InvalidError(f"cannot write {kind}; make it a DataFrame first")
    # An index that bears a name is data; one without is what filtering and shuffling leave behind.
    named = any(name is not None for name in data.index.names)
    try:
        table = pa.Table.from_pandas(data, preserve_index=named)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaError(
            f"the DataFrame cannot be stored as Arrow: {'; '.join(map(str, error.args))}"
        ) from error
    return Batches(table.schema, iter(table.to_batches()), kind)


def _from_iterable(items: Iterator[Any], kind: str) -> Batches | Samples:
    try:
        first = next(items)
    except StopIteration:
        return Samples(iter(()), kind)
    items = chain([first], items)
    if not is_arrow(first):
        return Samples(items, kind)
    schema = _batches_of(first).schema
    return Batches(schema, (batch for item in items for batch in _batches_of(item).batches), kind)


def _batches_of(item: Any) -> Batches:
    taken = take_in(item)
    if isinstance(taken, Samples):
        raise InvalidError(f"a {taken.kind} among Arrow batches; pass one kind")
    return taken
