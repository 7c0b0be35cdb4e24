"""The native core gives the ids of the golden vectors, which never change: docs/order.md, version 1."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import Shard
from shards import columns, total

from fastshard import _core

FOLDER = Path(__file__).parent / "golden"
# SHA-256 of each file. A file that differs is broken: the order of version 1 does not change.
HASHES = {
    "batches-v1.json": "17585d2ff77f17644944f43188ca649e0e0c69c0ec972c6b38235d69141b61f3",
    "keys-v1.json": "de117ff58f5fdf6b3cd01670544f4d1cc0ad0d2e3cf1e78e266c0028a2163860",
    "mixes-v1.json": "9cce0ed0e4b594e8afe72e8cdeb34fe6c909850d2d9f912c30a1d9f9e2a1dacf",
    "orders-v1.json": "c7614cbc1c35c5f53a0283622b9d0b1557c1c68fc6cc45b48bfa8161cb8daba0",
    "permutations-v1.json": "ecdf19869e78f39a971479fc0eb4275066dd24ac5d3076a48b31401840840af8",
}


def cases(name: str) -> list[Any]:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_golden_files_are_those_that_were_made():
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}
    assert found == HASHES


@pytest.mark.parametrize("case", cases("keys-v1.json"))
def test_keys(case):
    assert _core.order_key(case["purpose"], *case["words"]) == case["key"]


@pytest.mark.parametrize("kernel", _core.permutation_kernels())
@pytest.mark.parametrize("case", cases("permutations-v1.json"), ids=lambda case: str(case["size"]))
def test_permutations(case, kernel):
    permutation = _core.Permutation(case["size"], case["key"])
    values = permutation.at(np.array(case["positions"], dtype=np.uint64), kernel=kernel)
    assert values.tolist() == case["values"]


@pytest.mark.parametrize("case", cases("orders-v1.json"), ids=lambda case: f"{case['kind']}-{case['lanes']}")
def test_orders(case):
    shards = [Shard(*row) for row in case["shards"]]
    order = _core.EpochOrder(
        kind=case["kind"],
        size=total(shards),
        seed=case["seed"],
        epoch=case["epoch"],
        lanes=case["lanes"],
        window=case.get("window", 0),
        unit_blocks=case.get("unit_blocks", 1),
        **columns(shards),
    )
    assert order.ids(np.arange(order.size, dtype=np.uint64)).tolist() == case["ids"]


@pytest.mark.parametrize("case", cases("batches-v1.json"), ids=lambda case: f"{case['size']}-{case['tail']}")
def test_batches(case):
    given = {name: case[name] for name in ("size", "start", "lanes", "batch_size", "world_size", "tail")}
    for rank, expected in enumerate(case["positions"]):
        part = _core.Partition(rank=rank, **given)
        assert [part.batch(k)[0].tolist() for k in range(part.num_batches)] == expected
        marks = [part.batch(k)[1] for k in range(part.num_batches)]
        assert [0 if mark is None else int(mark.sum()) for mark in marks] == case["repeats"][rank]


@pytest.mark.parametrize("case", cases("mixes-v1.json"), ids=lambda case: str(case["weights"]))
def test_mixes(case):
    schedule = _core.MixSchedule(case["weights"])
    sources, _ = schedule.locate(np.arange(schedule.period, dtype=np.uint64))
    assert sources.tolist() == case["slots"]
    sources, positions = schedule.locate(np.arange(100, dtype=np.uint64), lanes=case["lanes"])
    assert [list(pair) for pair in zip(sources.tolist(), positions.tolist(), strict=True)] == case[
        "positions"
    ]
