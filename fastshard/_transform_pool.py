"""Transforms run ahead of the consumer, in order: by threads, or by processes that stay from epoch to epoch."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from typing import Any, Literal, TypeAlias

from fastshard._owner import Owner
from fastshard._thread_name import show_thread_name
from fastshard._transform_processes import Processes
from fastshard._transforms import Faults, Transforms
from fastshard.batch import Batch
from fastshard.errors import InvalidError

__all__ = ["Backend", "Replace", "TransformPool"]

Backend = Literal["threads", "processes"]
Replace = Callable[
    [Batch, dict[int, Exception]], Batch
]  # a batch without its bad samples; raises where that fails
_Submit: TypeAlias = Callable[[Batch], "Future[Any]"]

_BUSY_SECONDS = (
    5.0  # how long `close` waits for processes in the midst of a batch; torch's DataLoader does so long
)


class TransformPool:
    """Threads or processes that run transforms.

    Processes are started when the first batch needs them and serve all iterations until `close`. Threads belong to one
    iteration.
    """

    def __init__(self, transforms: Transforms, workers: int, backend: Backend) -> None:
        """Raises `InvalidError` for functions that cannot be sent to processes."""
        self._transforms, self._workers, self._backend = transforms, workers, backend
        self._processes: Processes | None = None
        self._pid = 0
        if transforms and backend == "processes":
            _check_picklable(transforms)

    def ahead(
        self, batches: Generator[Batch, None, None], replace: Replace | None = None
    ) -> Generator[Any, None, None]:
        """Transformed batches in their order, up to `2 * workers` ahead of the consumer.

        They end early where `close` ends the processes that make them.

        Args:
            batches: Batches of arrays; closed at the end.
            replace: Makes a batch whose bad samples are replaced, where the transforms return `Faults`.

        Raises:
            InvalidError: This is the child of a fork, in which nobody runs what was submitted.
        """
        owner = Owner()
        pending: deque[tuple[Batch, Future[Any]]] = deque()
        with closing(batches), self._submitting() as submit:
            processes = self._processes
            try:
                for batch in batches:
                    pending.append((batch, submit(batch)))
                    if len(pending) >= 2 * self._workers:
                        yield self._result(submit, *pending.popleft(), replace)
                while pending:
                    owner.check()
                    yield self._result(submit, *pending.popleft(), replace)
            except (BrokenProcessPool, CancelledError) as error:
                if processes is None:
                    raise  # the transform's own
                if processes.closed:
                    return
                self._end(0)
                raise BrokenProcessPool(
                    "a process that runs transforms ended: it was killed (for its memory, perhaps), crashed, or could "
                    'not import the script, which needs its main part under `if __name__ == "__main__":`'
                ) from error
            except KeyboardInterrupt:  # the program may be ending, which waits for what was submitted
                self._end(0)
                raise
            finally:
                if owner.is_here():
                    for _, future in pending:
                        future.cancel()

    def close(self) -> None:
        """End processes: at once those that do nothing, the others after their batch, or after five seconds."""
        self._end(_BUSY_SECONDS)

    def _end(self, seconds: float) -> None:
        processes, self._processes = self._processes, None
        if processes is not None and self._pid == os.getpid():
            processes.close(seconds)

    @contextmanager
    def _submitting(self) -> Iterator[_Submit]:
        if self._backend == "processes":
            if self._processes is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._processes = Processes(self._transforms, self._workers)
            yield self._processes.submit
            return
        owner = Owner()
        threads = ThreadPoolExecutor(
            self._workers, thread_name_prefix="fs-transform", initializer=show_thread_name
        )
        try:
            yield lambda batch: threads.submit(self._transforms, batch)
        finally:
            if owner.is_here():
                threads.shutdown(wait=True, cancel_futures=True)

    def _result(self, submit: _Submit, batch: Batch, future: Future[Any], replace: Replace | None) -> Any:
        """What the transforms made. Tensors come from another process as arrays, through its pipe."""
        result = future.result()
        while isinstance(result, Faults):
            assert replace is not None
            batch = replace(batch, result.raised)
            result = submit(batch).result()
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
