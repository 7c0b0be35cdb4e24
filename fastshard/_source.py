"""A data set with its options: opened when first needed, planned and gathered from; pickles as its arguments."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any

from fastshard import distributed
from fastshard._core import SharedPool
from fastshard._epochs import Start
from fastshard._gather import DataGather, Reading
from fastshard._iteration import Progress
from fastshard._options import OrderOptions
from fastshard._pipeline import Pipeline, choose, two_windows
from fastshard._plan import EpochPlan, order_key, order_of, settle
from fastshard.batch import Batch
from fastshard.distributed import Topology
from fastshard.source import Data, Recipe, recipe_of
from fastshard.state import OrderKey, State, check_order

__all__ = ["Source"]


class Source:
    """What `ShardDataset` and the loaders read from. Immutable but for what it has opened.

    Attributes:
        recipe: how the samples are opened.
        order: how an epoch is ordered and divided.
        reading: what of them is read, and in which form.
    """

    __slots__ = ("_data", "_fingerprint", "_key", "_pool", "order", "reading", "recipe")

    def __init__(
        self, samples: str | os.PathLike[str] | Data | Recipe, order: OrderOptions, reading: Reading
    ) -> None:
        self.recipe = recipe_of(samples)
        self.order = order
        self.reading = reading
        self._data: Data | None = None
        self._key: OrderKey | None = None
        self._fingerprint: str | None = None  # what another process reads by this recipe
        self._pool: SharedPool | None = None  # of this process, if it is a DataLoader worker

    def with_order(self, **changes: Any) -> Source:
        """The same samples, already open if these are, with some options of their order replaced."""
        source = Source(self.recipe, replace(self.order, **changes), self.reading)
        source._data = self._data
        return source

    def __getstate__(self) -> tuple[Recipe, OrderOptions, Reading, str | None]:
        """Recipe and options; for a process that multiprocessing is spawning, also which data this one has opened."""
        spawning = get_spawning_popen() is not None
        opened = self._fingerprint if self._data is None else self._data.fingerprint
        return self.recipe, self.order, self.reading, opened if spawning else None

    def __setstate__(self, state: tuple[Recipe, OrderOptions, Reading, str | None]) -> None:
        recipe, order, reading, fingerprint = state
        self.__init__(recipe, order, reading)  # type: ignore[misc]
        self._fingerprint = fingerprint

    @property
    def where(self) -> str:
        """The samples in one line, for messages."""
        return self.recipe.where

    def open(self) -> Data:
        """The samples, open in this process. See `Recipe.open` for what it raises."""
        if self._data is None:
            windowed = self.order.shuffle == "block"
            self._data = self.reading.open(
                self.recipe,
                windowed=windowed,
                whole_blocks=self.order.shuffle != "global",
                fingerprint=self._fingerprint,
            )
        return self._data

    def key(self) -> OrderKey:
        """What names the order."""
        if self._key is None:
            self._key = order_key(self.open(), self.order)
        return self._key

    def settle(self, start: Start, topology: Topology) -> Start:
        """See `_plan.settle`."""
        return settle(start, self.key(), self.order, topology)

    def plan(self, start: Start, topology: Topology) -> EpochPlan:
        """This rank's batches from `start` on.

        Raises:
            InvalidError: the options yield nothing at all, or do not fit the ranks or the data set.
        """
        return EpochPlan(self.open(), self.key(), self.order, topology, start, where=self.where)

    def gather(self) -> DataGather:
        """What reads planned samples in the form that the options ask for.

        Raises:
            NullError: columns with nulls have no such form.
        """
        return DataGather(self.open(), self.reading)

    def made(self, progress: Progress) -> Generator[Batch, None, None]:
        """What is left of this worker's batches, as tensors, made ahead.

        In a DataLoader worker they lie in memory that the main process will map.

        Raises:
            NullError: columns with nulls have no form in batches.
        """
        data, topology = self.open(), progress.topology
        in_worker = distributed.worker_info() is not None
        if in_worker and self._pool is None:
            from fastshard import _handover

            self._pool = _handover.make_pool()
        cache = self.reading.cache_bytes
        pipeline = Pipeline(
            data=data,
            gather=self.gather(),
            order=self.order.shuffle,
            engine=choose("auto", data, None),
            verify=self.reading.verify,
            memory=two_windows(data) if cache is None else cache,
            threads=max(1, distributed.usable_cpus() // topology.num_workers),
            prefetch=2 if in_worker else None,  # the DataLoader fetches ahead as well
        )
        rest = progress.rest()
        return pipeline.made(progress.plan, rest.start, rest.step, self._pool)

    def state(self, start: Start, position: int) -> State:
        """The state of a run that began at `start` and stands at `position`."""
        order = order_of(start, self.key())
        samples = self.open().identity()
        if position >= order.size:  # the end of an epoch is the beginning of the next
            return State(self.key(), start.epoch + 1, 0, samples=samples)
        return State(order, start.epoch, position, samples=samples)

    def start_of(self, state: State, *, allow_growth: bool = False) -> Start:
        """Where a run goes on.

        Raises:
            StateError: the state belongs to other data or another order.
        """
        past = check_order(
            state.order,
            self.key(),
            allow_growth=allow_growth,
            fingerprint_of=self.open().fingerprint_of,
            samples=(state.samples, self.open().identity()),
            where=self.where,
        )
        if past is None or state.position == 0:
            return Start(state.epoch, state.position)
        return Start(state.epoch, state.position, past=past.to_dict())
