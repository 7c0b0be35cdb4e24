"""`fs.spark.write`: executors write the shards of a frame, the driver commits one index.

    resolve the frame's schema    names and types are wrong here, or not at all
    lock the data set             and read the generation that stands
    probe                         one task: the same fastshard there, the same directory
    run the job                   one report for each shard, of successful attempts only
    commit                        shards in the order of (partition, shard), then the index

A failed job leaves the data set that was there; files of failed attempts are removed before the commit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastshard import errors
from fastshard._commit import Transaction
from fastshard._evaluate import empty_batch
from fastshard.conversion import write_options
from fastshard.converters._part import Part
from fastshard.converters._run import Job
from fastshard.converters._shards import FinishedShard
from fastshard.converters._steps import Steps, Transform, plan_steps
from fastshard.converters._write import DatasetWrite, WriteResult
from fastshard.errors import InvalidError, SourceError
from fastshard.schema import read_schema, schema_message
from fastshard.spark._frames import check_frame
from fastshard.spark._places import is_mount, is_store, resolve_place
from fastshard.spark._probe import probe
from fastshard.spark._task import REPORT_DDL, PartitionJob, partition_function
from fastshard.spark._transform import batch_transform
from fastshard.spark._types import FrameSchema, convert_batch, frame_schema
from fastshard.spark._wire import decode_entry

if TYPE_CHECKING:
    from fastshard._commit import Mode

__all__ = ["write"]

# What a transform is shown first, to know what it makes.
_PEEK_ROWS = 64
_RAISED = re.compile(r"fastshard\.errors\.(\w+): (.+)")


def write(
    df: Any,
    dest: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    tensors: Mapping[str, tuple[Any, Sequence[int]]] | None = None,
    cast: Mapping[str, Any] | None = None,
    transform: Transform | Any | None = None,
    compression: str | tuple[str, int] | None = None,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
    block_bytes: int | None = None,
    shard_bytes: int | None = None,
    staging: str | os.PathLike[str] | None = None,
) -> WriteResult:
    """Write a Spark DataFrame as a data set: the executors write its shards, and nothing is collected but their index.

        fs.spark.write(spark.table("ml.images"), "/Volumes/ml/data/train", columns=["image", "label"])

    Samples are in the order of the frame's partitions, and in them of their rows: writing a frame twice that gives its
    rows in the same order twice gives the same data set. Each partition becomes at least one shard where it has rows,
    so repartition to pieces of about `shard_bytes` first. A task that is retried, run twice by speculation or killed
    leaves neither a duplicate nor a gap: only what a successful attempt reported is committed, at once, at the end.

    Args:
        df: A DataFrame of classic Spark, of Spark Connect or of databricks-connect.
        dest: The data set's directory, which the executors must see too: a volume (`/Volumes/...`, also as
            `dbfs:/Volumes/...`), `/dbfs/...` (also as `dbfs:/...`), a directory mounted on all machines, or any where
            Spark runs on this machine alone; or the URL of a folder in an object store that pyarrow.fs or fsspec open
            (`s3://`, `gs://`, `abfss://`, ...) with credentials that driver and executors find for themselves. For
            volumes, `/dbfs` and stores shards are written to local disk first and copied.
        columns: Which columns to take, in this order; all by default.
        tensors: Columns of bytes or (nested) arrays that become tensors of a fixed shape:
            `{"image": ("uint8", (3, 224, 224))}`. Arrays that all have one length need no entry.
        cast: New types by column, `{"x": "float32"}`, or by type, `{"float64": "float32"}`.
        transform: A function of a `pyarrow.RecordBatch`, or of a `pandas.DataFrame` where its first parameter is
            annotated so, that returns one. Called last, on the executors. It must always return the same columns;
            their types are those of its result for the first rows.
        compression: `"none"` (the default), `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`.
        mode: What to do where a data set exists: `"error"`, `"overwrite"` or `"append"`.
        metadata: JSON values to keep with the data set.
        block_bytes: Size that a block (the unit of reading) aims at; 1 MiB by default.
        shard_bytes: Size that a shard's file aims at; 256 MiB by default.
        staging: A directory on the executors' own disks for shards on their way to a volume or store: two for each
            running task. The system's folder for temporary files by default.

    Returns:
        What was committed; it serves as a path.

    Raises:
        InvalidError: An argument cannot be used; the executors have another fastshard, or do not see `dest`.
        MissingDependencyError: The executors have no fastshard; the message says how to install it.
        SchemaError: A column's type cannot be stored; the message says how to leave it out or cast it.
        SourceError: A value does not fit, or a transform failed; the message names partition, row and column.
        LockedError: Another writer is at work on `dest`.
        StorageError: The system refuses. After any error `dest` is what it was before.
    """
    check_frame(df, "fs.spark.write")
    options = write_options(compression, block_bytes, shard_bytes)
    frame = frame_schema(df.schema.jsonValue(), columns)
    steps = plan_steps(frame.arrow, tensors=tensors, cast=cast, transform=batch_transform(transform))
    place = resolve_place(dest, stores=True)
    store = place if is_store(place) else None
    mount = store is not None or is_mount(place)
    with Transaction(place, mode, mounted=mount) as transaction:
        path = transaction.path
        found = probe(df.sparkSession, place)
        if not found.renames and not mount:
            raise InvalidError(
                f"{path}: executors cannot rename files there; if it is a mounted object store, mount it under /Volumes"
            )
        output = _output(df, frame, steps)
        writing = DatasetWrite(
            transaction, output, options=options, metadata=metadata, provenance=_provenance(df, steps)
        )
        job = _job(frame, steps, output, writing, transaction, mount, store, staging)
        for shard in _run(df, frame, job, path):
            if mount:
                writing.add_file(shard.entry)
            else:
                writing.add(shard)
        transaction.sweep_tasks()
        return writing.commit()


def _provenance(df: Any, steps: Steps) -> dict[str, Any]:
    return {"source": "spark", "spark": str(df.sparkSession.version), **steps.provenance}


def _job(
    frame: FrameSchema,
    steps: Steps,
    output: pa.Schema,
    writing: DatasetWrite,
    transaction: Transaction,
    staged: bool,
    store: str | None,
    staging: str | os.PathLike[str] | None,
) -> PartitionJob:
    return PartitionJob(
        frame=schema_message(frame.arrow),
        vectors=frame.vectors,
        steps=steps.with_schema(output),
        output=Job.of(output, writing.target, writing.options, transaction.task_prefix),
        staged=staged,
        staging=None if staging is None else os.fspath(staging),
        store=store,
        marker=transaction.mark(),
    )


def _output(df: Any, frame: FrameSchema, steps: Steps) -> pa.Schema:
    """The schema of what the steps make; where there is a transform, of what it makes of the first rows."""
    if steps.schema is not None:
        return steps.schema
    job = PeekJob(schema_message(frame.arrow), frame.vectors, steps)
    rows = _collected(frame.spark_frame(df.limit(_PEEK_ROWS)).mapInArrow(job.function(), "schema binary"))
    if rows:
        return read_schema(bytes(rows[0]["schema"]))
    return steps.output_of(
        empty_batch(steps.converted_schema(frame.arrow)), Part(empty_batch(frame.arrow), "the frame", 0, 0)
    )


class PeekJob:
    """Shows the first rows to a transform, on an executor."""

    def __init__(self, frame: bytes, vectors: tuple[bool, ...], steps: Steps) -> None:
        self._frame = frame
        self._vectors = vectors
        self._steps = steps

    def function(self) -> Any:
        def peek(batches: Any) -> Any:
            yield from self.schemas(batches)

        return peek

    def schemas(self, batches: Any) -> Any:
        for batch in batches:
            converted = convert_batch(batch, read_schema(self._frame), self._vectors)
            schema = self._steps.first_output(Part(converted, "the first rows", 0, 0))
            if schema is not None:
                yield pa.RecordBatch.from_pydict(
                    {"schema": [schema_message(schema)]}, schema=pa.schema([("schema", pa.binary())])
                )
                return


def _run(df: Any, frame: FrameSchema, job: PartitionJob, path: str) -> list[FinishedShard]:
    """Run the job, and give its shards in the order of their rows."""
    rows = _collected(frame.spark_frame(df).mapInArrow(partition_function(job), REPORT_DDL))
    folder = os.path.dirname(job.output.prefix)
    shards: dict[tuple[int, int], FinishedShard] = {}
    announced: dict[int, int] = {}
    written: dict[int, int] = {}
    for row in rows:
        partition, number = row["partition"], row["shard"]
        if number < 0:
            announced[partition] = announced.get(partition, 0) + row["rows"]
            continue
        if (partition, number) in shards:
            raise SourceError(f"{path}: Spark reported shard {number} of partition {partition} twice")
        entry = decode_entry(row["entry"])
        file = row["file"]
        if job.staged:
            entry = replace(entry, table=replace(entry.table, path=file))
        shards[partition, number] = FinishedShard(entry, os.path.join(folder, file))
        written[partition] = written.get(partition, 0) + entry.table.rows
    for partition in sorted(written.keys() | announced.keys()):
        found = written.get(partition, 0)
        if found != announced.get(partition):
            raise SourceError(
                f"{path}: partition {partition} reported {announced.get(partition)} rows, its shards have {found}"
            )
    return [shards[key] for key in sorted(shards)]


def _collected(frame: Any) -> list[Any]:
    """The rows of a job; what fastshard raised on an executor is raised here as what it is."""
    try:
        rows: list[Any] = frame.collect()
        return rows
    except Exception as error:
        raised = _RAISED.findall(str(error))
        kind = getattr(errors, raised[-1][0], None) if raised else None
        if not (isinstance(kind, type) and issubclass(kind, errors.Error)):
            raise
        raise kind(raised[-1][1].strip()) from error
