"""SPDL: a pipeline whose threads gather batches from flat files that NumPy maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from spdl.pipeline import PipelineBuilder

from benchmarks.flat import write_flat
from benchmarks.peers._rows import column
from benchmarks.peers.memmap import BatchIds, MappedBatches
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class Spdl(Subject):
    note = "flat files, batches gathered by NumPy in threads (one where 0 workers are asked for)"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        write_flat(parquet, folder)

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        dataset = MappedBatches(workload, folder)
        threads = max(1, workers)

        def epoch(number: int) -> Iterator[Any]:
            ids = BatchIds(len(dataset), batch_size)
            ids.epoch = number
            pipeline = (
                PipelineBuilder()
                .add_source(ids)
                .pipe(dataset.__getitem__, concurrency=threads, output_order="input")
                .add_sink(8)
                .build(num_threads=threads)
            )
            with pipeline.auto_stop():
                yield from pipeline

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}

    def size(self, workload: Workload, batch: Any) -> int:
        return len(batch["tokens" if workload.name == "w2" else "id" if workload.name == "w4" else "y"])


def subject(name: str) -> Subject:
    return Spdl()
