"""`fs.convert`: from files, frames and streams to a data set."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastshard._progress import ProgressOption, shown_progress
from fastshard.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from fastshard.converters._part import LocatedSource
    from fastshard.converters._stepped import SteppedSource
    from fastshard.converters._steps import Transform
    from fastshard.converters._write import Mode, WriteOptions, WriteResult

__all__ = ["Changes", "convert", "convert_source", "open_source", "write_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What `convert` does to the rows on their way; see there."""

    columns: Sequence[str] | None = None
    filter: pc.Expression | str | None = None
    tensors: Mapping[str, tuple[Any, Sequence[int]]] | None = None
    cast: Mapping[str, Any] | None = None
    transform: Transform | None = None
    shuffle_seed: int | None = None


def convert(
    source: Any,
    dest: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
    tensors: Mapping[str, tuple[Any, Sequence[int]]] | None = None,
    cast: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
    shuffle_seed: int | None = None,
    compression: str | tuple[str, int] | None = None,
    workers: int = 1,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
    block_bytes: int | None = None,
    shard_bytes: int | None = None,
) -> WriteResult:
    """Convert a table to a data set.

    The bytes written are the same whatever `workers` is, and nothing that looks like a data set is left where the
    conversion is interrupted. Memory stays bounded, however large the source and its row groups are.

    Args:
        source: A Parquet or Arrow (IPC file or stream, Feather) file; a directory of them, also Hive-partitioned
            (`year=2024/...` becomes a column); a glob; a list of these; each as a path or a URL that pyarrow.fs or
            fsspec opens. Names that begin with `_` or `.` are passed over. Files that differ are unified as pyarrow
            does: missing columns are null, narrower types are widened. Or a Delta table: its directory, or
            `fs.Delta(table, version=)`. Or a fastshard data set. Or data in memory: whatever `fs.write` takes.
            Or a Spark DataFrame, which is collected on this machine as Arrow; where the
            executors should write, see `fs.spark.write`.
        dest: The directory of the data set.
        columns: Which columns to take, in this order; all by default.
        filter: A pyarrow expression, such as `pc.field("x") > 0`, or a text, such as `"x > 0 and name like 'a%'"`
            (docs/views.md says what it may hold): only rows for which it is true are taken.
        tensors: Columns of bytes or (nested) lists that become tensors of a fixed shape:
            `{"image": ("uint8", (3, 224, 224))}`.
        cast: New types by column, `{"x": "float32"}`, or by type, `{"float64": "float32"}`, also of values in lists.
            An integer that would lose digits raises.
        transform: A function of a `pyarrow.RecordBatch` that returns one, called last. It must always return the
            same columns; their types are those of its first result. With `workers` above 1 it must be picklable.
        shuffle_seed: Write the rows in a random order, the same for the same seed and source. Needs room for the
            data, uncompressed, in `dest` meanwhile.
        compression: `"none"` (the default), `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`.
        workers: Processes that convert. Data in memory is read by this process in any case.
        mode: What to do where a data set exists: `"error"`, `"overwrite"` or `"append"`.
        metadata: JSON values to keep with the data set.
        progress: True shows a bar, None (the default) only where someone is watching; a function is called with each
            `Progress` (rows, bytes and their totals).
        block_bytes: Size that a block (the unit of reading) aims at; 1 MiB by default.
        shard_bytes: Size that a shard's file aims at; 256 MiB by default.

    Returns:
        What was written; it serves as a path.

    Raises:
        NotFoundError: There is no such source.
        SourceError: The source cannot be read, or a value of it does not fit; the message names file, row and column.
        InvalidError: An argument cannot be used.
        SchemaError: A type cannot be stored, or the files' types cannot be brought together.
        NullError: A null where tensors are made.
        LockedError: Another writer is at work on `dest`.
        StorageError: The system refuses. After any error `dest` is what it was before.
    """
    options = write_options(compression, block_bytes, shard_bytes)
    changes = Changes(
        columns=columns,
        filter=filter,
        tensors=tensors,
        cast=cast,
        transform=transform,
        shuffle_seed=shuffle_seed,
    )
    return convert_source(
        open_source(source),
        dest,
        changes,
        options=options,
        workers=workers,
        mode=mode,
        metadata=metadata,
        progress=progress,
    )


