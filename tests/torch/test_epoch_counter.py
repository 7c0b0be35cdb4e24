"""Which epoch an iteration is: one process, and workers that share nothing but the counter."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastshard import _epochs
from fastshard._epochs import EpochCounter, Member, Start, set_epoch


def same(start: Start) -> Start:
    return start


def test_each_iteration_takes_the_next_epoch() -> None:
    counter = EpochCounter()
    assert [counter.take(same) for _ in range(3)] == [Start(0), Start(1), Start(2)]


def test_set_epoch_overrides_the_next_epoch() -> None:
    counter = EpochCounter()
    counter.set_next(set_epoch(5))
    assert [counter.take(same).epoch for _ in range(2)] == [5, 6]


def test_a_loaded_position_is_taken_once() -> None:
    counter = EpochCounter()
    counter.set_next(lambda _: Start(3, 17))
    assert [counter.take(same) for _ in range(2)] == [Start(3, 17), Start(4)]


def test_set_epoch_of_the_loaded_epoch_keeps_its_position() -> None:
    counter = EpochCounter()
    counter.set_next(lambda _: Start(3, 17))
    counter.set_next(set_epoch(3))
    assert counter.take(same) == Start(3, 17, explicit=True)
    counter.set_next(lambda _: Start(3, 17))
    counter.set_next(set_epoch(4))
    assert counter.take(same) == Start(4, explicit=True)


def test_settling_moves_the_next_epoch_too() -> None:
    counter = EpochCounter()
    counter.set_next(lambda _: Start(3, 100))
    assert counter.take(lambda start: start.following()) == Start(4)
    assert counter.take(same) == Start(5)


def test_looking_tells_what_was_taken_since_it_was_set() -> None:
    counter = EpochCounter()
    assert counter.look() == (Start(0), None)
    counter.take(same)
    next_start, taken = counter.look()
    assert next_start == Start(1)
    assert taken is not None
    assert taken.start == Start(0)
    assert not taken.by_workers
    counter.set_next(set_epoch(7))
    assert counter.look() == (Start(7, explicit=True), None)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda counter: pickle.loads(pickle.dumps(counter))])
def test_a_copy_counts_by_itself(clone: Callable[[EpochCounter], EpochCounter]) -> None:
    counter = EpochCounter()
    counter.take(same)
    other = clone(counter)
    assert other.take(same) == Start(0)
    assert counter.take(same) == Start(1)


class Process:
    """Stands in for the process that calls: its pid, its number, and its parent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = 1
        self.identity: tuple[int, ...] = ()
        monkeypatch.setattr(_epochs, "_process_identity", lambda: self.identity)
        monkeypatch.setattr(_epochs, "_family_of_the_parent", lambda: _epochs._key(1, self.identity[:-1]))
        monkeypatch.setattr(_epochs, "_family_of_this_process", lambda: _epochs._key(self.pid, self.identity))
        monkeypatch.setattr(_epochs.os, "getpid", lambda: self.pid)

    def be(self, number: int) -> None:
        """The main process (0), or the one that it started as number `number`."""
        self.pid, self.identity = (1, ()) if number == 0 else (100 + number, (number,))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def run_iterator(
    counter: EpochCounter,
    process: Process,
    numbers: list[int],
    order: list[int],
    seed: int,
    iteration: int = 1,
) -> list[int]:
    """Lets worker w, process numbers[w], begin to iterate, in the given order of workers."""
    epochs = {}
    for worker in order:
        process.be(numbers[worker])
        epochs[worker] = counter.take(same, Member(worker, len(numbers), seed, iteration)).epoch
    return [epochs[worker] for worker in sorted(epochs)]


def test_the_workers_of_an_iterator_take_one_epoch(process: Process) -> None:
    counter = EpochCounter()
    assert run_iterator(counter, process, [1, 2, 3], [1, 0, 2], seed=7) == [0, 0, 0]
    assert run_iterator(counter, process, [4, 5, 6], [2, 0, 1], seed=8) == [1, 1, 1]
    process.be(0)
    next_start, taken = counter.look()
    assert next_start == Start(2)
    assert taken is not None
    assert taken.by_workers


