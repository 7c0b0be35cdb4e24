"""What this machine can do at best, on the bytes of the workloads: the figures that ours are held against.

    python -m benchmarks.limits [--data FOLDER] [--scale 1.0] [--rounds 3] [--only w1 disk ...] [--json FILE]

Bare C++ gathers with software prefetch on one and two threads, the loops that one would write in NumPy, memcpy, direct
reads past the page cache, and zstd and lz4 by the libraries themselves. The C++ part is compiled when it is needed; set
CXX to choose the compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bare import Frames, address, direct_reads, library, pointers, rate_of
from benchmarks.flat import FlatColumn, open_flat, write_flat
from benchmarks.measure import MIB, alternate, median, timed
from benchmarks.workloads import WORKLOADS, Workload

THREADS = (1, 2)

Measured = dict[str, list[float]]


class Limits:
    """Bare loops over one workload's flat files."""

    def __init__(self, workload: Workload, columns: dict[str, FlatColumn], libraries: Any) -> None:
        self._workload = workload
        self._columns = columns
        self._native, self._python = libraries
        first = next(iter(columns.values()))
        self.rows = len(first.values) if first.offsets is None else len(first.offsets) - 1
        self._order = np.random.default_rng(11).permutation(self.rows)
        size = workload.batch_size
        self._batches = [self._order[first : first + size] for first in range(0, self.rows, size)]
        for column in columns.values():  # into the page cache
            column.values.max()

    def subjects(self) -> dict[str, Callable[[], float]]:
        """By name a call that returns samples/s over one epoch in random order."""
        if self._workload.name in ("w1", "w2"):
            gathers = {f"gather, {n} threads": functools.partial(self._gather, n) for n in THREADS}
            return {**gathers, "numpy fancy indexing": self._fancy, "np.take": self._take}
        if self._workload.name == "w3":
            copies = {f"copies, {n} threads": functools.partial(self._copies, n) for n in THREADS}
            return {**copies, "list of bytes in Python": self._python_bytes}
        return {
            **{f"gather, {n} threads": functools.partial(self._mixed_bytes, n) for n in THREADS},
            "gather and str": self._mixed,
            "lists in Python": self._python_lists,
        }

    def _gather(self, threads: int) -> float:
        values = [column.values for column in self._columns.values()]
        widths = np.array([array.nbytes // self.rows for array in values], dtype=np.int64)
        seconds = self._native.limit_gather(
            pointers([array.ctypes.data for array in values]),
            address(widths),
            ctypes.c_int(len(values)),
            address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
            ctypes.c_int(threads),
        )
        return rate_of(self.rows, seconds)

    def _fancy(self) -> float:
        return self._numpy(lambda array, ids: array[ids])

    def _take(self) -> float:
        return self._numpy(lambda array, ids: np.take(array, ids, axis=0))

    def _numpy(self, pick: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        arrays = [column.values for column in self._columns.values()]

        def run() -> None:
            for ids in self._batches:  # a batch is dropped when the next one is there
                _ = [pick(array, ids) for array in arrays]

        return rate_of(self.rows, timed(run))

    def _copies(self, threads: int) -> float:
        data = self._columns["data"]
        seconds = self._native.limit_copies(
            address(data.values),
            address(data.offsets),
            address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
            ctypes.c_int(threads),
        )
        return rate_of(self.rows, seconds)

    def _python_bytes(self) -> float:
        data, labels = self._columns["data"], self._columns["y"].values
        view = memoryview(data.values)
        offsets = data.offsets.tolist()

        def run() -> None:
            for ids in self._batches:
                _ = [bytes(view[offsets[i] : offsets[i + 1]]) for i in ids.tolist()], labels[ids]

        return rate_of(self.rows, timed(run))

    def _mixed_arguments(self) -> list[Any]:
        columns = self._columns
        return [
            address(columns["id"].values),
            address(columns["value"].values),
            address(columns["text"].values),
            address(columns["text"].offsets),
            address(columns["vector"].values),
            address(columns["vector"].offsets),
            address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
        ]

    def _mixed_bytes(self, threads: int) -> float:
        seconds = self._native.limit_mixed_bytes(*self._mixed_arguments(), ctypes.c_int(threads))
        return rate_of(self.rows, seconds)

    def _mixed(self) -> float:
        return rate_of(self.rows, self._python.limit_mixed(*self._mixed_arguments()))

    def _python_lists(self) -> float:
        columns = self._columns
        text, starts = memoryview(columns["text"].values), columns["text"].offsets.tolist()
        vectors, firsts = columns["vector"].values, columns["vector"].offsets.tolist()
        ids_column, values = columns["id"].values, columns["value"].values

        def run() -> None:
            for ids in self._batches:
                rows = ids.tolist()
                _ = ids_column[ids], values[ids]
                _ = [str(text[starts[i] : starts[i + 1]], "utf-8") for i in rows]
                _ = np.concatenate([vectors[firsts[i] : firsts[i + 1]] for i in rows])

        return rate_of(self.rows, timed(run))


def workload_limits(workload: Workload, data: Path, scale: float, rounds: int, libraries: Any) -> Measured:
    """Samples/s of every loop over one workload, alternating."""
    rows = max(1, int(workload.rows * scale))
    folder = data / f"flat-{workload.name}-{rows}"
    if not (folder / "done").exists():
        write_flat(workload.parquet(data, rows), folder)
        (folder / "done").touch()
    subjects = Limits(workload, open_flat(folder), libraries).subjects()
    return alternate(
        {name: functools.partial(_long_enough, rate, rows) for name, rate in subjects.items()}, rounds
    )


def _long_enough(rate: Callable[[], float], rows: int) -> float:
    """Samples/s over as many epochs as take a quarter of a second."""
    epochs, seconds = 0, 0.0
    while seconds < 0.25:
        seconds += rows / rate()
        epochs += 1
    return epochs * rows / seconds


def memcpy_limits(rounds: int, native: Any) -> Measured:
    """GB/s copied by one thread, by size of the copy."""

    def subject(mebibytes: int) -> Callable[[], float]:
        repeats = max(1, 1024 // mebibytes)
        size = mebibytes * MIB
        return lambda: rate_of(
            repeats * size / 1e9, native.limit_memcpy(ctypes.c_int64(size), ctypes.c_int64(repeats))
        )

    return alternate({f"memcpy of {size} MiB": subject(size) for size in (1, 16, 512)}, rounds)


def disk_limits(path: Path, rounds: int, native: Any, total: int = 1 << 30) -> Measured:
    """GB/s of direct reads of a file: sequential by 4 MiB, and at random by 128 KiB and 1 MiB, at several depths."""

    def subject(chunk: int, depth: int, shuffled: bool) -> Callable[[], float]:
        return lambda: direct_reads([path], chunk, depth, shuffled=shuffled, native=native, total=total)

    return alternate(
        {
            "sequential direct reads of 4 MiB, depth 4": subject(4 * MIB, 4, False),
            "random direct reads of 128 KiB, depth 32": subject(128 << 10, 32, True),
            "random direct reads of 1 MiB, depth 8": subject(MIB, 8, True),
        },
        rounds,
    )


def codec_limits(workload: Workload, data: Path, scale: float, rounds: int, native: Any) -> Measured:
    """GB/s (of decompressed bytes) that the libraries reach on a workload's buffers, cut into blocks of 1 MiB."""
    rows = max(1, int(workload.rows * scale))
    with pq.ParquetFile(workload.parquet(data, rows)) as file:
        batch = next(file.iter_batches(batch_size=workload.row_group))
    rows_of_block = max(1, len(batch) * MIB // max(1, batch.nbytes))
    buffers = []
    for first in range(0, len(batch), rows_of_block):
        sink = pa.BufferOutputStream()  # sliced columns keep all their bytes until they are written
        part = batch.slice(first, rows_of_block)
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_batch(part)
        with pa.ipc.open_stream(sink.getvalue()) as reader:
            for column in reader.read_next_batch().columns:
                buffers += [buffer for buffer in column.buffers() if buffer is not None and buffer.size > 0]
    subjects: dict[str, Callable[[], float]] = {}
    for codec in ("zstd", "lz4"):
        frames = Frames(codec, buffers, native)
        for threads in THREADS:
            subjects[f"{codec} of {workload.name}, {threads} threads"] = functools.partial(
                frames.rate, threads
            )
    return alternate(subjects, rounds)


def measure_limits(
    data: Path, scale: float, rounds: int, only: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Medians by part and name: samples/s for "w1" to "w4", GB/s for "memcpy", "disk" and "codecs"."""
    libraries = library(data)
    native = libraries[0]
    measured: dict[str, Measured] = {}
    for name in only:
        if name in WORKLOADS:
            measured[name] = workload_limits(WORKLOADS[name], data, scale, rounds, libraries)
        elif name == "memcpy":
            measured[name] = memcpy_limits(rounds, native)
        elif name == "disk":
            source = max(
                (WORKLOADS[w].parquet(data, max(1, int(WORKLOADS[w].rows * scale))) for w in ("w2", "w3")),
                key=lambda path: path.stat().st_size,
            )
            measured[name] = disk_limits(source, rounds, native)
        elif name == "codecs":
            measured[name] = {}
            for workload in ("w1", "w2", "w4"):
                measured[name] |= codec_limits(WORKLOADS[workload], data, scale, rounds, native)
    return {
        part: {name: median(values) for name, values in rates.items()} for part, rates in measured.items()
    }


PARTS = (*WORKLOADS, "memcpy", "disk", "codecs")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder where sources are kept (default: a temporary one)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads' rows")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; medians count")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastshard-limits-") as scratch:
        data = arguments.data or Path(scratch)
        figures = measure_limits(data, arguments.scale, arguments.rounds, tuple(arguments.only))
    for part, rates in figures.items():
        for name, rate in rates.items():
            text = f"{rate:,.0f} samples/s" if part in WORKLOADS else f"{rate:.2f} GB/s"
            print(f"{part:8} {name:45} {text:>25}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
