"""`shuffle_seed=`: all rows of a source in a random order, in bounded memory.

Each row has a key, a hash of the seed and of its number in the source; the shuffled order is the order of the keys.
So it depends on the seed and the source's rows alone, and a filter leaves the others in their order. Sorting is by
distribution, in two passes:

    scatter    every task of the source sorts runs of its rows by key, and writes each run cut into buckets (equal
               ranges of keys) to a temporary file beside the shards to come
    gather     a bucket is read from all runs, sorted by key, and goes on as batches; some buckets make a task

The temporary files hold each row once, uncompressed. Memory: a run, or a bucket, a few times over, in each process.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastshard._storage import storage_errors
from fastshard.converters._counting import Progress, ProgressCallback
from fastshard.converters._format import READ_BYTES
from fastshard.converters._stepped import SteppedSource, SteppedTask
from fastshard.converters._workers import Stopped, map_in_order
from fastshard.errors import InvalidError
from fastshard.schema import read_schema, schema_message

__all__ = ["ShuffledSource", "check_seed", "shuffle_keys"]

_KEY = "fastshard.shuffle_key"
_RUN_MIN = 64 << 20
_RUN_MAX = 256 << 20
# Pieces of a run, which are read one by one, are at least about this large as long as runs may grow.
_PIECE = 32 << 10
_UNKNOWN_BUCKETS = 256
# A bucket is put together in memory up to this size; a larger one, of rows larger than expected, is taken row by row.
_JOIN_MAX = 256 << 20


def check_seed(seed: Any) -> int:
    """The seed, if it is one: any integer of 64 bits.

    Raises:
        InvalidError: It is not.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not -(2**63) <= seed < 2**64:
        raise InvalidError(f"shuffle_seed={seed!r}: expected an integer of at most 64 bits")
    return int(seed) % 2**64


