"""The basics as ratios in one run: converting, memory, single samples, takes, the import.

    python -m benchmarks.basics [--data FOLDER] [--rounds 5] [--only take ...] [--json FILE]

Prints one line per bar and ends with exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fastshard as fs
from benchmarks.measure import MIB, alternate, median, paired_ratio, python_output, timed
from benchmarks.workloads import WORKLOADS, wide_parquet

W1 = WORKLOADS["w1"]


@dataclass(frozen=True)
class Bar:
    """One requirement and what was measured.

    Attributes:
        name: What was measured.
        value: The figure that counts.
        limit: What it must not pass.
        at_least: Whether `limit` is the least value rather than the greatest.
        detail: The figures behind it.
    """

    name: str
    value: float
    limit: float
    at_least: bool
    detail: str

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Context:
    """Where things lie and how often to measure."""

    data: Path
    scratch: Path
    rounds: int

    def dataset(self) -> Path:
        """W1 converted, made once."""
        path = self.data / f"basics-{W1.name}"
        if not (path / "index.json").exists():
            fs.convert(W1.parquet(self.data), path, progress=False)
        return path


def conversion(context: Context) -> Iterator[Bar]:
    """Converting W1, against reading it row group by row group and writing one fsynced Arrow IPC file."""
    source = W1.parquet(context.data)
    dest = context.scratch / "converted"
    bare = context.scratch / "bare.arrow"

    def ours() -> float:
        seconds = timed(lambda: fs.convert(source, dest, progress=False))
        shutil.rmtree(dest)
        return seconds

    def pyarrow() -> float:
        seconds = timed(lambda: _bare_conversion(source, bare))
        bare.unlink()
        return seconds

    ours(), pyarrow()  # imports, page cache
    figures = alternate({"ours": ours, "pyarrow": pyarrow}, context.rounds)
    yield Bar(
        "conversion of W1: time / bare pyarrow",
        paired_ratio(figures["ours"], figures["pyarrow"]),
        1.5,
        False,
        f"{median(figures['ours']):.2f} s, {median(figures['pyarrow']):.2f} s",
    )


def _bare_conversion(source: Path, dest: Path) -> None:
    with pq.ParquetFile(source) as file, open(dest, "wb") as stream:
        with pa.ipc.new_file(stream, file.schema_arrow) as writer:
            for group in range(file.num_row_groups):
                writer.write_table(file.read_row_group(group))
        stream.flush()
        os.fsync(stream.fileno())


_CONVERT = """
import json, sys
from benchmarks.measure import own_memory, reset_peak
import pyarrow, pyarrow.parquet, pyarrow.dataset, numpy, fastshard
fastshard.convert
reset_peak()
before = own_memory()
fastshard.convert(sys.argv[1], sys.argv[2], workers=1, progress=False)
after = own_memory()
print(json.dumps([before.peak, after.peak, before.anonymous, after.anonymous]))
"""


def memory(context: Context) -> Iterator[Bar]:
    """Peak memory of converting 2 GiB, and of a quarter of it."""
    peaks = {}
    for groups in (4, 16):
        dest = context.scratch / f"memory-{groups}"
        source = wide_parquet(context.data, groups)
        before, after, anonymous, anonymous_after = json.loads(
            python_output(_CONVERT, str(source), str(dest))
        )
        shutil.rmtree(dest)
        peaks[groups] = (after - before) / MIB
        held = (anonymous_after - anonymous) / MIB
    yield Bar(
        "peak memory of converting 2 GiB above the imports, MiB",
        peaks[16],
        600,
        False,
        f"{held:.0f} MiB anonymous still held at the end",
    )
    yield Bar(
        "the same / that of converting 512 MiB",
        peaks[16] / peaks[4],
        1.15,
        False,
        f"{peaks[4]:.0f} MiB for 512 MiB",
    )


def samples(context: Context) -> Iterator[Bar]:
    """`reader[i]` on one thread."""
    reader = fs.open(context.dataset())
    count = 200_000
    generator = np.random.default_rng(7)
    orders = {
        "in order": list(range(count)),
        "at random": generator.integers(0, len(reader), count).tolist(),
    }
    for i in range(0, len(reader), 100):
        _ = reader[i]

    processor: dict[str, float] = {}

    def run(name: str) -> float:
        used = time.thread_time()
        start = time.perf_counter()
        for i in orders[name]:
            reader[i]
        seconds = time.perf_counter() - start
        processor[name] = max(processor.get(name, 0), count / (time.thread_time() - used))
        return count / seconds

    figures = alternate({name: (lambda name=name: run(name)) for name in orders}, context.rounds)
    for name, rates in figures.items():
        spread = f"{min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}; {processor[name] / 1e6:.2f} by CPU time"
        yield Bar(f"reader[i] {name}, million samples/s", median(rates) / 1e6, 1.0, True, spread)


def takes(context: Context) -> Iterator[Bar]:
    """`take` of 1,024 random ids, every row once, against NumPy over a memory map of the same columns."""
    reader = fs.open(context.dataset())
    rows = len(reader)
    x, y = _mapped_arrays(context, reader)
    order = np.random.default_rng(3).permutation(rows)
    parts = [order[first : first + 1024] for first in range(0, rows, 1024)]

    def rate(take: Callable[[np.ndarray], object]) -> float:
        start = time.perf_counter()
        for ids in parts:
            take(ids)
        return rows / (time.perf_counter() - start)

    subjects = {
        "ours": lambda: rate(reader.take),
        "fancy": lambda: rate(lambda ids: (x[ids], y[ids])),
        "np.take": lambda: rate(lambda ids: (np.take(x, ids, axis=0), np.take(y, ids))),
    }
    for subject in subjects.values():
        subject()
    figures = alternate(subjects, context.rounds * 2)
    detail = ", ".join(f"{name} {median(rates) / 1e6:.1f} M/s" for name, rates in figures.items())
    for name, limit in (("fancy", 2.0), ("np.take", 1.2)):
        yield Bar(
            f"take of 1,024 random ids / {'fancy indexing' if name == 'fancy' else name}",
            paired_ratio(figures["ours"], figures[name]),
            limit,
            True,
            detail,
        )


def _mapped_arrays(context: Context, reader: Any) -> tuple[np.ndarray, np.ndarray]:
    """W1 as two flat files, mapped: x float32 [rows, 16] and y int64 [rows], every page touched."""
    rows = len(reader)
    for name in ("x", "y"):
        path = context.scratch / f"{name}.bin"
        if not path.exists():
            np.ascontiguousarray(reader[name]).tofile(path)
    x = np.asarray(np.memmap(context.scratch / "x.bin", dtype=np.float32, mode="r", shape=(rows, 16)))
    y = np.asarray(np.memmap(context.scratch / "y.bin", dtype=np.int64, mode="r", shape=(rows,)))
    x.sum(), y.sum()
    return x, y


_IMPORT = """
import sys, time
start = time.perf_counter()
import fastshard
seconds = time.perf_counter() - start
heavy = [name for name in ("torch", "pandas", "pyspark", "pyarrow") if name in sys.modules]
print(seconds, ",".join(heavy))
"""


def importing(context: Context) -> Iterator[Bar]:
    """`import fastshard` in a fresh interpreter, and what it brings."""
    seconds = []
    heavy = ""
    for _ in range(max(5, context.rounds)):
        first, _, heavy = python_output(_IMPORT).partition(" ")
        seconds.append(float(first) * 1000)
    yield Bar(
        "import fastshard, ms", median(seconds), 150, False, f"{min(seconds):.0f} to {max(seconds):.0f}"
    )
    yield Bar(
        "heavy packages that it imports", len(heavy.split(",")) if heavy else 0, 0, False, heavy or "none"
    )


PARTS: dict[str, Callable[[Context], Iterator[Bar]]] = {
    "conversion": conversion,
    "memory": memory,
    "samples": samples,
    "takes": takes,
    "import": importing,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder where sources are kept (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions; medians count")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), metavar="PART")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()

    bars: list[Bar] = []
    with tempfile.TemporaryDirectory(prefix="fastshard-basics-") as scratch:
        context = Context(arguments.data or Path(scratch) / "data", Path(scratch), arguments.rounds)
        context.data.mkdir(parents=True, exist_ok=True)
        for name in arguments.only:
            for bar in PARTS[name](context):
                bars.append(bar)
                sign = "at least" if bar.at_least else "at most"
                verdict = "met" if bar.met else "MISSED"
                print(
                    f"{verdict:7} {bar.name:58} {bar.value:9.2f}  {sign} {bar.limit:g}  ({bar.detail})",
                    flush=True,
                )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps([{**asdict(bar), "met": bar.met} for bar in bars], indent=1) + "\n"
        )
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
