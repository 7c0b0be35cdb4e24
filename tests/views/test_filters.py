"""Filters: the samples that pyarrow selects, reading only what the condition names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fastshard as fs
from fastshard.errors import CorruptError, InvalidError

CONDITIONS = [
    (pc.field("label") == 3, "label = 3"),
    (pc.field("label") != 3, "label != 3"),  # a null is neither
    (pc.field("label").is_null(), "label is null"),
    (~pc.field("label").is_null() & (pc.field("id") < 50), "label is not null and id < 50"),
    (pc.field("user").isin(["user 0", "user 36"]), "user in ('user 0', 'user 36')"),
    (pc.starts_with(pc.field("user"), "user 3"), "user like 'user 3%'"),
    ((pc.field("id") * 2 > 900) | (pc.field("label") == 1), "id * 2 > 900 or label = 1"),
    (pc.list_value_length(pc.field("tags")) == 3, None),
    (pc.scalar(True), None),
    (pc.scalar(False), None),
    (pc.scalar(pa.scalar(None, pa.bool_())), None),
]


@pytest.mark.parametrize(("expression", "text"), CONDITIONS)
def test_a_filter_selects_what_pyarrow_does(path: str, expression: pc.Expression, text: str | None) -> None:
    with fs.open(path) as reader:
        expected = reader.to_arrow().filter(expression)["id"].to_pylist()
        assert reader.filter(expression).ids().tolist() == expected
        if text is not None:
            assert reader.filter(text).ids().tolist() == expected


def test_small_chunks_give_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fs.open(path) as reader:
        whole = reader.filter("label = 3").ids().tolist()
        monkeypatch.setattr("fastshard._filtering._CHUNK_ROWS", 7)
        assert reader.filter("label = 3").ids().tolist() == whole


def test_a_filter_of_a_view_sees_the_view(path: str) -> None:
    with fs.open(path) as reader:
        view = reader.select(slice(100, 200)).filter("label = 3")
        assert view.ids().tolist() == [i for i in range(103, 200, 10) if i % 11]
        assert [str(step) for step in view.steps] == ["select=100:200", "where=label = 3"]


def test_fields_of_structs_and_odd_names(tmp_path: Path) -> None:
    table = pa.table({"a b": [1, 2, 3], "s": [{"x": i} for i in (3, 2, 1)], "number": ["x", "y", "z"]})
    fs.write(table, tmp_path / "data")
    with fs.open(tmp_path / "data") as reader:
        assert reader.filter(pc.field("s", "x") > 1).ids().tolist() == [0, 1]
        assert reader.filter("s.x > 1 and `a b` > 1").ids().tolist() == [1]
        assert reader.filter(pc.field("number") == "z").ids().tolist() == [2]


def test_tensors_beside_the_filter(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    fs.write({"image": images, "y": np.arange(4)}, tmp_path / "data")
    with fs.open(tmp_path / "data") as reader:
        view = reader.filter("y >= 2")
        assert view.to_numpy()["image"].tolist() == images[2:].tolist()
        assert view.to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pc.field("nobody") == 1, "No match for FieldRef.Name"),
        (pc.field("user") > 3, "has no kernel matching"),
        (pc.field("id") + 1, "it gives values of type int64, a filter gives true or false"),
        (pc.field(0) > 3, "must name columns, as in pc.field"),
        (3, "a pyarrow expression or a text"),
        (lambda sample: True, "a pyarrow expression or a text"),
        ("nobody = 1", "there is no column 'nobody'"),
        ("id >", "expected a column or a value"),
        ("", "the condition is empty"),
        ("id + 1", "expected a condition"),
    ],
)
def test_what_is_no_filter(path: str, expression: object, message: str) -> None:
    with fs.open(path) as reader, pytest.raises(InvalidError, match=message):
        reader.filter(expression)


def test_a_value_that_cannot_be_evaluated_is_an_error(tmp_path: Path) -> None:
    fs.write(pa.table({"a": [1, 0]}), tmp_path / "data")
    with (
        fs.open(tmp_path / "data") as reader,
        pytest.raises(InvalidError, match="cannot be evaluated: divide by zero"),
    ):
        reader.filter(pc.divide_checked(pc.scalar(1), pc.field("a")) > 0)


def test_only_the_columns_of_the_condition_are_checked(make: Callable[..., str], tmp_path: Path) -> None:
    where = Path(make([60], path=tmp_path / "data"))
    (shard,) = where.glob("shard-*")
    data = bytearray(shard.read_bytes())
    data[data.index(np.float32(30.25).tobytes())] ^= 1  # in column x
    shard.write_bytes(data)
    with fs.open(where) as reader:
        view = reader.filter("label = 3")
        assert len(view) == 5
        with pytest.raises(CorruptError, match="column 'x'"):
            reader.filter(pc.list_value_length(pc.field("x")) == 3)
