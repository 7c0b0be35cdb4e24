"""Petastorm: make_batch_reader over Parquet, BatchedDataLoader with a shuffling queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from petastorm import make_batch_reader
from petastorm.pytorch import BatchedDataLoader

from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class Petastorm(Subject):
    note = "shuffles row groups and a queue of 100,000 rows; threads as workers"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        with pq.ParquetFile(parquet) as file:
            # It knows lists, but not lists of a fixed size.
            fields = [
                pa.field(field.name, pa.list_(field.type.value_type))
                if pa.types.is_fixed_size_list(field.type)
                else field
                for field in file.schema_arrow
            ]
            schema = pa.schema(fields)
            with pq.ParquetWriter(folder / "data.parquet", schema) as writer:
                for batch in file.iter_batches(batch_size=10_000):
                    columns = [
                        column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)
                    ]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        url = f"file://{folder.resolve()}"
        queue = min(100_000, workload.rows // 5)

        def epoch(number: int) -> Iterator[Any]:
            reader = make_batch_reader(
                url,
                reader_pool_type="thread",
                workers_count=max(1, workers),
                num_epochs=1,
                shuffle_row_groups=True,
            )
            with BatchedDataLoader(reader, batch_size=batch_size, shuffling_queue_capacity=queue) as loader:
                yield from loader

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: value.numpy() for name, value in batch.items()}


def subject(name: str) -> Subject:
    return Petastorm()
