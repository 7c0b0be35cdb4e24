"""`on_bad_sample="replace"`: docs/order.md, section 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastshard._gather import DataGather
from fastshard._plan import EpochPlan, PlannedBatch
from fastshard.batch import Batch
from fastshard.errors import CorruptError, Error, StorageError
from fastshard.source import Data

__all__ = ["BadSample", "BadSamples"]

_MOST = 10
_MOST_SHARE = 1000  # one in so many


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that could not be read.

    Attributes:
        id: Its id.
        shard: File name of its shard.
        message: What was wrong.
        replaced_by: Id of the sample that stood in for it.
    """

    id: int
    shard: str
    message: str
    replaced_by: int


class BadSamples:
    """Replaces bad samples of one epoch after another, and gives up when they are too many."""

    def __init__(self, data: Data, where: str) -> None:
        self._data = data
        self._where = where
        self._plan: EpochPlan | None = None
        self._found: list[BadSample] = []

    @property
    def found(self) -> tuple[BadSample, ...]:
        return tuple(self._found)

    def begin(self, plan: EpochPlan) -> None:
        """A new epoch: counts from nothing."""
        self._plan = plan
        self._found = []

    def replaced(self, index: int, error: Error, gather: DataGather) -> Batch:
        """Batch `index` of the plan as arrays, each of its bad samples replaced by the next good one of its lane.

        Args:
            error: What reading the batch raised.

        Raises:
            CorruptError: More than ten samples of the epoch and more than one in a thousand are bad, or a lane has no
                good one.
        """
        plan = self._plan
        assert plan is not None
        planned = plan.batch(index)
        places = planned.places.copy()
        repeat = np.zeros(len(places), np.bool_) if planned.is_repeat is None else planned.is_repeat.copy()
        for i, (place, position) in enumerate(
            zip(planned.places.tolist(), planned.positions.tolist(), strict=True)
        ):
            fault = self._fault(place)
            if fault is None:
                continue
            good = self._next_good(plan, position)
            places[i], repeat[i] = good, True
            id, shard = self._data.locate(place)
            self._found.append(BadSample(id, shard, str(fault), self._data.locate(good)[0]))
            self._check_limit(plan, fault)
        if not repeat.any():
            raise error
        return gather.batch_numpy(PlannedBatch(planned.positions, places, repeat), plan.start.epoch)

    def _fault(self, place: int) -> Error | None:
        try:
            self._data.gather(np.array([place], np.int64))
        except (CorruptError, StorageError) as error:
            return error
        return None

    def _next_good(self, plan: EpochPlan, position: int) -> int:
        """The sample at the first good position after `position` in its lane, going on at the lane's head."""
        lane = position % plan.lanes
        size = (plan.size - lane + plan.lanes - 1) // plan.lanes
        place = position // plan.lanes
        for step in range(1, size):
            other = plan.place_at(((place + step) % size) * plan.lanes + lane)
            if self._fault(other) is None:
                return other
        raise CorruptError(
            f"{self._where}: there is no good sample to stand in for a bad one: all of a lane are bad"
        )

    def _check_limit(self, plan: EpochPlan, last: Error) -> None:
        if len(self._found) > max(_MOST, plan.size // _MOST_SHARE):
            raise CorruptError(
                f"{self._where}: {len(self._found)} bad samples in epoch {plan.start.epoch} are more than one in "
                f'{_MOST_SHARE} and more than {_MOST}; run "fastshard verify"; the last: {last}'
            ) from last
