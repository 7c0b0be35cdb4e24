"""Lance: its file format, batches by `take` in a torch DataLoader whose workers are spawned, as Lance needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers._rows import arrow_columns, as_it_is, column
from benchmarks.peers.memmap import BatchIds
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class Taken(Dataset[dict[str, Any]]):
    """`dataset[ids]` is a batch; opened where it is used, since Lance does not survive a fork."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._opened: Any = None

    def __getitem__(self, ids: np.ndarray) -> dict[str, Any]:
        if self._opened is None:
            self._opened = lance.dataset(self._folder)
        table = self._opened.take(pa.array(ids))
        return arrow_columns(table)


class Lance(Subject):
    note = "batches by take; spawned workers"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        with pq.ParquetFile(parquet) as file:
            batches = file.iter_batches(batch_size=workload.row_group)
            lance.write_dataset(pa.RecordBatchReader.from_batches(file.schema_arrow, batches), str(folder))

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        dataset = Taken(folder)
        sampler = BatchIds(lance.dataset(str(folder)).count_rows(), batch_size)
        options = {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
        loader = DataLoader(
            dataset, sampler=sampler, batch_size=None, num_workers=workers, collate_fn=as_it_is, **options
        )

        def epoch(number: int) -> Iterable[Any]:
            sampler.epoch = number
            return loader

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    return Lance()
