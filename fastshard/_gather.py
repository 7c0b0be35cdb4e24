"""Planned samples in the form that a user gets: columns, torch tensors, what was added to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._plan import PlannedBatch
from fastshard.batch import Batch, array_to_torch
from fastshard.errors import InvalidError
from fastshard.forms import FormOptions
from fastshard.reader import ReadOptions, Verify
from fastshard.source import Data, Recipe

__all__ = ["DataGather", "Reading"]

_ADDED = ("__id__", "__source__", "__valid__")
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
        add: name of a new column to "__id__" (int64 ids), "__source__" (int64, which of several mixed sources) or
            "__valid__" (bool, False where a sample is a repeat).
    """

    columns: tuple[str, ...] | None = None
    forms: FormOptions = field(default_factory=FormOptions)
    verify: Verify = "auto"
    cache_bytes: int | None = None
    max_open: int = 1024
    add: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files()
        if not isinstance(self.add, Mapping):
            raise InvalidError(f"add={self.add!r}: must be a dict of new columns, such as {{'id': '__id__'}}")
        for name, what in self.add.items():
            if what not in _ADDED:
                raise InvalidError(
                    f"add={{{name!r}: {what!r}}}: what can be added is {' or '.join(map(repr, _ADDED))}"
                )
            if self.columns is not None and name in self.columns:
                raise InvalidError(
                    f"add={{{name!r}: {what!r}}}: columns= reads a column of that name, choose another"
                )

    def _files(self) -> ReadOptions | None:
        """None where nothing was asked for."""
        if (self.verify, self.cache_bytes, self.max_open) == ("auto", None, 1024):
            return None
        cache = ReadOptions().cache_bytes if self.cache_bytes is None else self.cache_bytes
        return ReadOptions(self.verify, cache, self.max_open)

    def open(
        self, recipe: Recipe, *, windowed: bool, whole_blocks: bool, fingerprint: str | None = None
    ) -> Data:
        """Opens samples to be read so. Where nothing else was asked for, they are read as the recipe says.

        Args:
            recipe: what they are.
            windowed: the order goes from window to window, so that decompressed blocks are used again. By default two
                windows of them are kept.
            whole_blocks: the order uses whole blocks, one after the other.
            fingerprint: which data they must be, if not any; else see `Recipe.open` for what is raised.
        """
        data = recipe.open(
            columns=self.columns,
            forms=None if self.forms == FormOptions() else self.forms,
            options=self._files(),
            windows=2 if windowed and self.cache_bytes is None else 0,
            whole_blocks=whole_blocks,
            fingerprint=fingerprint,
        )
        for name, what in self.add.items():
            if name in data.columns:
                raise InvalidError(
                    f"{recipe.where}: add={{{name!r}: ...}}: there is a column of that name, choose another"
                )
            if what == "__source__" and not data.sources:
                raise InvalidError(
                    f"{recipe.where}: add={{{name!r}: '__source__'}}: only the samples of fs.mix have a source"
                )
        return data


class DataGather:
    """Reads planned samples.

    Attributes:
        max_rows: as many samples at once are some MiB at most.
    """

    def __init__(self, data: Data, reading: Reading) -> None:
        """Checks that every column has the form that was asked for.

        Raises:
            NullError: columns with nulls have none; all are named.
            InvalidError: lists are longer than `pad=` gives them.
        """
        data.check_nulls()
        if data.native is not None and data.native[1] is None:  # of views the index knows bounds alone
            data.native[0].plan.check_lengths()
        self._data, self._add = data, dict(reading.add)
        self.max_rows = max(
            1,
            min(_CHUNK_ROWS, _CHUNK_BYTES // data.row_bytes, _CHUNK_LARGEST // data.largest_row_bytes),
        )

    def batch_numpy(self, planned: PlannedBatch, epoch: int) -> Batch:
        """A batch of NumPy arrays."""
        batch = self._data.gather(planned.places.view(np.int64))
        batch.positions, batch.is_repeat = planned.positions.view(np.int64), planned.is_repeat
        batch.epoch = epoch
        return self._with_added(batch)

    @property
    def tensors(self) -> tuple[Any, tuple[bool, ...], bool] | None:
        """How the native pipeline makes tensors; None where `Data.native` is None.

        torch's function from a DLPack capsule to a tensor, which columns may be tensors, and whether the batches are
        then as they are delivered.
        """
        native = self._data.native
        if native is None:
            return None
        import torch

        # The public function does more: it takes other objects than capsules, and costs as much again.
        from_dlpack = getattr(torch._C, "_from_dlpack", None) or torch.utils.dlpack.from_dlpack
        plan = native[0].plan
        return from_dlpack, plan.as_tensors, plan.simple_batches and not self._add

    def finish(
        self, made: tuple[Any, _core.PlannedSamples, int, _core.SharedBatch | None], epoch: int
    ) -> Batch:
        """The batch of what the native pipeline gathered, of samples that `Data.native` knows.

        Of tensors where the columns came as a dict (see `tensors`); else of arrays, and tensors among them.
        """
        columns, planned, repeats, shared = made
        native = self._data.native
        assert native is not None
        plan = native[0].plan
        marks = _is_repeat(len(planned), repeats) if repeats else None
        if type(columns) is dict:
            marks = None if marks is None else array_to_torch(marks)
            return Batch._of_planned(columns, planned, marks, epoch, plan.by_name, shared, of_tensors=True)
        finished = plan.columns_of(columns)
        return self._with_added(
            Batch._of_planned(finished, planned, marks, epoch, plan.by_name, shared, of_tensors=False)
        )

    def _with_added(self, batch: Batch) -> Batch:
        for name, what in self._add.items():
            batch[name] = _added(batch, what)
        return batch


def _added(batch: Batch, what: str) -> npt.NDArray[Any]:
    if what == "__id__":
        ids: npt.NDArray[np.int64] = batch.ids.copy()
        return ids
    if what == "__source__":
        sources: npt.NDArray[np.int64] = batch.source.copy()
        return sources
    valid: npt.NDArray[np.bool_] = (
        np.ones(len(batch.ids), np.bool_) if batch.is_repeat is None else ~batch.is_repeat
    )
    return valid


def _is_repeat(count: int, repeats: int) -> npt.NDArray[np.bool_]:
    """Marks the last `repeats` of `count` samples."""
    return np.arange(count) >= count - repeats
