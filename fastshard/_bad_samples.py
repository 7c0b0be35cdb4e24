"""`on_bad_sample="replace"`: docs/order.md, section 10."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    """A sample that could not be read, or on which `sample_transform` failed.

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

    def __init__(self, data: Data, gather: DataGather, where: str) -> None:
        self._data = data
        self._gather = gather
        self._where = where
        self.begin(None)

    @property
    def found(self) -> tuple[BadSample, ...]:
        return tuple(self._found.values())

    def begin(self, plan: EpochPlan | None) -> None:
        """A new epoch, or none yet: counts from nothing."""
        self._plan = plan
        self._found: dict[int, BadSample] = {}  # by positions
        self._stand_ins: dict[
            int, tuple[int, int]
        ] = {}  # by positions: steps along the lane, and the place there

    def replaced(self, index: int, error: Error) -> Batch:
        """Batch `index` of the plan as arrays, each sample that cannot be read replaced by the next of its lane.

        Args:
            error: What reading the batch raised.

        Raises:
            CorruptError: More than ten samples of the epoch and more than one in a thousand are bad, or a lane has no
                good one.
        """
        plan = self._plan
        assert plan is not None
        planned = plan.batch(index)
        found = 0
        for place, position in zip(planned.places.tolist(), planned.positions.tolist(), strict=True):
            fault = self._fault(place)
            if fault is not None:
                self._replace(plan, position, fault)
                found += 1
        if not found:
            raise error
        return self._made(plan, planned.positions, planned.is_repeat)

    def transformable(self, batch: Batch, raised: dict[int, Exception]) -> Batch:
        """The batch with others in place of samples on which a transform failed.

        Args:
            batch: Of this epoch's plan, as arrays.
            raised: What the transform raised, by places in the batch.

        Raises:
            CorruptError: As `replaced`.
        """
        plan = self._plan
        assert plan is not None
        for i, error in raised.items():
            self._replace(plan, int(batch.positions[i]), error)
        return self._made(plan, batch.positions.view(np.uint64), batch.is_repeat)

    def _made(
        self, plan: EpochPlan, positions: npt.NDArray[np.uint64], is_repeat: npt.NDArray[np.bool_] | None
    ) -> Batch:
        places = np.empty(len(positions), np.uint64)
        repeat = np.zeros(len(positions), np.bool_) if is_repeat is None else is_repeat.copy()
        for i, position in enumerate(positions.tolist()):
            if position in self._stand_ins:
                places[i], repeat[i] = self._stand_ins[position][1], True
            else:
                places[i] = plan.place_at(position)
        return self._gather.batch_numpy(PlannedBatch(positions, places, repeat), plan.start.epoch)

    def _replace(self, plan: EpochPlan, position: int, fault: Exception) -> None:
        """Settles what stands at `position`, where a sample or its stand-in so far is bad."""
        steps, _ = self._stand_ins.get(position, (0, 0))
        steps, good = self._next_good(plan, position, steps + 1)
        self._stand_ins[position] = steps, good
        id, shard = self._data.locate(plan.place_at(position))
        message = self._found[position].message if position in self._found else _described(fault)
        self._found[position] = BadSample(id, shard, message, self._data.locate(good)[0])
        if len(self._found) > max(_MOST, plan.size // _MOST_SHARE):
            advice = 'run "fastshard verify"; ' if isinstance(fault, Error) else ""
            raise CorruptError(
                f"{self._where}: {len(self._found)} bad samples in epoch {plan.start.epoch} are more than one in "
                f"{_MOST_SHARE} and more than {_MOST}; {advice}the last: {_described(fault)}"
            ) from fault

    def _fault(self, place: int) -> Error | None:
        try:
            self._data.gather(np.array([place], np.int64))
        except (CorruptError, StorageError) as error:
            return error
        return None

    def _next_good(self, plan: EpochPlan, position: int, steps: int) -> tuple[int, int]:
        """From `steps` steps after `position` in its lane on, going on at the lane's head: steps and place of a sample
        that can be read."""
        lane = position % plan.lanes
        size = (plan.size - lane + plan.lanes - 1) // plan.lanes
        place = position // plan.lanes
        for step in range(steps, size):
            other = plan.place_at(((place + step) % size) * plan.lanes + lane)
            if self._fault(other) is None:
                return step, other
        raise CorruptError(
            f"{self._where}: there is no good sample to stand in for a bad one: all of a lane are bad"
        )


def _described(fault: Exception) -> str:
    if isinstance(fault, Error):
        return str(fault)
    notes = getattr(fault, "__notes__", [])
    return "; ".join([f"{type(fault).__name__}: {fault}", *notes])
