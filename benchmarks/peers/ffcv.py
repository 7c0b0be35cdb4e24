"""FFCV: a beton file, its threads and compiled pipelines, random order, the file in the page cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField, NDArrayField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.bytes import BytesDecoder
from ffcv.fields.ndarray import NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter

from benchmarks.flat import FlatColumn, open_flat, write_flat
from benchmarks.subject import Subject
from benchmarks.workloads import Workload


class Rows:
    """An indexed data set for the writer: tuples of one row's fields."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        columns = open_flat(folder)
        self._columns: list[FlatColumn] = [columns[name] for name in names]

    def __len__(self) -> int:
        first = self._columns[0]
        return len(first.values) if first.offsets is None else len(first.offsets) - 1

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return tuple(self._value(column, row) for column in self._columns)

    def _value(self, column: FlatColumn, row: int) -> Any:
        if column.offsets is not None:
            return np.array(column.values[column.offsets[row] : column.offsets[row + 1]])
        value = column.values[row]
        return np.array(value) if column.values.ndim > 1 else int(value)


class Ffcv(Subject):
    note = "threads (one where 0 workers are asked for); binary comes as zero-padded arrays"

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        flat = folder / "flat"
        write_flat(parquet, flat)
        fields: dict[str, Any] = {
            "w1": {"x": NDArrayField(np.dtype("float32"), (16,)), "y": IntField()},
            "w2": {"tokens": NDArrayField(np.dtype("int32"), (2048,))},
            "w3": {"data": BytesField(), "y": IntField()},
        }[workload.name]
        writer = DatasetWriter(str(folder / "data.beton"), fields, page_size=8 << 20, num_workers=2)
        writer.from_indexed_dataset(Rows(flat, list(fields)))
        for path in flat.iterdir():
            path.unlink()
        flat.rmdir()

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        pipelines: dict[str, list[Any]] = {
            "w1": {"x": [NDArrayDecoder(), ToTensor()], "y": [IntDecoder(), ToTensor()]},
            "w2": {"tokens": [NDArrayDecoder(), ToTensor()]},
            "w3": {"data": [BytesDecoder()], "y": [IntDecoder(), ToTensor()]},
        }[workload.name]
        loader = Loader(
            str(folder / "data.beton"),
            batch_size=batch_size,
            num_workers=max(1, workers),
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            seed=1,
            pipelines=pipelines,
        )
        return lambda number: loader

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        names = {"w1": ("x", "y"), "w2": ("tokens",), "w3": ("data", "y")}[workload.name]
        return {name: np.asarray(value) for name, value in zip(names, batch, strict=True)}

    def size(self, workload: Workload, batch: Any) -> int:
        return len(batch[-1])


def subject(name: str) -> Subject:
    return Ffcv()
