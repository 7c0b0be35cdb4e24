"""What users of other loaders ran into, from Parquet to sample. The numbers in the names are stable."""

from __future__ import annotations

import datetime
import os
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

import fastshard as fs
from fastshard.errors import SchemaError


def test_p38_nested_lists_are_distinct_and_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    rows = [[[1, 2], [3]], [], [[]]]
    table = pa.table({"l": pa.array(rows, pa.list_(pa.list_(pa.int32())))})
    pq.write_table(table, tmp_path / "l.parquet")
    fs.convert(tmp_path / "l.parquet", tmp_path / "l")
    reader = fs.open(tmp_path / "l")
    assert [sample["l"] for sample in reader] == reader[:]["l"] == reader.to_arrow()["l"].to_pylist() == rows
    union = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    )
    table = table.append_column("either", union)
    with pytest.raises(SchemaError, match=r"column 'either' is a union \(dense_union<.*leave it out"):
        fs.write(table, tmp_path / "u")
    assert not (tmp_path / "u").exists()
    assert fs.convert(table, tmp_path / "u", columns=["l"]).rows == 3


def test_p40_half_precision_keeps_its_bits(tmp_path: Path) -> None:
    brain = torch.tensor([1.5, -2.0, float("inf")], dtype=torch.bfloat16)
    half = torch.tensor([65504, -0.0], dtype=torch.float16)
    fs.write([{"b": brain, "h": half}] * 2, tmp_path / "d")
    reader = fs.open(tmp_path / "d")
    (collated,) = DataLoader(reader, batch_size=2)  # type: ignore[arg-type]
    for batch in (reader.take([0, 1]).to_torch(), collated):
        for name, expected in (("b", brain), ("h", half)):
            assert batch[name].dtype == expected.dtype
            assert torch.equal(batch[name].view(torch.int16), expected.view(torch.int16).expand(2, -1))
    pq.write_table(pa.table({"h": pa.array(half.numpy())}), tmp_path / "h.parquet")
    fs.convert(tmp_path / "h.parquet", tmp_path / "h")
    found = fs.open(tmp_path / "h").to_torch()["h"]
    assert found.dtype == torch.float16
    assert torch.equal(found.view(torch.int16), half.view(torch.int16))


def test_p41_times_and_decimals_are_exact_and_collate(tmp_path: Path) -> None:
    table = pa.table(
        {
            "moment": pa.array([datetime.datetime(2020, 1, 1)] * 2, pa.timestamp("us")),
            "day": pa.array([datetime.date(2020, 1, 1)] * 2, pa.date32()),
            "money": pa.array([Decimal("12.34")] * 2, pa.decimal128(10, 2)),
            "time": pa.array([datetime.time(0, 0, 1)] * 2, pa.time64("us")),
            "wait": pa.array([datetime.timedelta(seconds=1)] * 2, pa.duration("ms")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    fs.convert(tmp_path / "in.parquet", tmp_path / "d")
    expected = {
        "moment": 1577836800000000,
        "day": 18262,
        "money": Decimal("12.34"),
        "time": 1_000_000,
        "wait": 1000,
    }
    reader = fs.open(tmp_path / "d")
    assert reader[0] == expected
    (collated,) = DataLoader(reader, batch_size=2, collate_fn=None)  # type: ignore[arg-type]
    for batch in (reader.take([0, 1]).to_torch(), collated):
        assert {name: list(values) for name, values in batch.items()} == {
            name: [value] * 2 for name, value in expected.items()
        }


def test_p43_dictionaries_of_row_groups_that_differ(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    groups = [["foo", None], ["bar", "foo"]]
    with pq.ParquetWriter(tmp_path / "in.parquet", pa.schema([("c", kind)])) as writer:
        for group in groups:
            writer.write_table(pa.table({"c": pa.array(group).dictionary_encode().cast(kind)}))
    assert pq.read_metadata(tmp_path / "in.parquet").num_row_groups == 2
    fs.convert(tmp_path / "in.parquet", tmp_path / "d")
    reader = fs.open(tmp_path / "d")
    assert [sample["c"] for sample in reader] == reader[:]["c"] == ["foo", None, "bar", "foo"]


def test_p44_small_samples_are_read_quickly_from_one_open_file(tmp_path: Path) -> None:
    count = 100_000
    texts = [f"{i:06d}" * 33 + "xy" for i in range(count)]
    fs.write({"text": texts}, tmp_path / "d")
    reader = fs.open(tmp_path / "d")
    assert reader.index.shards == 1
    reader[0]

    def seconds(order: np.ndarray) -> float:
        begin = time.process_time()  # of all threads: a machine that is busy otherwise does not count
        for i, sample in zip(order.tolist(), map(reader.__getitem__, order.tolist()), strict=True):
            assert len(sample["text"]) == 200
            assert sample["text"].startswith(f"{i:06d}")
        return time.process_time() - begin

    before = len(os.listdir("/proc/self/fd"))
    in_order = seconds(np.arange(count))
    shuffled = seconds(np.random.default_rng(0).permutation(count))
    begin = time.process_time()
    assert sum(1 for _ in reader) == count
    assert time.process_time() - begin < 2
    assert in_order < 2
    assert shuffled < 3 * in_order
    assert len(os.listdir("/proc/self/fd")) == before
    assert reader.core.stats()["shards_opened"] == 1
