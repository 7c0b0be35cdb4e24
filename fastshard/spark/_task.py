"""What an executor does with a partition: its rows become shard files, and one row for each goes to the driver.

    take(batch)     the frame's batch in Arrow's types, through the steps, cut into shards
    reports()       of shards that are written, synced and indexed
    finish()        the rest, and a report of the partition itself
    discard()       remove what this attempt wrote

Every attempt writes files of its own, so that a retry, a speculative copy or a worker that was killed cannot disturb
another attempt. Only the files that a successful attempt reported become shards.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastshard._storage import copy_sequentially, remove_if_there, storage_errors
from fastshard._store import Store
from fastshard.converters._part import Part
from fastshard.converters._run import Job
from fastshard.converters._shards import FinishedShard, ShardFinisher, ShardSeries, finish_shard
from fastshard.converters._steps import Steps
from fastshard.errors import StorageError
from fastshard.schema import read_schema
from fastshard.spark._types import convert_batch
from fastshard.spark._wire import encode_entry

__all__ = ["REPORT_DDL", "PartitionJob", "PartitionWriter", "partition_function"]

# A report of a shard; the one with shard -1 is of the partition: its rows, and no entry.
REPORT_DDL = "partition int, shard int, rows long, file string, entry binary"
_REPORT = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("shard", pa.int32()),
        pa.field("rows", pa.int64()),
        pa.field("file", pa.utf8()),
        pa.field("entry", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class PartitionJob:
    """What all partitions have in common. Picklable; the frame's schema is a message, since pickled types forget names.

    Attributes:
        frame: What the frame's batches become before the steps.
        vectors: Which of its columns hold ML vectors.
        steps: What is done to each batch.
        output: What they give, and how it becomes shards.
        staged: Files are written to local disk first and copied to their final names.
        staging: Where; None: the system's folder for temporary files.
        store: The URL of the object store's folder that they are copied to; None: they go to a directory.
        marker: A file that is there as long as the write is wanted: attempts that Spark has not stopped yet when the
            driver gives up end by it, and remove what they wrote. None: there is none.
    """

    frame: bytes
    vectors: tuple[bool, ...]
    steps: Steps
    output: Job
    staged: bool
    staging: str | None
    store: str | None = None
    marker: str | None = None


def partition_function(job: PartitionJob) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What mapInArrow runs. Sent to executors by value, it needs only fastshard there."""

    def write_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        writer = PartitionWriter(job, context.partitionId(), context.taskAttemptId())
        return writer.run(batches)

    return write_partition


class _OnDisk:
    """Files of a directory that is there as one."""

    def has(self, path: str) -> bool:
        return os.path.exists(path)

    def put(self, local: str, path: str) -> None:
        copy_sequentially(local, path)

    def delete(self, path: str) -> None:
        remove_if_there(path)


class _InStore:
    """Files of an object store's folder, by the same paths."""

    def __init__(self, url: str) -> None:
        self._store = Store(url)

    def has(self, path: str) -> bool:
        return self._store.has(os.path.basename(path))

    def put(self, local: str, path: str) -> None:
        self._store.put(local, os.path.basename(path))

    def delete(self, path: str) -> None:
        self._store.delete(os.path.basename(path))


class PartitionWriter:
    """One attempt at one partition. Not thread-safe."""

    def __init__(self, job: PartitionJob, partition: int, attempt: int) -> None:
        self._job = job
        self._partition = partition
        self._attempt = attempt
        self._frame = read_schema(job.frame)
        self._steps = job.steps
        self._normaliser = job.output.normaliser()
        self._made: list[str] = []
        self._rows = 0  # that came in
        self._written = 0  # that went into shards
        self._count = 0  # shards reported
        self._place = _OnDisk() if job.store is None else _InStore(job.store)
        self._folder = tempfile.mkdtemp(prefix="fastshard-", dir=job.staging) if job.staged else None
        self._finisher = ShardFinisher(self._finish)
        self._series = ShardSeries(
            self._normaliser.schema, job.output.options, self._finisher, self._temporary
        )

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the whole partition, and yield the reports.

        Raises:
            SourceError, SchemaError: A value does not fit; the message names partition, row and column.
            StorageError: The system refuses. After any error this attempt's files are gone.
        """
        done = False
        try:
            for batch in batches:
                self.take(batch)
                del batch
                yield from self._reports(wait=False)
            self._series.finish()
            yield from self._reports(wait=True)
            yield self._report(-1, self._written, "", None)
            done = True
        finally:
            self._close(keep=done)

    def take(self, batch: pa.RecordBatch) -> None:
        """Take the next batch of the frame."""
        converted = convert_batch(batch, self._frame, self._job.vectors)
        part = Part(converted, f"partition {self._partition}", self._rows, self._rows)
        self._rows += batch.num_rows
        if self._steps.only_selects:
            self._push(self._steps.select(converted))
            return
        for selected in self._steps.apply(part):
            self._push(selected.batch)

    def _push(self, batch: pa.RecordBatch) -> None:
        for normal in self._normaliser.batches(batch, self._written):
            self._series.push(normal)
        self._written += batch.num_rows

    def _check_wanted(self) -> None:
        marker = self._job.marker
        if marker is not None and not self._place.has(marker):
            raise StorageError(
                f"{os.path.dirname(marker)}: the driver gave up this write; nothing more is written"
            )

    def _temporary(self, number: int) -> str:
        self._check_wanted()
        if self._folder is not None:
            return os.path.join(self._folder, f"{number:06d}.arrow")
        path = f"{self._job.output.prefix}{self._partition:06d}-{self._attempt}-{number:06d}.arrow"
        self._made.append(path)
        return path

    def _finish(self, path: str) -> FinishedShard:
        """Index a written file; a staged one goes to its place. Runs in the finisher's thread."""
        shard = finish_shard(path)
        self._check_wanted()
        if self._folder is None:
            return shard
        number = int(os.path.basename(path).partition(".")[0])
        # The place cannot rename, so the file gets its final name now: a number that no other attempt has.
        digits = f"{self._partition:06d}{self._attempt:08d}{number:05d}"
        final = f"{self._job.output.prefix}{digits}-{shard.entry.table.hash.hex()[:16]}.arrow"
        self._made.append(final)
        with storage_errors("copy the shard to its place", final):
            self._place.put(path, final)
        with storage_errors("remove a staged shard", path):
            remove_if_there(path)
        self._check_wanted()
        return FinishedShard(shard.entry, final)

    def _reports(self, *, wait: bool) -> Iterator[pa.RecordBatch]:
        for shard in self._finisher.done(wait=wait):
            yield self._report(
                self._count,
                shard.entry.table.rows,
                os.path.basename(shard.temporary),
                encode_entry(shard.entry),
            )
            self._count += 1

    def _report(self, shard: int, rows: int, file: str, entry: bytes | None) -> pa.RecordBatch:
        row: dict[str, Any] = {
            "partition": [self._partition],
            "shard": [shard],
            "rows": [rows],
            "file": [file],
            "entry": [entry],
        }
        return pa.RecordBatch.from_pydict(row, schema=_REPORT)

    def _close(self, *, keep: bool) -> None:
        self._series.close()
        self._finisher.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if not keep:
            for path in self._made:
                with suppress(OSError):  # the driver sweeps what is left
                    self._place.delete(path)
