"""Hugging Face datasets: a saved Arrow data set, whole batches by index in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_from_disk
from datasets.utils.logging import disable_progress_bar
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from benchmarks.peers._rows import arrow_columns, column
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


def _from_python(batch: dict[str, Any]) -> dict[str, Any]:
    return {"data": batch["data"], "y": torch.tensor(batch["y"])}


class HuggingFace(Subject):
    note = "a batch by one list of ids, in Arrow format (Python's for binary): its torch format is 3 to 9 times slower"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        disable_progress_bar()
        cache = folder.with_name(folder.name + "-cache")
        dataset = Dataset.from_parquet(str(parquet), cache_dir=str(cache))
        dataset.save_to_disk(str(folder))
        for path in sorted(cache.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cache.rmdir()

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        # With an Arrow format the conversion is ours; for binary the plain format is faster.
        binary = workload.name == "w3"
        dataset = load_from_disk(str(folder)).with_format(None if binary else "arrow")
        sampler = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
        loader = DataLoader(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            collate_fn=_from_python if binary else arrow_columns,
            persistent_workers=workers > 0,
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    return HuggingFace()
