"""Data sets without data, ranks and workers without processes: iteration as integers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fastshard import _core, distributed
from fastshard._iteration import Progress
from fastshard._plan import PlannedBatch
from fastshard._source import Source
from fastshard.dataset import ShardDataset
from fastshard.distributed import WorkerInfo
from fastshard.source import Data, Geometry


@dataclass(frozen=True)
class Tables:
    """The tables of a data set with so many samples, and blocks, in each shard.

    With `of`, they are those of a view: `rows` samples are selected of the `of` that each shard has.
    """

    rows: tuple[int, ...]
    block: int = 3
    of: tuple[int, ...] | None = None

    def fingerprint_of(self, shards: int) -> str:
        return hashlib.md5(repr(self.rows[:shards]).encode()).hexdigest()


class VirtualData(Data):
    """Samples that exist in their numbers only."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        rows = np.array(tables.of or tables.rows, np.int64)
        whole = Geometry(
            rows,
            -(-rows // tables.block),
            np.full(len(rows), tables.block, np.int64),
            max(1, int(rows.sum()) // 2),
            1,
        )
        self._geometry = whole if tables.of is None else whole.select(_selection(tables))

    rows = property(lambda self: sum(self._tables.rows))
    fingerprint = property(lambda self: self.fingerprint_of(len(self._tables.rows)))
    geometry = property(lambda self: self._geometry)

    def fingerprint_of(self, shards: int) -> str:
        return self._tables.fingerprint_of(shards)

    def _nothing(self, *_: object, **__: object) -> Any:
        raise AssertionError("there is nothing to read")

    columns = schema = recipe = row_bytes = statistics = property(_nothing)
    gather = check_nulls = locate = stats = close = _delivering = _nothing


def _selection(tables: Tables) -> _core.Selection:
    """The last samples of each shard, so many as are wanted."""
    assert tables.of is not None
    ends = np.cumsum(tables.of)
    ids = [np.arange(end - count, end) for end, count in zip(ends, tables.rows, strict=True)]
    return _core.Selection.restore("ids", np.concatenate(ids), int(ends[-1]))


class VirtualSource(Source):
    """Reads nothing: a sample is (id, position, is_repeat, epoch), a batch a list of them."""

    __slots__ = ("numbers",)

    def open(self) -> Any:
        return self.numbers

    def gather(self) -> Any:
        return VirtualGather()

    def made(self, progress: Progress) -> Any:
        plan, gather = progress.plan, self.gather()
        return (gather.batch(plan.batch(index), plan.start.epoch) for index in progress.rest())


class VirtualBatch(list[tuple[int, int, bool, int]]):
    def samples(self) -> Iterator[tuple[int, int, bool, int]]:
        return iter(self)


class VirtualGather:
    max_rows = 5

    def batch_numpy(self, planned: PlannedBatch, epoch: int) -> VirtualBatch:
        assert 0 < len(planned.places) <= self.max_rows
        return VirtualBatch(self.batch(planned, epoch))

    def batch(self, planned: PlannedBatch, epoch: int) -> list[tuple[int, int, bool, int]]:
        repeat = [False] * len(planned.places) if planned.is_repeat is None else planned.is_repeat.tolist()
        return list(
            zip(
                planned.places.tolist(),
                planned.positions.tolist(),
                repeat,
                [epoch] * len(repeat),
                strict=True,
            )
        )


def dataset(tables: Tables | Data, **options: Any) -> ShardDataset:
    """A data set of these tables, or of other data."""
    result = ShardDataset("virtual", **options)
    source = VirtualSource(result._source.recipe, result._source.order, result._source.reading)
    source.numbers = tables if isinstance(tables, Data) else VirtualData(tables)
    result._source = source
    return result


def fork(data: ShardDataset) -> ShardDataset:
    """What a forked process has of a data set: the same shared page, and nothing else in common."""
    copy = object.__new__(ShardDataset)
    copy.__dict__.update(data.__dict__)
    copy._forget()
    return copy


@contextmanager
def being(worker: int, num_workers: int, seed: int = 0) -> Iterator[None]:
    """Runs as a DataLoader worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "worker_info", lambda: WorkerInfo(worker, num_workers, seed))
        yield


@dataclass
class Loader:
    """A DataLoader of one rank, with workers that run in turn; `batch_size` samples a batch, None for ready ones."""

    data: ShardDataset
    batch_size: int | None
    num_workers: int
    persistent: bool = False
    drop_last: bool = False
    iterators: int = 0
    copies: list[ShardDataset] = field(default_factory=list)

    def epoch(self) -> Iterator[list[Any]]:
        """Yields the batches of one iteration."""
        if self.num_workers == 0:
            yield from self._batches(iter(self.data))
            return
        if not (self.persistent and self.copies):
            self.copies = [fork(self.data) for _ in range(self.num_workers)]
            self.iterators += 1
        sources = []
        for worker in np.random.default_rng(self.iterators).permutation(self.num_workers):
            with being(int(worker), self.num_workers, self.iterators):
                sources.append((int(worker), self._batches(iter(self.copies[worker]))))
        running = [source for _, source in sorted(sources)]
        while running:
            for source in list(running):
                batch = next(source, None)
                if batch is None:
                    running.remove(source)
                else:
                    yield batch

    def _batches(self, items: Iterator[Any]) -> Iterator[list[Any]]:
        if self.batch_size is None:
            yield from items
            return
        while batch := [item for _, item in zip(range(self.batch_size), items, strict=False)]:
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch


def ranks(tables: Tables | Data, world_size: int, **options: Any) -> list[ShardDataset]:
    """The data set of each rank of a run."""
    return [dataset(tables, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def global_batches(loaders: Sequence[Iterator[list[Any]]]) -> Iterator[list[list[Any]]]:
    """What all ranks get, step by step: a list with a batch of each rank, empty where it has none."""
    running = [iter(loader) for loader in loaders]
    while True:
        step = [next(loader, []) for loader in running]
        if not any(step):
            return
        yield step


def ids(batch: list[Any]) -> list[int]:
    return [sample[0] for sample in batch]


def delivered(steps: Sequence[Sequence[list[Any]]]) -> list[int]:
    """The positions delivered, without repeats, in order."""
    return sorted(
        position for step in steps for batch in step for _, position, repeat, _ in batch if not repeat
    )
