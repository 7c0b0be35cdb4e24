"""Hugging Face datasets: a saved Arrow data set, whole batches by index in a torch DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset, load_from_disk
from datasets.utils.logging import disable_progress_bar
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from benchmarks.peers._rows import column
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class HuggingFace(Subject):
    note = "torch format, a batch fetched by one index list"

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
        dataset = load_from_disk(str(folder)).with_format("torch")
        sampler = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
        loader = DataLoader(
            dataset, sampler=sampler, batch_size=None, num_workers=workers, persistent_workers=workers > 0
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    return HuggingFace()
