"""How well `block` shuffles with its default window and lanes, beside `global`: figures for docs/order.md.

    python benchmarks/order_quality.py [--json FILE]

For each data set, over 200 global batches all along an epoch: how far from its id a sample is delivered, how far apart
the ids of two neighbours are (both as a share of the data set; 1/3 where the shuffle is even), and how likely two
samples of a global batch are from one shard or from one block (beside an even shuffle).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastshard import _core

MIB = 2**20
BATCHES = 200


@dataclass(frozen=True)
class DataSet:
    """Shards and blocks as the writer makes them: 256 MiB and 1 MiB."""

    name: str
    rows: int
    sample_bytes: int

    @property
    def block_rows(self) -> int:
        return max(1, MIB // self.sample_bytes)

    @property
    def shard_rows(self) -> int:
        return 256 * self.block_rows

    @property
    def window(self) -> int:
        return min(self.rows, 512 * MIB // self.sample_bytes)

    def order(self, kind: str) -> _core.EpochOrder:
        rows = np.full(-(-self.rows // self.shard_rows), self.shard_rows)
        rows[-1] = self.rows - rows[:-1].sum()
        return _core.EpochOrder(
            kind=kind,
            size=self.rows,
            seed=1,
            epoch=0,
            window=self.window,
            unit_blocks=1,
            shard_rows=rows,
            shard_blocks=-(-rows // self.block_rows),
            shard_block_rows=np.full(len(rows), self.block_rows),
        )


DATA_SETS = [
    DataSet("digits: 20,000 of 3 KiB, 59 MiB", 20_000, 3072),
    DataSet("tabular: 20 million of 72 B, 1.3 GiB", 20_000_000, 72),
    DataSet("tokens: 10 million of 8 KiB, 76 GiB", 10_000_000, 8192),
    DataSet("images: 1.28 million of 110 KB, 131 GiB", 1_281_167, 110_000),
]


def same_pairs(groups: np.ndarray) -> float:
    """How likely two different ones of a batch have the same number."""
    counts = np.unique(groups, return_counts=True)[1]
    return float((counts * (counts - 1)).sum() / (len(groups) * (len(groups) - 1)))


def quality(data: DataSet, kind: str, global_batch: int) -> dict[str, Any]:
    order = data.order(kind)
    steps = data.rows // global_batch
    shards, blocks, moved, apart = [], [], [], []
    for k in np.unique(np.linspace(0, steps - 1, BATCHES).astype(int)):
        positions = np.arange(k * global_batch, (k + 1) * global_batch, dtype=np.uint64)
        ids = order.ids(positions).astype(np.int64)
        shards.append(same_pairs(ids // data.shard_rows))
        blocks.append(same_pairs(ids // data.shard_rows * 256 + ids % data.shard_rows // data.block_rows))
        moved.append(np.abs(ids - positions.astype(np.int64)).mean() / data.rows)
        apart.append(np.abs(np.diff(ids)).mean() / data.rows)
    return {
        "data set": data.name,
        "order": f"{kind}, {order.lanes} lanes",
        "global batch": global_batch,
        "id to position": float(np.mean(moved)),
        "id to next id": float(np.mean(apart)),
        "pairs of one shard, %": 100 * float(np.mean(shards)),
        "pairs of one block, %": 100 * float(np.mean(blocks)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    rows = [
        quality(data, kind, global_batch)
        for data in DATA_SETS
        for global_batch in (32, 256, 2048)
        for kind in ("global", "block")
    ]
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
