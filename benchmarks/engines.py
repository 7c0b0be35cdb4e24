"""What reading costs when bytes are compressed, are not in memory, or do not fit into it: ours beside bare reads.

    python -m benchmarks.engines [--data FOLDER] [--only compressed cold random memory] [--gigabytes 8.4] [--rounds 5]

* compressed: block order over zstd and lz4 shards, beside the libraries' bare decompression of the same buffers;
* cold: block order with an empty page cache, by each engine, beside direct sequential reads of the same files;
* random: global order over data larger than memory (a memory cgroup's limit; as root), beside direct reads at random;
* memory: what ten epochs hold, mapped, compressed and read by an engine.

Each measurement is a process of its own; those that are compared alternate, and medians count.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fastshard as fs
from benchmarks.bare import direct_reads, library, shard_frames
from benchmarks.measure import MIB, alternate, drop_cache, median, paired_ratio, warm_cache
from benchmarks.run import Process, run_subject
from benchmarks.workloads import WORKLOADS, Workload

CODECS = ("zstd", "lz4")
ENGINES = ("uring", "threads")
COLD = WORKLOADS["w2"]  # 8 KiB a row
DEPTH = 64  # of bare random reads, as many as ours
CGROUP = Path("/sys/fs/cgroup/memory")
PARTS = ("compressed", "cold", "random", "memory")


@dataclass(frozen=True)
class Row:
    """A figure of ours beside what it is held against.

    Attributes:
        part: Of PARTS.
        name: What was measured.
        value: Median of ours, in `unit`.
        against: Median of what it is compared with.
        ratio: Median of the ratios, round by round (ours / the other).
        limit: What the ratio (or, without `against`, the value) should be.
        at_least: Whether `limit` is the least or the most.
        detail: More, in words.
    """

    part: str
    name: str
    value: float
    unit: str
    against: float | None
    ratio: float | None
    limit: float | None
    at_least: bool
    detail: str = ""

    @property
    def met(self) -> bool | None:
        value = self.value if self.ratio is None else self.ratio
        if self.limit is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit


class Engines:
    """The measurements; data sets are made in `sets` when they are not there."""

    def __init__(self, data: Path, sets: Path, rounds: int, nice: int, native: Any) -> None:
        self._data = data
        self._sets = sets
        self._rounds = rounds
        self._nice = nice
        self._native = native

    # Processes.

    def _run(
        self,
        workload: Workload,
        folder: Path,
        rows: int,
        threads: int,
        seconds: float,
        *more: str,
        **options: Any,
    ) -> Process:
        arguments = ["run", "--workload", workload.name, "--folder", str(folder), "--rows", str(rows)]
        arguments += ["--workers", str(threads), "--seconds", str(seconds), "--options", json.dumps(options)]
        process = run_subject(
            Path(sys.executable), "fastshard", [*arguments, *more], 120 + 5 * seconds, self._nice
        )
        if process.error is not None:
            raise RuntimeError(f"{workload.name} with {options}: {process.error}")
        return process

    def _converted(self, workload: Workload, compression: str) -> Path:
        folder = self._sets / f"{workload.name}-{workload.rows}-engines-{compression}"
        if not folder.exists():
            fs.convert(workload.parquet(self._data), folder, compression=compression, progress=False)
        return folder

    def _large(self, gigabytes: float) -> tuple[Path, int]:
        """Rows of W2, as many as make `gigabytes`."""
        rows = int(gigabytes * 1e9) // 8192
        folder = self._sets / f"{COLD.name}-{rows}-engines"
        if not folder.exists():
            fs.write(COLD.batches(rows), folder, schema=COLD.schema)
        return folder, rows

    # The four parts.

    def compressed(self) -> Iterator[Row]:
        for codec in CODECS:
            for workload in (WORKLOADS["w1"], WORKLOADS["w2"], WORKLOADS["w4"]):
                folder = self._converted(workload, codec)
                plain = self._converted(workload, "none")
                warm_cache(folder)
                warm_cache(plain)
                bare = shard_frames(folder, codec, self._native)
                raw = bare.raw_bytes
                for threads in (1, 2):
                    both = alternate(
                        {
                            "ours": functools.partial(self._block_order, workload, folder, raw, threads),
                            "bare": functools.partial(bare.rate, threads),
                            "plain": functools.partial(self._block_order, workload, plain, raw, threads),
                        },
                        self._rounds,
                    )
                    detail = f"not compressed and mapped: {median(both['plain']):.2f} GB/s"
                    name = f"{codec} shards of {workload.name}, {threads} threads / bare decompression"
                    yield _ratio("compressed", name, both, "GB/s", 0.85, detail)

    def _block_order(self, workload: Workload, folder: Path, raw_bytes: int, threads: int) -> float:
        """GB/s of decompressed bytes."""
        run = self._run(workload, folder, workload.rows, threads, 3, shuffle="block")
        # With what comes before an epoch's first batch: a window's blocks are decompressed there.
        return float(run.result["samples_per_s_with_starts"]) * raw_bytes / workload.rows / 1e9

    def cold(self, gigabytes: float) -> Iterator[Row]:
        folder, rows = self._large(gigabytes)
        files = sorted(folder.glob("shard-*.arrow"))
        with fs.open(folder) as reader:
            windows = rows / reader.geometry.window
        held: dict[str, int] = {}

        def ours(engine: str) -> float:
            drop_cache(folder, everything=False)
            run = self._run(COLD, folder, rows, 2, 600, "--cold", shuffle="block", engine=engine)
            held[engine] = max(held.get(engine, 0), run.anonymous - run.result["imported_anonymous"])
            return rows * 8192 / 1e9 / (run.result["first_batch_s"] + run.result["measured_s"])

        def bare(huge: bool) -> float:
            drop_cache(folder, everything=False)
            return direct_reads(files, 4 * MIB, 4, shuffled=False, native=self._native, huge=huge)

        subjects: dict[str, Callable[[], float]] = {
            engine: functools.partial(ours, engine) for engine in (*ENGINES, "mmap")
        }
        pages = {"small": functools.partial(bare, False), "huge": functools.partial(bare, True)}
        found = alternate({**subjects, **pages}, self._rounds)
        for engine in (*ENGINES, "mmap"):
            name = f"{engine}, block order of {gigabytes:g} GB in {windows:.1f} windows / direct sequential reads"
            pair = {"ours": found[engine], "bare": found["small"]}
            huge = f"direct reads into huge pages: {median(found['huge']):.2f} GB/s"
            detail = f"{held[engine] / MIB:.0f} MiB anonymous; {huge}"
            yield _ratio("cold", name, pair, "GB/s", 0.9 if engine != "mmap" else None, detail)

    def random(self, gigabytes: float, limit: int) -> Iterator[Row]:
        folder, rows = self._large(gigabytes)
        files = sorted(folder.glob("shard-*.arrow"))
        held: dict[str, int] = {}

        def ours(engine: str) -> float:
            drop_cache(folder, everything=False)
            with memory_limit(limit) as group:
                arguments = ["run", "--workload", COLD.name, "--folder", str(folder), "--rows", str(rows)]
                arguments += ["--workers", "2", "--seconds", "15", "--cold", "--options"]
                arguments.append(json.dumps({"shuffle": "global", "engine": engine, "verify": "never"}))
                run = run_subject(Path(sys.executable), "fastshard", arguments, 200, self._nice, group=group)
            if run.error is not None:
                raise RuntimeError(f"{engine}: {run.error}")
            held[engine] = max(held.get(engine, 0), run.anonymous - run.result["imported_anonymous"])
            return float(run.result["samples_per_s"]) * 8192 / 1e9

        def bare(chunk: int, depth: int) -> Callable[[], float]:
            return lambda: direct_reads(
                files, chunk, depth, shuffled=True, native=self._native, total=2 << 30
            )

        engines = ("auto", *ENGINES, "mmap")
        subjects: dict[str, Callable[[], float]] = {name: functools.partial(ours, name) for name in engines}
        # Rows begin anywhere: of 512 bytes, which the device reads, a row of 8 KiB touches 17.
        sizes = {"8 KiB": bare(8192, DEPTH), "8.5 KiB": bare(8704, DEPTH), "1 MiB": bare(MIB, 8)}
        found = alternate({**subjects, **sizes}, self._rounds)
        bests = {name: median(found[name]) for name in sizes}
        detail = ", ".join(f"reads of {name}: {rate:.2f} GB/s" for name, rate in bests.items())
        for engine in engines:
            name = (
                f"{engine}, global order of {gigabytes:g} GB within {limit >> 20} MiB / direct reads of 8 KiB"
            )
            pair = {"ours": found[engine], "bare": found["8 KiB"]}
            more = f"{held[engine] / MIB:.0f} MiB anonymous; {detail}"
            yield _ratio("random", name, pair, "GB/s", 0.85 if engine != "mmap" else None, more)

    def memory(self) -> Iterator[Row]:
        workload = WORKLOADS["w2"]
        for compression, options in (
            ("none", {"shuffle": "global"}),
            ("zstd", {"shuffle": "block"}),
            ("none", {"shuffle": "block", "engine": "uring"}),
            ("none", {"shuffle": "block", "engine": "threads"}),
        ):
            folder = self._converted(workload, compression)
            with fs.open(folder) as reader:
                window = reader.geometry.window * 8192
            name = f"{options.get('engine', 'mapped' if compression == 'none' else compression)}"
            after = {}
            for epochs in (1, 10):
                # Windows by time; an epoch of W2 takes a good quarter of a second.
                run = self._run(workload, folder, workload.rows, 2, 0.3 * epochs, **options)
                after[epochs] = run.anonymous - run.result["imported_anonymous"]
            most = 200 * MIB + (0 if name == "mapped" else 2 * window)
            detail = f"{after[1] / MIB:.0f} MiB in a tenth of the time; a window is {window / MIB:.0f} MiB"
            yield Row(
                "memory",
                f"{name}: anonymous memory of some ten epochs of W2, MiB",
                after[10] / MIB,
                "MiB",
                None,
                None,
                most / MIB,
                False,
                detail,
            )


def _ratio(
    part: str, name: str, both: dict[str, list[float]], unit: str, limit: float | None, detail: str = ""
) -> Row:
    ours, bare = both["ours"], both["bare"]
    return Row(part, name, median(ours), unit, median(bare), paired_ratio(ours, bare), limit, True, detail)


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[Path]:
    """A memory cgroup with a limit in bytes, page cache included.

    Raises:
        OSError: It cannot be made: no right to, or another version of cgroups.
    """
    group = CGROUP / f"fastshard-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        with contextlib.suppress(OSError):
            (group / "memory.force_empty").write_text("0")
        group.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the sources (default: a temporary one)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--gigabytes", type=float, default=8.4, help="of the data that are read cold")
    parser.add_argument("--limit", type=int, default=3 << 30, help="bytes of memory for the part random")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--nice", type=int, default=0, help="below 0 (as root): before what else the machine does"
    )
    parser.add_argument("--json", type=Path, help="put the figures of these parts into this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastshard-engines-") as scratch:
        data = arguments.data or Path(scratch)
        engines = Engines(data, Path(scratch), arguments.rounds, arguments.nice, library(data)[0])
        parts: dict[str, Callable[[], Iterator[Row]]] = {
            "compressed": engines.compressed,
            "cold": functools.partial(engines.cold, arguments.gigabytes),
            "random": functools.partial(engines.random, arguments.gigabytes, arguments.limit),
            "memory": engines.memory,
        }
        for part in arguments.only:
            rows = []
            for row in parts[part]():
                rows.append({**asdict(row), "met": row.met})
                against = "" if row.against is None else f" of {row.against:.2f}"
                print(
                    f"{row.name:90} {row.value:8.2f} {row.unit}{against} {row.ratio} {row.detail}", flush=True
                )
            _store(arguments.json, part, rows)


def _store(path: Path | None, part: str, rows: list[dict[str, Any]]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text()) if path.exists() else []
    kept = [row for row in old if row["part"] != part]
    path.write_text(json.dumps(kept + rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
