"""From options, a data set's index and a start to the batches of one rank: ids, positions and repeats.

Needs the index alone: no shard is opened for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._epochs import Start
from fastshard._options import OrderOptions
from fastshard.distributed import Topology
from fastshard.errors import InvalidError
from fastshard.state import OrderKey

if TYPE_CHECKING:
    from fastshard._index import DatasetIndex

__all__ = ["EpochPlan", "PlannedBatch", "ShardTables", "order_key", "order_of", "settle"]


class ShardTables(Protocol):
    """What an order needs to know of a data set."""

    @property
    def index(self) -> DatasetIndex:
        """Its `index.json`."""

    @property
    def shard_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each shard."""

    @property
    def shard_blocks(self) -> npt.NDArray[np.int64]:
        """Blocks of each shard."""

    @property
    def shard_block_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each shard's blocks but the last; 0 where they are irregular."""

    def fingerprint_of(self, shards: int) -> str:
        """The fingerprint of the first `shards` shards."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch of one rank.

    Attributes:
        positions: uint64 [batch], places in the epoch's order.
        ids: uint64 [batch], the samples there.
        is_repeat: bool [batch], true where a sample pads the batch; None if none does.
    """

    positions: npt.NDArray[np.uint64]
    ids: npt.NDArray[np.uint64]
    is_repeat: npt.NDArray[np.bool_] | None


def order_key(tables: ShardTables, options: OrderOptions) -> OrderKey:
    """What the order of a data set under these options depends on."""
    index = tables.index
    lanes = options.lanes or 1
    if options.lanes is None and options.shuffle == "block":
        lanes = _core.default_lanes(
            shard_rows=tables.shard_rows,
            shard_blocks=tables.shard_blocks,
            shard_block_rows=tables.shard_block_rows,
            unit_blocks=index.unit_blocks,
        )
    return OrderKey(
        fingerprint=index.fingerprint,
        rows=index.rows,
        shards=index.shards,
        kind=options.shuffle,
        seed=options.seed,
        lanes=lanes,
        window=index.window,
        unit_blocks=index.unit_blocks,
        epoch_size=options.epoch_size,
    )


def _epoch_order(key: OrderKey, tables: ShardTables, epoch: int) -> _core.EpochOrder:
    """The order of one epoch. `key` may be that of the data set before it grew: its shards come first."""
    dealt = key.kind == "block" or key.lanes > 1  # the order depends on where shards and blocks begin
    return _core.EpochOrder(
        kind=key.kind,
        size=key.rows,
        seed=key.seed,
        epoch=epoch,
        lanes=key.lanes,
        shard_rows=tables.shard_rows[: key.shards] if dealt else None,
        shard_blocks=tables.shard_blocks[: key.shards] if dealt else None,
        shard_block_rows=tables.shard_block_rows[: key.shards] if dealt else None,
        window=key.window,
        unit_blocks=key.unit_blocks,
    )


def settle(start: Start, key: OrderKey, options: OrderOptions, topology: Topology) -> Start:
    """The start itself, or that of the next epoch if no rank would get anything from it.

    The answer is the same on every rank.
    """
    size = order_of(start, key).size
    needed = options.step_size * topology.world_size // options.replication if options.tail == "drop" else 1
    if start.position == 0 or start.position + needed <= size:
        return start
    return Start(start.epoch, explicit=True) if start.explicit else start.following()


def order_of(start: Start, key: OrderKey) -> OrderKey:
    """The order of the epoch that `start` begins: `key`, or the one from before the data set grew."""
    return key if start.past is None else OrderKey(**start.past)


class EpochPlan:
    """The batches of one rank, from a start to the end of its epoch.

    Attributes:
        start: where it begins.
        size: samples of the epoch.
        lanes: of its order.
        batch_size: samples of every batch but perhaps the last.
        num_batches, num_samples: of this rank.
    """

    def __init__(
        self,
        tables: ShardTables,
        key: OrderKey,
        options: OrderOptions,
        topology: Topology,
        start: Start,
        *,
        where: str,
    ) -> None:
        """Plans without reading data.

        Args:
            tables: the data set.
            key: of its order.
            options: how it is divided.
            topology: this rank.
            start: epoch and position.
            where: the data set, for messages.

        Raises:
            InvalidError: the options yield nothing at all, or do not fit the ranks or the data set.
        """
        options.check_world(topology.world_size)
        if options.epoch_size is not None and options.epoch_size > key.rows:
            raise InvalidError(f"{where}: epoch_size={options.epoch_size}: there are {key.rows} samples")
        self._tables = tables
        self._key = order_of(start, key)
        self.start = start
        self.size = self._key.size
        self.lanes = self._key.lanes
        self.batch_size = options.step_size
        try:
            self._partition = _core.Partition(
                size=self.size,
                start=min(start.position, self.size),
                lanes=self.lanes,
                batch_size=self.batch_size,
                world_size=topology.world_size,
                rank=topology.rank,
                replication=options.replication,
                tail=options.tail,
            )
        except InvalidError as error:
            raise InvalidError(f"{where}: {error}") from None
        self.num_batches: int = self._partition.num_batches
        self.num_samples: int = self._partition.num_samples
        self._steps: int = self._partition.num_steps

    @cached_property
    def _order(self) -> _core.EpochOrder:
        return _epoch_order(self._key, self._tables, self.start.epoch)

    def batch(self, index: int) -> PlannedBatch:
        """Batch `index` of this rank, 0 to num_batches - 1."""
        positions, is_repeat = self._partition.batch(index)
        return PlannedBatch(positions, self._order.ids(positions), is_repeat)

    def id_at(self, position: int) -> int:
        """The sample at a position of the epoch."""
        return int(self._order.ids(np.array([position], dtype=np.uint64))[0])

    def native(self) -> tuple[_core.EpochOrder, _core.Partition]:
        """Order and partition, for the native pipeline."""
        return self._order, self._partition

    def batches(self, indices: Sequence[int]) -> PlannedBatch:
        """Several batches of this rank, at least one, joined to one."""
        parts = [self._partition.batch(index) for index in indices]
        positions = np.concatenate([part for part, _ in parts])
        repeat: npt.NDArray[np.bool_] | None = None
        if any(part is not None for _, part in parts):
            repeat = np.concatenate([np.zeros(len(p), np.bool_) if r is None else r for p, r in parts])
        return PlannedBatch(positions, self._order.ids(positions), repeat)

    def position_after(self, steps: int) -> int:
        """The first position that was not delivered after so many steps of all ranks: `size` after the last."""
        return self.size if steps >= self._steps else int(self._partition.position_after(steps))

    def position_within(self, samples: int) -> int | None:
        """The position after this rank's first `samples`.

        None if what was delivered is no prefix of the order: in the middle of a batch that several ranks or lanes
        share.
        """
        steps, within = divmod(samples, self.batch_size)
        if samples >= self.num_samples:
            return self.position_after(self.num_batches)
        if within == 0:
            return self.position_after(steps)
        if self._partition.global_batch_size == self.batch_size and self.lanes == 1:
            return self.position_after(steps) + within
        return None
