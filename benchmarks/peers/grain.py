"""Grain over ArrayRecord files: MapDataset, threads that read ahead, worker processes by mp_prefetch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags
from array_record.python.array_record_module import ArrayRecordWriter

from benchmarks.peers._rows import row_batches
from benchmarks.subject import Subject
from benchmarks.workloads import Workload

RECORDS = 10_000  # of a file: a read of one record grows with its file


def _encode(name: str, row: dict[str, Any]) -> bytes:
    if name == "w1":
        return row["x"].tobytes() + struct.pack("<q", row["y"])
    if name == "w2":
        encoded: bytes = row["tokens"].tobytes()
        return encoded
    if name == "w3":
        return struct.pack("<q", row["y"]) + row["data"]
    text = row["text"].encode()
    return struct.pack("<qdq", row["id"], row["value"], len(text)) + text + row["vector"].tobytes()


class Decode(grain.transforms.Map):
    """A record as a dict."""

    def __init__(self, name: str) -> None:
        self._name = name

    def map(self, element: bytes) -> dict[str, Any]:
        if self._name == "w1":
            return {"x": np.frombuffer(element, "<f4", 16), "y": np.frombuffer(element, "<i8", 1, 64)[0]}
        if self._name == "w2":
            return {"tokens": np.frombuffer(element, "<i4")}
        if self._name == "w3":
            return {"data": element[8:], "y": np.frombuffer(element, "<i8", 1)[0]}
        number, value, length = struct.unpack_from("<qdq", element)
        return {
            "id": np.int64(number),
            "value": np.float64(value),
            "text": element[24 : 24 + length].decode(),
            "vector": np.frombuffer(element, "<f4", -1, 24 + length),
        }


def _batch(samples: list[dict[str, Any]]) -> dict[str, Any]:
    batch: dict[str, Any] = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        batch[name] = np.array(values) if isinstance(first, np.generic) else values
    return batch


class Grain(Subject):
    note = f"ArrayRecord with one record a group, {RECORDS:,} a file; 16 read threads; NumPy batches"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        writer, written = None, 0
        for rows in row_batches(parquet):
            for row in rows:
                if written % RECORDS == 0:
                    if writer is not None:
                        writer.close()
                    writer = ArrayRecordWriter(
                        str(folder / f"{written // RECORDS:05d}.array_record"), "group_size:1"
                    )
                writer.write(_encode(workload.name, row))
                written += 1
        if writer is not None:
            writer.close()

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        flags.FLAGS.mark_as_parsed()
        source = grain.sources.ArrayRecordDataSource(
            sorted(str(path) for path in folder.glob("*.array_record"))
        )
        options = {} if workload.name in ("w1", "w2") else {"batch_fn": _batch}

        def epoch(number: int) -> Iterable[Any]:
            dataset = grain.MapDataset.source(source).shuffle(seed=number + 1).map(Decode(workload.name))
            batches = dataset.batch(batch_size, **options).to_iter_dataset(grain.ReadOptions())
            return (
                batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else batches
            )

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return dict(batch)


def subject(name: str) -> Subject:
    return Grain()
