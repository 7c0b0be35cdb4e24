"""Batches of several data sets as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastshard.batch import Batch
from fastshard.ragged import Ragged

__all__ = ["interleaved"]

Rows = npt.NDArray[np.int64]


def interleaved(batches: Sequence[Batch], rows: Sequence[Rows]) -> Batch:
    """One batch whose row rows[j][i] is row i of batches[j]. Ids come from the batches; other attributes do not.

    Args:
        batches: Of NumPy arrays, with the same columns in the same forms; at least one.
        rows: int64, for each batch the places of its rows; together 0 to n - 1, each once.
    """
    if len(batches) == 1 and np.array_equal(rows[0], np.arange(len(rows[0]))):
        return Batch(batches[0])
    count = sum(map(len, rows))
    columns = {name: _column([batch[name] for batch in batches], rows, count) for name in batches[0]}
    ids = _array([batch.ids for batch in batches], rows, count)
    return Batch(columns, ids=ids, forms=batches[0]._forms)


def _column(values: Sequence[Any], rows: Sequence[Rows], count: int) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        return _array(values, rows, count)
    if isinstance(first, Ragged):
        return _ragged(values, rows, count)
    if isinstance(first, dict):
        return {name: _column([value[name] for value in values], rows, count) for name in first}
    merged: list[Any] = [None] * count
    for items, places in zip(values, rows, strict=True):
        for place, item in zip(places.tolist(), items, strict=True):
            merged[place] = item
    return merged


def _array(values: Sequence[Any], rows: Sequence[Rows], count: int) -> Any:
    merged = np.empty((count, *values[0].shape[1:]), values[0].dtype)
    for items, places in zip(values, rows, strict=True):
        merged[places] = items
    return merged


def _ragged(values: Sequence[Ragged], rows: Sequence[Rows], count: int) -> Ragged:
    lengths = _array([np.diff(value.offsets) for value in values], rows, count)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    merged = np.empty((int(offsets[-1]), *values[0].values.shape[1:]), values[0].values.dtype)
    for value, places in zip(values, rows, strict=True):
        own = np.diff(value.offsets)
        # Element k of list i goes to where the merged list begins, plus k.
        shift = np.repeat(offsets[places] - value.offsets[:-1], own)
        first, end = (int(value.offsets[0]), int(value.offsets[-1])) if len(own) else (0, 0)
        merged[shift + np.arange(first, end)] = value.values[first:end]
    return Ragged(merged, offsets)
