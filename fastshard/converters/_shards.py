"""Shard files from batches: cut, written by pyarrow, then synced and indexed in a thread while the next is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from fastshard import _core
from fastshard._storage import storage_errors, sync_file
from fastshard._tables import ShardEntry
from fastshard.converters._blocks import Block, BlockCutter
from fastshard.converters._options import WriteOptions

__all__ = ["FinishedShard", "ShardFinisher", "ShardSeries", "finish_shard"]

# Small writes (flatbuffers, bitmaps, narrow columns) are gathered up to here; larger ones pass by.
_BUFFER = 64 << 10
# A shard takes the rows that are left where they are less than this part of it, rather than leave a tiny shard.
_REST_PART = 8


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A complete and synced file under a temporary name. Picklable."""

    entry: ShardEntry
    temporary: str


class ShardFinisher:
    """A thread that syncs and indexes shard files, one at a time, while others are written. Not thread-safe."""

    def __init__(self, finish: Callable[[str], FinishedShard] | None = None) -> None:
        """Set up.

        Args:
            finish: What is done with a written file, in the thread; `finish_shard` where nothing is said.
        """
        self._finish = finish_shard if finish is None else finish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastshard-shard")
        self._pending: deque[Future[FinishedShard]] = deque()

    def submit(self, path: str) -> None:
        """Take a file that is written; wait first until the one before is done, so that they do not pile up."""
        if self._pending:
            self._pending[-1].exception()
        self._pending.append(self._thread.submit(self._finish, path))

    def done(self, *, wait: bool = False) -> Iterator[FinishedShard]:
        """The shards that are done, in the order of `submit`; with `wait`, all.

        Raises:
            StorageError: The system refuses.
        """
        while self._pending and (wait or self._pending[0].done()):
            yield self._pending.popleft().result()

    def close(self) -> None:
        """End the thread, once it is done with its file."""
        self._thread.shutdown(cancel_futures=True)


def finish_shard(path: str) -> FinishedShard:
    """Sync and index a written file.

    Raises:
        StorageError: The system refuses.
    """
    with storage_errors("write the shard", path):
        sync_file(path)
        return FinishedShard(ShardEntry.of_file(_core.index_file(path, kind="file"), path), path)


class ShardSeries:
    """Consecutive shards of one run of rows. Not thread-safe."""

    def __init__(
        self,
        schema: pa.Schema,
        options: WriteOptions,
        finisher: ShardFinisher,
        temporary: Callable[[int], str],
    ) -> None:
        """Set up; no file is made before there are rows.

        Args:
            schema: Of every batch, normalised.
            options: How shards are laid out.
            finisher: Where written files go.
            temporary: The path of the n-th shard's file.
        """
        self._schema = schema
        self._ipc = options.ipc()
        self._shard_bytes = options.shard_bytes
        self._finisher = finisher
        self._temporary = temporary
        self._cutter = BlockCutter(schema, block_bytes=options.block_bytes, offset_limit=options.offset_limit)
        self._count = 0
        self._file: _ShardFile | None = None

    def push(self, batch: pa.RecordBatch) -> None:
        """Take the next rows.

        Raises:
            StorageError: The system refuses; the series is to be closed then.
        """
        for block in self._cutter.push(batch):
            self._write(block)

    def finish(self) -> None:
        """Write the rows that are left; raises as `push` does."""
        for block in self._cutter.finish():
            self._write(block)
        self._end_shard()

    def close(self) -> None:
        """Give up the file at hand, which stays unfinished. After `finish` it does nothing."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _write(self, block: Block) -> None:
        if self._file is not None and (block.starts_shard or self._is_full(self._file.bytes, block)):
            self._end_shard()
        if self._file is None:
            path = self._temporary(self._count)
            self._count += 1
            with storage_errors("make the shard", path):
                self._file = _ShardFile(path, self._schema, self._ipc)
        with storage_errors("write the shard", self._file.path):
            self._file.write(block.batch)

    def _is_full(self, written: int, block: Block) -> bool:
        if written + block.raw_bytes // 2 <= self._shard_bytes:
            return False
        rest = block.rest_bytes
        return rest is None or (rest + block.raw_bytes) * _REST_PART > self._shard_bytes

    def _end_shard(self) -> None:
        file = self._file
        if file is not None:
            with storage_errors("write the shard", file.path):
                file.close()
            self._file = None
            self._finisher.submit(file.path)


class _ShardFile:
    """One Arrow IPC file being written."""

    def __init__(self, path: str, schema: pa.Schema, options: pa.ipc.IpcWriteOptions) -> None:
        self.path = path
        self._raw = pa.OSFile(path, "wb")
        self._sink = pa.BufferedOutputStream(self._raw, _BUFFER)
        self._writer = pa.ipc.new_file(self._sink, schema, options=options)

    @property
    def bytes(self) -> int:
        """Written so far."""
        return int(self._sink.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        try:
            self._writer.close()
            self._sink.flush()
        finally:
            self._sink.close()
