"""Where rank and world size come from, and in which order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch.distributed

from fastshard import distributed
from fastshard.distributed import Topology, known, local_world_size, resolve
from fastshard.errors import InvalidError


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in {"RANK", "WORLD_SIZE", "LOCAL_RANK"} or name.startswith(("SLURM_", "OMPI_", "PMI_")):
            monkeypatch.delenv(name)


def test_without_anything_it_is_the_only_process() -> None:
    assert resolve(environ={}) == Topology(0, 1, 0, 1)
    assert known(None, None) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # torchrun, TorchDistributor, DeepSpeed and Ray Train
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8)),
        # srun; in a step with fewer tasks than the job
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        # mpirun of Open MPI, of MPICH
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "0", "PMI_SIZE": "3"}, (0, 3)),
        # a launcher inside a SLURM job: the nearer one counts
        ({"RANK": "5", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (5, 8)),
        # halves that mean one process
        ({"RANK": "0"}, (0, 1)),
        ({"WORLD_SIZE": "1"}, (0, 1)),
        ({"SLURM_PROCID": "0"}, (0, 1)),
    ],
)
def test_launchers(environ: dict[str, str], expected: tuple[int, int]) -> None:
    topology = resolve(environ=environ)
    assert (topology.rank, topology.world_size) == expected
    assert (topology.worker, topology.num_workers) == (0, 1)


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "1"},
        {"WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "-1", "WORLD_SIZE": "2"},
        {"RANK": "one", "WORLD_SIZE": "2"},
    ],
)
def test_contradictory_environment_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidError, match=r"environment says.*(RANK|WORLD_SIZE)"):
        resolve(environ=environ)


def test_arguments_go_first() -> None:
    assert resolve(1, 2, environ={"RANK": "3", "WORLD_SIZE": "8"}) == Topology(1, 2, 0, 1)


def test_an_initialised_process_group_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    assert resolve(environ={"RANK": "0", "WORLD_SIZE": "2"}) == Topology(1, 4)
    assert resolve(carried=(0, 3), environ={}) == Topology(1, 4)
    assert known(None, None) == (1, 4)


def test_a_worker_believes_the_process_that_spawned_it(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert resolve(carried=(2, 4), environ=environ) == Topology(0, 1)
    assert resolve(carried=(2, 4), environ={}) == Topology(2, 4)
    monkeypatch.setattr(distributed, "worker_info", lambda: distributed.WorkerInfo(1, 3, 99))
    assert resolve(carried=(2, 4), environ=environ) == Topology(2, 4, 1, 3)


@pytest.mark.parametrize(
    ("rank", "world_size", "text"),
    [
        (0, None, "give both"),
        (None, 2, "give both"),
        (2, 2, "below world_size"),
        (-1, 2, "at least 0"),
        (0.0, 2, "rank=0.0: must be an integer"),
        (True, 2, "rank=True: must be an integer"),
    ],
)
def test_arguments_are_checked(rank: object, world_size: object, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        distributed.check_rank(rank, world_size)  # type: ignore[arg-type]


def test_topology_is_checked() -> None:
    with pytest.raises(InvalidError, match="worker 2 of 2"):
        Topology(0, 1, 2, 2)


def test_local_world_size() -> None:
    assert local_world_size({}) == 1
    assert local_world_size({"LOCAL_WORLD_SIZE": "4"}) == 4
    assert local_world_size({"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "SLURM_NTASKS_PER_NODE": "8"}) == 2
    assert local_world_size({"SLURM_NTASKS_PER_NODE": "4(x2)"}) == 1


def test_it_does_not_import_torch() -> None:
    code = "import sys; from fastshard import distributed; distributed.resolve(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_process_group_goes_before_half_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning sets WORLD_SIZE without RANK for the processes that it starts."""
    monkeypatch.setattr(distributed, "_process_group", lambda: (1, 2))
    assert distributed.resolve(environ={"WORLD_SIZE": "2"}) == distributed.Topology(1, 2)
