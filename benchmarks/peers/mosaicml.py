"""MosaicML Streaming: MDS shards, StreamingDataset in its StreamingDataLoader."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers._rows import collate, column, row_batches
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


def _stub(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules.setdefault(name, module)


# streaming imports these for its text and vision data sets alone; the real ones would bring other versions of NumPy
# and torch into the environment.
_stub("transformers")
_stub("transformers.feature_extraction_utils", BatchFeature=type("BatchFeature", (dict,), {}))
_stub("transformers.tokenization_utils_base", BatchEncoding=type("BatchEncoding", (dict,), {}))
_stub("transformers.models")
_stub("transformers.models.auto")
_stub("transformers.models.auto.tokenization_auto", AutoTokenizer=object)
_stub("torchvision")
_stub("torchvision.datasets", VisionDataset=object, CIFAR10=object)
_stub("torchvision.transforms")
_stub("torchvision.transforms.functional", to_tensor=None)

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402

ENCODINGS = {
    "w1": {"x": "ndarray:float32:16", "y": "int"},
    "w2": {"tokens": "ndarray:int32:2048"},
    "w3": {"data": "bytes", "y": "int"},
    "w4": {"id": "int", "value": "float64", "text": "str", "vector": "ndarray:float32"},
}


class Streaming(Subject):
    note = "its default shuffle (py1e) within blocks of shards; one canonical node"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        with MDSWriter(out=str(folder), columns=ENCODINGS[workload.name], progress_bar=False) as writer:
            for rows in row_batches(parquet):
                for row in rows:
                    writer.write(row)

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        clean_stale_shared_memory()
        dataset = StreamingDataset(
            local=str(folder), shuffle=True, shuffle_seed=1, batch_size=batch_size, num_canonical_nodes=1
        )
        options = {"collate_fn": collate} if workload.name in ("w3", "w4") else {}
        loader = StreamingDataLoader(
            dataset, batch_size=batch_size, num_workers=workers, persistent_workers=workers > 0, **options
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return {name: column(value) for name, value in batch.items()}


def subject(name: str) -> Subject:
    torch.set_num_threads(1)
    return Streaming()
