"""Options of the wrong type or for the wrong column are errors that say so, wherever data are opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastshard as fs
from fastshard.errors import InvalidError, NotFoundError


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    fs.write({"x": np.arange(6, dtype="int16"), "v": np.zeros((6, 4), "float32")}, tmp_path / "numbers")
    return str(tmp_path / "numbers")


def dataset(path: Any, **options: Any) -> Any:
    return next(iter(fs.ShardDataset(path, batch_size=2, batched=True, **options)))


def loader(path: Any, **options: Any) -> Any:
    return next(iter(fs.ShardLoader(path, batch_size=2, **options)))


def opened(path: Any, **options: Any) -> Any:
    return fs.open(path, **options).take([0, 1])


WAYS = [opened, dataset, loader]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cast": "float32"}, "cast is a dict by column names, not 'float32'"),
        ({"cast": {"x": "float31"}}, r"cast\['x'\]: 'float31' is not a dtype"),
        ({"cast": {"x": list}}, "is not a dtype"),
        ({"pad": 3}, "pad is a dict by column names, not 3"),
        ({"fill_null": 0}, "fill_null is a dict by column names, not 0"),
        ({"tensors": ["x"]}, "tensors is a dict by column names"),
        ({"tensors": {"x": ("float32", 4)}}, "a shape is a tuple of sizes, not 4"),
        (
            {"tensors": {"x": ("float32", (2, 2))}},
            r"tensors\['x'\] wants shape \(2, 2\), the column has one int16",
        ),
        ({"tensors": {"v": ("float32", (3,))}}, r"tensors\['v'\] wants shape \(3,\), the column has \(4,\)"),
        ({"null_masks": "yes"}, "null_masks is True or False, not 'yes'"),
        ({"columns": "x"}, "columns='x': must be a list of names"),
        ({"columns": 3}, "columns=3: must be a list of names"),
        ({"columns": [3]}, "must be a list of names, and 3 is none"),
    ],
)
def test_options_of_forms(
    numbers: str, way: Callable[..., Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        way(numbers, **options)


@pytest.mark.parametrize("way", [dataset, loader])
def test_added_columns_are_a_dict(numbers: str, way: Callable[..., Any]) -> None:
    with pytest.raises(InvalidError, match="add='id': must be a dict of new columns"):
        way(numbers, add="id")


def test_batched_is_a_bool(numbers: str) -> None:
    with pytest.raises(InvalidError, match="batched='no': must be True or False"):
        fs.ShardDataset(numbers, batch_size=2, batched="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float64", np.float64, np.dtype("float64"), torch.float64])
def test_dtypes_of_numpy_and_torch_stand_for_their_names(
    numbers: str, way: Callable[..., Any], dtype: Any
) -> None:
    batch = way(numbers, cast={"x": dtype}, tensors={"v": (dtype, [2, 2])})
    assert [str(batch[name].dtype).removeprefix("torch.") for name in ("x", "v")] == ["float64", "float64"]
    assert batch["v"].shape == (2, 2, 2)


def test_a_dtype_stands_for_all_columns_of_it(numbers: str) -> None:
    batch = opened(numbers, cast={torch.float32: torch.bfloat16}, columns=["v"]).to_torch()
    assert batch["v"].dtype == torch.bfloat16


@pytest.mark.parametrize("what", [3, None, b"numbers", ["numbers"]])
def test_what_is_no_path(what: Any) -> None:
    for way in WAYS:
        with pytest.raises(InvalidError, match=r"is no (path|data set)"):
            way(what)


@pytest.mark.parametrize("way", WAYS)
def test_a_url_is_no_directory_of_this_machine(way: Callable[..., Any]) -> None:
    with pytest.raises(NotFoundError, match=r"s3://bucket/train: data sets are opened by paths.*fs\.cached"):
        way("s3://bucket/train")


@pytest.mark.parametrize("way", WAYS)
def test_the_home_directory_is_found(
    numbers: str, way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path(numbers).parent))
    assert way("~/numbers")["x"].tolist() == [0, 1]
