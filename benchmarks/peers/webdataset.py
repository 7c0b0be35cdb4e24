"""WebDataset: tar files of about 1 GB, a shuffle of shards and of a buffer of samples."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds

from benchmarks.peers._rows import as_it_is, collate, column, row_batches
from benchmarks.subject import Subject
from benchmarks.workloads import Workload

# Extension of each column's file in the archive.
NAMES = {
    "w1": {"x": "x.npy", "y": "y.cls"},
    "w2": {"tokens": "tokens.npy"},
    "w3": {"data": "bin", "y": "y.cls"},
    "w4": {"id": "id.cls", "value": "value.npy", "text": "text.txt", "vector": "vector.npy"},
}


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (np.ndarray, float)):
        stream = io.BytesIO()
        np.save(stream, np.asarray(value))
        return stream.getvalue()
    return str(value).encode()


class WebDataset(Subject):
    note = "shuffles shards and a buffer of 10,000 samples, not all rows"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        names = NAMES[workload.name]
        number = 0
        per_shard = max(1, min(100_000, workload.rows // 8))
        with wds.ShardWriter(
            str(folder / "shard-%05d.tar"), maxcount=per_shard, maxsize=1e9, verbose=0
        ) as writer:
            for rows in row_batches(parquet):
                for row in rows:
                    files = {names[name]: _encoded(value) for name, value in row.items()}
                    writer.write({"__key__": f"{number:09d}", **files})
                    number += 1

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        names = NAMES[workload.name]
        columns = list(names)
        shards = sorted(str(path) for path in folder.glob("*.tar"))

        def batch_of(samples: list[Any]) -> dict[str, Any]:
            dicts = [dict(zip(columns, sample, strict=True)) for sample in samples]
            if workload.name in ("w1", "w2"):
                return {
                    name: torch.as_tensor(np.stack([sample[name] for sample in dicts])) for name in columns
                }
            return collate(dicts)

        dataset = (
            wds.WebDataset(shards, shardshuffle=len(shards), empty_check=False)
            .shuffle(10_000 if workload.name != "w3" else 1_000)
            .decode()
            .to_tuple(*names.values())
            .batched(batch_size, collation_fn=batch_of)
        )
        loader = wds.WebLoader(
            dataset, batch_size=None, num_workers=workers, collate_fn=as_it_is, persistent_workers=workers > 0
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    return WebDataset()
