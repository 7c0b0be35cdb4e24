"""Room in /dev/shm for what torch itself moves from a DataLoader worker to the process that trains.

Where that is full, torch's collate function raises an error without a size; and a batch that a collate function or a
transform made is lost, with a message of the worker's queue on stderr: the loop may end early as if all had come.
In workers that iterate our data, either is an error of the consumer that names /dev/shm and its size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

from fastshard.batch import Batch
from fastshard.errors import Error, StorageError

__all__ = ["check_room", "raise_received", "watch_room"]

_SHM = "/dev/shm"
_WAY_OUT = (
    f"make {_SHM} larger (docker run --shm-size=...), take smaller batches or fewer workers, or ShardLoader, which "
    "needs neither"
)


def check_room(batch: Batch) -> None:
    """Raises `StorageError` where /dev/shm, which torch will use, has no room for a batch."""
    try:
        system = os.statvfs(_SHM)
    except OSError:
        return
    needed = sum(
        tensor.numel() * tensor.element_size()
        for tensor in batch.tensors()
        if tensor.device.type == "cpu" and not tensor.is_shared()
    )
    if needed > system.f_bavail * system.f_frsize:
        raise StorageError(
            f"{_room(system)}, and a batch of a DataLoader worker needs {needed:,}: {_WAY_OUT}"
        )


@cache
def watch_room() -> None:
    """In this process, a DataLoader worker: from now on errors of torch's shared memory reach the consumer."""
    from torch.utils.data._utils.collate import default_collate_fn_map

    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    default_collate_fn_map[torch.Tensor] = _naming(default_collate_fn_map[torch.Tensor])


def raise_received(error: Error) -> Any:
    """What is unpickled in the place of a batch that could not be sent."""
    raise error


def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    try:
        reduced: tuple[Any, ...] = reduce_storage(storage)  # type: ignore[no-untyped-call]
    except (
        RuntimeError,
        OSError,
    ) as error:  # here, in a thread of the queue, it would be printed and forgotten
        return raise_received, (_not_placed(storage.nbytes(), error),)
    return reduced


def _naming(collate: Callable[..., Any]) -> Callable[..., Any]:
    def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
        try:
            return collate(batch, collate_fn_map=collate_fn_map)
        except RuntimeError as error:
            if "shared memory" not in str(error):
                raise
            needed = sum(tensor.numel() * tensor.element_size() for tensor in batch)
            raise _not_placed(needed, error) from error

    return collate_tensors


def _not_placed(needed: int, error: Exception) -> StorageError:
    try:
        room = _room(os.statvfs(_SHM))
    except OSError as unknown:
        room = f"{_SHM} is not to be seen ({unknown})"
    return StorageError(
        f"{room}, and a tensor of a DataLoader worker that needs {needed:,} could not be placed there ({error}): "
        f"{_WAY_OUT}"
    )


def _room(system: os.statvfs_result) -> str:
    return f"{_SHM} has {system.f_bavail * system.f_frsize:,} of {system.f_blocks * system.f_frsize:,} bytes left"
