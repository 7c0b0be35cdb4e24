"""The four workloads: seeded rows as Arrow batches and as Parquet files.

Each row carries its id (its number, 0 to rows-1) in every column, so that a loader which drops, repeats or mixes up
rows is found out from what it delivers: `check` compares a delivered batch with that. Everything else is noise.

Needs NumPy and pyarrow of any recent version: it also runs in the environments of the peers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["WORKLOADS", "Workload", "wide_parquet"]

SEED = 20240229
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "mu",
    "été",
    "größe",
    "数据",
    "naïve",
]


@dataclass(frozen=True)
class Workload:
    """Rows of one kind.

    Attributes:
        name: "w1" to "w4".
        title: What it stands for.
        rows: Rows of the full size.
        batch_size: Rows of a batch in the benchmarks.
        row_group: Rows of a row group of the Parquet file.
        schema: The Arrow schema.
    """

    name: str
    title: str
    rows: int
    batch_size: int
    row_group: int
    schema: pa.Schema
    make: Callable[[np.random.Generator, np.ndarray], list[pa.Array]]

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The first `rows` rows (all by default), in batches of at most 10,000.

        A row's values do not depend on how many rows are made.
        """
        rows = self.rows if rows is None else rows
        size = min(10_000, self.row_group)
        for chunk, first in enumerate(range(0, rows, size)):
            ids = np.arange(first, first + size, dtype=np.int64)
            generator = np.random.Generator(np.random.PCG64([SEED, int(self.name[1:]), chunk]))
            batch = pa.RecordBatch.from_arrays(self.make(generator, ids), schema=self.schema)
            yield batch.slice(0, min(size, rows - first))

    def table(self, rows: int | None = None) -> pa.Table:
        """The same as one table."""
        return pa.Table.from_batches(self.batches(rows), schema=self.schema)

    def parquet(self, folder: Path, rows: int | None = None) -> Path:
        """The same as a Parquet file in `folder`, made when it is not there yet."""
        rows = self.rows if rows is None else rows
        return _made_once(
            folder / f"{self.name}-{rows}.parquet",
            lambda path: _write_parquet(path, self.schema, self.batches(rows), self.row_group),
        )

    def check(self, batch: dict[str, Any]) -> np.ndarray:
        """The ids of a delivered batch.

        Args:
            batch: By column: an array [n] or [n, width], a list of n str or bytes; for lists of floats a tuple of
                values and offsets or a list of n arrays; for binary also a zero-padded array [n, longest].

        Raises:
            ValueError: A value does not belong to the id that its row has.
        """
        return _CHECKS[self.name](batch)


def _write_parquet(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch], row_group: int) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            held.append(batch)
            rows += len(batch)
            if rows >= row_group:
                writer.write_table(pa.Table.from_batches(held), row_group_size=row_group)
                held, rows = [], 0
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=row_group)


def _made_once(path: Path, make: Callable[[Path], None]) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        os.close(handle)
        try:
            make(Path(name))
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    return path


def wide_parquet(folder: Path, groups: int, group_bytes: int = 128 << 20) -> Path:
    """A Parquet file of `groups` row groups of `group_bytes` each: int64 and float32[255], 1 KiB and a little a row."""
    width = 255
    rows = group_bytes // (width * 4 + 8)
    schema = pa.schema([("y", pa.int64()), ("x", pa.list_(pa.float32(), width))])

    def make(path: Path) -> None:
        generator = np.random.Generator(np.random.PCG64(SEED))
        # One row group's values, turned a little further for each: making fresh ones takes longer than converting.
        values = generator.standard_normal(rows * width, dtype=np.float32)
        with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
            for group in range(groups):
                y = np.arange(group * rows, (group + 1) * rows, dtype=np.int64)
                x = pa.FixedSizeListArray.from_arrays(pa.array(np.roll(values, group)), width)
                writer.write_table(pa.Table.from_arrays([pa.array(y), x], schema=schema), row_group_size=rows)

    return _made_once(folder / f"wide-{groups}x{group_bytes >> 20}MiB.parquet", make)


# How rows are made.


def _make_w1(generator: np.random.Generator, ids: np.ndarray) -> list[pa.Array]:
    x = generator.standard_normal((len(ids), 16), dtype=np.float32)
    x[:, 0] = ids
    return [pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 16), pa.array(ids)]


def _make_w2(generator: np.random.Generator, ids: np.ndarray) -> list[pa.Array]:
    tokens = generator.integers(0, 50_000, (len(ids), 2048), dtype=np.int32)
    tokens[:, 0] = ids
    tokens[:, -1] = -ids
    return [pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), 2048)]


