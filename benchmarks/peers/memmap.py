"""A torch DataLoader over flat files that NumPy maps: batches gathered by fancy indexing, as one writes it by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from benchmarks.flat import FlatColumn, open_flat, write_flat
from benchmarks.peers._rows import as_it_is, column
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class BatchIds(Sampler[np.ndarray]):
    """Ids of batches in random order, as arrays: lists of ints would cost more than the gather."""

    def __init__(self, rows: int, batch_size: int) -> None:
        self._rows = rows
        self._batch_size = batch_size
        self.epoch = 0

    def __len__(self) -> int:
        return -(-self._rows // self._batch_size)

    def __iter__(self) -> Iterator[np.ndarray]:
        order = np.random.default_rng(self.epoch).permutation(self._rows)
        for first in range(0, self._rows, self._batch_size):
            yield order[first : first + self._batch_size]


class MappedBatches(Dataset[dict[str, Any]]):
    """`dataset[ids]` is a batch: tensors, lists of str and bytes, (values, offsets) for lists."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self.columns: dict[str, FlatColumn] = open_flat(folder)
        self._text = {name for name in self.columns if workload.schema.field(name).type == "string"}
        self._binary = {name for name in self.columns if workload.schema.field(name).type == "binary"}
        self._bounds = {
            name: column.offsets for name, column in self.columns.items() if column.offsets is not None
        }
        first = next(iter(self.columns))
        self.rows = len(self._bounds[first]) - 1 if first in self._bounds else len(self.columns[first].values)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, ids: np.ndarray) -> dict[str, Any]:
        return {name: self._column(name, ids) for name in self.columns}

    def _column(self, name: str, ids: np.ndarray) -> Any:
        values = self.columns[name].values
        if name not in self._bounds:
            return torch.from_numpy(values[ids])
        bounds = self._bounds[name]
        starts, ends = bounds[ids], bounds[ids + 1]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        if name in self._binary or name in self._text:
            pieces = [values[start:end].tobytes() for start, end in spans]
            return [piece.decode() for piece in pieces] if name in self._text else pieces
        offsets = np.zeros(len(ids) + 1, dtype=np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        return torch.from_numpy(
            np.concatenate([values[start:end] for start, end in spans])
        ), torch.from_numpy(offsets)


class MemoryMap(Subject):
    note = "flat files, batches gathered by NumPy; lists of str and bytes made in Python"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        write_flat(parquet, folder)

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        dataset = MappedBatches(workload, folder)
        sampler = BatchIds(len(dataset), batch_size)
        loader = DataLoader(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            collate_fn=as_it_is,
            persistent_workers=workers > 0,
        )

        def epoch(number: int) -> Iterable[Any]:
            sampler.epoch = number
            return loader

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}

    def size(self, workload: Workload, batch: Any) -> int:
        return len(batch["tokens" if workload.name == "w2" else "id" if workload.name == "w4" else "y"])


def subject(name: str) -> Subject:
    return MemoryMap()
