"""docs/types.md: each row of its table is what a data set of that type gives."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import fastshard as fs

PAGE = Path(__file__).parents[1] / "docs" / "types.md"
NAMES = {
    "pa": pa,
    "np": np,
    "Decimal": Decimal,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
}


def rows() -> list[list[str]]:
    text = PAGE.read_text().split("<!-- table:")[1].split("<!-- end of table -->")[0]
    cells = [
        [cell.strip().strip("`") for cell in line.strip("| \n").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    assert len(cells) > 40
    return cells


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def shown(batch: fs.Batch) -> str:
    """The column's part of the batch's repr, with n for the number of samples."""
    match = re.fullmatch(r"Batch\((\d+) samples, \{x: (.*)\}\)", repr(batch), re.DOTALL)
    assert match is not None
    return re.sub(rf"(\[|Ragged\(){match[1]}\b", r"\1n", match[2])


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_row(row: list[str], tmp_path: Path) -> None:
    kind, values, sample, batch = row
    column = array(eval(f"pa.{kind}", NAMES), eval(f"[{values}]", NAMES))
    fs.write(pa.table({"x": column}), tmp_path / "data")
    with fs.open(tmp_path / "data") as reader:
        assert re.sub(r"\s+", " ", repr(reader[0]["x"])) == sample
        taken = reader.take(range(len(column)))
        assert shown(taken) == batch
        assert shown(taken.to_torch()) == batch
    (first,) = fs.ShardDataset(tmp_path / "data", epoch_size=1)
    assert repr(first["x"]) == repr(fs.open(tmp_path / "data")[0]["x"])


def test_bfloat16(tmp_path: Path) -> None:
    values = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    with fs.ShardWriter(tmp_path / "data") as writer:
        for value in values:
            writer.write({"x": value})
    reader = fs.open(tmp_path / "data")
    bits = values.view(torch.int16).numpy().view(np.uint16)
    assert [sample["x"].dtype for sample in (reader[0], *reader)] == [torch.bfloat16] * 3
    assert torch.equal(reader[0]["x"], values[0])
    widened = fs.open(tmp_path / "data", cast={"bfloat16": "float32"})
    assert widened[1]["x"] == np.float32(-2.0)
    assert np.array_equal(reader.take([0, 1])["x"], bits)
    assert [sample["x"].item() for sample in fs.ShardDataset(tmp_path / "data")] == [1.5, -2.0]
    assert torch.equal(reader.take([0, 1]).to_torch()["x"], values)


def test_arrays_of_varying_shape(tmp_path: Path) -> None:
    with fs.ShardWriter(tmp_path / "data") as writer:
        for side in (1, 2):
            writer.write({"x": np.ones((side, 3), np.float32)})
    batch = fs.open(tmp_path / "data").take([0, 1])
    assert [value.shape for value in batch["x"]] == [(1, 3), (2, 3)]
    assert [tuple(value.shape) for value in batch.to_torch()["x"]] == [(1, 3), (2, 3)]


@pytest.fixture
def ages(tmp_path: Path) -> Path:
    fs.write(pa.table({"age": pa.array([7, None], pa.int64())}), tmp_path / "data")
    return tmp_path / "data"


def test_nulls_where_a_form_has_none(ages: Path) -> None:
    assert fs.open(ages)[1]["age"] is None
    with pytest.raises(fs.errors.NullError, match="age"):
        fs.open(ages).take([0, 1])
    with pytest.raises(fs.errors.NullError, match="age"):
        next(iter(fs.ShardLoader(ages, batch_size=2)))
    assert fs.open(ages, fill_null={"age": -1}).take([0, 1])["age"].tolist() == [7, -1]
    masked = fs.open(ages, null_masks=True).take([0, 1])
    assert masked["age__valid"].tolist() == [True, False]


def test_nulls_of_floats_are_nan_and_of_objects_none(tmp_path: Path) -> None:
    table = pa.table({"f": pa.array([None, 1.0], pa.float32()), "s": pa.array([None, "a"])})
    fs.write(table, tmp_path / "data")
    batch = fs.open(tmp_path / "data").take([0, 1])
    assert np.isnan(batch["f"][0])
    assert batch["s"] == [None, "a"]
