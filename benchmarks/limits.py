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
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.flat import FlatColumn, open_flat, write_flat
from benchmarks.measure import MIB, alternate, median, timed
from benchmarks.workloads import WORKLOADS, Workload

SOURCE = Path(__file__).with_name("limits.cpp")
THREADS = (1, 2)

Measured = dict[str, list[float]]


def library(folder: Path) -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """The compiled limits.cpp, once called without and once with the GIL; made in `folder` when it is not there.

    Raises:
        RuntimeError: The compiler is missing or failed.
    """
    compiler = os.environ.get("CXX", "c++")
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(SOURCE.read_bytes() + f"{compiler}{sys.version}".encode()).hexdigest()[:16]
    built = folder / f"limits-{digest}.so"
    if not built.exists():
        command = [compiler, "-O3", "-std=c++20", "-shared", "-fPIC", "-pthread"]
        command += [f"-I{sysconfig.get_paths()['include']}", str(SOURCE), "-o", f"{built}.tmp"]
        try:
            with_codecs = subprocess.run(
                [*command, "-lzstd", "-llz4"], capture_output=True, text=True, check=False
            )
            if with_codecs.returncode != 0:
                subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise RuntimeError(f"there is no compiler {compiler!r}: install one, or name it in CXX") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{compiler} could not build {SOURCE}:\n{error.stderr}") from None
        os.replace(f"{built}.tmp", built)
    libraries = ctypes.CDLL(str(built)), ctypes.PyDLL(str(built))
    for loaded in libraries:
        for name in (
            "limit_gather",
            "limit_copies",
            "limit_mixed",
            "limit_mixed_bytes",
            "limit_memcpy",
            "limit_direct_reads",
            "limit_decompress",
        ):
            getattr(loaded, name).restype = ctypes.c_double
    return libraries


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointers(addresses: list[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _rate(amount: float, seconds: float) -> float:
    if seconds < 0:
        raise RuntimeError(
            "a limit could not be measured here (no direct reads, no codec, or a batch too large)"
        )
    return amount / seconds


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
            _pointers([array.ctypes.data for array in values]),
            _address(widths),
            ctypes.c_int(len(values)),
            _address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
            ctypes.c_int(threads),
        )
        return _rate(self.rows, seconds)

    def _fancy(self) -> float:
        return self._numpy(lambda array, ids: array[ids])

    def _take(self) -> float:
        return self._numpy(lambda array, ids: np.take(array, ids, axis=0))

    def _numpy(self, pick: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        arrays = [column.values for column in self._columns.values()]

        def run() -> None:
            for ids in self._batches:  # a batch is dropped when the next one is there
                _ = [pick(array, ids) for array in arrays]

        return _rate(self.rows, timed(run))

    def _copies(self, threads: int) -> float:
        data = self._columns["data"]
        seconds = self._native.limit_copies(
            _address(data.values),
            _address(data.offsets),
            _address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
            ctypes.c_int(threads),
        )
        return _rate(self.rows, seconds)

    def _python_bytes(self) -> float:
        data, labels = self._columns["data"], self._columns["y"].values
        view = memoryview(data.values)
        offsets = data.offsets.tolist()

        def run() -> None:
            for ids in self._batches:
                _ = [bytes(view[offsets[i] : offsets[i + 1]]) for i in ids.tolist()], labels[ids]

        return _rate(self.rows, timed(run))

    def _mixed_arguments(self) -> list[Any]:
        columns = self._columns
        return [
            _address(columns["id"].values),
            _address(columns["value"].values),
            _address(columns["text"].values),
            _address(columns["text"].offsets),
            _address(columns["vector"].values),
            _address(columns["vector"].offsets),
            _address(self._order),
            ctypes.c_int64(self.rows),
            ctypes.c_int64(self._workload.batch_size),
        ]

    def _mixed_bytes(self, threads: int) -> float:
        seconds = self._native.limit_mixed_bytes(*self._mixed_arguments(), ctypes.c_int(threads))
        return _rate(self.rows, seconds)

    def _mixed(self) -> float:
        return _rate(self.rows, self._python.limit_mixed(*self._mixed_arguments()))

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

        return _rate(self.rows, timed(run))


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
        return lambda: _rate(
            repeats * size / 1e9, native.limit_memcpy(ctypes.c_int64(size), ctypes.c_int64(repeats))
        )

    return alternate({f"memcpy of {size} MiB": subject(size) for size in (1, 16, 512)}, rounds)


def disk_limits(path: Path, rounds: int, native: Any, total: int = 1 << 30) -> Measured:
    """GB/s of direct reads of a file: sequential by 4 MiB, and at random by 128 KiB and 1 MiB, at several depths."""
    size = path.stat().st_size
    generator = np.random.default_rng(5)

    def subject(chunk: int, depth: int, shuffled: bool) -> Callable[[], float]:
        offsets = np.arange(0, size - chunk + 1, chunk, dtype=np.int64)
        if shuffled:
            offsets = generator.permutation(offsets)
        offsets = np.ascontiguousarray(offsets[: max(1, total // chunk)])
        name = str(path).encode()
        return lambda: _rate(
            len(offsets) * chunk / 1e9,
            native.limit_direct_reads(
                ctypes.c_char_p(name),
                _address(offsets),
                ctypes.c_int64(len(offsets)),
                ctypes.c_int64(chunk),
                ctypes.c_int(depth),
            ),
        )

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
    for number, codec in enumerate(("zstd", "lz4")):
        level = 1 if codec == "zstd" else None
        compressor = pa.Codec(codec, compression_level=level) if level else pa.Codec(codec)
        frames = [compressor.compress(buffer) for buffer in buffers]
        for threads in THREADS:
            subjects[f"{codec} of {workload.name}, {threads} threads"] = functools.partial(
                _decompress, native, number, frames, buffers, threads
            )
    return alternate(subjects, rounds)


def _decompress(native: Any, codec: int, frames: list[Any], buffers: list[Any], threads: int) -> float:
    sizes = np.array([frame.size for frame in frames], dtype=np.int64)
    raw = np.array([buffer.size for buffer in buffers], dtype=np.int64)
    seconds = native.limit_decompress(
        ctypes.c_int(codec),
        _pointers([frame.address for frame in frames]),
        _address(sizes),
        _address(raw),
        ctypes.c_int64(len(frames)),
        ctypes.c_int(threads),
    )
    return _rate(float(raw.sum()) / 1e9, seconds)


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
