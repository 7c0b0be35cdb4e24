"""`fs.ray.write`: the tasks of Ray Data write the shards of a data set, the driver commits one index.

    plan             the schema of the first block, through columns=, tensors= and cast=
    lock             the data set, and read the generation that stands
    write            each task its shards, in files of their own: an attempt that failed disturbs no other
    commit           what successful attempts returned, in the order of the tasks, then the index

A job that fails leaves the data set that was there.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastshard._commit import Transaction
from fastshard._optional import require
from fastshard._storage import remove_if_there
from fastshard.conversion import write_options
from fastshard.converters._part import Part
from fastshard.converters._run import Job
from fastshard.converters._shards import FinishedShard, ShardFinisher, ShardSeries
from fastshard.converters._steps import Selected, Steps, plan_steps
from fastshard.converters._unify import conform
from fastshard.converters._write import DatasetWrite, WriteResult
from fastshard.errors import Error, InvalidError, SchemaError, SourceError
from fastshard.schema import Normaliser, normalise_schema, read_schema, schema_message

if TYPE_CHECKING:
    from fastshard._commit import Mode

__all__ = ["write"]


def write(
    ds: Any,
    dest: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    tensors: Mapping[str, tuple[Any, Sequence[int]]] | None = None,
    cast: Mapping[str, Any] | None = None,
    compression: str | tuple[str, int] | None = None,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
    block_bytes: int | None = None,
    shard_bytes: int | None = None,
) -> WriteResult:
    """Write a Ray data set as a fastshard data set, by Ray's tasks; nothing is collected but their index.

        fs.ray.write(ray.data.read_parquet("s3://bucket/images").map_batches(resize), "/mnt/shared/train")

    Rows are in the order of `ds`. Each task makes at least one shard of the rows that it gets, so repartition to pieces
    of about `shard_bytes` first. A task that is retried leaves neither a duplicate nor a gap: only what a successful
    attempt returned is committed, at once, at the end.

    Args:
        ds: A `ray.data.Dataset`. Its blocks must fit the schema of its first one (integers may be narrower).
        dest: The data set's directory, which all nodes must see under this path.
        columns: Which columns to take, in this order; all by default.
        tensors: Columns of bytes or lists that become tensors of a fixed shape: `{"image": ("uint8", (3, 224, 224))}`.
            NumPy arrays of one shape in `ds` are such already.
        cast: New types by column, `{"x": "float32"}`, or by type, `{"float64": "float32"}`.
        compression: `"none"` (the default), `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`.
        mode: What to do where a data set exists: `"error"`, `"overwrite"` or `"append"`.
        metadata: JSON values to keep with the data set.
        block_bytes: Size that a block (the unit of reading) aims at; 1 MiB by default.
        shard_bytes: Size that a shard's file aims at; 256 MiB by default.

    Returns:
        What was committed; it serves as a path.

    Raises:
        MissingDependencyError: Ray is not installed.
        InvalidError: An argument cannot be used, or a node does not see `dest`.
        SchemaError: A column's type cannot be stored.
        SourceError: A value does not fit; the message names block, row and column.
        LockedError: Another writer is at work on `dest`.
        StorageError: The system refuses. After any error `dest` is what it was before.
    """
    require("ray.data", "ray", "fs.ray.write")
    options = write_options(compression, block_bytes, shard_bytes)
    raw = _schema_of(ds)
    steps = plan_steps(_stored_schema(raw), columns=columns, tensors=tensors, cast=cast)
    assert steps.schema is not None, "known where there is no transform"
    with Transaction(dest, mode) as transaction:
        writing = DatasetWrite(
            transaction,
            steps.schema,
            options=options,
            metadata=metadata,
            provenance={"source": "ray", **steps.provenance},
        )
        target = writing.target if transaction.appending else None
        job = _Job(
            schema_message(_stored_schema(raw)),
            steps,
            Job.of(steps.schema, target, writing.options, transaction.task_prefix),
            transaction.path,
        )
        sink = _sink_class()(job)
        _in_order(ds)
        try:
            ds.write_datasink(sink)
        except Exception as error:
            raise _of_ours(error) from error
        for shard in sink.shards():
            writing.add(shard)
        transaction.sweep_tasks()
        return writing.commit()


def _schema_of(ds: Any) -> pa.Schema:
    """The Arrow schema of the first block."""
    schema = ds.schema()
    if schema is None:
        raise SchemaError("the Ray data set is empty and has no schema; there is nothing to write")
    base = schema.base_schema
    if isinstance(base, pa.Schema):
        return base
    # Blocks of pandas: Ray knows the names and NumPy's types only, so a block is looked at.
    block = next(iter(ds.limit(1).iter_batches(batch_size=1, batch_format="pyarrow")), None)
    if block is None:
        raise SchemaError("the Ray data set is empty and its blocks are of pandas: its types are not known")
    return block.schema


def _in_order(ds: Any) -> None:
    """Number tasks in the order of the rows, so that the data set does not depend on which is done first."""
    ds.context.execution_options.preserve_order = True


def _of_ours(error: BaseException) -> BaseException:
    """The error of ours that made a task fail, out of what Ray wraps around it; else Ray's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Error):
            # Ray raises a class of its own made of RayTaskError and ours.
            kind = next(base for base in type(cause).__mro__ if base.__module__ == "fastshard.errors")
            ours: BaseException = kind(str(getattr(cause, "cause", cause)))
            return ours
        inner = getattr(cause, "cause", None)
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    return error


