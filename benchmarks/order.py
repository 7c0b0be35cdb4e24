"""What the order costs: nanoseconds an id, the time and memory to a first batch, seeking.

    python benchmarks/order.py [--json FILE] [--peers]

One thread. Each figure is the best of several runs, since other work on the machine only adds. Construction and memory
are measured in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastshard import _core

SIZES = {"10^6": 10**6, "10^8 + 7": 10**8 + 7, "2^27 + 1": 2**27 + 1, "10^12": 10**12}
BATCH = 1 << 16
ROUNDS = 15


def best_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def nanoseconds_an_id() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    result = []
    for name, size in SIZES.items():
        permutation = _core.Permutation(size, 12345)
        positions = rng.integers(0, size, BATCH, dtype=np.uint64)
        for kernel in _core.permutation_kernels():
            fill = best_seconds(lambda p=permutation, k=kernel, s=size: p.fill(s // 3, BATCH, kernel=k))
            at = best_seconds(lambda p=permutation, k=kernel, x=positions: p.at(x, kernel=k))
            result.append(
                {"n": name, "kernel": kernel, "in a row": fill / BATCH * 1e9, "anywhere": at / BATCH * 1e9}
            )
    return result


def synthetic(shards: int, rows: int, blocks: int) -> dict[str, np.ndarray]:
    block_rows = -(-rows // blocks)
    return {
        "shard_rows": np.full(shards, rows),
        "shard_blocks": np.full(shards, -(-rows // block_rows)),
        "shard_block_rows": np.full(shards, block_rows),
    }


def block_order(shards: int, rows: int, blocks: int, **arguments: Any) -> _core.EpochOrder:
    given = {"window": 500_000, "unit_blocks": 1, "seed": 1, **arguments}
    return _core.EpochOrder(kind="block", size=shards * rows, **given, **synthetic(shards, rows, blocks))


def nanoseconds_a_block_id() -> list[dict[str, Any]]:
    result = []
    for lanes in (64, 1):
        order = block_order(10_000, 10_000, 10, lanes=lanes)
        part = _core.Partition(size=order.size, lanes=lanes, batch_size=256, world_size=8, rank=3)
        for count in (1, 64):  # batches asked for at once
            positions = [
                np.concatenate([part.batch(k * count + i)[0] for i in range(count)]) for k in range(8)
            ]
            grouped = [np.sort(p) if lanes == 1 else p[np.lexsort((p, p % lanes))] for p in positions]

            def read(batches: list[np.ndarray] = grouped, from_order: _core.EpochOrder = order) -> None:
                for batch in batches:
                    from_order.ids(batch)

            seconds = best_seconds(read)
            ids = sum(map(len, grouped))
            result.append({"lanes": lanes, "ids a call": 256 * count, "ns an id": seconds / ids * 1e9})
    return result


# From construction to the ids of a first batch of 1,024.

FIRST: dict[str, Callable[[], _core.EpochOrder]] = {
    "none, 10^9 samples, 100,000 shards": lambda: _core.EpochOrder(kind="none", size=10**9),
    "global, 10^9 samples, 100,000 shards": lambda: _core.EpochOrder(kind="global", size=10**9, seed=1),
    "global, 64 lanes, 10^9 samples, 100,000 shards": lambda: _core.EpochOrder(
        kind="global", size=10**9, lanes=64, seed=1, **synthetic(100_000, 10_000, 10)
    ),
    "block, 10^9 samples, 100,000 shards, 10^6 units": lambda: block_order(100_000, 10_000, 10),
    "block, 10^9 samples, 100,000 shards, 4 * 10^6 units": lambda: block_order(100_000, 10_000, 40),
    "block, 1 lane, 10^9 samples, 100,000 shards, 4 * 10^6 units": lambda: block_order(
        100_000, 10_000, 40, lanes=1
    ),
    "global, 10^12 samples": lambda: _core.EpochOrder(kind="global", size=10**12, seed=1),
}


def memory(field: str) -> float:
    """MB of this process: VmRSS is what it has, VmHWM the most it had since `forget_peak`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def measure_first(name: str, results: Any) -> None:
    np.zeros(1)
    forget_peak()
    before = memory("VmRSS")
    begin = time.perf_counter()
    order = FIRST[name]()
    order.ids(_core.Partition(size=order.size, lanes=order.lanes, batch_size=1024).batch(0)[0])
    results.put({"order": name, "ms": (time.perf_counter() - begin) * 1e3, "MB": memory("VmHWM") - before})


def to_the_first_batch() -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    result = []
    for name in FIRST:
        runs = []
        for _ in range(3):
            results = context.SimpleQueue()
            process = context.Process(target=measure_first, args=(name, results))
            process.start()
            runs.append(results.get())
            process.join()
        result.append(
            {"order": name, "ms": min(run["ms"] for run in runs), "MB": max(run["MB"] for run in runs)}
        )
    return result


def seeking() -> list[dict[str, Any]]:
    """A new order of a later epoch, and 256 ids in its middle; then 256 ids elsewhere."""
    result = []
    orders: dict[str, Callable[[], _core.EpochOrder]] = {
        "none": lambda: _core.EpochOrder(kind="none", size=2**30),
        "global": lambda: _core.EpochOrder(kind="global", size=2**30, seed=1, epoch=9),
        "block, 2^20 units": lambda: block_order(2**14, 2**16, 64, epoch=9),
    }
    for name, make in orders.items():
        order = make()
        part = _core.Partition(size=2**30, start=2**29 + 12_345, lanes=order.lanes, batch_size=256)
        positions = part.batch(0)[0]
        anew = best_seconds(lambda m=make, p=positions: m().ids(p), 7)
        elsewhere = best_seconds(lambda o=order, p=positions: o.ids(p))
        result.append(
            {"order": name, "with a new order, ms": anew * 1e3, "in the same order, ms": elsewhere * 1e3}
        )
    return result


def peers() -> list[dict[str, Any]]:
    """A stored permutation of 10^8, ready to be used."""
    rng = np.random.default_rng(0)
    result = [
        {
            "shuffle": "numpy.random.Generator.permutation(10^8)",
            "s": best_seconds(lambda: rng.permutation(10**8), 1),
        }
    ]
    order = _core.EpochOrder(kind="global", size=10**8, seed=0)
    batch = np.arange(256, dtype=np.uint64)
    result.append({"shuffle": "fastshard global, first 256 ids", "s": best_seconds(lambda: order.ids(batch))})
    whole = _core.Permutation(10**8, 0)
    result.append(
        {"shuffle": "fastshard global, all 10^8 ids", "s": best_seconds(lambda: whole.fill(0, 10**8), 1)}
    )
    return result


def table(title: str, rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    cells = [
        [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in [columns, *cells]
    ]
    return "\n".join([title, *("  " + line.rstrip() for line in lines), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--peers", action="store_true", help="also shuffle 10^8 numbers with numpy (needs 2 GB)"
    )
    arguments = parser.parse_args()
    sections = {
        "ns an id, global": nanoseconds_an_id,
        "ns an id, block": nanoseconds_a_block_id,
        "to the first batch": to_the_first_batch,
        "seeking": seeking,
    }
    if arguments.peers:
        sections["peers"] = peers
    figures = {}
    for title, measure in sections.items():
        figures[title] = measure()
        print(table(title, figures[title]))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
