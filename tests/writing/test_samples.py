"""Samples as dicts: every value arrives as it was, or the error names its row and column."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import zoneinfo
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st
from written import read_back, same

import fastshard as fs
from fastshard.errors import InvalidError, SchemaError
from fastshard.samples import infer_schema, samples_to_batch, variable_shape_field
from fastshard.schema import BFloat16Type

UTC = dt.timezone.utc
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def stored(values: list[Any], kind: pa.DataType | pa.Field | None = None) -> pa.Array:
    """The values of one column, as a block of samples stores them."""
    samples = [{"x": value} for value in values]
    if kind is None:
        return samples_to_batch(samples, infer_schema(samples), rounds=False).column(0)
    field = kind.with_name("x") if isinstance(kind, pa.Field) else pa.field("x", kind)
    return samples_to_batch(samples, pa.schema([field]), rounds=True).column(0)


def refused(values: list[Any], kind: pa.DataType | pa.Field | None = None) -> str:
    with pytest.raises(SchemaError) as caught:
        stored(values, kind)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([1, -5, None], pa.int64()),
        ([2**63, 0], pa.uint64()),
        ([-(2**63), 2**63 - 1], pa.int64()),
        ([1.5, None, math.nan, -0.0, math.inf], pa.float64()),
        ([1, 2.5, None], pa.float64()),
        (["a", "é☃", "", None], pa.utf8()),
        ([b"a", b"\xff\0", b"", None], pa.binary()),
        ([None, None], pa.null()),
        ([[1, 2], [], None, [None]], pa.list_(pa.int64())),
        ([[[1, 2], [3]], [], [[]]], pa.list_(pa.list_(pa.int64()))),
        ([["a", None], []], pa.list_(pa.utf8())),
        ([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}], pa.struct([("a", pa.int64()), ("b", pa.utf8())])),
        ([{"a": {"b": [1]}}], pa.struct([("a", pa.struct([("b", pa.list_(pa.int64()))]))])),
        ([[{"a": 1}, {"a": None}], []], pa.list_(pa.struct([("a", pa.int64())]))),
        ([{}, None], pa.struct([])),
        ([decimal.Decimal("12.34"), decimal.Decimal("-7.1"), None], pa.decimal128(38, 2)),
        ([decimal.Decimal(10) ** 50], pa.decimal256(76, 0)),
        ([dt.datetime(2020, 1, 1, 0, 0, 0, 7), None], pa.timestamp("us")),
        ([dt.datetime(2020, 7, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        ([dt.datetime(2020, 7, 1, 12, tzinfo=BERLIN)], pa.timestamp("us", "Europe/Berlin")),
        ([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)], pa.timestamp("us")),
        ([dt.date(2020, 1, 1), dt.date(1, 1, 1), None], pa.date32()),
        ([dt.time(23, 59, 59, 999999), None], pa.time64("us")),
        ([dt.timedelta(days=-1, microseconds=1), None], pa.duration("us")),
    ],
)
def test_python_values_have_the_obvious_type(values: list[Any], kind: pa.DataType) -> None:
    array = stored(values)
    assert array.type == kind
    expected = [float(value) if kind == pa.float64() and value is not None else value for value in values]
    assert same(array.to_pylist(), expected)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64"]
)
def test_numpy_and_torch_keep_their_dtype(dtype: str) -> None:
    kind = pa.from_numpy_dtype(dtype)
    rank0, rank1, rank2 = (
        np.arange(6).astype(dtype)[3],
        np.arange(6).astype(dtype),
        np.arange(6).astype(dtype).reshape(2, 3),
    )
    tensors = [np.asarray(rank0), rank1, rank2]
    if dtype != "uint64":
        tensors += [
            torch.tensor(rank0.item(), dtype=getattr(torch, dtype)),
            torch.from_numpy(rank1),
            torch.from_numpy(rank2),
        ]
    for value in [rank0, *tensors]:
        array = stored([value, None])
        rank = np.ndim(value)
        assert array.type == (kind, pa.list_(kind), pa.fixed_shape_tensor(kind, (2, 3)))[min(rank, 2)]
        flat = array[0].as_py()
        assert np.array_equal(np.array(flat, dtype).reshape(-1), np.asarray(value).reshape(-1))
        assert array[1].as_py() is None


def test_bfloat16_and_float16_keep_their_bits() -> None:
    brain = torch.tensor([1.5, -2.0, math.inf, math.nan, -0.0, 3e38], dtype=torch.bfloat16)
    half = torch.tensor([65504, -0.0], dtype=torch.float16)
    bits = brain.view(torch.uint16).tolist()
    for value, expected in ((brain, bits), (brain.reshape(2, 3), bits), (brain[0], bits[0])):
        array = stored([value, None])
        storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
        assert storage.to_pylist() == [expected, None]
    assert stored([brain]).type == pa.list_(BFloat16Type())
    assert stored([brain.reshape(2, 3)]).type == pa.fixed_shape_tensor(BFloat16Type(), (2, 3))
    assert stored([brain[0]]).type == BFloat16Type()
    array = stored([half])
    assert array.type == pa.list_(pa.float16())
    assert array.values.to_numpy().view(np.uint16).tolist() == half.view(torch.uint16).tolist()


def test_bfloat16_comes_back_from_a_shard(tmp_path: Path) -> None:
    value = torch.tensor([1.5, -2.0, math.inf], dtype=torch.bfloat16)
    fs.write([{"x": value, "y": value.reshape(1, 3), "z": value[0], "n": {"t": value}}], tmp_path / "d")
    table = read_back(tmp_path / "d")
    bits = value.view(torch.uint16).tolist()
    assert table["x"].chunk(0).values.storage.to_pylist() == bits
    assert table.schema.field("z").type == BFloat16Type()
    schema = pa.ipc.read_schema(pa.ipc.open_file(next((tmp_path / "d").glob("shard-*"))).schema.serialize())
    assert "fastshard.bfloat16" in str(schema.field("y").type)


def test_arrays_of_varying_shape_are_variable_shape_tensors() -> None:
    arrays = [
        np.ones((2, 3), np.float32),
        np.zeros((0, 5), np.float32),
        None,
        np.arange(4, dtype=np.float32).reshape(4, 1),
    ]
    array = stored(arrays)
    assert array.type == variable_shape_field("x", pa.float32(), 2).type
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    rows = storage.to_pylist()
    assert rows[2] is None
    for value, row in zip(arrays, rows, strict=True):
        if value is not None:
            assert tuple(row["shape"]) == value.shape
            assert row["data"] == value.reshape(-1).tolist()
    assert "rank 2" in refused([np.ones((2, 2)), np.ones((2, 2, 2))])


def test_arrays_in_row_major_order_whatever_their_strides() -> None:
    value = np.arange(24, dtype=np.int32).reshape(4, 6)
    for view in (value.T, value[::2, ::-1], np.asfortranarray(value), value.astype(">i4")):
        assert stored([view]).to_pylist() == [view.reshape(-1).tolist()]
    assert stored([value[:, 1]]).to_pylist() == [value[:, 1].tolist()]
    tensor = torch.arange(6, dtype=torch.float32, requires_grad=True).reshape(2, 3)
    assert stored([tensor.T]).to_pylist() == [tensor.T.reshape(-1).tolist()]
    assert stored([torch.view_as_real(torch.tensor([1 + 2j])).conj()]).to_pylist() == [[1.0, 2.0]]


def test_empty_arrays_have_a_type_and_a_shape() -> None:
    assert stored([np.zeros(0, np.int16)]).type == pa.list_(pa.int16())
    array = stored([np.zeros((0, 3), np.int16)] * 2)
    assert array.type == pa.fixed_shape_tensor(pa.int16(), (0, 3))
    assert array.to_pylist() == [[], []]


def test_arrays_in_lists_and_dicts() -> None:
    assert stored([[np.array([1, 2], np.int8), np.array([], np.int8)]]).type == pa.list_(pa.list_(pa.int8()))
    assert stored([[np.ones((2, 2), np.int8)]]).to_pylist() == [[[[1, 1], [1, 1]]]]
    inner = stored([{"image": np.ones((2, 2), np.uint8), "ids": np.array([1], np.int32)}]).type
    assert inner.field("image").type == pa.fixed_shape_tensor(pa.uint8(), (2, 2))
    assert inner.field("ids").type == pa.list_(pa.int32())
    assert stored([[torch.tensor(1.5), torch.tensor(2.5)]]).type == pa.list_(pa.float32())
    mixed = stored([[1, 2], np.array([3, 4])])
    assert mixed.to_pylist() == [[1, 2], [3, 4]]


def test_other_libraries_values() -> None:
    assert stored([np.datetime64(5, "ns"), np.datetime64("NaT")]).to_pylist()[1] is None
    assert stored([np.datetime64(5, "ns"), np.datetime64(7, "s")]).cast(pa.int64()).to_pylist() == [
        5,
        7 * 10**9,
    ]
    assert stored([np.datetime64("2020-01-01", "D")]).type == pa.timestamp("s")
    assert stored([np.timedelta64(3, "h")]).to_pylist() == [dt.timedelta(hours=3)]
    assert stored([pd.Timestamp("2020-01-01 00:00:00.000001"), pd.NaT, pd.NA]).type == pa.timestamp("us")
    assert stored([pd.Timestamp(1)]).cast(pa.int64()).to_pylist() == [1]
    assert stored([pd.Timestamp("2020-01-01", tz="Europe/Berlin")]).type == pa.timestamp(
        "us", "Europe/Berlin"
    )
    assert stored([pd.Timedelta(nanoseconds=1)]).cast(pa.int64()).to_pylist() == [1]
    assert stored([pd.Series([1, 2], dtype="int16")]).type == pa.list_(pa.int16())
    assert stored([OrderedDict(a=1), {"a": 2}]).to_pylist() == [{"a": 1}, {"a": 2}]
    assert stored([bytearray(b"ab"), memoryview(b"cd")]).to_pylist() == [b"ab", b"cd"]
    assert stored([np.array(["a", "bc"]), np.array([], "U1")]).to_pylist() == [["a", "bc"], []]
    assert stored([np.array([1, "a"], object)[:1]]).to_pylist() == [[1]]
    structured = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    assert stored([structured[0]]).to_pylist() == [{"a": 1, "b": 2.5}]
    assert stored([np.array(["2020-01-01", "NaT"], "M8[us]")]).to_pylist() == [
        [dt.datetime(2020, 1, 1), None]
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, "a"], r"row 1: column 'x': str 'a' does not go with int 1"),
        ([1, True], r"row 1: column 'x': bool True does not go with int 1"),
        ([None, 1, b"a"], r"row 2: column 'x': bytes b'a' does not go with int 1"),
        ([0.5, 2**53 + 1], r"row 1: column 'x': 9007199254740993 is not exact as a float"),
        ([2**64], r"row 0: column 'x': 18446744073709551616 needs more than 64 bits"),
        ([2**63, -1], r"needs more than 64 bits"),
        ([1j], r"complex 1j; store its real and its imaginary part"),
        ([np.complex64(1)], r"complex64; store its real"),
        ([torch.tensor([1j])], r"torch\.view_as_real"),
        ([torch.eye(2).to_sparse()], r"to_dense"),
        ([{1, 2}], r"set \{1, 2\}; pass a list"),
        ([object()], r"convert it to numbers"),
        ([np.longdouble(1)], r"cast it to float64"),
        ([np.ma.masked_array([1, 2], [True, False])], r"would lose its mask"),
        ([{"a": 1}, {"b": 1}], r"row 1: column 'x': the key 'a' is missing"),
        ([{"a": 1}, {"a": 1, "b": 1}], r"row 1: column 'x': the key 'b' is not among \['a'\]"),
        ([{1: 2}], r"the key 1 is not a str"),
        ([[1, 2], [3, "a"]], r"row 1: column 'x\[\]': str 'a' does not go with int 1"),
        ([[], [[1], ["a"]]], r"row 1: column 'x\[\]\[\]': str 'a'"),
        ([{"a": [{"b": 1}]}, {"a": [{"b": "c"}]}], r"row 1: column 'x\.a\[\]\.b'"),
        (
            [np.ones(2, np.int8), np.ones(2, np.float32)],
            r"row 1: .*float32 and shape \(2,\) does not go with",
        ),
        ([np.ones(2, np.int64), np.ones(2, np.uint64)], r"does not go with"),
        ([torch.ones(2, dtype=torch.bfloat16), np.ones(2, np.float32)], r"row [01]: .*bfloat16"),
        ([[1.0], torch.ones(2, dtype=torch.bfloat16)], r"row 1: .*bfloat16"),
        ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)], r"with and without a time zone"),
        ([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)], r"row 1"),
        ([dt.time(1, tzinfo=UTC)], r"time zone would be lost"),
        ([decimal.Decimal("NaN")], r"no decimal number"),
        ([decimal.Decimal("1e70"), decimal.Decimal("1e-9")], r"row 1: .*76 digits"),
        (["\ud800"], r"row 0: column 'x': str '\\ud800' does not fit string"),
        ([pd.Timestamp(1, tz="UTC")], r"nanoseconds"),
        ([np.timedelta64(1, "M")], r"cast it to a unit from days"),
        ([torch.ones(2, dtype=torch.float8_e4m3fn)], r"float8_e4m3fn; view it as torch\.uint8"),
    ],
)
def test_what_has_no_common_type_is_named(values: list[Any], text: str) -> None:
    assert re.search(text, refused(values)), refused(values)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ([1], [2.0, "a", True, None.__class__, 2**63, np.float32(1), np.timedelta64(1, "s")]),
        ([np.int8(1)], [128, np.int16(-129), 1.0]),
        ([1.5], ["a", True, 2**53 + 1]),
        ([np.float32(1)], [0.1, 1e300, 2**24 + 1, "a"]),
        ([True], [1, "a", 0.0]),
        (["a"], [b"a", 1]),
        ([b"a"], ["a", 1]),
        (
            [dt.datetime(2020, 1, 1)],
            [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC), np.datetime64(1, "ns"), 1],
        ),
        ([dt.datetime(2020, 1, 1, tzinfo=UTC)], [dt.datetime(2020, 1, 1), np.datetime64(1, "s")]),
        ([np.datetime64(1, "s")], [dt.datetime(2020, 1, 1, 0, 0, 0, 1), np.timedelta64(1, "s")]),
        ([dt.date(2020, 1, 1)], [dt.datetime(2020, 1, 1), 1]),
        ([dt.timedelta(1)], [np.timedelta64(1, "ns"), 1]),
        (
            [decimal.Decimal("1.25")],
            [decimal.Decimal("1.255"), 1.5, decimal.Decimal("NaN"), decimal.Decimal(10) ** 37],
        ),
        ([[1]], [["a"], 1, "a", [1.5]]),
        ([np.ones(2, np.int16)], [np.ones(2, np.float32), np.array([40_000]), [1.5]]),
        ([np.ones(2, np.float32)], [np.array([0.1]), [0.1], np.array([2**24 + 1])]),
        ([np.ones((2, 2))], [np.ones((2, 3)), np.ones(4), 1.0, np.ones((2, 2), bool)]),
        ([{"a": 1}], [{"a": "x"}, {}, {"a": 1, "b": 2}, 1]),
        ([None], [1, "a"]),
        ([[]], [[1]]),
        ([torch.ones(2, dtype=torch.bfloat16)], [torch.ones(2) * 0.1, np.array([257.0])]),
    ],
)
def test_a_later_sample_that_does_not_fit_is_refused(
    tmp_path: Path, first: list[Any], later: list[Any]
) -> None:
    for number, value in enumerate(later):
        path = tmp_path / str(number)
        samples = [{"x": first[0]}, {"x": first[0]}, {"x": value}]
        with pytest.raises(SchemaError, match=r"row 2: column 'x"):
            fs.write(samples, path, block_bytes=1)
        assert not path.exists()


def test_a_later_sample_that_fits_exactly_is_taken(tmp_path: Path) -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (1, np.int8(5), 5),
        (np.float32(1), 0.5, 0.5),
        (1.5, 3, 3.0),
        (np.ones(1, np.float32), np.array([0.5]), [0.5]),
        (np.ones(1, np.int16), np.array([-300]), [-300]),
        (np.ones(1, np.int16), [7, None], [7, None]),
        (dt.datetime(2020, 1, 1), np.datetime64(0, "s"), dt.datetime(1970, 1, 1)),
        (decimal.Decimal("1.25"), 7, decimal.Decimal("7.00")),
        (torch.ones(1, dtype=torch.bfloat16), np.array([0.5]), None),
    ]
    for number, (first, later, expected) in enumerate(cases):
        fs.write([{"x": first}, {"x": later}], tmp_path / str(number), block_bytes=1)
        value = read_back(tmp_path / str(number))["x"].to_pylist()[1]
        assert expected is None or same(value, expected)


def test_a_schema_says_the_widths() -> None:
    assert stored([0.1, 1], pa.float32()).to_pylist() == [float(np.float32(0.1)), 1.0]
    assert stored([np.array([0.1])], pa.list_(pa.float16())).values.to_numpy()[0] == np.float16(0.1)
    assert stored([0.1, 2.0], BFloat16Type()).storage.to_pylist() == [0x3DCD, 0x4000]
    assert stored([[1, 2]], pa.fixed_shape_tensor(pa.uint8(), (2,))).to_pylist() == [[1, 2]]
    assert stored([{"b": 1, "a": 2}], pa.map_(pa.utf8(), pa.int8())).to_pylist() == [[("b", 1), ("a", 2)]]
    assert stored([[("a", 1), ("a", 2)]], pa.map_(pa.utf8(), pa.int8())).to_pylist() == [[("a", 1), ("a", 2)]]
    assert stored([dt.datetime(2020, 1, 1)], pa.timestamp("s")).to_pylist() == [dt.datetime(2020, 1, 1)]
    assert stored([b"12345"], pa.binary(5)).to_pylist() == [b"12345"]
    assert stored([b"1" * 16], pa.uuid()).storage.to_pylist() == [b"1" * 16]
    assert stored([["a"]], pa.large_list(pa.large_utf8())).to_pylist() == [["a"]]
    assert stored([[1, 2]], pa.list_(pa.int8(), 2)).to_pylist() == [[1, 2]]
    assert stored([np.ones((1, 2))], variable_shape_field("x", pa.float32(), 2)).type.extension_name


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1e39, pa.float32()),
        (70_000.0, pa.float16()),
        (3.4e38 * 1.01, BFloat16Type()),
        (300, pa.uint8()),
        (-1, pa.uint64()),
        (1.0, pa.int8()),
        (dt.datetime(2020, 1, 1, 0, 0, 0, 1), pa.timestamp("ms")),
        (dt.datetime(9999, 1, 1), pa.timestamp("ns")),
        (dt.time(0, 0, 0, 1), pa.time32("ms")),
        (dt.timedelta(microseconds=1), pa.duration("s")),
        (decimal.Decimal("1.255"), pa.decimal128(10, 2)),
        (decimal.Decimal("1e9"), pa.decimal128(10, 2)),
        ([1, 2, 3], pa.list_(pa.int8(), 2)),
        (np.array([300]), pa.list_(pa.uint8())),
        (np.ones((2, 2)), pa.fixed_shape_tensor(pa.float64(), (4,))),
        ([[1], [2, 3]], pa.fixed_shape_tensor(pa.float64(), (2, 2))),
        (b"1234", pa.binary(5)),
        ("a", pa.binary()),
        ({"a": 1}, pa.struct([("b", pa.int8())])),
        ({"a": "x"}, pa.map_(pa.utf8(), pa.int8())),
        (None, pa.field("x", pa.int8(), nullable=False)),
        (1, pa.month_day_nano_interval()),
        (np.ones((2, 2)), pa.fixed_shape_tensor(pa.float64(), (2, 2), permutation=[1, 0])),
    ],
)
def test_what_does_not_fit_a_schema_is_refused(value: Any, kind: pa.DataType | pa.Field) -> None:
    assert refused([value], kind).startswith("row 0: column 'x")


def test_the_columns_of_every_sample_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="row 1: column 'b' is missing"):
        fs.write([{"a": 1, "b": 2}, {"a": 1}], tmp_path / "d")
    with pytest.raises(SchemaError, match=r"row 1: column 'c' is not among the data set's columns \['a'\]"):
        fs.write([{"a": 1}, {"a": 1, "c": 2}], tmp_path / "d")
    with pytest.raises(SchemaError, match="row 0: a sample without columns"):
        fs.write([{}], tmp_path / "d")
    with pytest.raises(SchemaError, match="row 0: 1 is not a column name"):
        fs.write([{1: 2}], tmp_path / "d")
    with pytest.raises(
        SchemaError, match=r'row 0: a sample is a dict .* not tuple; name its parts, as in \{"x"'
    ):
        fs.write([(1, 2)], tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_keys_may_come_in_any_order(tmp_path: Path) -> None:
    fs.write([{"a": 1, "b": "x"}, {"b": "y", "a": 2}], tmp_path / "d")
    assert read_back(tmp_path / "d").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_a_sample_is_taken_as_it_is_when_it_is_written(tmp_path: Path) -> None:
    buffer, tensor, items, inner = np.zeros(2), torch.zeros(2), [0], {"n": 0}
    with fs.ShardWriter(tmp_path / "d") as writer:
        for i in range(3):
            buffer[:], tensor[:], items[0], inner["n"] = i, i, i, i
            writer.write({"a": buffer, "t": tensor, "l": items, "d": inner})
    table = read_back(tmp_path / "d")
    assert table["a"].to_pylist() == table["t"].to_pylist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert table["l"].to_pylist() == [[0], [1], [2]]
    assert table["d"].to_pylist() == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_decided_cases_of_other_loaders(tmp_path: Path) -> None:
    rows = [{"x": [[1, 2], [3]]}, {"x": []}, {"x": [[]]}]
    schema = pa.schema([("x", pa.list_(pa.list_(pa.int32())))])
    fs.write(rows, tmp_path / "lists", schema=schema)
    table = read_back(tmp_path / "lists")
    assert table.schema == schema
    assert table.to_pylist() == rows


PYTHON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.times()
    | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(values=st.lists(PYTHON_VALUES, min_size=1, max_size=4))
def test_python_values_come_back_equal_or_are_refused(values: list[Any]) -> None:
    samples = [{"x": value} for value in values]
    try:
        schema = infer_schema(samples)
        array = samples_to_batch(samples, schema, rounds=False).column(0)
    except SchemaError as error:
        event("refused")
        if not str(error).startswith("row "):
            raise
        return
    array.validate(full=True)
    assert equal(array.to_pylist(), values)


def equal(left: Any, right: Any) -> bool:
    """Equal as values: an int may have become the float it is equal to, a Decimal have got more zeros."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float) and math.isnan(right):
        return math.isnan(left)
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def test_writing_needs_a_mapping_or_columns(tmp_path: Path) -> None:
    for data in (np.ones(3), torch.ones(3), 5, None):
        with pytest.raises(InvalidError, match="cannot write"):
            fs.write(data, tmp_path / "d")
    with pytest.raises(InvalidError, match=r"use fastshard\.convert"):
        fs.write("some/file.parquet", tmp_path / "d")
