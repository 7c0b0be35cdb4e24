"""What is written from samples and frames is read back as it was, by fastshard's own reader."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from written import read_back

import fastshard as fs
from fastshard.errors import SchemaError

datasets.disable_progress_bars()


def write_and_open(path: Path, rows: list[dict[str, Any]], **options: Any) -> fs.ShardReader:
    fs.write(rows, path / "d", **options)
    reader = fs.open(path / "d")
    assert reader.verify() == []
    return reader


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_arrays_come_back_with_dtype_shape_and_bits(tmp_path: Path, compression: str) -> None:
    rows = [
        {
            "scalar": np.float32(i) / 3,
            "vector": np.arange(i, dtype=np.int16),
            "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + i,
            "mask": np.arange(6).reshape(2, 3) % 2 == i % 2,
            "empty": np.zeros((0, 3), np.float64),
            "varying": np.full((i, 2), i, np.float16),
            "inner": {"t": np.full((2, 2), i, np.int8), "s": "é" * i},
        }
        for i in range(7)
    ]
    reader = write_and_open(tmp_path, rows, compression=compression, block_bytes=200, shard_bytes=1500)
    for i, row in enumerate(rows):
        sample = reader[i]
        for name in ("scalar", "vector", "image", "mask", "empty", "varying"):
            assert sample[name].dtype == row[name].dtype, name
            assert sample[name].shape == row[name].shape, name
            assert np.array_equal(sample[name], row[name]), name
        assert np.array_equal(sample["inner"]["t"], row["inner"]["t"])
        assert sample["inner"]["s"] == row["inner"]["s"]
    batch = reader.take([5, 0, 5])
    assert batch["image"].shape == (3, 2, 2, 3)
    assert np.array_equal(batch["mask"][1], rows[0]["mask"])


def test_bfloat16_and_float16_come_back_as_torch_has_them(tmp_path: Path) -> None:
    brain = torch.tensor([1.5, -2.0, math.inf], dtype=torch.bfloat16)
    half = torch.tensor([65504, -0.0], dtype=torch.float16)
    rows = [{"brain": brain, "pair": brain[:2].reshape(1, 2), "one": brain[0], "half": half}] * 3
    batch = write_and_open(tmp_path, rows).take([2, 0]).to_torch()
    assert batch["pair"].dtype == batch["one"].dtype == torch.bfloat16
    assert batch["half"].dtype == torch.float16
    assert torch.equal(batch["brain"].view(torch.uint16), brain.view(torch.uint16).expand(2, 3))
    assert torch.equal(batch["half"].view(torch.uint16), half.view(torch.uint16).expand(2, 2))


def test_times_and_decimals_come_back_exactly(tmp_path: Path) -> None:
    rows = [{"t": dt.datetime(2020, 1, 1), "d": dt.date(2020, 1, 1), "m": Decimal("12.34")}]
    sample = write_and_open(tmp_path, rows)[0]
    assert (sample["t"], sample["d"], sample["m"]) == (1577836800000000, 18262, Decimal("12.34"))


def test_arrays_of_hugging_face_are_tensors(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "fixed": datasets.Array2D((2, 3), "float32"),
            "deep": datasets.Array3D((1, 2, 2), "int16"),
            "open": datasets.Array2D((None, 2), "int32"),
            "label": datasets.ClassLabel(names=["x", "y"]),
        }
    )
    columns = {
        "fixed": [np.full((2, 3), i) for i in range(4)],
        "deep": [np.arange(4).reshape(1, 2, 2) + i for i in range(4)],
        "open": [np.ones((i, 2), int) for i in range(4)],
        "label": [0, 1, 0, 1],
    }
    columns["fixed"][2] = None  # type: ignore[call-overload]
    data = datasets.Dataset.from_dict(columns, features=features).select([3, 2, 1, 0])
    fs.write(data, tmp_path / "d")
    schema = read_back(tmp_path / "d").schema
    assert schema.field("fixed").type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
    assert schema.field("deep").type == pa.fixed_shape_tensor(pa.int16(), (1, 2, 2))
    assert b"huggingface" in schema.metadata
    reader = fs.open(tmp_path / "d")
    assert reader[1]["fixed"] is None
    assert np.array_equal(reader[0]["fixed"], np.full((2, 3), 3, np.float32))
    assert np.array_equal(reader[2]["deep"], np.arange(4).reshape(1, 2, 2) + 1)
    assert [list(row) for row in reader[2]["open"]] == [[1, 1]]


def test_an_array_that_has_not_the_shape_of_its_feature_is_refused(tmp_path: Path) -> None:
    kind = datasets.features.features.Array2DExtensionType((2, 2), "int32")
    storage = pa.array([[[1, 2], [3, 4]], [[1, 2, 3]]], kind.storage_type)
    data = datasets.Dataset(pa.table({"a": pa.ExtensionArray.from_storage(kind, storage)}))
    with pytest.raises(SchemaError, match=r"column 'a': an array has not the shape \(2, 2\)"):
        fs.write(data, tmp_path / "d")
    assert not (tmp_path / "d").exists()