# Blocks of Ray as Arrow


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """A block's schema as it is stored: Ray's tensors are Arrow's, and types in their normal form."""
    fields = [_stored_field(field) for field in schema]
    return normalise_schema(pa.schema(fields))


def _stored_field(field: pa.Field) -> pa.Field:
    shape = _tensor_shape(field.type)
    if shape is None:
        if str(getattr(field.type, "extension_name", "")).startswith("ray.data."):
            raise SchemaError(
                f"column {field.name!r} holds {field.type.extension_name} of Ray (arrays of varying shape, or Python "
                "objects), which is not stored; give them one shape, or leave the column out with columns="
            )
        return field
    values = field.type.storage_type.value_type
    return pa.field(field.name, pa.fixed_shape_tensor(values, shape), field.nullable)


def _tensor_shape(type_: pa.DataType) -> tuple[int, ...] | None:
    """The shape of Ray's own tensors of one shape; None for other types."""
    if not str(getattr(type_, "extension_name", "")).startswith("ray.data."):
        return None
    shape = getattr(type_, "shape", None)
    lists = pa.types.is_list(type_.storage_type) or pa.types.is_large_list(type_.storage_type)
    return tuple(shape) if lists and isinstance(shape, tuple) else None


def _stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A block's batch with Arrow's tensors in the place of Ray's."""
    fields, arrays = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        stored = _stored_field(field)
        if stored is not field:
            storage = array.storage
            if storage.null_count:
                raise SourceError(
                    f"column {field.name!r}: null, where tensors are stored; fill or drop it first"
                )
            flat = pa.FixedSizeListArray.from_arrays(storage.flatten(), stored.type.storage_type.list_size)
            array = pa.ExtensionArray.from_storage(stored.type, flat)
        fields.append(stored)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


# Tasks


@dataclass(frozen=True, slots=True)
class _Job:
    """What all tasks have in common. The schema is a message, since pickled types forget names of fields.

    Attributes:
        source: The schema that every block must fit.
        steps: What is done to each batch.
        output: What they make, and how it becomes shards.
        folder: The data set's directory.
    """

    source: bytes
    steps: Steps
    output: Job
    folder: str

    def run(self, task: int, blocks: Iterable[Any]) -> list[FinishedShard]:
        """Write the blocks of one attempt at a task; after an error its files are gone.

        Raises:
            SourceError, SchemaError: A value does not fit.
            InvalidError: This node does not see the data set's directory.
        """
        if not os.path.isdir(self.folder):
            raise InvalidError(
                f"{self.folder}: a node of Ray does not see this directory of the driver's; write to one that all "
                "nodes mount under the same path"
            )
        attempt = uuid.uuid4().int % 10**15
        made: list[str] = []

        def temporary(number: int) -> str:
            path = f"{self.output.prefix}{task:06d}-{attempt:015d}-{number:06d}.arrow"
            made.append(path)
            return path

        normaliser = self.output.normaliser()
        finisher = ShardFinisher()
        series = ShardSeries(normaliser.schema, self.output.options, finisher, temporary)
        done = False
        try:
            rows = 0
            for selected in self._selected(task, blocks):
                for normal in normaliser.batches(selected.batch, rows):
                    series.push(normal)
                rows += selected.batch.num_rows
            series.finish()
            shards = list(finisher.done(wait=True))
            done = True
            return shards
        finally:
            series.close()
            finisher.close()
            if not done:
                for path in made:
                    with suppress(OSError):  # the driver sweeps what is left
                        remove_if_there(path)

    def _selected(self, task: int, blocks: Iterable[Any]) -> Iterator[Selected]:
        from ray.data.block import BlockAccessor

        source = read_schema(self.source)
        row = 0
        for block in blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            name = f"task {task} of Ray"
            for batch in table.to_batches():
                stored = _stored_batch(batch)
                for normal in Normaliser(stored.schema).batches(stored, row):
                    fitted = conform(normal, source, [], Part(normal, name, row, row).where)
                    yield from self.steps.apply(Part(fitted, name, row, row))
                    row += normal.num_rows


def _sink_class() -> Any:
    """The Datasink; its class is made where Ray is at hand, and the tasks get it by value."""
    from ray.data import Datasink

    class ShardDatasink(Datasink):  # type: ignore[misc]
        """Writes blocks as shards, and keeps what the tasks return."""

        def __init__(self, job: _Job) -> None:
            self._job = job
            self._returned: list[tuple[int, list[FinishedShard]]] = []

        def write(self, blocks: Iterable[Any], ctx: Any) -> tuple[int, list[FinishedShard]]:
            return ctx.task_idx, self._job.run(ctx.task_idx, blocks)

        def on_write_complete(self, write_result: Any) -> None:
            self._returned = list(write_result.write_returns)

        def shards(self) -> list[FinishedShard]:
            """What is to be committed, in the order of the rows."""
            return [
                shard for _, shards in sorted(self._returned, key=lambda item: item[0]) for shard in shards
            ]

    return ShardDatasink
