"""Processes that run transforms: each behind a thread that gives it one batch at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from fastshard._owner import Owner
from fastshard._thread_name import show_thread_name
from fastshard._transforms import Faults, Transforms
from fastshard.batch import Batch

__all__ = ["Processes"]

_EXIT_SECONDS = 1.0  # for a process that was told to end, which has nothing left to do


class Processes:
    """Up to so many processes, started when the first batches need them: each start imports torch.

    No process outlives this one. Dropped without `close`, they end as well.
    """

    def __init__(self, transforms: Transforms, workers: int) -> None:
        self._group = _Group(transforms)
        self._threads = ThreadPoolExecutor(
            workers, thread_name_prefix="fs-transform", initializer=self._group.start
        )
        weakref.finalize(self, _end, self._group.started, 0.0)

    @property
    def closed(self) -> bool:
        return self._group.closed

    def submit(self, batch: Batch) -> Future[Any]:
        """What the transforms make of a batch of arrays, as arrays; or `Faults`.

        The future raises what a transform raised, and `BrokenProcessPool` where the process ended; after `close` it
        raises that or is cancelled.
        """
        if self.closed:
            raise BrokenProcessPool("the processes were closed")
        return self._threads.submit(self._group.run, batch)

    def close(self, seconds: float) -> None:
        """End them: idle ones and those that still import at once, the others after their batch, or these seconds."""
        self._group.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        _end(self._group.started, seconds)
        self._threads.shutdown(wait=True)


class _Group:
    """What the threads share. Nobody's thread: it must not keep `Processes` alive."""

    def __init__(self, transforms: Transforms) -> None:
        self._transforms = transforms
        self._own = threading.local()  # the process of each thread
        self._lock = threading.Lock()  # over these two
        self.started: list[_Process] = []
        self.closed = False

    def start(self) -> None:
        """Give this thread a process, and wait for its imports: the first that is ready takes the first batch."""
        show_thread_name()
        with self._lock:
            if self.closed:
                return
            process = self._own.process = _Process(self._transforms)
            self.started.append(process)
        process.prepare()

    def run(self, batch: Batch) -> Any:
        process: _Process | None = getattr(self._own, "process", None)
        if process is None:
            raise BrokenProcessPool("the processes were closed")
        return process.run(batch)

    def close(self) -> None:
        with self._lock:
            self.closed = True


def _end(processes: Sequence[_Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    try:
        for process in processes:
            process.tell(deadline)
        deadline = time.monotonic() + _EXIT_SECONDS
        for process in processes:
            process.wait(deadline)
    finally:  # also where somebody interrupts this
        for process in processes:
            process.kill()


class _Process:
    """One process, and the connection to it. Used by one thread; any may end it."""

    def __init__(self, transforms: Transforms) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads and their locks
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, transforms), name="fs-transform")
        self._running = threading.Lock()  # held while a batch is there
        self._ready = False
        self._owner = Owner()
        with _interrupts_blocked():
            self._process.start()
        # multiprocessing would end it at the exit of any fork of this process, too; `Processes` ends it at ours.
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]
        theirs.close()  # so that the end of the process is the end of what can be received

    def prepare(self) -> None:
        """Wait until it has imported what it needs; `run` says so where it could not."""
        with contextlib.suppress(EOFError, OSError):
            self._ready = self._connection.recv() is None

    def run(self, batch: Batch) -> Any:
        try:
            with self._running:
                self._connection.send(batch)
                result, where = self._connection.recv()
        except (EOFError, OSError) as error:
            raise BrokenProcessPool("a process that runs transforms ended") from error
        if where is not None:
            raise result from _Elsewhere(where)
        return result

    def tell(self, deadline: float) -> None:
        """Ask it to end; kill it if it still imports, or has not finished its batch at the deadline."""
        if not self._owner.is_here():
            return
        if not self._ready or not self._running.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self.kill()
            return
        try:
            self._connection.send(None)
        except OSError:
            pass  # it ended before
        finally:
            self._running.release()

    def wait(self, deadline: float) -> None:
        if self._owner.is_here():
            self._process.join(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        if self._owner.is_here() and self._process.is_alive():
            self._process.kill()
            self._process.join()


class _Elsewhere(Exception):
    """The cause of an error that another process raised: where that was."""

    def __str__(self) -> str:
        return f'in another process:\n"""\n{self.args[0]}"""'


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal: one that starts here inherits this, until its imports are done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# What runs in the process.


def _serve(connection: Connection, transforms: Transforms) -> None:
    """Batches come and results go until None comes, or nobody is there any more."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to tell and to act on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):
        connection.send(None)
        while (batch := connection.recv()) is not None:
            _send(connection, *_result(transforms, batch))
    for child in multiprocessing.active_children():  # that a transform started
        child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)  # torch takes half a second to tear down what the system frees anyway


def _result(transforms: Transforms, batch: Batch) -> tuple[Any, str | None]:
    """What is sent: a result and None, or an error and its traceback."""
    try:
        result = transforms(batch)
    except Exception as error:
        return _sendable(error), traceback.format_exc()
    if isinstance(result, Faults):
        return Faults({place: _sendable(error) for place, error in result.raised.items()}), None
    return result.to_numpy() if isinstance(result, Batch) else result, None


def _send(connection: Connection, result: Any, where: str | None) -> None:
    try:
        connection.send((result, where))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # a result that cannot be pickled
        connection.send((_sendable(error), traceback.format_exc()))


def _sendable(error: Exception) -> Exception:
    """The error if it survives the way to another process, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # classes whose arguments are not what their constructor takes
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        told = RuntimeError(f"a transform raised what cannot be sent between processes:\n{text}")
        told.__dict__.update({"__notes__": getattr(error, "__notes__", [])})
        return told
    return error
