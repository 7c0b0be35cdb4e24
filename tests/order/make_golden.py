"""Writes golden vectors of docs/order.md version 1 from the reference: `python tests/order/make_golden.py`.

They are evidence that the order never changes, so a file that exists is never written again. A new version of the page
gets files of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import reference
from reference import Shard

FOLDER = Path(__file__).parent / "golden"
BIG = 2**64 - 1


def permutations() -> list[dict[str, Any]]:
    result = []
    for size, key in [
        (1, 0),
        (2, 1),
        (10, 42),
        (24, BIG),
        (1023, 7),
        (1024, 7),
        (1025, 7),
        (1057, 123456789),
        (5000, BIG),
    ]:
        perm = reference.P(size, key)
        result.append({"size": size, "key": key, "positions": list(range(min(size, 1100)))})
        result[-1]["values"] = [perm(x) for x in result[-1]["positions"]]
    for size in (10**6, 10**8 + 7, 2**27 + 1, 10**12, 2**40, 2**53 + 1, 2**62):
        perm = reference.P(size, 0xDEADBEEF)
        positions = [0, 1, 2, 3, perm.b - 1, perm.b, perm.b + 1, size // 3, size // 2, size - 2, size - 1]
        result.append({"size": size, "key": 0xDEADBEEF, "positions": positions})
        result[-1]["values"] = [perm(x) for x in positions]
    return result


def keys() -> list[dict[str, Any]]:
    cases = [("source", reference.SOURCE), ("split", reference.SPLIT), ("weighted", reference.WEIGHTED)]
    return [
        {"purpose": name, "words": words, "key": reference.key_of(number, *words)}
        for name, number in cases
        for words in ([], [0], [0, 0], [1, 2], [2, 1], [BIG, BIG, 3])
    ]


def orders() -> list[dict[str, Any]]:
    def regular(rows: int, block_rows: int) -> Shard:
        return Shard(rows, reference.ceil_div(rows, block_rows), block_rows)

    tables = {
        "one": [regular(1, 1)],
        "equal": [regular(64, 4)] * 8,
        "unequal": [
            regular(100, 7),
            regular(1, 7),
            Shard(0, 0, 0),
            regular(250, 16),
            Shard(90, 4, 0),
            Shard(33, 33, 0),
        ],
    }
    result = []

    def add(
        kind: str, table: str, seed: int, epoch: int, lanes: int | None, ids: list[int], **more: Any
    ) -> None:
        shards = [[shard.rows, shard.blocks, shard.block_rows] for shard in tables[table]]
        case = {
            "kind": kind,
            "shards": shards,
            "seed": seed,
            "epoch": epoch,
            "lanes": lanes,
            **more,
            "ids": ids,
        }
        result.append(case)

    for table, shards in tables.items():
        size = sum(shard.rows for shard in shards)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (BIG, BIG)]:
            for lanes in (1, 3):
                ids = reference.global_order(size, seed, epoch, lanes, shards)
                add("global", table, seed, epoch, lanes, ids)
            for lanes, window, unit_blocks in [
                (None, 200, 1),
                (1, 10_000, 1),
                (1, 60, 2),
                (8, 100, 1),
                (5, 1, 4),
            ]:
                ids = reference.block_order(
                    shards, seed, epoch, window=window, unit_blocks=unit_blocks, lanes=lanes
                )
                add("block", table, seed, epoch, lanes, ids, window=window, unit_blocks=unit_blocks)
    return result


def batches() -> list[dict[str, Any]]:
    result = []
    for tail in ("pad", "drop", "exact"):
        for size, start, lanes, batch_size, groups in [
            (100, 0, 1, 3, 7),
            (100, 0, 8, 3, 7),
            (100, 37, 64, 4, 3),
            (24, 6, 4, 2, 3),
            (12, 0, 5, 1, 11),
        ]:
            ranks = reference.groups_batches(size, start, lanes, batch_size, groups, tail)
            given = {
                "size": size,
                "start": start,
                "lanes": lanes,
                "batch_size": batch_size,
                "world_size": groups,
            }
            positions = [[list(batch.positions) for batch in rank] for rank in ranks]
            repeats = [[sum(batch.is_repeat) for batch in rank] for rank in ranks]
            result.append({**given, "tail": tail, "positions": positions, "repeats": repeats})
    for tail in ("pad", "exact"):
        ranks = reference.groups_batches(3, 0, 2, 4, 7, tail)
        given = {"size": 3, "start": 0, "lanes": 2, "batch_size": 4, "world_size": 7, "tail": tail}
        positions = [[list(batch.positions) for batch in rank] for rank in ranks]
        repeats = [[sum(batch.is_repeat) for batch in rank] for rank in ranks]
        result.append({**given, "positions": positions, "repeats": repeats})
    return result


def mixes() -> list[dict[str, Any]]:
    return [
        {
            "weights": weights,
            "lanes": lanes,
            "slots": reference.schedule(weights),
            "positions": reference.mixed_positions(weights, lanes, 100),
        }
        for weights in ([1], [1, 1], [7, 2, 1], [1, 100], [5, 5, 3, 2, 17])
        for lanes in (1, 4)
    ]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in {
        "keys": keys,
        "permutations": permutations,
        "orders": orders,
        "batches": batches,
        "mixes": mixes,
    }.items():
        path = FOLDER / f"{name}-v1.json"
        if path.exists():
            print(f"{path.name} exists and stays as it is")
            continue
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in make())
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
