"""Python functions of the user on batches and samples: run ahead, in order, each with its own randomness."""

from __future__ import annotations

import inspect
import multiprocessing
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastshard import _core
from fastshard.batch import Batch
from fastshard.errors import InvalidError

__all__ = ["Transforms", "generator"]

Backend = Literal["threads", "processes"]


def generator(seed: int, epoch: int, which: int) -> np.random.Generator:
    """A NumPy generator that depends on these three numbers alone (and not on ranks, workers or what came before).

    Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the xxh3-128 of the numbers as key.
    """
    words = np.array([seed, epoch, which], dtype=np.uint64)
    return np.random.Generator(
        np.random.Philox(key=np.frombuffer(_core.xxh3_128(words.tobytes()), dtype="<u8"))
    )


def wants_rng(function: Callable[..., Any], where: str) -> bool:
    """Whether a transform takes the argument `rng`."""
    if not callable(function):
        raise InvalidError(f"{where}={function!r}: must be callable")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    return "rng" in parameters


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done with a batch before it is delivered; picklable if the functions are.

    Attributes:
        batch: called with a `Batch`, and with `rng=` where it takes that.
        sample: called with each sample as a dict of NumPy values, likewise; the results are collated as torch does.
        seed: of the data set's order; part of the key of each `rng`.
    """

    batch: Callable[..., Any] | None
    sample: Callable[..., Any] | None
    seed: int
    batch_rng: bool = False
    sample_rng: bool = False

    @staticmethod
    def of(batch: Callable[..., Any] | None, sample: Callable[..., Any] | None, seed: int) -> Transforms:
        """Raises `InvalidError` for what cannot be called."""
        return Transforms(
            batch,
            sample,
            seed,
            batch is not None and wants_rng(batch, "transform"),
            sample is not None and wants_rng(sample, "sample_transform"),
        )

    def __bool__(self) -> bool:
        return self.batch is not None or self.sample is not None

    def __call__(self, batch: Batch) -> Any:
        """The batch as it is delivered. `batch` holds NumPy arrays."""
        epoch = batch.epoch or 0
        if self.sample is not None:
            batch = self._collated(batch, epoch)
        else:
            batch = batch.to_torch()
        if self.batch is None:
            return batch
        if not self.batch_rng:
            return self.batch(batch)
        first = int(batch.positions[0]) if batch.positions is not None else 0
        return self.batch(batch, rng=generator(self.seed, epoch, first))

    def _collated(self, batch: Batch, epoch: int) -> Any:
        from torch.utils.data import default_collate

        assert self.sample is not None
        if self.sample_rng:
            results = [
                self.sample(sample, rng=generator(self.seed, epoch, id))
                for sample, id in zip(batch.samples(), batch.ids.tolist(), strict=True)
            ]
        else:
            results = [self.sample(sample) for sample in batch.samples()]
        collated = default_collate(results)
        if not isinstance(collated, dict):
            return collated
        return Batch(
            collated,
            ids=batch.ids,
            positions=batch.positions,
            is_repeat=batch.is_repeat,
            source=batch.source,
            epoch=batch.epoch,
        )

    def ahead(
        self, batches: Generator[Batch, None, None], workers: int, backend: Backend
    ) -> Generator[Any, None, None]:
        """Transformed batches in their order, up to `2 * workers` ahead of the consumer."""
        with closing(batches), closing(_Pool(self, workers, backend)) as pool:
            pending: deque[Future[Any]] = deque()
            for batch in batches:
                pending.append(pool.submit(batch))
                if len(pending) >= 2 * workers:
                    yield pool.result(pending.popleft())
            while pending:
                yield pool.result(pending.popleft())


class _Pool:
    """Threads or processes that run transforms. Closing drops what has not begun."""

    def __init__(self, transforms: Transforms, workers: int, backend: Backend) -> None:
        self._transforms = transforms
        self._executor: Executor
        if backend == "threads":
            self._executor = ThreadPoolExecutor(workers, thread_name_prefix="fs-transform")
        else:
            context = multiprocessing.get_context("spawn")  # a fork would copy threads and their locks
            self._executor = ProcessPoolExecutor(
                workers, mp_context=context, initializer=_install, initargs=(transforms,)
            )
        self._backend = backend

    def submit(self, batch: Batch) -> Future[Any]:
        if self._backend == "threads":
            return self._executor.submit(self._transforms, batch)
        return self._executor.submit(_run_installed, batch)

    def result(self, future: Future[Any]) -> Any:
        """What the transforms made. Tensors come from another process as arrays, through its pipe."""
        result = future.result()
        if self._backend == "processes" and isinstance(result, Batch):
            return result.to_torch()
        return result

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


_installed: list[Transforms] = []  # in a transform process: what it runs


def _install(transforms: Transforms) -> None:
    import torch

    torch.set_num_threads(1)
    _installed[:] = [transforms]


def _run_installed(batch: Batch) -> Any:
    result = _installed[0](batch)
    return result.to_numpy() if isinstance(result, Batch) else result
