"""LitData: optimised chunks, StreamingDataset in its StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from litdata import StreamingDataLoader, StreamingDataset, optimize

from benchmarks.peers._rows import collate, column, rows_of
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


def _rows_of_group(parquet: str, group: int) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(parquet) as file:
        for batch in file.iter_batches(batch_size=1000, row_groups=[group]):
            yield from rows_of(batch)


class LitData(Subject):
    note = "batch_decode=0: its default collapses on small rows with workers"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        with pq.ParquetFile(parquet) as file:
            groups = list(range(file.num_row_groups))
        optimize(
            fn=partial(_rows_of_group, str(parquet)),
            inputs=groups,
            output_dir=str(folder),
            num_workers=1,
            chunk_bytes="64MB",
            verbose=False,
        )

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        dataset = StreamingDataset(str(folder), shuffle=True, seed=1, batch_decode=0)
        options = {"collate_fn": collate} if workload.name in ("w3", "w4") else {}
        loader = StreamingDataLoader(
            dataset, batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0, **options
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    return LitData()
