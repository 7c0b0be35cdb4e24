"""`pad=`: lists as rows of one length, and how long each was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard.errors import InvalidError, NullError

LISTS = [[1, 2, 3], [], [4], [5, 6, 7, 8], [9]]


@pytest.fixture(params=["none", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = pa.table({"id": range(5), "tokens": pa.array(LISTS, pa.list_(pa.int32()))})
    fs.write(table, tmp_path / "data", compression=request.param)
    return tmp_path / "data"


def expected(lists: list[Any], length: int, value: Any) -> list[Any]:
    return [items[:length] + [value] * (length - len(items)) for items in lists]


@pytest.mark.parametrize("value", [0, -1])
def test_rows_of_one_length_and_lengths(path: Path, value: int) -> None:
    batch = fs.open(path, pad={"tokens": (6, value)}).take([3, 0, 1])
    assert list(batch) == ["id", "tokens", "tokens__length"]
    assert batch["tokens"].dtype == np.int32
    assert batch["tokens"].tolist() == expected([LISTS[3], LISTS[0], LISTS[1]], 6, value)
    assert batch["tokens__length"].dtype == np.int64
    assert batch["tokens__length"].tolist() == [4, 3, 0]
    assert isinstance(batch.to_torch()["tokens"], torch.Tensor)


def test_samples_hold_the_same(path: Path) -> None:
    reader = fs.open(path, pad={"tokens": (4, 7)})
    for sample in (reader[2], list(reader)[2], reader.__getitems__([2])[0]):
        assert list(sample) == ["id", "tokens", "tokens__length"]
        assert sample["tokens"].tolist() == [4, 7, 7, 7]
        assert sample["tokens__length"] == 1
    assert reader["tokens__length"].tolist() == [3, 0, 1, 4, 1]
    assert reader["tokens"].shape == (5, 4)


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_loaders_of_every_kind(path: Path, engine: Any) -> None:
    options: dict[str, Any] = {"batch_size": 2, "tail": "exact", "shuffle": True, "pad": {"tokens": (4, 0)}}
    loader = fs.ShardLoader(path, engine=engine, **options)
    dataset = fs.ShardDataset(path, batched=True, **options)
    for batches in (loader, dataset):
        seen = {}
        for batch in batches:
            rows = zip(batch["tokens"].tolist(), batch["tokens__length"].tolist(), strict=True)
            seen.update(zip(batch.ids.tolist(), rows, strict=True))
        padded = expected(LISTS, 4, 0)
        assert seen == {i: (padded[i], len(LISTS[i])) for i in range(5)}
    samples = list(fs.ShardDataset(path, pad={"tokens": (4, 0)}))
    assert [sample["tokens__length"] for sample in samples] == [3, 0, 1, 4, 1]


def test_concatenations_and_mixes(path: Path) -> None:
    parts = [fs.open(path, pad={"tokens": (5, 0)})] * 2
    batch = fs.concat(parts).take([3, 8])
    assert batch["tokens"].tolist() == expected([LISTS[3], LISTS[3]], 5, 0)
    assert batch["tokens__length"].tolist() == [4, 4]


def test_longer_lists_raise_or_lose_their_end(path: Path) -> None:
    reader = fs.open(path, pad={"tokens": (3, 0)})
    assert reader.take([0, 2])["tokens"].shape == (2, 3)
    with pytest.raises(
        InvalidError, match=r"shard-.*sample 3: column 'tokens' has a list of 4 values.*pad= .* 3"
    ):
        reader.take([0, 3])
    cut = fs.open(path, pad={"tokens": (3, 0, "truncate")}).take([3, 4])
    assert cut["tokens"].tolist() == [[5, 6, 7], [9, 0, 0]]
    assert cut["tokens__length"].tolist() == [3, 1]


def test_a_loader_knows_by_the_index_that_lists_are_too_long(path: Path) -> None:
    pad = {"tokens": (3, 0)}
    for make in (fs.ShardLoader, lambda *a, **k: next(iter(fs.ShardDataset(*a, **k)))):
        with pytest.raises(InvalidError, match=r"'tokens' .up to 4, pad= says 3"):
            make(path, batch_size=2, pad=pad)
    # A view may leave them out: there each batch is looked at.
    view = fs.open(path, pad=pad).select([0, 1, 2])
    (batch,) = fs.ShardLoader(view, batch_size=3)
    assert batch["tokens__length"].tolist() == [3, 0, 1]
    (batch,) = fs.ShardLoader(path, batch_size=5, pad={"tokens": (3, 0, "truncate")})
    assert batch["tokens__length"].max() == 3


def test_lists_of_one_constant_length_too(tmp_path: Path) -> None:
    fs.write({"x": [[1.0, 2.0], [3.0, 4.0]]}, tmp_path / "data")
    batch = fs.open(tmp_path / "data", pad={"x": (3, -1.0)}).take([1])
    assert batch["x"].tolist() == [[3.0, 4.0, -1.0]]
    assert batch["x__length"].tolist() == [2]


def test_casts_and_the_value_of_the_dtype_that_is_delivered(path: Path) -> None:
    pad = {"tokens": (5, float("nan"))}
    batch = fs.open(path, pad=pad, cast={"tokens": "float32"}).take([2])
    assert batch["tokens"].dtype == np.float32
    assert np.array_equal(batch["tokens"], [[4, np.nan, np.nan, np.nan, np.nan]], equal_nan=True)
    with pytest.raises(InvalidError, match=r"pad\['tokens'\]: nan is not a value of int32"):
        fs.open(path, pad=pad)


@pytest.mark.parametrize(
    ("kind", "values", "value"),
    [
        (pa.bool_(), [True, False], True),
        (pa.uint8(), [1, 255], 200),
        (pa.int16(), [-1, 5], -3),
        (pa.float16(), [np.float16(0.5), np.float16(2)], 1.5),
        (pa.float64(), [0.25, -1.0], float("inf")),
        (pa.timestamp("us"), [1, 2], -1),
    ],
    ids=str,
)
def test_every_kind_of_number(kind: pa.DataType, values: list[Any], value: Any, tmp_path: Path) -> None:
    fs.write(pa.table({"x": pa.array([values, values[:1]], pa.large_list(kind))}), tmp_path / "data")
    batch = fs.open(tmp_path / "data", pad={"x": (3, value)}).take([0, 1])
    assert batch["x"].tolist() == expected([values, values[:1]], 3, value)


def test_nulls(tmp_path: Path) -> None:
    rows = [[1, None, 3], None, [4]]
    fs.write(pa.table({"x": pa.array(rows, pa.list_(pa.int32()))}), tmp_path / "data")
    pad = {"x": (3, 0)}
    with pytest.raises(NullError, match="'x'"):
        fs.ShardLoader(tmp_path / "data", batch_size=3, pad=pad)
    with pytest.raises(NullError, match="null"):
        fs.open(tmp_path / "data", pad=pad).take([0])
    samples = list(fs.open(tmp_path / "data", pad=pad))
    assert samples[0]["x"] == [1, None, 3]
    assert samples[1]["x"] is None
    assert samples[2]["x"].tolist() == [4, 0, 0]
    (batch,) = fs.ShardLoader(tmp_path / "data", batch_size=3, pad=pad, fill_null={"x": -9})
    assert batch["x"].tolist() == [[1, -9, 3], [0, 0, 0], [4, 0, 0]]
    assert batch["x__length"].tolist() == [3, 0, 1]
    masked = fs.open(tmp_path / "data", pad={"x": (3, 0.0)}, null_masks=True, cast={"x": "float32"})
    batch = masked.take([0, 1])
    assert np.array_equal(batch["x"], [[1, np.nan, 3], [0, 0, 0]], equal_nan=True)
    assert batch["x__valid"].tolist() == [True, False]


def test_bfloat16(tmp_path: Path) -> None:
    with fs.ShardWriter(tmp_path / "data") as writer:
        for count in (2, 1):
            writer.write({"x": torch.ones(count, dtype=torch.bfloat16)})
    reader = fs.open(tmp_path / "data", cast={"bfloat16": "float32"}, pad={"x": (3, 0.5)})
    assert reader.take([1])["x"].tolist() == [[1.0, 0.5, 0.5]]
    bits = fs.open(tmp_path / "data", pad={"x": (3, 0.5)}).take([0, 1]).to_torch()["x"]
    assert bits.dtype == torch.bfloat16
    assert bits.tolist() == [[1.0, 1.0, 0.5], [1.0, 0.5, 0.5]]


def test_wrong_options(path: Path, tmp_path: Path) -> None:
    nested = {"s": ["a"], "n": [[["b"]]], "m": [np.ones(3)], "x__length": [1], "x": [[1, 2]]}
    table = pa.table({**nested, "m": pa.array([[1, 2, 3]], pa.list_(pa.int8(), 3))})
    fs.write(table, tmp_path / "other")
    for pad, message in (
        ({"tokens": 5}, "pad.'tokens'. is"),
        ({"tokens": (0, 0)}, "pad.'tokens'. is"),
        ({"tokens": (True, 0)}, "pad.'tokens'. is"),
        ({"tokens": (5, 0, "cut")}, "truncate"),
        ({"tokens": (5, "x")}, "'x' is not a value of int32"),
        ({"tokens": (5, 1 << 40)}, "not a value of int32"),
        ({"nothing": (5, 0)}, "pad names column 'nothing', which is not read"),
        ({"id": (5, 0)}, "no lists of numbers"),
    ):
        for make in (fs.open, lambda path, pad: fs.ShardLoader(path, batch_size=1, pad=pad)):
            with pytest.raises(InvalidError, match=message):
                make(path, pad=pad)
    for name in "snm":
        with pytest.raises(InvalidError, match="no lists of numbers"):
            fs.open(tmp_path / "other", pad={name: (5, 0)})
    with pytest.raises(InvalidError, match="x__length"):
        fs.open(tmp_path / "other", pad={"x": (5, 0)})
    with pytest.raises(InvalidError, match="tensors and pad"):
        fs.open(path, pad={"tokens": (5, 0)}, tensors={"tokens": ("int32", (5,))})


@settings(max_examples=30, deadline=None)
@given(
    lists=st.lists(st.one_of(st.none(), st.lists(st.integers(0, 255), max_size=9)), min_size=1, max_size=30),
    length=st.integers(1, 12),
    value=st.integers(0, 255),
)
def test_as_the_obvious_way(
    tmp_path_factory: pytest.TempPathFactory, lists: list[Any], length: int, value: int
) -> None:
    path = tmp_path_factory.mktemp("pad") / "data"
    fs.write(pa.table({"x": pa.array(lists, pa.list_(pa.uint8()))}), path, block_bytes=64)
    reader = fs.open(path, pad={"x": (length, value, "truncate")}, null_masks=True)
    batch = reader.take(np.arange(len(lists))[::-1])
    plain = [items or [] for items in lists[::-1]]
    assert batch["x"].tolist() == expected(plain, length, value)
    assert batch["x__length"].tolist() == [min(len(items), length) for items in plain]
