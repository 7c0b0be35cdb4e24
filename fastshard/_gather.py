"""Planned samples in the form that a user gets: columns, torch tensors, what was added to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastshard._index import read_index
from fastshard._plan import PlannedBatch
from fastshard.batch import Batch
from fastshard.errors import InvalidError
from fastshard.forms import FormOptions
from fastshard.reader import ReadOptions, ShardReader, Verify

__all__ = ["ReaderGather", "Reading"]

_ADDED = ("__id__", "__valid__")
_CHUNK_ROWS = 512  # samples that are gathered at once to be handed out one by one: at most so many,
_CHUNK_BYTES = 1 << 20  # of about so many bytes together,
_CHUNK_LARGEST = 1 << 26  # and of so many if all were as large as the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What of a data set is read, and in which form.

    Attributes:
        columns: names of the columns; None for all.
        forms: how columns are delivered.
        verify, cache_bytes, max_open: how shards are opened; see `ReadOptions`. `cache_bytes` is None for what the
            order needs.
        add: name of a new column to "__id__" (int64 ids) or "__valid__" (bool, False where a sample is a repeat).
    """

    columns: tuple[str, ...] | None = None
    forms: FormOptions = field(default_factory=FormOptions)
    verify: Verify = "auto"
    cache_bytes: int | None = None
    max_open: int = 1024
    add: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files(0)
        for name, what in self.add.items():
            if what not in _ADDED:
                raise InvalidError(
                    f"add={{{name!r}: {what!r}}}: what can be added is {' or '.join(map(repr, _ADDED))}"
                )
            if self.columns is not None and name in self.columns:
                raise InvalidError(
                    f"add={{{name!r}: {what!r}}}: columns= reads a column of that name, choose another"
                )

    def _files(self, default_cache: int) -> ReadOptions:
        return ReadOptions(
            self.verify, default_cache if self.cache_bytes is None else self.cache_bytes, self.max_open
        )

    def open(self, path: str, *, windowed: bool, fingerprint: str | None = None) -> ShardReader:
        """Opens a data set to be read so.

        Args:
            path: its directory.
            windowed: the order goes from window to window, so that decompressed blocks are used again. By default two
                windows of them are kept.
            fingerprint: which data they must be, if not any; else see `ShardReader` for what is raised.
        """
        cache = ReadOptions().cache_bytes
        if windowed and self.cache_bytes is None:
            index = read_index(path)
            cache = max(cache, 2 * index.window * index.raw_bytes // max(1, index.rows))
        options = self._files(cache)
        reader = ShardReader(
            path, columns=self.columns, forms=self.forms, options=options, fingerprint=fingerprint
        )
        for name in self.add:
            if name in reader.columns:
                raise InvalidError(
                    f"{path}: add={{{name!r}: ...}}: there is a column of that name, choose another"
                )
        return reader


class ReaderGather:
    """Reads planned samples with a `ShardReader`.

    Attributes:
        max_rows: as many samples at once are some MiB at most.
    """

    def __init__(self, reader: ShardReader, reading: Reading) -> None:
        """Checks that every column has the form that was asked for.

        Raises:
            NullError: columns with nulls have none; all are named.
        """
        reader.plan.check_nulls()
        self._core, self._plan, self._add = reader.core, reader.plan, dict(reading.add)
        self.max_rows = _chunk_rows(reader)

    def batch(self, planned: PlannedBatch, epoch: int) -> Batch:
        """A batch of torch tensors."""
        return self.batch_numpy(planned, epoch).to_torch()

    def samples(self, planned: PlannedBatch, epoch: int) -> Sequence[dict[str, Any]]:
        """Samples as dicts of NumPy values."""
        return list(self.batch_numpy(planned, epoch).samples())

    def batch_numpy(self, planned: PlannedBatch, epoch: int) -> Batch:
        """A batch of NumPy arrays."""
        ids = planned.ids.view(np.int64)
        columns = self._core.take(ids, self._plan.native)
        return self.finish(columns, ids, planned.positions.view(np.int64), planned.is_repeat, epoch)

    def finish(
        self,
        columns: Sequence[Any],
        ids: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        is_repeat: npt.NDArray[np.bool_] | None,
        epoch: int,
    ) -> Batch:
        """The batch of NumPy arrays of what the native core gathered."""
        batch = self._plan.assemble(columns, ids=ids, positions=positions, is_repeat=is_repeat, epoch=epoch)
        for name, what in self._add.items():
            batch[name] = ids.copy() if what == "__id__" else _valid(ids, is_repeat)
        return batch


def _valid(ids: npt.NDArray[np.int64], is_repeat: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_]:
    return np.ones(len(ids), np.bool_) if is_repeat is None else ~is_repeat


def _chunk_rows(reader: ShardReader) -> int:
    index = reader.index
    mean = index.raw_bytes // max(1, index.rows)
    columns = (index.columns[name] for name in reader.columns if name in index.columns)
    largest = mean + sum(8 * (column.max_length or 0) for column in columns)
    return max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(1, mean), _CHUNK_LARGEST // max(1, largest)))
