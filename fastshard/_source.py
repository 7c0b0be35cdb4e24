"""A data set with its options: opened when first needed, planned and gathered from; pickles as its arguments."""

from __future__ import annotations

import os
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt

from fastshard._epochs import Start
from fastshard._gather import ReaderGather, Reading
from fastshard._options import OrderOptions
from fastshard._plan import EpochPlan, ShardTables, order_key, order_of, settle
from fastshard.distributed import Topology
from fastshard.reader import ShardReader
from fastshard.state import OrderKey, State, check_order

__all__ = ["Source"]


class Source:
    """What `ShardDataset` and the loaders read from. Immutable but for what it has opened.

    Attributes:
        path: the data set, absolute if it is a local path.
        order: how an epoch is ordered and divided.
        reading: what of it is read, and in which form.
    """

    __slots__ = ("_fingerprint", "_key", "_reader", "order", "path", "reading")

    def __init__(self, path: str | os.PathLike[str], order: OrderOptions, reading: Reading) -> None:
        text = os.fspath(path)
        self.path = text if "://" in text else os.path.abspath(text)
        self.order = order
        self.reading = reading
        self._reader: ShardReader | None = None
        self._key: OrderKey | None = None
        self._fingerprint: str | None = None  # what another process reads under this path

    def with_order(self, **changes: Any) -> Source:
        """The same data set, already open if this one is, with some options of its order replaced."""
        source = Source(self.path, replace(self.order, **changes), self.reading)
        source._reader = self._reader
        return source

    def __getstate__(self) -> tuple[str, OrderOptions, Reading, str | None]:
        """Path and options; for a process that multiprocessing is spawning, also which data this one has opened."""
        spawning = get_spawning_popen() is not None
        opened = self._fingerprint if self._reader is None else self._reader.fingerprint
        return self.path, self.order, self.reading, opened if spawning else None

    def __setstate__(self, state: tuple[str, OrderOptions, Reading, str | None]) -> None:
        path, order, reading, fingerprint = state
        self.__init__(path, order, reading)  # type: ignore[misc]
        self._fingerprint = fingerprint

    def open(self) -> ShardReader:
        """The reader of this process. See `ShardReader` for what it raises."""
        if self._reader is None:
            windowed = self.order.shuffle == "block"
            self._reader = self.reading.open(self.path, windowed=windowed, fingerprint=self._fingerprint)
        return self._reader

    def tables(self) -> ShardTables:
        """What the order needs to know of the data set."""
        return _ReaderTables(self.open())

    def key(self) -> OrderKey:
        """What names the order."""
        if self._key is None:
            self._key = order_key(self.tables(), self.order)
        return self._key

    def settle(self, start: Start, topology: Topology) -> Start:
        """See `_plan.settle`."""
        return settle(start, self.key(), self.order, topology)

    def plan(self, start: Start, topology: Topology) -> EpochPlan:
        """This rank's batches from `start` on.

        Raises:
            InvalidError: the options yield nothing at all, or do not fit the ranks or the data set.
        """
        return EpochPlan(self.tables(), self.key(), self.order, topology, start, where=self.path)

    def gather(self) -> ReaderGather:
        """What reads planned samples in the form that the options ask for.

        Raises:
            NullError: columns with nulls have no such form.
        """
        return ReaderGather(self.open(), self.reading)

    def state(self, start: Start, position: int) -> State:
        """The state of a run that began at `start` and stands at `position`."""
        order = order_of(start, self.key())
        if position >= order.size:  # the end of an epoch is the beginning of the next
            return State(self.key(), start.epoch + 1, 0)
        return State(order, start.epoch, position)

    def start_of(self, state: State, *, allow_growth: bool = False) -> Start:
        """Where a run goes on.

        Raises:
            StateError: the state belongs to other data or another order.
        """
        past = check_order(
            state.order,
            self.key(),
            allow_growth=allow_growth,
            fingerprint_of=self.tables().fingerprint_of,
            where=self.path,
        )
        if past is None or state.position == 0:
            return Start(state.epoch, state.position)
        return Start(state.epoch, state.position, past=past.to_dict())


class _ReaderTables:
    """What a `ShardReader` knows of its shards."""

    def __init__(self, reader: ShardReader) -> None:
        self._core = reader.core
        self.index = reader.index

    @property
    def shard_rows(self) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = self._core.shard_rows()
        return rows

    @property
    def shard_blocks(self) -> npt.NDArray[np.int64]:
        blocks: npt.NDArray[np.int64] = self._core.shard_blocks()
        return blocks

    @property
    def shard_block_rows(self) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = self._core.shard_block_rows()
        return rows

    def fingerprint_of(self, shards: int) -> str:
        fingerprint: bytes = self._core.fingerprint(shards)
        return fingerprint.hex()