def _make_w3(generator: np.random.Generator, ids: np.ndarray) -> list[pa.Array]:
    # Lognormal with sigma 0.5 and mean 100,000 bytes, as sizes of JPEG files are spread; at most 1 MB.
    sizes = generator.lognormal(np.log(100_000) - 0.125, 0.5, len(ids)).clip(16, 1_000_000).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = generator.integers(0, 256, offsets[-1], dtype=np.uint8)
    places = offsets[:-1, None] + np.arange(8)
    data[places] = ids.astype("<i8")[:, None].view(np.uint8).reshape(-1, 8)
    binary = pa.Array.from_buffers(
        pa.binary(), len(ids), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )
    return [binary, pa.array(ids)]


def _make_w4(generator: np.random.Generator, ids: np.ndarray) -> list[pa.Array]:
    texts = []
    lengths = generator.integers(20, 201, len(ids))
    words = generator.integers(0, len(WORDS), (len(ids), 100))
    for i, row in enumerate(ids):
        texts.append((f"{row} " + " ".join(WORDS[w] for w in words[i]))[: lengths[i]])
    counts = generator.integers(1, 65, len(ids))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = generator.standard_normal(offsets[-1], dtype=np.float32)
    values[offsets[:-1]] = ids
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
    return [pa.array(ids), pa.array(ids * 0.5), pa.array(texts), lists]


# What a delivered batch must hold.


def _require(good: Any, column: str) -> None:
    if not np.all(good):
        raise ValueError(f"column {column!r} of a batch holds values of other rows than its ids say")


def _check_w1(batch: dict[str, Any]) -> np.ndarray:
    ids = np.asarray(batch["y"]).reshape(-1)
    _require(np.asarray(batch["x"])[:, 0] == ids.astype(np.float32), "x")
    return ids


def _check_w2(batch: dict[str, Any]) -> np.ndarray:
    tokens = np.asarray(batch["tokens"])
    ids = tokens[:, 0].astype(np.int64)
    _require(tokens.shape[1] == 2048, "tokens")
    _require(tokens[:, -1] == -ids, "tokens")
    return ids


def _check_w3(batch: dict[str, Any]) -> np.ndarray:
    ids = np.asarray(batch["y"]).reshape(-1)
    heads = np.array([np.frombuffer(bytes(value[:8]), dtype="<i8")[0] for value in batch["data"]])
    _require(heads == ids, "data")
    return ids


def _check_w4(batch: dict[str, Any]) -> np.ndarray:
    ids = np.asarray(batch["id"]).reshape(-1)
    _require(np.asarray(batch["value"]).reshape(-1) == ids * 0.5, "value")
    _require(
        [text.startswith(f"{row} ") for text, row in zip(batch["text"], ids.tolist(), strict=True)], "text"
    )
    vectors = batch["vector"]
    if isinstance(vectors, tuple):
        values, offsets = np.asarray(vectors[0]), np.asarray(vectors[1])
        _require(len(offsets) == len(ids) + 1, "vector")
        heads = values[offsets[:-1]]
    else:
        heads = np.array([np.asarray(vector)[0] for vector in vectors])
    _require(heads == ids.astype(np.float32), "vector")
    return ids


_CHECKS = {"w1": _check_w1, "w2": _check_w2, "w3": _check_w3, "w4": _check_w4}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "w1",
            "tabular: float32[16] and int64",
            1_000_000,
            1024,
            100_000,
            pa.schema([("x", pa.list_(pa.float32(), 16)), ("y", pa.int64())]),
            _make_w1,
        ),
        Workload(
            "w2",
            "tokens: int32[2048]",
            50_000,
            256,
            5_000,
            pa.schema([("tokens", pa.list_(pa.int32(), 2048))]),
            _make_w2,
        ),
        Workload(
            "w3",
            "encoded images: binary of 100 KB on average, and int64",
            20_000,
            64,
            1_000,
            pa.schema([("data", pa.binary()), ("y", pa.int64())]),
            _make_w3,
        ),
        Workload(
            "w4",
            "mixed: int64, float64, text of 20 to 200 characters, list of 1 to 64 float32",
            200_000,
            256,
            50_000,
            pa.schema(
                [
                    ("id", pa.int64()),
                    ("value", pa.float64()),
                    ("text", pa.string()),
                    ("vector", pa.list_(pa.float32())),
                ]
            ),
            _make_w4,
        ),
    )
}
