"""Tasks become shards: in this process, or in several that live no longer than this one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from fastshard.converters._counting import ProgressCallback, ProgressCounter
from fastshard.converters._options import WriteOptions
from fastshard.converters._shards import FinishedShard, ShardFinisher, ShardSeries
from fastshard.converters._source import Task
from fastshard.converters._workers import Stopped, map_in_order
from fastshard.schema import Normaliser, read_schema, schema_message

__all__ = ["Job", "run_tasks"]


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a write have in common. Picklable.

    Attributes:
        source: The schema of the batches that tasks give, as an IPC message.
        target: The schema that they are to be made to fit; None: the normal form of `source`.
        options: How shards are laid out.
        prefix: Path that begins the name of every file.
    """

    source: bytes
    target: bytes | None
    options: WriteOptions
    prefix: str

    @classmethod
    def of(cls, source: pa.Schema, target: pa.Schema | None, options: WriteOptions, prefix: str) -> Job:
        """A job for these schemas."""
        return cls(
            schema_message(source), None if target is None else schema_message(target), options, prefix
        )

    def normaliser(self) -> Normaliser:
        """What makes the batches fit."""
        return Normaliser(read_schema(self.source), None if self.target is None else read_schema(self.target))


def run_tasks(
    tasks: Sequence[Task], job: Job, workers: int, progress: ProgressCallback | None
) -> Generator[FinishedShard, None, None]:
    """Write the shards of all tasks, and give them in task order. Close the generator to stop early.

    Raises:
        SourceError, SchemaError: Of a task's batches.
        StorageError: The system refuses, or a worker process died.
    """
    counter = ProgressCounter(tasks, progress)
    workers = min(workers, len(tasks))
    return _run_here(tasks, job, counter) if workers <= 1 else _run_in_processes(tasks, job, workers, counter)


def _run_here(
    tasks: Sequence[Task], job: Job, counter: ProgressCounter
) -> Generator[FinishedShard, None, None]:
    finisher = ShardFinisher()
    try:
        for number, task in enumerate(tasks):
            rows = 0
            for count in _write_task(task, number, job, finisher):
                rows += count
                counter.add_rows(task, count)
                yield from finisher.done()
            counter.end_task(task, rows)
        yield from finisher.done(wait=True)
    finally:
        finisher.close()


def _write_task(task: Task, number: int, job: Job, finisher: ShardFinisher) -> Generator[int, None, None]:
    """Write one task's shards; give the number of rows of each batch once it is taken."""
    normaliser = job.normaliser()
    series = ShardSeries(
        normaliser.schema,
        job.options,
        finisher,
        lambda shard: f"{job.prefix}task-{number:06d}-{shard:06d}.arrow",
    )
    try:
        # No name may keep a batch alive while the next one is read: that would double the memory.
        for batch in task.batches():
            count = batch.num_rows
            for normal in normaliser.batches(batch):
                series.push(normal)
                del normal
            del batch
            yield count
        series.finish()
    finally:
        series.close()


def _run_in_processes(
    tasks: Sequence[Task], job: Job, workers: int, counter: ProgressCounter
) -> Generator[FinishedShard, None, None]:
    with closing(map_in_order(partial(_run_in_worker, job), enumerate(tasks), workers)) as results:
        for (_, task), (rows, shards) in results:
            counter.end_task(task, rows)
            yield from shards


def _run_in_worker(job: Job, item: tuple[int, Task], stopped: Stopped) -> tuple[int, list[FinishedShard]]:
    number, task = item
    finisher = ShardFinisher()
    rows = 0
    try:
        for count in _write_task(task, number, job, finisher):
            rows += count
            if stopped():
                return rows, []
        return rows, list(finisher.done(wait=True))
    finally:
        finisher.close()
