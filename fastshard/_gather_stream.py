"""Batches made ahead by Python threads around the native gather: for samples that lie in several data sets.

The native pipeline reads one data set. A concatenation or a mix is gathered part by part, each part natively and
without the GIL; this runs several such batches at a time and hands them out in the order of the plan.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotDone
from typing import Any

from fastshard._owner import Owner
from fastshard._thread_name import show_thread_name
from fastshard.errors import ReadTimeoutError

__all__ = ["GatherStream"]


class _Threads:
    """Threads that make batches, each the next one that was asked for. They hold this object alone."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make = make
        self.lock = threading.RLock()  # a garbage collection inside of it may end a stream
        self._asked = threading.Condition(self.lock)
        self._waiting: deque[tuple[int, Future[Any]]] = deque()  # not yet begun
        self.stopped = False
        self.gather_ns = 0
        # Daemons, not an executor's threads: the process can end while storage does not answer one of them.
        self._threads = [
            threading.Thread(target=self._work, name=f"fs-gather-{i}", daemon=True) for i in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ask(self, index: int) -> Future[Any]:
        """Under the lock: batch number `index`, when it is made."""
        future: Future[Any] = Future()
        self._waiting.append((index, future))
        self._asked.notify()
        return future

    def stop(self) -> None:
        """Has the threads end after the batch that each is at, and cancels what none has begun."""
        with self.lock:
            self.stopped = True
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._asked.notify_all()

    def join(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:  # it was started
                thread.join()

    def _work(self) -> None:
        show_thread_name()
        while True:
            with self.lock:
                while not self._waiting and not self.stopped:
                    self._asked.wait()
                if self.stopped:
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
        with self.lock:
            self.gather_ns += time.perf_counter_ns() - began
        if failure is None:
            future.set_result(made)
        else:
            future.set_exception(failure)


def _end(threads: _Threads, owner: Owner) -> None:
    if owner.is_here():
        threads.stop()


class GatherStream:
    """As the native stream: batches 0 to count - 1 in order, at most `prefetch` of them begun ahead of the consumer.

    A batch that cannot be made raises its error from `next`; the batches after it can still be had. One consumer at a
    time; `stop` may come from any thread, and a stream that is dropped ends its threads, wherever Ctrl-C came. In the
    child of a fork `next` raises, and `stop` leaves everything alone: the threads are the parent's, and may have held
    the lock.
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
        self._count = count
        self._prefetch = prefetch
        self._describe = describe
        self._delivered = 0
        self._given_up = False
        self._begun = 0
        self._pending: deque[Future[Any]] = deque()
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
        self._threads = _Threads(make, threads)
        self._lock = self._threads.lock
        weakref.finalize(
            self, _end, self._threads, self._owner
        ).atexit = False  # daemons end with the process
        self._threads.start()
        self._fill()

    def _fill(self) -> None:
        with self._lock:
            while (
                not self._threads.stopped
                and len(self._pending) < self._prefetch
                and self._begun < self._count
            ):
                self._pending.append(self._threads.ask(self._begun))
                self._begun += 1

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
            if self._threads.stopped or not self._pending:
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
            if self._threads.stopped:
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
        self._threads.stop()
        with self._lock:
            self._pending.clear()
        if not self._given_up:
            self._threads.join()

    def stats(self) -> dict[str, int]:
        """The counters of the native stream."""
        if not self._owner.is_here():
            return dict(self._stats)
        with self._lock:
            ready = sum(future.done() for future in self._pending)
            return {**self._stats, "gather_ns": self._threads.gather_ns, "ready": ready}
