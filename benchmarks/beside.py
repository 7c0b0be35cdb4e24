"""ShardLoader and the bare loops of limits.py in one process, in turn, epoch by epoch.

    python -m benchmarks.beside [--workloads w1 ...] [--rounds 40] [--data FOLDER] [--scale 1.0] [--json FILE]

For machines that do other work: an epoch takes some milliseconds, so that of many a few have the processor to
themselves. Printed are the best, the one that nine of ten stay below, and the median; the best are to be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fastshard as fs
from benchmarks.bare import library
from benchmarks.flat import open_flat, write_flat
from benchmarks.limits import Limits
from benchmarks.measure import alternate
from benchmarks.workloads import WORKLOADS, Workload

# Epochs of the whole W3 take too long to have a processor for one.
ROWS = {"w3": 4000}


def loader_rate(folder: Path, workload: Workload, **options: Any) -> Callable[[], float]:
    """Samples/s of the next epoch, from its first batch to its last."""
    loader = fs.ShardLoader(folder, batch_size=workload.batch_size, shuffle="global", seed=1, **options)
    for _ in loader:  # checked, and in the page cache
        pass

    def rate() -> float:
        batches = iter(loader)
        next(batches)
        start, rows = time.perf_counter(), 0
        for batch in batches:
            rows += batch.num_samples
        return rows / (time.perf_counter() - start)

    return rate


def measure(workload: Workload, rows: int, rounds: int, data: Path, scratch: Path) -> dict[str, list[float]]:
    """Samples/s of every epoch, by name, ascending."""
    parquet = workload.parquet(data, rows)
    flat, folder = data / f"flat-{workload.name}-{rows}", scratch / workload.name
    if not (flat / "done").exists():
        write_flat(parquet, flat)
        (flat / "done").touch()
    fs.convert(parquet, folder, progress=False)
    subjects = dict(Limits(workload, open_flat(flat), library(data)).subjects())
    for threads in (1, 2):
        subjects[f"ShardLoader, {threads} threads"] = loader_rate(folder, workload, threads=threads)
        if workload.name == "w3":
            views = loader_rate(folder, workload, threads=threads, binary="view")
            subjects[f"ShardLoader, views, {threads} threads"] = views
    return {name: sorted(rates) for name, rates in alternate(subjects, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=tuple(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads' rows")
    parser.add_argument("--data", type=Path, help="folder of the sources (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="fastshard-beside-") as folder:
        scratch = Path(folder)
        for name in arguments.workloads:
            workload = WORKLOADS[name]
            rows = max(1, int(ROWS.get(name, workload.rows) * arguments.scale))
            figures[name] = measure(
                workload, rows, arguments.rounds, arguments.data or scratch / "data", scratch
            )
            for what, rates in figures[name].items():
                best, most, middle = rates[-1], np.percentile(rates, 90), np.median(rates)
                print(
                    f"{name} {what:32} best {best:14,.0f}/s  p90 {most:14,.0f}/s  median {middle:14,.0f}/s",
                    flush=True,
                )
    print(f"load average {os.getloadavg()[0]:.1f}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
