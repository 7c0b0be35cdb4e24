"""What Hugging Face Accelerate must know of our loaders, and our data sets of Accelerate.

Accelerate divides whatever it prepares among its processes. Our data sets have divided already, so

*   our loaders pass `Accelerator.prepare` as they are, since they have an attribute `_is_accelerate_prepared`, and do
    themselves what it would have wrapped around them: batches on its device, and word of the last batch, so that a
    partial accumulation is stepped and `gather_for_metrics` leaves repeats out;
*   a stock DataLoader over a data set of ours, divided twice, is an error instead of a loss.

Accelerate is never imported: where it is not, there is nothing to do.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from fastshard.errors import InvalidError

__all__ = ["check_undivided", "in_step", "is_here", "placed"]


def is_here() -> bool:
    """Whether an Accelerator was made in this process."""
    return _stands("AcceleratorState")


def check_undivided(what: str, *, of_loader: bool) -> None:
    """Refuses to let Accelerate divide once more what `what`, a data set of automatic rank, has divided.

    Args:
        what: the data set, for the message.
        of_loader: it is the `dataset` of a `fastshard.torch.DataLoader`, which alone iterates it under Accelerate.

    Raises:
        InvalidError: Accelerate's state says that there are several processes, or the loader's data set is iterated
            past the loader.
    """
    state = _shared("PartialState")
    if state is None:
        return
    if of_loader:
        raise InvalidError(
            f"{what}: under Accelerate the data set of a fastshard.torch.DataLoader is iterated through that loader "
            "only. skip_first_batches would read it anew from its first epoch: load a state into the loader instead "
            "(loader.load_state_dict; with the Trainer of transformers, and ignore_data_skip=True)"
        )
    processes = int(state.num_processes)
    if processes > 1:
        raise InvalidError(
            f"{what}: a stock DataLoader under Accelerate with {processes} processes would be divided twice, and part "
            "of the samples would never arrive. Take fastshard.torch.DataLoader or fastshard.ShardLoader, which "
            "Accelerator.prepare leaves whole; or do not prepare the DataLoader, and give the data set "
            "rank=accelerator.process_index and world_size=accelerator.num_processes; or let Accelerate alone divide: "
            "rank=0, world_size=1"
        )


def placed(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, on the device of the Accelerator if one was made in this process."""
    state = _shared("PartialState")
    return batches if state is None or not is_here() else _on_its_device(batches, state)


def _on_its_device(batches: Iterator[Any], state: Any) -> Iterator[Any]:
    from accelerate.utils import send_to_device

    device = state.device
    for batch in batches:
        yield send_to_device(batch, device, non_blocking=True)


def in_step(batches: Generator[Any, None, None], count: int, remainder: int) -> Generator[Any, None, None]:
    """The batches, of whose use Accelerate, if it is there, is kept informed.

    Args:
        batches: of one rank.
        count: how many they are.
        remainder: see `EpochPlan.remainder`.
    """
    gradients = _shared("GradientState")
    return batches if gradients is None else _counted(batches, gradients, count, _Progress(remainder))


def _counted(
    batches: Generator[Any, None, None], gradients: Any, count: int, progress: _Progress
) -> Generator[Any, None, None]:
    gradients._add_dataloader(progress)
    try:
        with closing(batches):
            for index, batch in enumerate(batches):
                progress.end_of_dataloader = index + 1 == count
                yield batch
    finally:
        gradients._remove_dataloader(progress)


class _Progress:
    """What `GradientState` asks of the loader that is being iterated; it holds it by a weak reference.

    Attributes:
        end_of_dataloader: the batch in use is the last one.
        remainder: once the last batches of all processes are joined, what comes after so many samples is left out of
            metrics. 0: nothing is; -1: unknown.
    """

    def __init__(self, remainder: int) -> None:
        self.end_of_dataloader = False
        self.remainder = remainder


def _stands(name: str) -> bool:
    """Whether one of Accelerate's states, which all objects of its class share, was set up in this process."""
    module = sys.modules.get("accelerate.state")
    return bool(getattr(getattr(module, name, None), "_shared_state", None))


def _shared(name: str) -> Any | None:
    """That state, if it was set up."""
    return getattr(sys.modules["accelerate.state"], name)() if _stands(name) else None