def convert_source(
    source: LocatedSource,
    dest: str | os.PathLike[str],
    changes: Changes,
    *,
    options: WriteOptions | None,
    workers: int,
    mode: Mode,
    metadata: Mapping[str, Any] | None,
    progress: ProgressOption,
) -> WriteResult:
    """`convert` with its source opened and its arguments gathered."""
    from fastshard._directory import local_path
    from fastshard.converters._write import write_source
    from fastshard.converters.shuffle import ShuffledSource, check_seed

    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InvalidError(f"workers={workers!r}: expected a positive number of processes")
    seed = None if changes.shuffle_seed is None else check_seed(changes.shuffle_seed)
    if workers != 1 and changes.transform is not None and source.portable:
        _check_picklable(changes.transform)
    stepped = _stepped(source, changes)
    with shown_progress(progress, f"convert to {os.path.basename(local_path(dest))}") as callback:
        if seed is None:
            return write_source(
                stepped,
                dest,
                options=options,
                mode=mode,
                metadata=metadata,
                workers=workers if source.portable else 1,
                progress=callback,
            )
        shuffled = ShuffledSource(stepped, seed, progress=callback)
        with closing(shuffled):
            return write_source(
                shuffled,
                dest,
                options=options,
                mode=mode,
                metadata=metadata,
                workers=workers,
                progress=None if callback is None else shuffled.gathering,
            )


def open_source(source: Any) -> LocatedSource:
    """The source that an argument of `convert` stands for.

    Raises:
        NotFoundError, SourceError: See `convert`.
        InvalidError: It is nothing that can be converted.
    """
    from fastshard.converters._discover import is_delta
    from fastshard.converters._part import located
    from fastshard.converters.dataset import DatasetSource, is_dataset
    from fastshard.converters.delta import DeltaSource
    from fastshard.converters.files import FilesSource
    from fastshard.converters.memory import MemorySource
    from fastshard.delta import Delta
    from fastshard.spark._frames import frame_kind
    from fastshard.views import open_spec, selects

    if frame_kind(source) is not None:
        from fastshard.spark._collect import FrameSource

        return FrameSource(source)
    if isinstance(source, str) and selects(source):
        source = open_spec(source)
    if is_dataset(source):
        return DatasetSource(source)
    if isinstance(source, str | os.PathLike) and is_delta(source):
        source = Delta(source)
    if isinstance(source, Delta):
        return DeltaSource(source)
    if isinstance(source, str | os.PathLike) or _is_list_of_paths(source):
        return FilesSource(source)
    if callable(getattr(source, "tasks", None)):
        return located(source)
    return MemorySource(source)


def _is_list_of_paths(source: Any) -> bool:
    return (
        isinstance(source, list | tuple)
        and len(source) > 0
        and all(isinstance(item, str | os.PathLike) for item in source)
    )


def _stepped(source: LocatedSource, changes: Changes) -> SteppedSource:
    from fastshard.converters._stepped import SteppedSource
    from fastshard.converters._steps import plan_steps
    from fastshard.converters.delta import DeltaSource
    from fastshard.converters.files import FilesSource
    from fastshard.spark._collect import FrameSource

    _refuse(getattr(source, "refused", {}), changes.columns)
    steps = plan_steps(
        source.schema,
        columns=changes.columns,
        filter=changes.filter,
        tensors=changes.tensors,
        cast=changes.cast,
        transform=changes.transform,
    )
    if isinstance(source, FilesSource | DeltaSource):
        source = source.narrowed(steps.reads, steps.condition, steps.condition_fields)
    elif isinstance(source, FrameSource):
        source = source.narrowed(steps.reads)
    return SteppedSource(source, steps)


def _refuse(refused: Mapping[str, Exception], columns: Sequence[str] | None) -> None:
    """Raise why a column cannot be stored, unless `columns` leaves out all such."""
    for name, error in refused.items():
        if columns is None or (isinstance(columns, list | tuple) and name in columns):
            raise error


def write_options(
    compression: str | tuple[str, int] | None, block_bytes: int | None, shard_bytes: int | None
) -> WriteOptions | None:
    """How to lay out shards: None where nothing was said, so that appending goes on as before.

    Raises:
        InvalidError: An argument cannot be used.
    """
    from fastshard.converters._write import WriteOptions

    given: dict[str, Any] = {
        "compression": compression,
        "block_bytes": block_bytes,
        "shard_bytes": shard_bytes,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return WriteOptions(**given) if given else None


def _check_picklable(transform: Transform) -> None:
    try:
        pickle.dumps(transform)
    except Exception as error:
        raise InvalidError(
            f"transform={transform!r} cannot be sent to worker processes ({error}); define it at the top level of a "
            "module, or pass workers=1"
        ) from error
