"""Schemas normalised, and batches made to fit them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from written import read_back

import fastshard as fs
from fastshard.errors import SchemaError
from fastshard.schema import BFloat16Type, Normaliser, normalise_schema

DICTIONARY = pa.dictionary(pa.int32(), pa.utf8())


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (DICTIONARY, pa.utf8()),
        (pa.dictionary(pa.int8(), pa.string_view()), pa.large_utf8()),
        (pa.run_end_encoded(pa.int32(), pa.float16()), pa.float16()),
        (pa.run_end_encoded(pa.int32(), DICTIONARY), pa.utf8()),
        (pa.string_view(), pa.large_utf8()),
        (pa.binary_view(), pa.large_binary()),
        (pa.list_view(pa.int8()), pa.list_(pa.int8())),
        (pa.large_list_view(pa.string_view()), pa.large_list(pa.large_utf8())),
        (pa.list_(DICTIONARY), pa.list_(pa.utf8())),
        (pa.list_(DICTIONARY, 2), pa.list_(pa.utf8(), 2)),
        (pa.map_(pa.utf8(), pa.list_view(DICTIONARY)), pa.map_(pa.utf8(), pa.list_(pa.utf8()))),
        (
            pa.struct([("a", pa.struct([("b", DICTIONARY)]))]),
            pa.struct([("a", pa.struct([("b", pa.utf8())]))]),
        ),
        (pa.bool8(), pa.bool8()),
        (pa.uuid(), pa.uuid()),
        (pa.json_(pa.utf8()), pa.json_(pa.utf8())),
        (BFloat16Type(), BFloat16Type()),
        (pa.fixed_shape_tensor(pa.int8(), (2,)), pa.fixed_shape_tensor(pa.int8(), (2,))),
    ],
)
def test_types_are_normalised(kind: pa.DataType, stored: pa.DataType) -> None:
    assert normalise_schema(pa.schema([("x", kind)])).field("x").type == stored


def test_names_metadata_and_nullability_stay() -> None:
    inner = pa.field("element", DICTIONARY, nullable=False, metadata={"unit": "m"})
    schema = pa.schema(
        [pa.field("x", pa.list_(inner), nullable=False, metadata={"a": "b"}), pa.field("y", pa.int8())],
        metadata={"pandas": "{}", "mine": "kept"},
    )
    stored = normalise_schema(schema)
    assert stored.metadata == schema.metadata
    assert stored.field("x").metadata == {b"a": b"b"}
    assert not stored.field("x").nullable
    element = stored.field("x").type.value_field
    assert (element.name, element.nullable, element.metadata) == ("element", False, {b"unit": b"m"})
    unchanged = pa.schema([pa.field("x", pa.list_(pa.field("element", pa.int8(), metadata={"u": "v"})))])
    assert normalise_schema(unchanged).equals(unchanged, check_metadata=True)


def test_an_extension_over_a_decoded_storage_stays_as_metadata(tmp_path: Path) -> None:
    kind = pa.json_(pa.string_view())
    array = pa.ExtensionArray.from_storage(kind, pa.array(["{}", None], pa.string_view()))
    fs.write(pa.table({"j": array}), tmp_path / "d")
    table = read_back(tmp_path / "d")
    assert table.schema.field("j").type == pa.json_(pa.large_utf8())
    assert table["j"].combine_chunks().storage.to_pylist() == ["{}", None]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (pa.schema([]), "there are no columns"),
        (pa.schema([("", pa.int8())]), "column 0 has an empty name"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "two columns are named 'a'"),
        (pa.schema([("u", pa.sparse_union([pa.field("a", pa.int8())]))]), "column 'u' is a union"),
        (pa.schema([("u", pa.list_(pa.dense_union([pa.field("a", pa.int8())])))]), "column 'u' is a union"),
        (
            pa.schema([("s", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]),
            "column 's': a struct has two fields",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path: Path, schema: pa.Schema, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        fs.ShardWriter(tmp_path / "d", schema)
    assert not (tmp_path / "d").exists()


def test_a_batch_that_needs_nothing_passes_untouched() -> None:
    batch = pa.record_batch({"x": [1, 2], "s": ["a", None]})
    (same,) = Normaliser(batch.schema).batches(batch)
    assert same is batch


def test_dictionaries_of_several_chunks_and_with_null_values(tmp_path: Path) -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int32()), ["foo", None, "bar"])
    second = pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int32()), ["bar", "baz"])
    table = pa.table({"c": pa.chunked_array([first, second])})
    fs.write(table, tmp_path / "d")
    assert read_back(tmp_path / "d")["c"].to_pylist() == ["foo", None, "bar", "foo", "baz", None]


def test_a_dictionary_too_large_to_decode_at_once_is_decoded_in_parts(tmp_path: Path) -> None:
    # 300 rows of 10 MiB: more than 32-bit offsets can count, in the 50 KiB of a few indices.
    word = pa.array(["x" * (10 << 20)])
    batch = pa.record_batch(
        [pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int8()), word)], names=["w"]
    )
    rows = 0
    for part in Normaliser(batch.schema).batches(batch):
        rows += part.num_rows
        assert part.column(0).nbytes < 2**31
        assert len(part.column(0)[0].as_py()) == 10 << 20
    assert rows == 300


def test_columns_are_matched_by_name_and_widened_without_loss(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("f", pa.float64()),
            ("s", pa.utf8()),
            ("b", pa.large_binary()),
            ("l", pa.list_(pa.field("item", pa.int32()))),
            ("n", pa.struct([("a", pa.int16())])),
            ("d", pa.utf8()),
        ]
    )
    with fs.ShardWriter(tmp_path / "d", schema) as writer:
        writer.write_batch(
            pa.table(
                {
                    "d": pa.array(["x"]).dictionary_encode(),
                    "n": pa.array([{"a": 1}], pa.struct([("a", pa.int8())])),
                    "l": pa.array([[1]], pa.large_list(pa.field("element", pa.uint16()))),
                    "b": pa.array([b"x"]),
                    "s": pa.array(["é"], pa.string_view()),
                    "f": pa.array([1.5], pa.float16()),
                    "i": pa.array([7], pa.uint32()),
                }
            )
        )
        writer.write_batch(pa.table({name: pa.nulls(1) for name in schema.names}))
    table = read_back(tmp_path / "d")
    assert table.schema == schema
    assert table.to_pylist() == [
        {"i": 7, "f": 1.5, "s": "é", "b": b"x", "l": [1], "n": {"a": 1}, "d": "x"},
        dict.fromkeys(schema.names),
    ]


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (pa.int32(), pa.int64()),
        (pa.uint64(), pa.int8()),
        (pa.int64(), pa.uint64()),
        (pa.int64(), pa.float32()),
        (pa.float32(), pa.float64()),
        (pa.float64(), pa.int8()),
        (pa.utf8(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        (pa.decimal128(10, 2), pa.decimal128(11, 2)),
        (pa.bool_(), pa.int8()),
    ],
)
def test_other_types_are_refused_with_both_names(
    tmp_path: Path, stored: pa.DataType, found: pa.DataType
) -> None:
    with fs.ShardWriter(tmp_path / "d", pa.schema([("x", stored)])) as writer:
        with pytest.raises(SchemaError) as caught:
            writer.write_batch(pa.table({"x": pa.nulls(2, found)}))
        assert f"column 'x' is {found}, and the data set stores {stored}" in str(caught.value)
        writer.write_batch(pa.table({"x": pa.nulls(1, stored)}))
    assert read_back(tmp_path / "d").num_rows == 1


def test_missing_and_extra_columns_are_named(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    with pytest.raises(SchemaError, match="missing 'b'; not expected 'c', 'd'"):
        fs.write(pa.table({"a": [1], "c": [1], "d": [1]}), tmp_path / "d", schema=schema)


@pytest.mark.parametrize("make", [lambda t: t, lambda t: t.select(["y", "x"])])
def test_a_null_where_none_may_be_is_refused_with_its_row(
    tmp_path: Path, make: Callable[[pa.Table], pa.Table]
) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())])
    good = pa.table({"x": [1, 2], "y": [None, 1]}, schema=schema)
    bad = pa.table({"x": pa.array([3, None]), "y": pa.array([1, 1])}, schema=schema)
    with pytest.raises(SchemaError, match=r"row 3: column 'x' \(int64\) is null"):
        fs.write([make(good), make(bad)], tmp_path / "d", schema=schema)
    assert not (tmp_path / "d").exists()


def test_fields_of_another_order_are_no_change(tmp_path: Path) -> None:
    one = pa.table({"a": np.arange(3), "b": np.arange(3.0)})
    fs.write([one, one.select(["b", "a"])], tmp_path / "d", schema=one.schema)
    assert read_back(tmp_path / "d").equals(pa.concat_tables([one, one]))
