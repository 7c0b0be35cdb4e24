"""One iteration: a worker's share of a plan, gathered and handed out, and how far it got."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from fastshard._plan import EpochPlan, PlannedBatch
from fastshard._transforms import Function
from fastshard.batch import Batch
from fastshard.distributed import Topology

__all__ = ["Gather", "Progress", "batches", "sample_lists", "samples"]


class Gather(Protocol):
    """Reads planned samples."""

    max_rows: int  # as many samples at once keep memory bounded

    def batch_numpy(self, planned: PlannedBatch, epoch: int) -> Batch:
        """They as a batch of arrays."""


@dataclass(slots=True)
class Progress:
    """What of a plan was delivered by one worker.

    Attributes:
        plan: this rank's batches.
        topology: rank and worker; worker w of W delivers batches w, w + W, ...
        batches: that this worker delivered, where batches are what it delivers.
        samples: that it delivered, where samples are.
        finished: the worker has nothing left.
        closed: it was given up, or finished.
    """

    plan: EpochPlan
    topology: Topology
    batches: int = 0
    samples: int = 0
    finished: bool = False
    closed: bool = False

    def position(self) -> int | None:
        """The first position not delivered, as `EpochPlan.position_within`. Only where one worker does it all."""
        if self.finished:
            return self.plan.size
        if self.batches:
            return self.plan.position_after(self.batches)
        return self.plan.position_within(self.samples)

    def counted(self) -> tuple[int, int]:
        """(whole batches, samples of the next one) that this worker delivered."""
        if self.batches:
            return self.batches, 0
        return divmod(self.samples, self.plan.batch_size)

    def resume(self, batches: int, samples: int, *, batched: bool) -> None:
        """Counts what was delivered before, as `counted` said."""
        if batched:
            self.batches = batches
        else:
            self.samples = batches * self.plan.batch_size + samples

    def rest(self) -> range:
        """This worker's batches that were not delivered whole."""
        done, _ = self.counted()
        step = self.topology.num_workers
        return range(self.topology.worker + done * step, self.plan.num_batches, step)


def batches(
    progress: Progress, made: Generator[Any, None, None], transform: Function | None
) -> Generator[Any, None, None]:
    """Yields this worker's batches, as they were made."""
    try:
        with closing(made):
            for batch in made:
                if transform is not None:
                    batch = transform.on_batch(batch)
                progress.batches += 1
                yield batch
        progress.finished = True
    finally:
        progress.closed = True


def sample_lists(progress: Progress, gather: Gather, transform: Function | None) -> Iterator[list[Any]]:
    """Yields this worker's batches, each as a list of samples."""
    plan, epoch = progress.plan, progress.plan.start.epoch
    try:
        for index in progress.rest():
            planned = plan.batch(index)
            result: list[Any] = []
            for part in _pieces(planned, gather.max_rows):
                result.extend(_separate(gather.batch_numpy(part, epoch), transform))
            progress.batches += 1
            yield result
        progress.finished = True
    finally:
        progress.closed = True


def samples(progress: Progress, gather: Gather, transform: Function | None) -> Iterator[Any]:
    """Yields this worker's samples, batch after batch. Several small batches are gathered at once."""
    epoch = progress.plan.start.epoch
    try:
        for chunk in _chunks(progress, gather.max_rows):
            for sample in _separate(gather.batch_numpy(chunk, epoch), transform):
                progress.samples += 1
                yield sample
        progress.finished = True
    finally:
        progress.closed = True


def _separate(batch: Batch, transform: Function | None) -> Iterator[Any]:
    return batch.samples() if transform is None else transform.on_samples(batch)


def _chunks(progress: Progress, max_rows: int) -> Iterator[PlannedBatch]:
    """This worker's samples in runs of at most `max_rows`."""
    _, skip = progress.counted()
    rest = progress.rest()
    at_once = max(1, max_rows // progress.plan.batch_size)
    for first in range(0, len(rest), at_once):
        planned = progress.plan.batches(rest[first : first + at_once])
        if skip:
            planned, skip = _slice(planned, skip, len(planned.places)), 0
        yield from _pieces(planned, max_rows)


def _pieces(planned: PlannedBatch, max_rows: int) -> Iterator[PlannedBatch]:
    count = len(planned.places)
    if 0 < count <= max_rows:
        yield planned
        return
    for first in range(0, count, max_rows):
        yield _slice(planned, first, min(first + max_rows, count))


def _slice(planned: PlannedBatch, first: int, end: int) -> PlannedBatch:
    repeat = planned.is_repeat
    return PlannedBatch(
        planned.positions[first:end], planned.places[first:end], None if repeat is None else repeat[first:end]
    )
