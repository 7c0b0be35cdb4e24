"""Who am I among the processes of a run: rank, world size and loader worker.

The only module that reads the environment of a launcher, `torch.distributed` and `torch.utils.data.get_worker_info()`.
Everything else gets a frozen `Topology`, resolved when an iteration starts and passed on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from fastshard import _accelerate
from fastshard.errors import InvalidError

__all__ = [
    "Topology",
    "WorkerInfo",
    "check_rank",
    "local_world_size",
    "resolve",
    "usable_cpus",
    "worker_info",
]

# (rank, world size) as launchers export them. torchrun, TorchDistributor, DeepSpeed and Ray Train set the first pair.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
)


@dataclass(frozen=True, slots=True)
class Topology:
    """A place in a run: process `rank` of `world_size`, and in it loader worker `worker` of `num_workers`.

    A process that reads its own data is worker 0 of 1.

    Attributes:
        rank, world_size, worker, num_workers: as above.
        joined: batches of all ranks will be joined in the order of ranks, where repeats must come last.
    """

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1
    joined: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise InvalidError(
                f"rank {self.rank} of {self.world_size}: the rank must be at least 0 and below world_size"
            )
        if not 0 <= self.worker < self.num_workers:
            raise InvalidError(
                f"worker {self.worker} of {self.num_workers}: the worker must be at least 0 and below num_workers"
            )


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A torch DataLoader worker process. Attributes: its number, how many there are, and what all workers of one
    iterator share: the base seed that torch drew for it."""

    worker: int
    num_workers: int
    base_seed: int


def worker_info() -> WorkerInfo | None:
    """The DataLoader worker that this process is, or None. Does not import torch."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    if info is None:
        return None
    return WorkerInfo(int(info.id), int(info.num_workers), int(info.seed) - int(info.id))


def check_rank(rank: int | None, world_size: int | None) -> None:
    """Validates the two arguments as a user gives them: both or neither.

    Raises:
        InvalidError: one without the other, or a rank outside the world.
    """
    if (rank is None) != (world_size is None):
        raise InvalidError(
            f"rank={rank!r} and world_size={world_size!r}: give both, or neither to take them from torch.distributed "
            "or the launcher's environment"
        )
    if rank is not None and world_size is not None:
        for name, value in (("rank", rank), ("world_size", world_size)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidError(f"{name}={value!r}: must be an integer")
        Topology(rank, world_size)


def resolve(
    rank: int | None = None,
    world_size: int | None = None,
    *,
    carried: tuple[int, int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Topology:
    """Finds this process's place, now.

    In this order: the arguments; an initialised `torch.distributed` process group; what the data set carried when it
    was pickled for this process while multiprocessing spawned it; the environment that the launcher set; rank 0 of 1.
    Outside a DataLoader worker the environment goes before what was carried, since a launcher may have spawned this
    process as a rank of its own.

    Args:
        rank: this process's rank, with `world_size`, or None.
        world_size: how many ranks there are, or None.
        carried: (rank, world size) of the process that spawned this one, if it knew them.
        environ: instead of `os.environ`.

    Raises:
        InvalidError: the values contradict each other; the message says where they come from.
    """
    info = worker_info()
    worker, num_workers = (info.worker, info.num_workers) if info is not None else (0, 1)
    if rank is None or world_size is None:
        env = os.environ if environ is None else environ
        pair = _process_group()
        if pair is None and info is not None:
            pair = carried
        rank, world_size = pair or _environment(env) or carried or (0, 1)
    return Topology(rank, world_size, worker, num_workers, joined=_accelerate.is_here())


def known(
    rank: int | None, world_size: int | None, *, carried: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """(rank, world size) if anything but the default tells them, for a process about to be spawned; else None."""
    if rank is not None and world_size is not None:
        return (rank, world_size)
    return _process_group() or carried or _environment(os.environ)


def local_world_size(environ: Mapping[str, str] | None = None) -> int:
    """How many ranks share this machine, as the launcher says, else 1."""
    env = os.environ if environ is None else environ
    for name in _LOCAL_WORLD_SIZE:
        value = env.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 1


def usable_cpus() -> int:
    """Threads that one rank of this machine should use: CPUs that this process may run on (its affinity and its
    control group), divided by the ranks here, 1 to 8."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cpus()
    if quota is not None:
        cpus = min(cpus, quota)
    return max(1, min(8, cpus // local_world_size()))


def _cgroup_cpus() -> int | None:
    """Whole CPUs of the control group's quota (version 2, then 1), or None where there is none."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        try:
            with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", encoding="ascii") as file:
                quota = file.read().strip()
            with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us", encoding="ascii") as file:
                period = file.read().strip()
        except OSError:
            return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return max(1, int(quota) // int(period))


def _process_group() -> tuple[int, int] | None:
    """The default process group's rank and size, if torch.distributed is imported and initialised."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


def _environment(env: Mapping[str, str]) -> tuple[int, int] | None:
    """The first launcher's pair that is set. Half a pair that means more than one process is an error: reading
    everything on each of several ranks would go unnoticed."""
    for rank_name, size_name in _LAUNCHERS:
        rank, size = env.get(rank_name), env.get(size_name)
        if rank is not None and size is not None:
            pair = _number(rank_name, rank), _number(size_name, size)
            if not 0 <= pair[0] < pair[1]:
                raise InvalidError(
                    f"the environment says {rank_name}={rank} and {size_name}={size}: the rank must be below the size; "
                    "correct them, or pass rank= and world_size="
                )
            return pair
    rank, size = env.get("RANK"), env.get("WORLD_SIZE")
    if (size is not None and _number("WORLD_SIZE", size) > 1) or (
        rank is not None and _number("RANK", rank) > 0
    ):
        raise InvalidError(
            f"the environment says RANK={rank!r} and WORLD_SIZE={size!r}: one of the two is missing; "
            "set both, or pass rank= and world_size="
        )
    return None


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidError(
            f"the environment says {name}={value!r}: not an integer; correct it, or pass rank= and world_size="
        ) from None
