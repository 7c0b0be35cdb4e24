"""The one path from Arrow batches to a committed data set."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastshard
from fastshard._commit import Mode, Transaction
from fastshard.converters._counting import Progress, ProgressCallback
from fastshard.converters._options import WriteOptions
from fastshard.converters._source import Source, SpoolingSource
from fastshard.errors import InvalidError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from fastshard._index import DatasetIndex
    from fastshard._tables import ShardEntry
    from fastshard.converters._shards import FinishedShard

__all__ = [
    "DatasetWrite",
    "Mode",
    "Progress",
    "ProgressCallback",
    "WriteOptions",
    "WriteResult",
    "write_source",
]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a commit wrote: the totals of the data set after it. It serves as a path.

    Attributes:
        path: The data set's directory, absolute.
        rows: Samples.
        shards: Shards.
        blocks: Record batches.
        bytes: Size of the shards' files.
        raw_bytes: Size of the blocks' bodies before compression.
        generation: Number of the commit.
        fingerprint: Names the samples and their ids, as 32 hexadecimal digits.
    """

    path: str
    rows: int
    shards: int
    blocks: int
    bytes: int
    raw_bytes: int
    generation: int
    fingerprint: str

    def __fspath__(self) -> str:
        return self.path


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's `metadata=` as `index.json` will hold it; raises `InvalidError` if JSON cannot."""
    if metadata is None:
        return {}
    try:
        document = json.loads(json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidError(f"metadata= must hold JSON values only: {error}") from error
    if not isinstance(document, dict):
        raise InvalidError(f"metadata= must be a mapping, not {type(metadata).__name__}")
    return document


class DatasetWrite:
    """A transaction whose shards all have one schema.

    Attributes:
        schema: What the shards store; when appending, the data set's.
        target: None, or when appending the schema that batches are to be made to fit.
        options: How the shards are laid out; when appending and not chosen, as those that are there.
    """

    def __init__(
        self,
        transaction: Transaction,
        schema: pa.Schema,
        *,
        options: WriteOptions | None = None,
        metadata: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        as_is: bool = False,
    ) -> None:
        """Settle the schema and start the tables.

        Args:
            transaction: Not started yet.
            schema: Of the rows to come, before normalisation.
            options: How shards are laid out; None: as the data set that is appended to, or the defaults.
            metadata: JSON values of the user's; when appending, added to what is there.
            provenance: JSON values that say where the data come from.
            as_is: Whether the shards are files that are there already: their schema is not normalised.

        Raises:
            SchemaError: The schema cannot be stored, or does not fit the data set's.
            InvalidError: `metadata` is not JSON.
            CorruptError: The data set to append to is damaged.
            StorageError: The system refuses.
        """
        from fastshard.schema import Normaliser, read_schema

        self._transaction = transaction
        base = transaction.base if transaction.appending else None
        self._metadata = {**(base.metadata if base else {}), **check_metadata(metadata)}
        origin = {"fastshard": fastshard.__version__, **(provenance or {})}
        if base is not None:
            appended = base.provenance.get("appended", [])
            origin = {
                **base.provenance,
                "appended": [*(appended if isinstance(appended, list) else []), origin],
            }
        self._provenance = origin
        self.target = read_schema(base.schema_ipc) if base else None
        try:
            normal = Normaliser(schema, self.target).schema
        except SchemaError as error:
            if self.target is None:
                raise
            raise SchemaError(f"{transaction.path}: cannot append: {error}") from None
        self.schema = schema if as_is else normal
        self._schema_ipc = base.schema_ipc if base else _serialize(self.schema)
        if options is None:
            options = WriteOptions.of_settings(base.settings) if base else WriteOptions()
        self.options = options
        self._settings = {} if as_is else options.settings()
        transaction.start(len(self.schema))

    def add(self, shard: FinishedShard) -> None:
        """Take the next shard; raises `StorageError`."""
        self._transaction.add(shard.entry, shard.temporary)

    def add_file(self, entry: ShardEntry) -> None:
        """Take a file that is there already as the next shard; raises `StorageError`."""
        self._transaction.add(entry)

    def commit(self) -> WriteResult:
        """Make the shards the data set's next generation; raises as `Transaction.commit` does."""
        from fastshard.schema import field_texts, read_schema

        index = self._transaction.commit(
            schema=field_texts(read_schema(self._schema_ipc)),
            schema_ipc=self._schema_ipc,
            settings=self._settings,
            provenance=self._provenance,
            metadata=self._metadata,
        )
        return _result(self._transaction.path, index)


def _serialize(schema: pa.Schema) -> bytes:
    """The schema as an encapsulated IPC message, seen to be readable again."""
    import pyarrow as pa

    from fastshard.schema import read_schema, schema_message

    try:
        message = schema_message(schema)
        read_schema(message)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"Arrow IPC cannot store this schema: {error}") from error
    return message


def _result(path: str, index: DatasetIndex) -> WriteResult:
    return WriteResult(
        path,
        index.rows,
        index.shards,
        index.blocks,
        index.bytes,
        index.raw_bytes,
        index.generation,
        index.fingerprint,
    )


def write_source(
    source: Source,
    dest: str | os.PathLike[str],
    *,
    options: WriteOptions | None = None,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> WriteResult:
    """Write a source as a data set and commit it.

    Args:
        source: Where the rows come from.
        dest: The data set's directory; made where it does not exist.
        options: How shards are laid out; None: as the data set that is appended to, or the defaults.
        mode: What to do where a data set exists: refuse (`"error"`), replace it, or add to it.
        metadata: JSON values of the user's, kept in `index.json`.
        workers: Processes that run the tasks; the bytes written do not depend on it.
        progress: Called in this process, now and then, and once at the end.

    Raises:
        InvalidError: An argument cannot be used, or `mode` refuses the directory.
        SchemaError: The schema cannot be stored or does not fit, or a batch is not of the schema announced.
        SourceError: The source cannot be read.
        LockedError: Another writer is at work on the data set.
        StorageError: The system refuses. After any error the data set is what it was before.
    """
    from fastshard.converters._run import Job, run_tasks

    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InvalidError(f"workers={workers!r}: expected a positive number of processes")
    with Transaction(dest, mode) as transaction:
        write = DatasetWrite(
            transaction, source.schema, options=options, metadata=metadata, provenance=source.provenance
        )
        if isinstance(source, SpoolingSource):
            source.spool(transaction.temporary(""), write.options.shard_bytes, workers)
        tasks = source.tasks(write.options.shard_bytes)
        job = Job.of(source.schema, write.target, write.options, transaction.temporary(""))
        with closing(run_tasks(tasks, job, workers, progress)) as shards:
            for shard in shards:
                write.add(shard)
        return write.commit()
