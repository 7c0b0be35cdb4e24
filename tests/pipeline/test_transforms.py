"""Functions of the user: named where they fail, replaced where that is asked for, in processes that stay."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastshard as fs
import fastshard.torch
from fastshard.errors import CorruptError, InvalidError

ROWS = 120


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    fs.write({"x": np.arange(ROWS), "y": np.arange(ROWS) % 7}, tmp_path / "numbers")
    return str(tmp_path / "numbers")


class Unsendable(Exception):
    """Cannot be made again from its `args`, as pickle does."""

    def __init__(self, sample: int, reason: str) -> None:
        super().__init__(f"{sample}: {reason}")


def fails_on_13(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 13:
        raise ValueError("not a picture")
    return {"x": sample["x"], "pid": os.getpid()}


def fails_oddly(sample: dict[str, Any]) -> dict[str, Any]:
    raise Unsendable(int(sample["x"]), "odd")


def fails_on_batches(batch: fs.Batch) -> fs.Batch:
    raise ValueError("no batch")


def fails_often(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] % 10 == 0:
        raise ValueError("not a picture")
    return sample


def forgets(value: Any) -> None:
    pass


def differs(sample: dict[str, Any]) -> dict[str, Any]:
    return {"a" if sample["x"] % 2 else "b": 1}


def dies(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["x"] == 13:
        os._exit(3)
    return sample


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"x": sample["x"], "noise": rng.random()}


def noisy_batch(batch: fs.Batch, rng: np.random.Generator) -> fs.Batch:
    batch["noise"] = torch.from_numpy(rng.random(batch.num_samples))
    return batch


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_fails_is_named_with_its_sample(numbers: str, backend: Any) -> None:
    with fs.ShardLoader(
        numbers, batch_size=8, sample_transform=fails_on_13, transform_backend=backend, threads=1
    ) as loader:
        with pytest.raises(ValueError, match="not a picture") as caught:
            list(loader)
        assert f"sample_transform= failed on sample 13 of {numbers} (epoch 0)" in notes(caught.value)


def test_a_data_set_names_what_fails(numbers: str) -> None:
    with pytest.raises(ValueError, match="not a picture") as caught:
        list(fs.ShardDataset(numbers, transform=fails_on_13))
    assert "transform= failed on sample 13 of" in notes(caught.value)
    with pytest.raises(ValueError, match="no batch") as caught:
        list(fs.ShardDataset(numbers, batch_size=8, batched=True, transform=fails_on_batches))
    assert "transform= failed on a batch of 8 samples from 0 on" in notes(caught.value)


def test_errors_that_cannot_be_sent_are_told(numbers: str) -> None:
    with (
        fs.ShardLoader(
            numbers, batch_size=8, sample_transform=fails_oddly, transform_backend="processes", threads=1
        ) as loader,
        pytest.raises(
            RuntimeError, match=r"(?s)cannot be sent between processes.*Unsendable: 0: odd"
        ) as caught,
    ):
        list(loader)
    assert "failed on sample 0" in notes(caught.value)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_samples_on_which_a_transform_fails_are_replaced(numbers: str, backend: Any) -> None:
    with fs.ShardLoader(
        numbers,
        batch_size=8,
        shuffle=True,
        seed=3,
        sample_transform=fails_on_13,
        transform_backend=backend,
        threads=1,
        on_bad_sample="replace",
    ) as loader:
        plain = [batch.ids.tolist() for batch in fs.ShardLoader(numbers, batch_size=8, shuffle=True, seed=3)]
        batches = list(loader)
        (bad,) = loader.bad_samples
        assert (bad.id, bad.message.startswith("ValueError: not a picture")) == (13, True)
        assert bad.replaced_by != 13
        assert loader.stats().bad_samples == 1
        for batch, ids in zip(batches, plain, strict=True):
            assert batch["x"].tolist() == batch.ids.tolist()
            assert batch.ids.tolist() == [bad.replaced_by if id == 13 else id for id in ids]
            if 13 in ids:
                assert batch.is_repeat.tolist() == [id == 13 for id in ids]


def test_a_stand_in_that_fails_is_replaced_as_well(numbers: str) -> None:
    order = np.concatenate([batch.ids for batch in fs.ShardLoader(numbers, batch_size=8, lanes=1)])
    bad = [int(id) for id in order[5:8]]

    def fails(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["x"] in bad:
            raise ValueError("not a picture")
        return sample

    loader = fs.ShardLoader(numbers, batch_size=8, lanes=1, sample_transform=fails, on_bad_sample="replace")
    batches = list(loader)
    assert batches[0].ids.tolist() == [*order[:5].tolist(), *[int(order[8])] * 3]
    assert [(sample.id, sample.replaced_by) for sample in loader.bad_samples] == [
        (id, order[8]) for id in bad
    ]


def test_a_transform_that_fails_often_raises(numbers: str) -> None:
    loader = fs.ShardLoader(numbers, batch_size=8, sample_transform=fails_often, on_bad_sample="replace")
    with pytest.raises(
        CorruptError, match=r"11 bad samples.*ValueError: not a picture.*sample \d+0"
    ) as caught:
        list(loader)
    assert "verify" not in str(caught.value)  # the data are as they were written
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_forgotten_return_is_named(numbers: str) -> None:
    with pytest.raises(InvalidError, match="transform= returned None: it must return"):
        list(fs.ShardLoader(numbers, batch_size=8, transform=forgets))
    with pytest.raises(InvalidError, match="sample_transform= returned None for sample 0 of"):
        list(fs.ShardLoader(numbers, batch_size=8, sample_transform=forgets))


def test_results_that_make_no_batch_are_named(numbers: str) -> None:
    with pytest.raises(KeyError) as caught:
        list(fs.ShardLoader(numbers, batch_size=8, sample_transform=differs))
    assert "what sample_transform= returned for 8 samples" in notes(caught.value)


def test_functions_that_cannot_be_sent_are_refused_when_the_loader_is_made(numbers: str) -> None:
    with pytest.raises(
        InvalidError, match=r"transform=<function .*<lambda>.*at its top level, or transform_"
    ):
        fs.ShardLoader(numbers, batch_size=8, transform=lambda batch: batch, transform_backend="processes")
    fs.ShardLoader(numbers, batch_size=8, transform=lambda batch: batch).close()


def pids(loader: fs.ShardLoader) -> set[int]:
    return {pid for batch in loader for pid in batch["pid"].tolist()}


def sends_pid(sample: dict[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid()}


def test_processes_stay_from_epoch_to_epoch_and_end_with_close(numbers: str) -> None:
    loader = fs.ShardLoader(
        numbers, batch_size=8, sample_transform=sends_pid, transform_backend="processes", threads=1
    )
    (first,) = pids(loader)
    assert first != os.getpid()
    for _ in loader:  # an iteration that is given up does not end them
        break
    assert pids(loader) == {first}
    loader.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    (second,) = pids(loader)  # a loader that is used again opens again
    assert second != first
    loader.close()


def test_a_process_that_dies_is_told_and_the_next_iteration_has_another(numbers: str) -> None:
    with fs.ShardLoader(
        numbers, batch_size=8, sample_transform=dies, transform_backend="processes", threads=1
    ) as loader:
        for _ in range(2):
            with pytest.raises(BrokenProcessPool, match="a process that runs transforms ended"):
                list(loader)


def sleeps_after_the_first(batch: fs.Batch, journal: str, seconds: float) -> fs.Batch:
    """Notes its process when it begins and when it has ended."""
    with open(journal, "a") as file:
        print("began", os.getpid(), file=file, flush=True)
    if int(batch["x"][0]):
        time.sleep(seconds)
    with open(journal, "a") as file:
        print("ended", os.getpid(), file=file, flush=True)
    return batch


def lines_of(journal: Path, least: int) -> list[list[str]]:
    """The lines, once there are so many."""
    deadline = time.monotonic() + 60
    while True:
        lines = journal.read_text().splitlines() if journal.exists() else []
        if len(lines) >= least:
            return [line.split() for line in lines]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def transform_processes() -> set[int]:
    """Processes that this one started by spawning, and that are there."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.add(pid)
    return found


