"""Processes that work for this one, and live no longer than it does."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.synchronize import Event
from typing import TypeVar

import pyarrow as pa

from fastshard.errors import SourceError, StorageError

__all__ = ["Stopped", "map_in_order"]

_AHEAD_PER_WORKER = 2
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Whether the work is to be given up: asked by the function now and then.
Stopped = Callable[[], bool]


def map_in_order(
    function: Callable[[_Item, Stopped], _Result], items: Iterable[_Item], workers: int
) -> Generator[tuple[_Item, _Result], None, None]:
    """Call a function on each item, in this process or in several, and give the results in the items' order.

    Args:
        function: Picklable, as are the items, where `workers` is above 1. It is to return early once stopped.
        items: What to call it on.
        workers: Processes; with 1 all runs in this one. Close the generator to stop them early.

    Raises:
        StorageError: A worker process died.
    """
    if workers <= 1:
        for item in items:
            yield item, function(item, _never)
        return
    context = multiprocessing.get_context("spawn")  # a forked child must not use Arrow's threads
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, context, _start, (stop, max(1, _usable_cpus() // workers)))
    todo = iter(items)
    running: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        for item in islice(todo, _AHEAD_PER_WORKER * workers):
            running.append((item, pool.submit(_call, function, item)))
        while running:
            item, future = running.popleft()
            result = future.result()
            for following in islice(todo, 1):
                running.append((following, pool.submit(_call, function, following)))
            yield item, result
    except BrokenProcessPool as error:
        raise StorageError(
            "a worker process died before it could say why; if the system ended it for want of memory, use fewer "
            'workers=; a script that converts with workers= must do so under if __name__ == "__main__":'
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _never() -> bool:
    return False


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


# Of a worker process: set once, before its first call.
_stop: Event | None = None


def _start(stop: Event, threads: int) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and says stop
    pa.set_cpu_count(threads)
    threading.Thread(target=_die_with_parent, name="fastshard-parent", daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _call(function: Callable[[_Item, Stopped], _Result], item: _Item) -> _Result:
    assert _stop is not None
    try:
        return function(item, _stop.is_set)
    except Exception as error:
        raise _sendable(error) from None


def _sendable(error: Exception) -> Exception:
    """The error, if it survives the way to the parent; else one that tells of it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return SourceError(f"{type(error).__name__}: {error}")
    return error
