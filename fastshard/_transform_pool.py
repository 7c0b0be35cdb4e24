"""Transforms run ahead of the consumer, in order: by threads, or by processes that stay from epoch to epoch."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from typing import Any, Literal

from fastshard._owner import Owner
from fastshard._thread_name import show_thread_name
from fastshard._transforms import Faults, Transforms
from fastshard.batch import Batch
from fastshard.errors import InvalidError

__all__ = ["Backend", "Replace", "TransformPool"]

Backend = Literal["threads", "processes"]
Replace = Callable[
    [Batch, dict[int, Exception]], Batch
]  # a batch without its bad samples; raises where that fails


class TransformPool:
    """Threads or processes that run transforms.

    Processes are started when the first batch needs them and serve all iterations until `close`: each start imports
    torch. Threads belong to one iteration.
    """

    def __init__(self, transforms: Transforms, workers: int, backend: Backend) -> None:
        """Raises `InvalidError` for functions that cannot be sent to processes."""
        self._transforms, self._workers, self._backend = transforms, workers, backend
        self._processes: ProcessPoolExecutor | None = None
        self._pid = 0
        if transforms and backend == "processes":
            _check_picklable(transforms)

    def ahead(
        self, batches: Generator[Batch, None, None], replace: Replace | None = None
    ) -> Generator[Any, None, None]:
        """Transformed batches in their order, up to `2 * workers` ahead of the consumer.

        Args:
            batches: Batches of arrays; closed at the end.
            replace: Makes a batch whose bad samples are replaced, where the transforms return `Faults`.

        Raises:
            InvalidError: This is the child of a fork, in which nobody runs what was submitted.
        """
        owner = Owner()
        pending: deque[tuple[Batch, Future[Any]]] = deque()
        with closing(batches), self._executor() as executor:
            try:
                for batch in batches:
                    pending.append((batch, self._submit(executor, batch)))
                    if len(pending) >= 2 * self._workers:
                        yield self._result(executor, *pending.popleft(), replace)
                while pending:
                    owner.check()
                    yield self._result(executor, *pending.popleft(), replace)
            except KeyboardInterrupt:  # the program may be ending, which waits for what was submitted
                self._end(wait=False)
                raise
            except BrokenProcessPool as error:
                self._end(wait=False)
                raise BrokenProcessPool(
                    "a process that runs transforms ended: it was killed (for its memory, perhaps), crashed, or could "
                    'not import the script, which needs its main part under `if __name__ == "__main__":`'
                ) from error
            # Nothing is cancelled here: if a process then dies, CPython's pool stumbles over cancelled futures.

    def close(self) -> None:
        """Ends processes, after what they have begun."""
        self._end(wait=True)

    def _end(self, *, wait: bool) -> None:
        processes, self._processes = self._processes, None
        if processes is not None and self._pid == os.getpid():
            processes.shutdown(wait=wait, cancel_futures=True)

    @contextmanager
    def _executor(self) -> Iterator[Executor]:
        if self._backend == "processes":
            if self._processes is None or self._pid != os.getpid():
                self._pid = os.getpid()
                context = multiprocessing.get_context("spawn")  # a fork would copy threads and their locks
                self._processes = ProcessPoolExecutor(
                    self._workers,
                    mp_context=context,
                    initializer=_install,
                    initargs=(self._transforms,),
                )
            yield self._processes
            return
        owner = Owner()
        threads = ThreadPoolExecutor(
            self._workers, thread_name_prefix="fs-transform", initializer=show_thread_name
        )
        try:
            yield threads
        finally:
            if owner.is_here():
                threads.shutdown(wait=True, cancel_futures=True)

    def _submit(self, executor: Executor, batch: Batch) -> Future[Any]:
        if self._backend == "threads":
            return executor.submit(self._transforms, batch)
        with _interrupts_blocked():  # a process may start here
            return executor.submit(_run_installed, batch)

    def _result(self, executor: Executor, batch: Batch, future: Future[Any], replace: Replace | None) -> Any:
        """What the transforms made. Tensors come from another process as arrays, through its pipe."""
        result = future.result()
        while isinstance(result, Faults):
            assert replace is not None
            batch = replace(batch, result.raised)
            result = self._submit(executor, batch).result()
        if self._backend == "processes" and isinstance(result, Batch):
            return result.to_torch()
        return result


def _check_picklable(transforms: Transforms) -> None:
    for function in (transforms.batch, transforms.sample):
        if function is None:
            continue
        try:
            pickle.dumps(function)
        except Exception as error:  # whatever its __reduce__ does
            raise InvalidError(
                f'{function.name}={function.call!r} cannot be sent to another process (transform_backend="processes"): '
                f'{error}; use a function that a module defines at its top level, or transform_backend="threads"'
            ) from error


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal: one that starts here inherits this, until its imports are done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_installed: list[Transforms] = []  # in a transform process: what it runs


def _install(transforms: Transforms) -> None:
    import torch

    torch.set_num_threads(1)
    _installed[:] = [transforms]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to tell and to act on
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _run_installed(batch: Batch) -> Any:
    try:
        result = _installed[0](batch)
    except Exception as error:
        sendable = _sendable(error)
        if sendable is error:
            raise
        raise sendable from None
    if isinstance(result, Faults):
        return Faults({place: _sendable(error) for place, error in result.raised.items()})
    return result.to_numpy() if isinstance(result, Batch) else result


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
