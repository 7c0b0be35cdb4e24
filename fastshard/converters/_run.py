"""Tasks become shards: in this process, or in several that live no longer than this one."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event

import pyarrow as pa

from fastshard.converters._counting import ProgressCallback, ProgressCounter
from fastshard.converters._options import WriteOptions
from fastshard.converters._shards import FinishedShard, ShardFinisher, ShardSeries
from fastshard.converters._source import Task
from fastshard.errors import SourceError, StorageError
from fastshard.schema import Normaliser

__all__ = ["Job", "run_tasks"]

_AHEAD_PER_WORKER = 2


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
        """A job with schemas as messages: pickled, a pyarrow type forgets names and metadata of nested fields."""
        return cls(
            bytes(source.serialize()), None if target is None else bytes(target.serialize()), options, prefix
        )

    def normaliser(self) -> Normaliser:
        """What makes the batches fit."""
        target = None if self.target is None else pa.ipc.read_schema(pa.py_buffer(self.target))
        return Normaliser(pa.ipc.read_schema(pa.py_buffer(self.source)), target)


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
    context = multiprocessing.get_context("spawn")  # a forked child must not use Arrow's threads
    stop = context.Event()
    threads = max(1, _usable_cpus() // workers)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (stop, threads))
    todo = iter(enumerate(tasks))
    running: deque[tuple[Task, Future[tuple[int, list[FinishedShard]]]]] = deque()
    try:
        for number, task in islice(todo, _AHEAD_PER_WORKER * workers):
            running.append((task, pool.submit(_run_in_worker, task, number, job)))
        while running:
            task, future = running.popleft()
            rows, shards = future.result()
            counter.end_task(task, rows)
            for number, following in islice(todo, 1):
                running.append((following, pool.submit(_run_in_worker, following, number, job)))
            yield from shards
    except BrokenProcessPool as error:
        raise StorageError(
            "a worker process died before it could say why; if the system ended it for want of memory, use fewer "
            'workers=; a script that converts with workers= must do so under if __name__ == "__main__":'
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


# Of a worker process: set once, before its first task.
_stop: Event | None = None


def _start_worker(stop: Event, threads: int) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and says stop
    pa.set_cpu_count(threads)
    threading.Thread(target=_die_with_parent, name="fastshard-parent", daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run_in_worker(task: Task, number: int, job: Job) -> tuple[int, list[FinishedShard]]:
    finisher = ShardFinisher()
    rows = 0
    try:
        for count in _write_task(task, number, job, finisher):
            rows += count
            if _stop is not None and _stop.is_set():
                return rows, []
        return rows, list(finisher.done(wait=True))
    except Exception as error:
        raise _sendable(error) from None
    finally:
        finisher.close()


def _sendable(error: Exception) -> Exception:
    """The error, if it survives the way to the parent; else one that tells of it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return SourceError(f"{type(error).__name__}: {error}")
    return error
