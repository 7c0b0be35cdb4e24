"""Batches of a plan, made ahead: by the native stream, or by threads around it where samples lie in several data sets.

`ShardLoader` and `ShardDataset` (in this process, or in each worker of a DataLoader) both iterate this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass

from fastshard import _core
from fastshard._at_exit import closed_at_exit, stopped_at_exit
from fastshard._checking import Checking, Verify
from fastshard._engine import Engine, EngineName, choose_engine
from fastshard._gather import DataGather
from fastshard._gather_stream import GatherStream
from fastshard._index import DatasetIndex
from fastshard._plan import EpochPlan
from fastshard.batch import Batch, register_collate
from fastshard.errors import CorruptError, InvalidError, StorageError
from fastshard.reader import ShardReader
from fastshard.source import Data

__all__ = ["Pipeline", "Stream", "choose", "two_windows"]

Stream = _core.BatchStream | GatherStream
Replace = Callable[[int, CorruptError | StorageError], Batch]

_PREFETCH_BYTES = 8 << 20  # what is made ahead stays in the cache of the processor
_ADVISE_BYTES = 64 << 20  # of mapped shards, that the system is told of ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How batches are made.

    Attributes:
        data: The samples.
        gather: The form in which they are delivered.
        order: "none", "global" or "block".
        engine: How bytes are read.
        verify: When columns are compared with their hashes, as it was asked for.
        memory: Budget in bytes for blocks that were read or decompressed.
        threads: That gather.
        prefetch: Batches ahead of the consumer; None for as many as are some 8 MiB, 2 to 32.
        read_timeout: Seconds to wait for storage; None waits for ever.
        keep_going: After a batch that cannot be made comes the next one.
    """

    data: Data
    gather: DataGather
    order: str
    engine: Engine
    verify: Verify
    memory: int
    threads: int
    prefetch: int | None = None
    read_timeout: float | None = None
    keep_going: bool = False

    @property
    def checking(self) -> Checking:
        """When columns are compared with their hashes."""
        if self.data.native is None:
            return Checking(self.verify, "several data sets are read, each as fits it")
        reader = self.data.native[0]
        whole_blocks = self.engine.name != "mmap" and not self.visits
        return reader.checking_of_blocks() if whole_blocks else reader.checking

    @property
    def visits(self) -> float:
        """How many batches a block serves, about, that an engine reads whole, before it is read again.

        0 where all of its samples are used while it is kept: then rows are never read by themselves.
        """
        if self.data.native is None:
            return 0.0
        reader, selection = self.data.native
        if self.order == "global":
            blocks = len(reader) * reader.row_bytes
            return 0.0 if blocks <= self.memory else blocks / (blocks - self.memory)
        if selection is None:
            return 0.0
        return max(1.0, self.data.rows / max(1, reader.index.blocks))

    @property
    def reason(self) -> str:
        """Why bytes are read as they are."""
        if self.engine.name == "mmap" or not self.visits:
            return self.engine.reason
        return f"{self.engine.reason}; of blocks of which a batch takes little, that is read alone"

    def stream(
        self,
        plan: EpochPlan,
        first: int = 0,
        step: int = 1,
        shared: _core.SharedPool | None = None,
        *,
        arrays: bool = False,
    ) -> Stream:
        """Begins to make batches first, first + step, ... of the plan.

        Args:
            plan: This rank's batches.
            first: Of them, at most `plan.num_batches`.
            step: At least 1.
            shared: Memory for batches that another process will read; None for memory of this process.
            arrays: Of NumPy arrays, instead of tensors.
        """
        if self.data.native is None:
            return self._gathered_stream(plan, first, step)
        return self._native_stream(plan, first, step, shared, arrays, *self.data.native)

    def made(
        self, plan: EpochPlan, first: int, step: int, shared: _core.SharedPool | None
    ) -> Generator[Batch, None, None]:
        """Batches of tensors; see `stream`. Begins with the first that is asked for."""
        stream = self.stream(plan, first, step, shared)
        with closing(closed_at_exit(self.batches(stream, plan, first, step))) as batches:
            for batch in batches:
                if shared is not None and batch._shared is None:
                    batch._shared = shared.batch(plan.batch_size * self.data.row_bytes)
                yield batch

    def _native_stream(
        self,
        plan: EpochPlan,
        first: int,
        step: int,
        shared: _core.SharedPool | None,
        arrays: bool,
        reader: ShardReader,
        selection: _core.Selection | None,
    ) -> _core.BatchStream:
        order, partition = plan.native()
        return _core.BatchStream(
            set=reader.core,
            projection=reader.plan.native,
            order=order,
            partition=partition,
            first=first,
            step=step,
            selection=selection,
            threads=self.threads,
            prefetch=self._ahead(plan.batch_size),
            keep_going=self.keep_going,
            patient=self.read_timeout is None,
            reading=self.engine.reading(
                verify=self.checking.mode,
                memory=self.memory,
                visits=self.visits,
                read_timeout=self.read_timeout,
            ),
            shared=shared,
            batch_bytes=plan.batch_size * self.data.row_bytes,
            advise=max(4, min(1024, _ADVISE_BYTES // (plan.batch_size * self.data.row_bytes))),
            scattered=self.order == "global",
            tensors=None if arrays else self.gather.tensors,
        )

    def _gathered_stream(self, plan: EpochPlan, first: int, step: int) -> GatherStream:
        epoch = plan.start.epoch
        return GatherStream(
            lambda index: self.gather.batch_numpy(plan.batch(first + index * step), epoch),
            len(range(first, plan.num_batches, step)),
            threads=self.threads,
            prefetch=self._ahead(plan.batch_size),
            describe=lambda index: self._described(plan, first + index * step),
        )

    def _described(self, plan: EpochPlan, index: int) -> str:
        planned = plan.batch(index)
        samples = [self.data.locate(int(place)) for place in planned.places[:1000]]
        shards = sorted({shard for _, shard in samples})
        names = ", ".join(shards[:4]) + (f" and {len(shards) - 4} more shards" if len(shards) > 4 else "")
        count, first_id = len(planned.places), samples[0][0]
        return f"batch {index} of epoch {plan.start.epoch}, {count} samples from {first_id} on, of {names}"

    def _ahead(self, batch_size: int) -> int:
        if self.prefetch is not None:
            return self.prefetch
        return max(2, min(32, _PREFETCH_BYTES // (batch_size * self.data.row_bytes)))

    def batches(
        self,
        stream: Stream,
        plan: EpochPlan,
        first: int = 0,
        step: int = 1,
        *,
        arrays: bool = False,
        replace: Replace | None = None,
    ) -> Generator[Batch, None, None]:
        """What a stream that `stream` made delivers; stops it at the end.

        Args:
            stream, plan, first, step, arrays: See `stream`.
            replace: Makes the batch of that number instead, where it could not be made for that reason.

        Raises:
            Error: What making a batch raised, after the batches before it were delivered.
        """
        stopped_at_exit(stream)
        timeout = -1.0 if self.read_timeout is None else self.read_timeout
        register_collate()
        finish, gather, epoch = self.gather.finish, self.gather, plan.start.epoch
        dealt_anew = plan.num_batches - 1 if plan.deals_last_anew else -1
        try:
            index = first
            while True:
                try:
                    made = stream.next(timeout)
                except (CorruptError, StorageError) as error:
                    if replace is None:
                        raise
                    batch = replace(index, error)
                else:
                    if made is None:
                        return
                    if index == dealt_anew:
                        batch = gather.batch_numpy(plan.batch(index), epoch)
                    elif isinstance(made, Batch):
                        batch = made
                    else:
                        batch = finish(made, epoch)
                yield batch if arrays or batch._of_tensors else batch.to_torch()
                index += step
        finally:
            stream.stop()


def choose(asked: EngineName, data: Data, read_timeout: float | None) -> Engine:
    """How the data are read. Raises `InvalidError` for an engine that cannot read them."""
    if data.native is not None:
        reader = data.native[0]
        return choose_engine(
            asked,
            os.path.abspath(reader.path),
            reader.index.bytes,
            largest_batch=_largest_block(reader.index),
            read_timeout=read_timeout,
        )
    if asked in ("uring", "threads"):
        raise InvalidError(
            f'engine="{asked}": several data sets together are read through mappings; use "mmap" or "auto"'
        )
    return choose_engine("mmap", os.curdir, 0, largest_batch=0, read_timeout=read_timeout)


def two_windows(data: Data) -> int:
    """Bytes of what a shuffle by blocks uses again while it moves from one window to the next, and a little."""
    return 2 * data.geometry.window * data.row_bytes + (64 << 20)


def _largest_block(index: DatasetIndex) -> int:
    """Bytes of the largest block, as far as index.json says: the mean, where it has more than one."""
    return index.raw_bytes // max(1, index.blocks)