def test_persistent_workers_take_the_next_epoch_with_each_iteration(process: Process) -> None:
    counter = EpochCounter()
    for iteration in range(1, 5):
        assert run_iterator(counter, process, [1, 2], [1, 0], 7, iteration) == [iteration - 1] * 2


def test_a_base_seed_that_comes_again_is_another_iterator(process: Process) -> None:
    counter = EpochCounter()
    for epoch in range(4):
        numbers = [1 + 3 * epoch + worker for worker in range(3)]
        assert run_iterator(counter, process, numbers, [1, 2, 0], seed=7) == [epoch] * 3


def test_a_worker_that_never_began_does_not_hold_back_the_next_iterator(process: Process) -> None:
    counter = EpochCounter()
    assert run_iterator(counter, process, [1, 2], [0], seed=7) == [0]
    assert run_iterator(counter, process, [3, 4], [1, 0], seed=7) == [1, 1]


def test_processes_that_another_thread_started_in_between_do_not_split_an_iterator(process: Process) -> None:
    counter = EpochCounter()
    assert run_iterator(counter, process, [1, 3, 5], [2, 0, 1], seed=7) == [0, 0, 0]
    assert run_iterator(counter, process, [7, 8, 11], [1, 2, 0], seed=7) == [1, 1, 1]


def test_a_worker_may_begin_at_a_start_of_its_own(process: Process) -> None:
    counter = EpochCounter()
    for worker in range(2):
        process.be(1 + worker)
        counter.take_given(Start(5, 12), Member(worker, 2, 7, 1))
    assert run_iterator(counter, process, [1, 2], [0, 1], seed=7, iteration=2) == [6, 6]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_iterators_that_start_at_the_same_time_share_nothing(data: st.DataObject) -> None:
    """The workers of up to three iterators arrive in any order, whether torch drew one seed for all or not."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        process = Process(monkeypatch)
        process.be(0)
        counter = EpochCounter()
        iterators = data.draw(st.integers(1, 3))
        workers = data.draw(st.integers(1, 4))
        seeds = [7] * iterators if data.draw(st.booleans()) else list(range(iterators))
        arrivals = data.draw(st.permutations([(i, w) for i in range(iterators) for w in range(workers)]))
        epochs: dict[int, set[int]] = {}
        for iterator, worker in arrivals:
            process.be(1 + iterator * workers + worker)
            start = counter.take(same, Member(worker, workers, seeds[iterator], 1))
            epochs.setdefault(iterator, set()).add(start.epoch)
        assert all(len(found) == 1 for found in epochs.values())
        assert set.union(*epochs.values()) == set(range(iterators))


def rank_main(counter: EpochCounter, results: Any, rank: int) -> None:
    results.put((rank, [counter.take(same) for _ in range(2)]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_started_from_one_launcher_count_apart_from_where_it_stood(method: str) -> None:
    counter = EpochCounter()
    counter.set_next(lambda _: Start(2, 6))
    context = multiprocessing.get_context(method)
    results = context.Queue()
    processes = [context.Process(target=rank_main, args=(counter, results, rank)) for rank in range(3)]
    for process in processes:
        process.start()
    got = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert sorted(got) == [(rank, [Start(2, 6), Start(3)]) for rank in range(3)]
    assert counter.take(same) == Start(2, 6)


def test_the_page_stays_small_with_many_workers_and_iterations(process: Process) -> None:
    counter = EpochCounter()
    for iteration in range(1, 30):
        run_iterator(counter, process, list(range(1, 129)), list(range(128)), 7, iteration)
    with counter._cell.locked():
        assert len(counter._cell.read()) < 1 << 17


def test_a_start_with_a_grown_order_survives_the_page() -> None:
    counter = EpochCounter()
    past = {"fingerprint": "ab", "rows": 7, "lanes": 1}
    counter.set_next(lambda start: replace(start, epoch=1, position=3, past=past))
    assert counter.take(same) == Start(1, 3, past=past)


def test_it_is_asked_once_what_is_said_once() -> None:
    counter = EpochCounter()
    assert [counter.first("a"), counter.first("a"), counter.first("b")] == [True, False, True]
