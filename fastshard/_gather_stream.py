"""Batches made ahead by Python threads around the native gather: for samples that lie in several data sets.

The native pipeline reads one data set. A concatenation or a mix is gathered part by part, each part natively and
without the GIL; this runs several such batches at a time and hands them out in the order of the plan.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotDone
from typing import Any

from fastshard._owner import Owner
from fastshard._thread_name import show_thread_name
from fastshard.errors import ReadTimeoutError

__all__ = ["GatherStream"]


class GatherStream:
    """As the native stream: batches 0 to count - 1 in order, at most `prefetch` of them begun ahead of the consumer.

    A batch that cannot be made raises its error from `next`; the batches after it can still be had. One consumer at a
    time; `stop` may come from any thread. In the child of a fork `next` raises, and `stop` leaves everything alone: the
    threads are the parent's, and may have held the lock.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        count: int,
        *,
        threads: int,
        prefetch: int,
        describe: Callable[[int], str],
    ) -> None:
        """Begins.

        Args:
            make: Makes batch number i; called from several threads.
            count: How many batches there are.
            threads: How many are made at a time.
            prefetch: How many are made ahead, at least 1.
            describe: Says of a batch which samples it reads, for a message.
        """
        self._owner = Owner()
        self._make = make
        self._count = count
        self._prefetch = prefetch
        self._describe = describe
        self._delivered = 0
        self._given_up = False
        self._begun = 0
        self._pending: deque[Future[Any]] = deque()
        self._stopped = False
        self._lock = threading.Lock()
        self._asked = threading.Condition(self._lock)
        self._waiting: deque[tuple[int, Future[Any]]] = deque()  # not yet begun
        self._stats = {
            "batches": 0,
            "samples": 0,
            "ready": 0,
            "wait_ns": 0,
            "plan_ns": 0,
            "read_ns": 0,
            "decode_ns": 0,
            "gather_ns": 0,
            "idle_ns": 0,
        }
        # Daemons, not an executor's threads: the process can end while storage does not answer one of them.
        self._threads = [
            threading.Thread(target=self._work, name=f"fs-gather-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        self._fill()

    def _fill(self) -> None:
        with self._lock:
            while not self._stopped and len(self._pending) < self._prefetch and self._begun < self._count:
                future: Future[Any] = Future()
                self._pending.append(future)
                self._waiting.append((self._begun, future))
                self._begun += 1
                self._asked.notify()

    def _work(self) -> None:
        show_thread_name()
        while True:
            with self._lock:
                while not self._waiting and not self._stopped:
                    self._asked.wait()
                if self._stopped:
                    return
                index, future = self._waiting.popleft()
            self._make_into(future, index)
            del future  # the consumer's: it holds a batch

    def _make_into(self, future: Future[Any], index: int) -> None:
        began = time.perf_counter_ns()
        made = failure = None
        try:
            made = self._make(index)
        except BaseException as error:  # for the consumer
            failure = error
        with self._lock:
            self._stats["gather_ns"] += time.perf_counter_ns() - began
        if failure is None:
            future.set_result(made)
        else:
            future.set_exception(failure)

    def next(self, timeout: float) -> Any:
        """The next batch, or None at the end or after `stop`.

        Args:
            timeout: Seconds; negative waits for ever.

        Raises:
            ReadTimeoutError: It did not come in time.
            InvalidError: This is the child of a fork.
            Error: What making it raised.
        """
        self._owner.check()
        with self._lock:
            if self._stopped or not self._pending:
                return None
            first = self._pending[0]
        began = time.perf_counter_ns()
        try:
            first.exception(None if timeout < 0 else timeout)
        except CancelledError:
            return None
        except NotDone:
            self._given_up = True
            raise ReadTimeoutError(
                f"{self._describe(self._delivered)}: reading them took longer than {timeout:g} s (attempt 1); raise "
                "read_timeout= or look at the storage"
            ) from None
        with self._lock:
            self._stats["wait_ns"] += time.perf_counter_ns() - began
            if self._stopped:
                return None
            self._pending.popleft()
            self._delivered += 1
        self._fill()
        batch = first.result()
        with self._lock:
            self._stats["batches"] += 1
            self._stats["samples"] += batch.num_samples
        return batch

    def stop(self) -> None:
        """Ends the threads after the batch that each is at. Returns when none is left, or at once where storage did not
        answer."""
        if not self._owner.is_here():
            return
        with self._lock:
            self._stopped = True
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._pending.clear()
            self._asked.notify_all()
        if not self._given_up:
            for thread in self._threads:
                thread.join()

    def stats(self) -> dict[str, int]:
        """The counters of the native stream."""
        if not self._owner.is_here():
            return dict(self._stats)
        with self._lock:
            return {**self._stats, "ready": sum(future.done() for future in self._pending)}