def seconds_to(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


@pytest.mark.parametrize("threads", [1, 3])
def test_idle_processes_and_those_that_still_import_end_at_once(numbers: str, threads: int) -> None:
    loader = fs.ShardLoader(
        numbers, batch_size=8, sample_transform=sends_pid, transform_backend="processes", threads=threads
    )
    iterator = iter(loader)
    next(iterator)  # the first process is ready, the others may not be
    assert transform_processes()
    assert seconds_to(loader.close) < 2  # it takes some hundredths; the machine may be busy
    assert not transform_processes()
    used = pids(loader)
    assert used <= transform_processes()
    assert seconds_to(loader.close) < 2  # it takes some hundredths; the machine may be busy
    assert not any(map(is_there, used))


def test_a_process_may_end_its_batch_before_the_loader_is_closed(numbers: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    transform = functools.partial(sleeps_after_the_first, journal=str(journal), seconds=0.5)
    loader = fs.ShardLoader(
        numbers, batch_size=8, transform=transform, transform_backend="processes", threads=1
    )
    next(iter(loader))
    lines_of(journal, 3)
    loader.close()
    (*_, last) = lines = lines_of(journal, 4)
    assert (len(lines), last[0]) == (4, "ended")  # and none of those that waited behind it was begun
    assert not is_there(int(last[1]))


def test_a_process_that_does_not_end_its_batch_is_killed(
    numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastshard._transform_pool._BUSY_SECONDS", 0.3)
    journal = tmp_path / "journal"
    transform = functools.partial(sleeps_after_the_first, journal=str(journal), seconds=600)
    loader = fs.ShardLoader(
        numbers, batch_size=8, transform=transform, transform_backend="processes", threads=1
    )
    iterator = iter(loader)
    next(iterator)
    (*_, (_, pid)) = lines_of(journal, 3)
    assert 0.3 <= seconds_to(loader.close) < 5
    assert not is_there(int(pid))
    assert list(iterator) == []


def test_processes_end_with_the_loader_that_is_forgotten(numbers: str) -> None:
    loader = fs.ShardLoader(
        numbers, batch_size=8, sample_transform=sends_pid, transform_backend="processes", threads=1
    )
    (pid,) = pids(loader)
    del loader
    gc.collect()
    assert not is_there(pid)


def test_a_program_that_forgets_to_close_ends_at_once(numbers: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time\nimport fastshard as fs\n\n\ndef same(batch):\n    return batch\n\n\n"
        "if __name__ == '__main__':\n"
        f"    loader = fs.ShardLoader({numbers!r}, batch_size=8, transform=same,\n"
        "        transform_backend='processes', threads=1)\n"
        "    print(len(list(loader)), time.time(), flush=True)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    ended = time.time()
    assert (done.returncode, done.stderr) == (0, "")
    count, last = done.stdout.split()
    assert int(count) == 15
    assert ended - float(last) < 10


FORKS = """
import os, sys
import fastshard as fs


def same(batch):
    return batch


if __name__ == "__main__":
    loader = fs.ShardLoader(
        sys.argv[1], batch_size=8, transform=same, transform_backend="processes", threads=1
    )
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except fs.errors.InvalidError as error:
            assert "forked" in str(error)
        assert len(list(loader)) == 15
        sys.exit()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(1 + len(list(iterator)))
"""


def test_the_end_of_a_fork_leaves_the_processes_alone(numbers: str, tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORKS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", tmp_path / "forks.py", numbers],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "15\n", "")


def test_what_a_transform_raises_in_a_process_says_where(numbers: str) -> None:
    with fs.ShardLoader(
        numbers, batch_size=8, transform=fails_on_batches, transform_backend="processes", threads=1
    ) as loader:
        with pytest.raises(ValueError, match="no batch") as caught:
            list(loader)
        assert "in fails_on_batches" in str(caught.value.__cause__)


def makes_what_cannot_be_sent(batch: fs.Batch) -> Any:
    return lambda: batch


def test_what_cannot_be_sent_back_is_told(numbers: str) -> None:
    with fs.ShardLoader(
        numbers, batch_size=8, transform=makes_what_cannot_be_sent, transform_backend="processes", threads=1
    ) as loader:
        for _ in range(2):  # the process goes on
            with pytest.raises((AttributeError, pickle.PicklingError), match="makes_what_cannot_be_sent"):
                list(loader)


def noise_of(batches: Any) -> dict[int, float]:
    return {
        int(x): float(noise) for batch in batches for x, noise in zip(batch["x"], batch["noise"], strict=True)
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_gives_the_randomness_of_a_loader(numbers: str, workers: int) -> None:
    expected = noise_of(fs.ShardLoader(numbers, batch_size=8, shuffle=True, seed=5, sample_transform=noisy))
    dataset = fs.ShardDataset(numbers, shuffle=True, seed=5, transform=noisy)
    loader = fastshard.torch.DataLoader(dataset, batch_size=16, num_workers=workers)
    assert noise_of(loader) == expected
    assert noise_of(loader) != expected  # another epoch
    stock = fs.ShardDataset(numbers, shuffle=True, seed=5, transform=noisy, batch_size=8)
    assert noise_of(torch.utils.data.DataLoader(stock, batch_size=8, num_workers=workers)) == expected


def test_batches_of_a_data_set_have_the_randomness_of_a_loader(numbers: str) -> None:
    expected = noise_of(fs.ShardLoader(numbers, batch_size=8, seed=5, transform=noisy_batch))
    dataset = fs.ShardDataset(numbers, batch_size=8, batched=True, seed=5, transform=noisy_batch)
    assert noise_of(dataset) == expected


def test_statistics_are_told_in_lines(numbers: str) -> None:
    loader = fs.ShardLoader(numbers, batch_size=8, sample_transform=fails_on_13, on_bad_sample="replace")
    list(loader)
    stats = loader.stats()
    lines = str(stats).splitlines()
    assert lines[0].split(maxsplit=1) == [
        "delivered",
        f"15 batches, 120 samples, {stats.bytes / 1024:.2f} KiB",
    ]
    assert [line.split()[0] for line in lines[1:]] == [
        "in",
        "waited",
        "replaced",
        "engine",
        "verify",
        "limit",
    ]
    assert lines[-1].endswith(stats.limit)
