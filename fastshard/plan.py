"""What an epoch will look like, without reading data: batches, repeats and drops, and what each rank reads.

`plan` answers before a run what one otherwise learns in it: does this world size divide the data, how many steps has
an epoch, how many shards does a rank touch, and how often is a block read in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastshard._epochs import Start
from fastshard._gather import Reading
from fastshard._options import OrderOptions
from fastshard._plan import EpochPlan
from fastshard._source import Source
from fastshard.combining import Concat, Parts
from fastshard.distributed import Topology
from fastshard.errors import InvalidError
from fastshard.mixing import Mix
from fastshard.reader import ShardReader
from fastshard.source import Data, Recipe
from fastshard.views import View

__all__ = ["EpochOverview", "RankOverview", "Run", "Storage", "overview", "planned_chunks"]

_CHUNK_SAMPLES = 1 << 18
_MOST_SAMPLES = (
    1 << 26
)  # of all ranks together; beyond, what they read is counted on an even part of their batches
_SHOWN_IDS = 8


@dataclass(frozen=True, slots=True)
class RankOverview:
    """What one rank gets and reads in an epoch.

    Attributes:
        rank: Its number.
        batches, samples: What it gets; samples without repeats.
        repeats: Samples that it gets a second time, to fill up the last batch.
        shards: In which its samples lie.
        blocks: In which they lie.
        bytes: Of these blocks on disk, all columns.
        first_ids: Of its first batch, the first ones.
        first_sources: For a mix, their sources; else empty.
    """

    rank: int
    batches: int
    samples: int
    repeats: int
    shards: int
    blocks: int
    bytes: int
    first_ids: tuple[int, ...]
    first_sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EpochOverview:
    """An epoch from its start (or from `position`) to its end.

    Attributes:
        where: The samples.
        rows: How many there are.
        size: Samples of the epoch.
        position: Where it begins.
        kind, seed, epoch, lanes, window: Of the order.
        world_size, replication, batch_size, tail: How it is divided.
        global_batch: Samples of a step of all ranks.
        full_steps: Steps with so many.
        last_step: Samples of the last step, where it has fewer; 0 where there is no such step.
        dropped: Samples that no rank gets.
        repeats: Samples that come twice, on all ranks.
        shards, blocks, bytes: In which the epoch's samples lie, on all ranks together, each counted once.
        data_shards: Shards of the data.
        reads: How often a block is read by a rank, over how many blocks there are: 1 where each block has one reader.
        counted: The share of the batches on which shards, blocks and bytes were counted; below 1 they are lower bounds.
        ranks: One of each.
        sources: Names and shares of what is mixed; empty where nothing is.
    """

    where: str
    rows: int
    size: int
    position: int
    kind: str
    seed: int
    epoch: int
    lanes: int
    window: int
    world_size: int
    replication: int
    batch_size: int
    tail: str
    global_batch: int
    full_steps: int
    last_step: int
    dropped: int
    repeats: int
    shards: int
    blocks: int
    bytes: int
    data_shards: int
    reads: float
    counted: float
    ranks: tuple[RankOverview, ...]
    sources: tuple[tuple[str, float], ...]


class Storage:
    """Where samples lie in files: shards and blocks of the data sets under views, concatenations and mixes.

    Attributes:
        shard_rows: int64 [shards], all samples of each shard, selected or not.
        shard_ends: int64 [shards], samples up to and with each.
        block_ends: int64 [shards], blocks likewise.
        block_bytes: float64 [shards], mean size of a block on disk.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        readers = list(_readers(data))
        self.shard_rows = np.concatenate([reader.core.shard_rows() for reader in readers])
        self.shard_ends = np.cumsum(self.shard_rows)
        blocks = np.concatenate([reader.core.shard_blocks() for reader in readers])
        self.block_ends = np.cumsum(blocks)
        sizes = np.concatenate([reader.core.shard_bytes() for reader in readers])
        self.block_bytes = sizes / np.maximum(blocks, 1)
        rows = np.concatenate([reader.core.shard_block_rows() for reader in readers])
        nominal = -(-self.shard_rows // np.maximum(blocks, 1))
        self._block_rows = np.maximum(np.where(rows > 0, rows, nominal), 1)

    @property
    def blocks(self) -> int:
        """How many there are."""
        return int(self.block_ends[-1]) if len(self.block_ends) else 0

    def rows_of(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of samples among those of all files, from their places in the data: int64 [n]."""
        return _origins(self._data, places)

    def shards_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The shard of each, int64 [n], of what `rows_of` gave."""
        return np.searchsorted(self.shard_ends, rows, side="right").astype(np.int64)

    def blocks_of(self, rows: npt.NDArray[np.int64], shards: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The block of each among all blocks, int64 [n]; where a shard's blocks are irregular, about the block."""
        in_shard = rows - (self.shard_ends - self.shard_rows)[shards]
        first = np.concatenate([[0], self.block_ends[:-1]])[shards]
        blocks: npt.NDArray[np.int64] = first + in_shard // self._block_rows[shards]
        blocks = np.minimum(blocks, self.block_ends[shards] - 1)
        return blocks

    def shards_of_blocks(self, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The shard of each block."""
        return np.searchsorted(self.block_ends, blocks, side="right").astype(np.int64)


def _readers(data: Data) -> Iterator[ShardReader]:
    if isinstance(data, ShardReader):
        yield data
    elif isinstance(data, View):
        yield from _readers(data.root)
    else:
        assert isinstance(data, (Concat, Mix))
        for part in data.parts:
            yield from _readers(part)


def _origins(data: Data, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if isinstance(data, View):
        return _origins(data.root, data.selection.ids(places))
    if not isinstance(data, (Concat, Mix)):
        return places
    parts = Parts(data.parts)
    which = np.searchsorted(parts.ends, places, side="right")
    origins = np.empty(len(places), np.int64)
    first = 0
    for j, part in enumerate(data.parts):
        mine = np.flatnonzero(which == j)
        origins[mine] = first + _origins(part, places[mine] - parts.first(j))
        first += sum(reader.rows for reader in _readers(part))
    return origins


class Run:
    """The samples and how they are ordered and divided: one plan for each rank."""

    def __init__(
        self,
        samples: Any,
        *,
        world_size: int,
        batch_size: int,
        shuffle: bool | str,
        seed: int,
        epoch: int,
        tail: str,
        lanes: int | None,
        replication: int,
        epoch_size: int | None,
        position: int,
    ) -> None:
        """Raises as `overview` does."""
        if isinstance(world_size, bool) or not isinstance(world_size, int) or world_size < 1:
            raise InvalidError(f"world_size={world_size!r}: must be an integer of at least 1")
        for name, value in (("epoch", epoch), ("position", position)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidError(f"{name}={value!r}: must be an integer of at least 0")
        self.options = OrderOptions.of_arguments(
            shuffle=shuffle,
            seed=seed,
            lanes=lanes,
            epoch_size=epoch_size,
            batch_size=batch_size,
            tail=tail,
            drop_last=False,
            replication=replication,
        )
        self.options.check_world(world_size)
        self.source = Source(samples, self.options, Reading())
        self.data = self.source.open()
        self.world_size = world_size
        self.start = Start(epoch, position)
        self.key = self.source.key()
        self._first: EpochPlan | None = None
        if position > self.key.size:
            raise InvalidError(f"position={position}: the epoch has {self.key.size} samples")

    def overview(self) -> EpochOverview:
        """See the function of this name."""
        return _overview(self)

    def plan(self, rank: int) -> EpochPlan:
        """The batches of one rank."""
        plan = self.source.plan(self.start, Topology(rank, self.world_size))
        if self._first is None:
            self._first = plan
        else:
            plan.share_order(self._first)
        return plan


def overview(
    samples: str | Data | Recipe,
    *,
    world_size: int = 1,
    batch_size: int,
    shuffle: bool | str = False,
    seed: int = 0,
    epoch: int = 0,
    tail: str = "pad",
    lanes: int | None = None,
    replication: int = 1,
    epoch_size: int | None = None,
    position: int = 0,
) -> EpochOverview:
    """What the ranks of a run get and read in one epoch. Reads no data.

    Args:
        samples: As `ShardDataset` takes them.
        world_size: Ranks.
        batch_size, shuffle, seed, tail, lanes, replication, epoch_size: As `ShardDataset`.
        epoch: Which one.
        position: Where the run begins in it: the samples that were delivered before.

    Raises:
        InvalidError: The options do not fit each other or the data, or yield nothing at all.
        Error: As `fastshard.open` says.
    """
    return Run(
        samples,
        world_size=world_size,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        epoch=epoch,
        tail=tail,
        lanes=lanes,
        replication=replication,
        epoch_size=epoch_size,
        position=position,
    ).overview()


def _overview(run: Run) -> EpochOverview:
    storage = Storage(run.data)
    groups = run.world_size // run.options.replication
    global_batch = groups * run.options.step_size
    rest = run.key.size - run.start.position
    every = max(1, -(-rest // _MOST_SAMPLES))
    touched = np.zeros(storage.blocks, np.bool_)
    group_ranks = [
        _rank(run, storage, group * run.options.replication, every, touched) for group in range(groups)
    ]
    ranks = tuple(
        replace(group_ranks[rank // run.options.replication], rank=rank) for rank in range(run.world_size)
    )
    shards, blocks, size = _sizes(storage, touched)
    last = rest % global_batch
    return EpochOverview(
        where=run.source.where,
        rows=run.data.rows,
        size=run.key.size,
        position=run.start.position,
        kind=run.key.kind,
        seed=run.key.seed,
        epoch=run.start.epoch,
        lanes=run.key.lanes,
        window=run.key.window,
        world_size=run.world_size,
        replication=run.options.replication,
        batch_size=run.options.step_size,
        tail=run.options.tail,
        global_batch=global_batch,
        full_steps=rest // global_batch,
        last_step=0 if run.options.tail == "drop" else last,
        dropped=last if run.options.tail == "drop" else 0,
        repeats=sum(rank.repeats for rank in group_ranks),
        shards=shards,
        blocks=blocks,
        bytes=size,
        data_shards=len(storage.shard_rows),
        reads=sum(rank.blocks for rank in ranks) / blocks if blocks else 0.0,
        counted=1 / every,
        ranks=ranks,
        sources=_shares(run.data),
    )


def _shares(data: Data) -> tuple[tuple[str, float], ...]:
    if not isinstance(data, Mix):
        return ()
    total = sum(data.weights)
    return tuple((name, weight / total) for name, weight in zip(data.sources, data.weights, strict=True))


def _rank(run: Run, storage: Storage, rank: int, every: int, touched: npt.NDArray[np.bool_]) -> RankOverview:
    """One rank; marks the blocks that it reads in `touched`, too."""
    plan = run.plan(rank)
    mine = np.zeros(len(touched), np.bool_)
    for planned in planned_chunks(plan, every):
        rows = storage.rows_of(planned.view(np.int64))
        mine[storage.blocks_of(rows, storage.shards_of(rows))] = True
    touched |= mine
    shards, blocks, size = _sizes(storage, mine)
    repeats = 0
    first: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    if plan.num_batches:
        last = plan.batch(plan.num_batches - 1)
        repeats = 0 if last.is_repeat is None else int(last.is_repeat.sum())
        first = plan.batch(0).places[:_SHOWN_IDS].view(np.int64)
    return RankOverview(
        rank=rank,
        batches=plan.num_batches,
        samples=plan.num_samples - repeats,
        repeats=repeats,
        shards=shards,
        blocks=blocks,
        bytes=size,
        first_ids=tuple(run.data.locate(place)[0] for place in first.tolist()),
        first_sources=_sources(run.data, first),
    )


def _sources(data: Data, places: npt.NDArray[np.int64]) -> tuple[str, ...]:
    if not isinstance(data, Mix):
        return ()
    which = np.searchsorted(Parts(data.parts).ends, places, side="right")
    return tuple(data.sources[j] for j in which.tolist())


def _sizes(storage: Storage, blocks: npt.NDArray[np.bool_]) -> tuple[int, int, int]:
    """Shards, blocks and bytes of the marked blocks."""
    marked = np.flatnonzero(blocks)
    shards = storage.shards_of_blocks(marked)
    return len(np.unique(shards)), len(marked), round(float(storage.block_bytes[shards].sum()))


def planned_chunks(plan: EpochPlan, every: int = 1) -> Iterator[npt.NDArray[np.uint64]]:
    """Places of a rank's samples, uint64, many batches at a time; of each `every` batches one."""
    at_once = max(1, _CHUNK_SAMPLES // plan.batch_size)
    wanted = range(0, plan.num_batches, every)
    for first in range(0, len(wanted), at_once):
        yield plan.batches(wanted[first : first + at_once]).places
