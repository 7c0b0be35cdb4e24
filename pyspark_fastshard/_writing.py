"""Writing: executors write shards, a process on the driver commits them.

Spark makes the writer in one process, pickles it to every task, and runs `commit` or `abort` in processes of their own.
So no lock is held between them: the identity made first names all files of the write, and `commit` takes the lock. If
another writer commits meanwhile, it removes these files as leftovers, and this commit fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from fastshard._commit import Mode, Transaction, mark_tasks, sweep_task_files
from fastshard.conversion import write_options
from fastshard.converters._options import WriteOptions
from fastshard.converters._shards import FinishedShard
from fastshard.converters._steps import plan_steps
from fastshard.converters._write import DatasetWrite
from fastshard.errors import InvalidError, SchemaError, SourceError, StorageError
from fastshard.schema import read_schema, schema_message
from fastshard.spark._frames import quoted
from fastshard.spark._places import is_mount, is_store
from fastshard.spark._types import FrameSchema, frame_schema
from fastshard.spark._wire import decode_entry

if TYPE_CHECKING:
    from fastshard.spark._task import PartitionJob

__all__ = ["DatasetWriter"]

_OPTIONS = ("compression", "block_bytes", "shard_bytes", "staging")


@dataclass(frozen=True)
class _Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote: its partition, its rows, and for each shard the file and its entry as bytes."""

    partition: int
    rows: int
    shards: tuple[tuple[str, bytes], ...]


class DatasetWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write, from the plan to the commit. Pickled to every task."""

    def __init__(self, path: str, schema: Any, overwrite: bool, options: Mapping[str, str]) -> None:
        """Plan: nothing is written but the directory, and in it a file that says that the write is wanted.

        Raises:
            InvalidError: An option is unknown or cannot be used.
            SchemaError: A column's type cannot be stored, or does not fit the data set that is appended to.
        """
        self._path = path
        self._mode: Mode = "overwrite" if overwrite else "append"
        self._store = path if is_store(path) else None
        self._mounted = self._store is not None or is_mount(path)
        self._options = _checked_options(options)
        self._staging = options.get("staging")
        frame = frame_schema(schema.jsonValue())
        for column in frame.columns:
            if column.expression != "{}":
                raise SchemaError(
                    f"column {column.name!r}: Spark's data sources cannot hand out intervals of months; in Spark: "
                    f"df.withColumn({column.name!r}, F.expr({column.expression.format(quoted(column.name))!r}))"
                )
        # Begun and given up: what is wrong with the place or the schema is said before the job.
        with Transaction(path, self._mode, mounted=self._mounted) as transaction:
            writing = DatasetWrite(transaction, frame.arrow, options=self._options)
            settled, target = writing.options, writing.target
        self._identity = os.urandom(6).hex()
        if self._store is None:
            os.makedirs(path, exist_ok=True)
        self._job = self._planned(frame, settled, target)

    def _planned(self, frame: FrameSchema, options: WriteOptions, target: pa.Schema | None) -> PartitionJob:
        from fastshard._commit import task_prefix
        from fastshard.converters._run import Job
        from fastshard.spark._task import PartitionJob

        prefix = task_prefix(self._path, self._identity, mounted=self._mounted)
        return PartitionJob(
            frame=schema_message(frame.arrow),
            vectors=frame.vectors,
            steps=plan_steps(frame.arrow).with_schema(frame.arrow),
            output=Job.of(frame.arrow, target, options, prefix),
            staged=self._mounted,
            staging=self._staging,
            store=self._store,
            marker=mark_tasks(self._path, self._identity, mounted=self._mounted),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write one partition, on an executor."""
        from pyspark import TaskContext

        from fastshard.spark._task import PartitionWriter

        context = TaskContext.get()
        writer = PartitionWriter(self._job, context.partitionId(), context.taskAttemptId())
        rows = 0
        shards = []
        for report in writer.run(iterator):
            row = report.to_pylist()[0]
            if row["shard"] < 0:
                rows = row["rows"]
            else:
                shards.append((row["file"], row["entry"]))
        return _Written(context.partitionId(), rows, tuple(shards))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make one generation of what all tasks wrote; raises as `fs.spark.write` does."""
        import pyspark

        with Transaction(
            self._path, self._mode, mounted=self._mounted, identity=self._identity
        ) as transaction:
            there = transaction.names()
            writing = DatasetWrite(
                transaction,
                read_schema(self._job.frame),
                options=self._options,
                provenance={"source": "spark", "spark": pyspark.__version__},
            )
            for message in sorted(_told(messages), key=lambda message: message.partition):
                self._take(writing, message, there)
            transaction.sweep_tasks()
            writing.commit()

    def _take(self, writing: DatasetWrite, message: _Written, there: frozenset[str]) -> None:
        written = 0
        for file, data in message.shards:
            entry = decode_entry(data)
            written += entry.table.rows
            place = os.path.join(self._path, file)
            if file not in there:
                raise StorageError(
                    f"{place}: an executor wrote this file, and the driver does not find it: save to a place that all "
                    "machines have; or another writer committed to the data set meanwhile"
                )
            if self._mounted:
                writing.add_file(replace(entry, table=replace(entry.table, path=file)))
            else:
                writing.add(FinishedShard(entry, place))
        if written != message.rows:
            raise SourceError(
                f"{self._path}: partition {message.partition} reported {message.rows} rows, its shards have {written}"
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote; the data set stays what it was."""
        sweep_task_files(self._path, self._identity, mounted=self._mounted)
        if self._store is None:
            with suppress(OSError):  # it holds something else
                os.rmdir(self._path)


def _told(messages: list[WriterCommitMessage | None]) -> list[_Written]:
    return [message for message in messages if isinstance(message, _Written)]


def _checked_options(options: Mapping[str, str]) -> WriteOptions | None:
    for name in options:
        if name not in (*_OPTIONS, "path"):
            raise InvalidError(f'format("fastshard") has no option {name!r}; there are {", ".join(_OPTIONS)}')
    sizes = {}
    for name in ("block_bytes", "shard_bytes"):
        value = options.get(name)
        if value is not None and not value.isdecimal():
            raise InvalidError(f"option {name}={value!r}: expected a number of bytes")
        sizes[name] = None if value is None else int(value)
    return write_options(options.get("compression"), sizes["block_bytes"], sizes["shard_bytes"])
