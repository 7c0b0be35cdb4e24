"""fastshard under the common protocol: `ShardLoader`, `ShardDataset` in a DataLoader, and bare takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

import fastshard as fs
from benchmarks.peers._rows import as_it_is
from benchmarks.subject import Subject
from benchmarks.workloads import Workload

# Names resolve, and their modules are imported, on first use: before the clock runs, as with the peers.
_IMPORTED = (fs.open, fs.convert, fs.Ragged, fs.ShardDataset, fs.ShardLoader, fs.View)


class _Ours(Subject):
    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        fs.convert(parquet, folder, progress=False)

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: _plain(value) for name, value in batch.items()}

    def size(self, workload: Workload, batch: Any) -> int:
        count: int = batch.num_samples
        return count


def _plain(value: Any) -> Any:
    if isinstance(value, fs.Ragged):
        return np.asarray(value.values), np.asarray(value.offsets)
    return value


class Loader(_Ours):
    """`ShardLoader`: threads in place of workers; one where 0 workers are asked for."""

    note = "native threads (one where 0 workers are asked for), global shuffle"

    def __init__(self, note: str = "", **options: Any) -> None:
        self._options: dict[str, Any] = {"shuffle": "global", "seed": 1, **options}
        self.note += note

    def set_options(self, options: dict[str, Any]) -> None:
        self._options |= options

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        loader = fs.ShardLoader(folder, batch_size=batch_size, threads=max(1, workers), **self._options)

        def epoch(number: int) -> Iterable[Any]:
            loader.set_epoch(number)
            return loader

        return epoch


class InDataLoader(_Ours):
    """`ShardDataset` in torch's DataLoader: ready batches, worker processes."""

    note = "batched=True, global shuffle"

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        dataset = fs.ShardDataset(folder, batch_size=batch_size, batched=True, shuffle="global", seed=1)
        loader = DataLoader(
            dataset,
            batch_size=None,
            num_workers=workers,
            collate_fn=as_it_is,
            persistent_workers=workers > 0,
        )
        return lambda number: loader


class Takes(_Ours):
    """`reader.take` in a loop: one thread, no loader."""

    note = "a loop of take over a permutation, one thread whatever is asked for"

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        reader = fs.open(folder)

        def epoch(number: int) -> Iterator[Any]:
            order = np.random.default_rng(number).permutation(len(reader))
            for first in range(0, len(order), batch_size):
                yield reader.take(order[first : first + batch_size]).to_torch()

        return epoch


def subject(name: str) -> Subject:
    if name == "fastshard-dataset":
        return InDataLoader()
    if name == "fastshard-take":
        return Takes()
    if name == "fastshard-views":
        return Loader("; binary as views of the batch's buffer", binary="view")
    if name == "fastshard-unverified":
        return Loader("; checksums not compared", verify="never")
    return Loader()
