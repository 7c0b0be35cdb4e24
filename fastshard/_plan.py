"""From options, samples and a start to the batches of one rank: places, positions and repeats.

Needs the index alone: no shard is opened for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._epochs import Start
from fastshard._options import OrderOptions
from fastshard.distributed import Topology
from fastshard.errors import InvalidError
from fastshard.source import Data, Order
from fastshard.state import OrderKey

__all__ = ["EpochPlan", "PlannedBatch", "order_key", "order_of", "settle"]


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch of one rank.

    Attributes:
        positions: uint64 [batch], places in the epoch's order.
        places: uint64 [batch], the samples there, as the data set or view counts them.
        is_repeat: bool [batch], true where a sample pads the batch; None if none does.
    """

    positions: npt.NDArray[np.uint64]
    places: npt.NDArray[np.uint64]
    is_repeat: npt.NDArray[np.bool_] | None


def order_key(data: Data, options: OrderOptions) -> OrderKey:
    """What the order of samples under these options depends on."""
    geometry = data.geometry
    return OrderKey(
        fingerprint=data.fingerprint,
        rows=data.rows,
        shards=data.shards,
        kind=options.shuffle,
        seed=options.seed,
        lanes=data.default_lanes(options.shuffle) if options.lanes is None else options.lanes,
        window=geometry.window,
        unit_blocks=geometry.unit_blocks,
        epoch_size=options.epoch_size,
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
        data: Data,
        key: OrderKey,
        options: OrderOptions,
        topology: Topology,
        start: Start,
        *,
        where: str,
    ) -> None:
        """Plans without reading data.

        Args:
            data: the samples.
            key: of its order.
            options: how it is divided.
            topology: this rank.
            start: epoch and position.
            where: the samples, for messages.

        Raises:
            InvalidError: the options yield nothing at all, or do not fit the ranks or the data set.
        """
        options.check_world(topology.world_size)
        if options.epoch_size is not None and options.epoch_size > data.max_epoch_size:
            raise InvalidError(f"{where}: epoch_size={options.epoch_size}: there are {key.rows} samples")
        self._data = data
        self._key = order_of(start, key)
        self.start = start
        self.size = self._key.size
        self.lanes = self._key.lanes
        self.batch_size = options.step_size
        self._topology = topology
        self._options = options
        try:
            self._partition = self._partition_of(topology.rank)
        except InvalidError as error:
            raise InvalidError(f"{where}: {error}") from None
        self.num_batches: int = self._partition.num_batches
        self.num_samples: int = self._partition.num_samples
        self._steps: int = self._partition.num_steps

    def _partition_of(self, rank: int) -> _core.Partition:
        return _core.Partition(
            size=self.size,
            start=min(self.start.position, self.size),
            lanes=self.lanes,
            batch_size=self.batch_size,
            world_size=self._topology.world_size,
            rank=rank,
            replication=self._options.replication,
            tail=self._options.tail,
        )

    @cached_property
    def _order(self) -> Order:
        return self._data.epoch_order(self._key, self.start.epoch)

    def share_order(self, other: EpochPlan) -> None:
        """Takes over the order of another rank's plan of the same epoch, instead of working it out again."""
        self._order = other._order

    def batch(self, index: int) -> PlannedBatch:
        """Batch `index` of this rank, 0 to num_batches - 1."""
        positions, is_repeat = self._positions(index)
        return PlannedBatch(positions, self._order.ids(positions), is_repeat)

    def _positions(self, index: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_] | None]:
        if self.deals_last_anew and index == self.num_batches - 1:
            return self._joined_last
        return self._partition.batch(index)

    # The last batches of all ranks, joined (docs/order.md, section 6)

    @property
    def remainder(self) -> int:
        """Of the last batches of all ranks, joined in the order of ranks: how many samples come before the repeats.

        0 if there are no repeats; -1 if others come after them, too.
        """
        left = self.size - min(self.start.position, self.size)
        samples = left - (self._steps - 1) * self._partition.global_batch_size
        if self._options.replication > 1:
            return -1
        if self._repeats == 0:
            return 0
        return samples if self._repeats == 1 or self.deals_last_anew else -1

    @property
    def deals_last_anew(self) -> bool:
        """Whether the last batch is another than the partition's, so that the repeats of all ranks come last."""
        return self._topology.joined and self._repeats > 1 and self._options.replication == 1

    @property
    def _repeats(self) -> int:
        """Repeats of all ranks together."""
        if self._options.tail != "pad":
            return 0
        groups = self._topology.world_size // self._options.replication
        return (min(self.start.position, self.size) - self.size) % groups

    @cached_property
    def _joined_last(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        ranks = range(self._topology.world_size)
        parts = [self._partition_of(rank).batch(self.num_batches - 1) for rank in ranks]
        positions = np.concatenate([part for part, _ in parts])
        repeat = np.concatenate([np.zeros(len(part), np.bool_) if r is None else r for part, r in parts])
        mine = np.argsort(repeat, kind="stable").reshape(len(ranks), -1)[self._topology.rank]
        return positions[mine], repeat[mine]

    def place_at(self, position: int) -> int:
        """The place of the sample at a position of the epoch."""
        return int(self._order.ids(np.array([position], dtype=np.uint64))[0])

    def native(self) -> tuple[_core.EpochOrder, _core.Partition]:
        """Order and partition, for the native pipeline; of samples that `Data.native` knows."""
        assert isinstance(self._order, _core.EpochOrder)
        return self._order, self._partition

    def batches(self, indices: Sequence[int]) -> PlannedBatch:
        """Several batches of this rank, at least one, joined to one."""
        parts = [self._positions(index) for index in indices]
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