def shuffle_keys(
    seed: int, numbers: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.uint64]:
    """The keys by which rows are sorted: a bijection of their numbers for each seed, so that no two are equal.

    Args:
        seed: Any integer of 64 bits.
        numbers: Of the rows, int64 [n].
        ranks: Tell rows of one number apart, int64 [n].

    Returns:
        uint64 [n].
    """
    digest = hashlib.blake2b(b"fastshard.shuffle.1" + seed.to_bytes(8, "little"), digest_size=16).digest()
    first, second = np.frombuffer(digest, "<u8")
    keys = _mix(_mix(numbers.astype(np.uint64) ^ first) ^ second)
    return keys if ranks is None else _mix(keys ^ _mix(ranks.astype(np.uint64)))


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64, after a step of its sequence: a bijection that spreads every bit."""
    mixed: npt.NDArray[np.uint64] = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the rows are distributed. Follows from the source's metadata alone.

    Attributes:
        buckets: How many.
        run_bytes: What a run aims at; a bucket too.
    """

    buckets: int
    run_bytes: int

    @classmethod
    def of(cls, tasks: Sequence[SteppedTask], run_bytes: int | None) -> _Layout:
        total = sum(task.bytes for task in tasks)
        if run_bytes is None:
            run_bytes = min(_RUN_MAX, max(_RUN_MIN, math.isqrt(total * _PIECE)))
        if any(task.task.rows is None for task in tasks):
            return cls(_UNKNOWN_BUCKETS, run_bytes)
        return cls(max(1, -(-total // run_bytes)), run_bytes)


class ShuffledSource:
    """The rows of a source in the order of their keys.

    `write_source` calls `spool` before `tasks`; `close` is for whoever made this, afterwards.

    Attributes:
        portable: Other processes can run the tasks that gather.
    """

    portable = True

    def __init__(
        self,
        source: SteppedSource,
        seed: int,
        *,
        progress: ProgressCallback | None = None,
        run_bytes: int | None = None,
    ) -> None:
        """Set up; nothing is read yet.

        Args:
            source: The rows.
            seed: As `check_seed` gave it.
            progress: Told of the rows that are scattered; `gathering` is for those that are written.
            run_bytes: What runs and buckets aim at; smaller in tests.
        """
        self._source = source
        self._seed = seed
        self._progress = progress
        self._run_bytes = run_bytes
        self._prefix = ""
        self._files = 0
        self._sizes: npt.NDArray[np.int64] = np.zeros((0, 2), np.int64)
        self._total_bytes = 0
        self._total_rows: int | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    @property
    def provenance(self) -> Mapping[str, Any]:
        return {**self._source.provenance, "shuffle_seed": self._seed}

    def spool(self, prefix: str, shard_bytes: int, workers: int) -> None:
        """Scatter all rows over buckets in temporary files.

        Args:
            prefix: Begins their paths.
            shard_bytes: What a shard aims at.
            workers: Processes.

        Raises:
            SourceError: The source cannot be read.
            StorageError: The system refuses, for want of space, say.
        """
        tasks = self._source.tasks(shard_bytes)
        rows = [task.rows for task in tasks]
        self._total_rows = None if None in rows else sum(n for n in rows if n is not None)
        self._total_bytes = sum(task.bytes for task in tasks)
        self._prefix = prefix
        layout = _Layout.of(tasks, self._run_bytes)
        scatter = partial(
            _scatter, schema=_Schema(self.schema), prefix=prefix, seed=self._seed, layout=layout
        )
        self._sizes = np.zeros((layout.buckets, 2), np.int64)
        self._files = len(tasks)
        done = 0
        jobs = map_in_order(
            scatter, list(enumerate(tasks)), min(workers, len(tasks)) if self._source.portable else 1
        )
        try:
            for (_, task), sizes in jobs:
                self._sizes += sizes
                done += task.bytes
                self._tell(0, done)
        finally:
            jobs.close()

    def _tell(self, rows: int, size: int) -> None:
        if self._progress is not None:
            self._progress(Progress(rows, size, self._total_rows, 2 * self._total_bytes))

    def gathering(self, progress: Progress) -> None:
        """A callback for `write_source`: the second half of the way."""
        share = progress.bytes / progress.total_bytes if progress.total_bytes else 1.0
        self._total_rows = progress.total_rows
        self._tell(progress.rows, self._total_bytes + int(share * self._total_bytes))

    def tasks(self, shard_bytes: int) -> list[GatherTask]:
        """Adjacent buckets, as many as make about a shard."""
        tasks = []
        first, rows, size = 0, 0, 0
        schema = _Schema(self.schema)
        for bucket, (bucket_rows, bucket_bytes) in enumerate(self._sizes.tolist()):
            if size and size + bucket_bytes // 2 > shard_bytes:
                tasks.append(self._task(first, bucket, rows, size, schema))
                first, rows, size = bucket, 0, 0
            rows += bucket_rows
            size += bucket_bytes
        if rows:
            tasks.append(self._task(first, len(self._sizes), rows, size, schema))
        return tasks

    def _task(self, first: int, stop: int, rows: int, size: int, schema: _Schema) -> GatherTask:
        return GatherTask(self._prefix, self._files, len(self._sizes), first, stop, schema, rows, size)

    def close(self) -> None:
        """Remove the temporary files; those that are gone already are no matter."""
        for number in range(self._files):
            with suppress(OSError):
                os.remove(_run_path(self._prefix, number))


class _Schema:
    """A schema that is pickled as an IPC message, which keeps all of it."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return _read_schema, (schema_message(self.schema),)

    @property
    def keyed(self) -> pa.Schema:
        """With the column of keys."""
        return self.schema.append(pa.field(_KEY, pa.uint64(), nullable=False))


def _read_schema(message: bytes) -> _Schema:
    return _Schema(read_schema(message))


def _run_path(prefix: str, number: int) -> str:
    return f"{prefix}scatter-{number:06d}"


# Scatter. A file holds the pieces of its runs, as IPC messages, bucket after bucket within each run; then where each
# piece begins, int64 [runs, buckets + 1], and the number of runs, int64.


def _scatter(
    job: tuple[int, SteppedTask],
    stopped: Stopped,
    *,
    schema: _Schema,
    prefix: str,
    seed: int,
    layout: _Layout,
) -> npt.NDArray[np.int64]:
    """Write the runs of one task, and return rows and bytes by bucket, int64 [buckets, 2]."""
    number, task = job
    sizes = np.zeros((layout.buckets, 2), np.int64)
    places: list[npt.NDArray[np.int64]] = []
    path = _run_path(prefix, number)
    with storage_errors("write a temporary file of the shuffle", path), pa.OSFile(path, "wb") as file:
        for run in _runs(task, schema, seed, layout.run_bytes):
            places.append(_write_run(file, run, layout.buckets, sizes))
            if stopped():
                break
        for table in (*places, np.array([len(places)], np.int64)):
            file.write(table.astype("<i8").tobytes())
    return sizes


def _runs(task: SteppedTask, schema: _Schema, seed: int, run_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of about `run_bytes` with their keys, each sorted by them."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for selected in task.selected():
        keys = pa.array(shuffle_keys(seed, selected.numbers, selected.ranks))
        batch = pa.RecordBatch.from_arrays([*selected.batch.columns, keys], schema=schema.keyed)
        if waiting and size + batch.nbytes > run_bytes:
            yield _sorted(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield _sorted(waiting)


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    batch = _joined(batches)
    batches.clear()
    return batch.take(pa.array(_order(batch)))


def _order(batch: pa.RecordBatch) -> npt.NDArray[np.intp]:
    return np.argsort(batch.column(batch.num_columns - 1).to_numpy(), kind="stable")


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _write_run(
    file: pa.NativeFile, run: pa.RecordBatch, buckets: int, sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    keys = run.column(run.num_columns - 1).to_numpy()
    bucket_of = ((keys >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)
    bounds = np.searchsorted(bucket_of, np.arange(buckets + 1, dtype=np.uint64))
    places = np.empty(buckets + 1, np.int64)
    position = file.tell()
    for bucket in range(buckets):
        places[bucket] = position
        rows = int(bounds[bucket + 1] - bounds[bucket])
        if rows:
            piece = run.slice(int(bounds[bucket]), rows)
            message = piece.serialize()
            file.write(message)
            position += message.size
            sizes[bucket] += (rows, piece.nbytes)
    places[buckets] = position
    return places


# Gather


@dataclass(frozen=True, slots=True)
class GatherTask:
    """Some adjacent buckets, sorted.

    Attributes:
        prefix: Begins the paths of the runs' files.
        files: How many there are.
        buckets: How many there are in all.
        first: The first bucket of the task.
        stop: The first one after it.
        stored: The schema.
    """

    prefix: str
    files: int
    buckets: int
    first: int
    stop: int
    stored: _Schema
    rows: int
    bytes: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        files = [_RunFile(_run_path(self.prefix, number), self.buckets) for number in range(self.files)]
        for bucket in range(self.first, self.stop):
            pieces = [piece for file in files for piece in file.pieces(bucket, self.stored.keyed)]
            if pieces:
                yield from _gather(pieces, self.stored.schema)


class _RunFile:
    """One file of runs, mapped."""

    def __init__(self, path: str, buckets: int) -> None:
        with storage_errors("read a temporary file of the shuffle", path):
            self._data = pa.memory_map(path).read_buffer()
        words = np.frombuffer(self._data, "<i8", 1, self._data.size - 8)
        runs = int(words[0])
        start = self._data.size - 8 - runs * (buckets + 1) * 8
        self._places = np.frombuffer(self._data, "<i8", runs * (buckets + 1), start).reshape(
            runs, buckets + 1
        )

    def pieces(self, bucket: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for start, stop in self._places[:, bucket : bucket + 2].tolist():
            if stop > start:
                yield pa.ipc.read_record_batch(self._data.slice(start, stop - start), schema)


def _gather(pieces: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of all pieces in the order of their keys, in batches of about `READ_BYTES`."""
    keys = np.concatenate([piece.column(piece.num_columns - 1).to_numpy() for piece in pieces])
    order = np.argsort(keys, kind="stable")
    size = sum(piece.nbytes for piece in pieces)
    step = max(1, len(order) * READ_BYTES // max(1, size))
    pieces = [piece.select(list(range(len(schema)))) for piece in pieces]
    if size <= _JOIN_MAX:
        pieces = [_joined(pieces)]
    starts = np.cumsum([0, *(piece.num_rows for piece in pieces)])
    for first in range(0, len(order), step):
        yield from _take(pieces, starts, order[first : first + step], schema)


def _take(
    pieces: list[pa.RecordBatch], starts: npt.NDArray[np.int64], rows: npt.NDArray[np.intp], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Some rows of the pieces, laid end to end; as several batches where one cannot hold them."""
    if len(pieces) == 1:
        yield _with_schema(pieces[0].take(pa.array(rows)), schema)
        return
    piece_of = np.searchsorted(starts, rows, side="right") - 1
    parts, places = [], np.empty(len(rows), np.int64)
    found = 0
    for index in np.unique(piece_of):
        wanted = np.flatnonzero(piece_of == index)
        parts.append(pieces[index].take(pa.array(rows[wanted] - starts[index])))
        places[wanted] = np.arange(found, found + len(wanted))
        found += len(wanted)
    try:
        batch = _joined(parts).take(pa.array(places))
    except pa.ArrowInvalid:  # more than 32-bit offsets reach
        if len(rows) == 1:
            raise
        half = len(rows) // 2
        yield from _take(pieces, starts, rows[:half], schema)
        yield from _take(pieces, starts, rows[half:], schema)
        return
    yield _with_schema(batch, schema)


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
