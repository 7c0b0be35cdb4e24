"""Files that differ become one table, as pyarrow would have it, whatever their order."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastshard as fs

Convert = Callable[..., pa.Table]


def written(folder: Path, *tables: pa.Table, reverse: bool = False) -> list[Path]:
    paths = []
    for i, table in enumerate(tables):
        folder.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{i}.parquet")
        paths.append(folder / f"{i}.parquet")
    return paths[::-1] if reverse else paths


def expected(paths: list[Path]) -> pa.Table:
    """What pyarrow makes of the files."""
    tables = [pq.read_table(path) for path in paths]
    return pa.concat_tables(tables, promote_options="permissive")


INT = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array(["x", None])})
CASES: dict[str, tuple[pa.Table, pa.Table]] = {
    "missing column": (INT, INT.select(["a"])),
    "extra column": (INT.select(["b"]), INT),
    "nothing in common": (INT.select(["a"]), INT.select(["b"])),
    "other order": (INT, INT.select(["b", "a"])),
    "no rows": (INT, INT.slice(0, 0)),
    "widened integer": (INT, pa.table({"a": pa.array([2**40], pa.int64()), "b": ["y"]})),
    "integer and float": (INT, pa.table({"a": [0.5], "b": ["y"]})),
    "all null": (INT, pa.table({"a": pa.nulls(3), "b": pa.nulls(3)})),
    "null in lists": (
        pa.table({"a": [[1.5], [2.5, 3.5]]}),
        pa.table({"a": pa.array([[None], []], pa.list_(pa.null()))}),
    ),
    "large strings": (INT, pa.table({"b": pa.array(["z"], pa.large_string())})),
    "decimals": (
        pa.table({"a": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}),
        pa.table({"a": pa.array([Decimal("12.345")], pa.decimal128(9, 3))}),
    ),
    "times": (
        pa.table({"a": pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("ms"))}),
        pa.table({"a": pa.array([datetime.datetime(2024, 1, 1, 0, 0, 0, 7)], pa.timestamp("us"))}),
    ),
    "struct with another field": (
        pa.table({"s": [{"a": 1}, None]}),
        pa.table({"s": pa.array([{"a": 2.5, "b": "x"}])}),
    ),
    "list of structs": (
        pa.table({"s": [[{"a": 1}], []]}),
        pa.table({"s": pa.array([[{"b": "x"}, None]])}),
    ),
    "lists of different lengths": (
        pa.table({"a": pa.array([[1, 2]], pa.list_(pa.int32(), 2))}),
        pa.table({"a": pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3))}),
    ),
    "map": (
        pa.table({"m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}),
        pa.table({"m": pa.array([[("l", 2**40)]], pa.map_(pa.string(), pa.int64()))}),
    ),
}


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "reversed"])
@pytest.mark.parametrize("case", CASES)
def test_files_unify_as_pyarrow_unifies_them(
    convert: Convert, tmp_path: Path, case: str, reverse: bool
) -> None:
    paths = written(tmp_path / "in", *CASES[case], reverse=reverse)
    found, wanted = convert(paths), expected(paths)
    assert found.schema.remove_metadata() == wanted.schema.remove_metadata()
    assert found.to_pylist() == wanted.to_pylist()


def test_many_files_with_row_groups_of_many_sizes(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i, (rows, size) in enumerate([(10, 3), (0, 1), (7, 7), (5, 1), (1, 9)]):
        pq.write_table(
            pa.table({"x": range(rows), "f": [i] * rows}),
            tmp_path / "in" / f"{i}.parquet",
            row_group_size=size,
        )
    table = convert(tmp_path / "in", block_bytes=32)
    assert table["x"].to_pylist() == [*range(10), *range(7), *range(5), 0]
    assert table["f"].to_pylist() == [0] * 10 + [2] * 7 + [3] * 5 + [4]


def test_files_without_any_rows_keep_their_schema(convert: Convert, tmp_path: Path) -> None:
    paths = written(tmp_path / "in", INT.slice(0, 0), INT.slice(0, 0))
    found = convert(paths)
    assert (found.num_rows, found.schema) == (0, INT.schema)


def test_a_dictionary_unifies_with_plain_strings(convert: Convert, tmp_path: Path) -> None:
    plain = pa.table({"s": ["foo", None]})
    encoded = pa.table({"s": pa.array(["bar", "foo"]).dictionary_encode()})
    for reverse in (False, True):
        paths = written(tmp_path / "in", plain, encoded, reverse=reverse)
        values = ["bar", "foo", "foo", None] if reverse else ["foo", None, "bar", "foo"]
        assert convert(paths)["s"].to_pylist() == values


def test_a_required_column_that_a_file_lacks_is_nullable(convert: Convert, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    both = pa.table([[1], [2]], schema=schema)
    for reverse in (False, True):
        found = convert(written(tmp_path / "in", both, both.select(["a"]), reverse=reverse))
        assert [field.nullable for field in found.schema] == [False, True]
        assert sorted(found.to_pylist(), key=str) == sorted([{"a": 1, "b": 2}, {"a": 1, "b": None}], key=str)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array(["x"]), pa.array([1])),
        (pa.array([True]), pa.array([1])),
        (pa.array([{"a": 1}]), pa.array([[1]])),
        (
            pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
            pa.array([datetime.datetime(2024, 1, 1)]),
        ),
    ],
)
def test_types_that_do_not_fit_are_an_error_with_column_and_files(
    tmp_path: Path, left: Any, right: Any
) -> None:
    paths = written(tmp_path / "in", pa.table({"ok": [1], "c": left}), pa.table({"c": right}))
    with pytest.raises(
        fs.errors.SchemaError, match=r"1\.parquet: column 'c' is of type .*0\.parquet.*columns="
    ):
        fs.convert(paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_value_that_does_not_fit_the_wider_type_is_named(tmp_path: Path) -> None:
    integers = pa.table({"a": pa.array([1, 2, 2**53 + 1])})
    paths = written(tmp_path / "in", integers, pa.table({"a": [0.5]}))
    with pytest.raises(
        fs.errors.SourceError, match=r"0\.parquet: row 2, column 'a': cannot cast int64 to double"
    ):
        fs.convert(paths, tmp_path / "out")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([[1], [2]], names=["a", "a"])
    paths = written(tmp_path / "in", table)
    with pytest.raises(fs.errors.SchemaError, match="two columns are named 'a'"):
        fs.convert(paths, tmp_path / "out")


def test_names_with_dots_spaces_and_letters_of_any_kind(convert: Convert, tmp_path: Path) -> None:
    table = pa.table({"a.b": [1], "a": [{"b": 2}], "ü ö": [3], "A": [4], "x": [[{"y.z": 5}]]})
    paths = written(tmp_path / "in", table)
    assert convert(paths).to_pylist() == table.to_pylist()
    assert convert(paths, columns=["a.b"]).to_pylist() == [{"a.b": 1}]
    assert convert(paths, columns=["a"]).to_pylist() == [{"a": {"b": 2}}]
    assert convert(paths, columns=["ü ö", "A"]).to_pylist() == [{"ü ö": 3, "A": 4}]


def test_metadata_of_the_schema_stays(convert: Convert, tmp_path: Path) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"k": "v"})
    field = table.schema.field("a").with_metadata({"unit": "m"})
    table = table.cast(pa.schema([field], metadata=table.schema.metadata))
    found = convert(written(tmp_path / "in", table))
    assert found.schema.metadata[b"k"] == b"v"
    assert found.schema.field("a").metadata[b"unit"] == b"m"


@pytest.mark.parametrize("reverse", [False, True])
def test_a_column_of_types_that_do_not_go_together_can_be_left_out(
    convert: Convert, tmp_path: Path, reverse: bool
) -> None:
    tables = [pa.table({"a": [[1]], "x": [1], "b": ["s"]}), pa.table({"b": [[2.5]], "x": [2], "a": [0.5]})]
    paths = written(tmp_path / "in", *tables, reverse=reverse)
    for columns, named in ((None, "[ab]"), (["x", "a"], "a"), (["b"], "b")):
        with pytest.raises(
            fs.errors.SchemaError, match=rf"parquet: column '{named}' is .* in .*parquet; .*columns="
        ):
            convert(paths, columns=columns)
    assert convert(paths, columns=["x"])["x"].to_pylist() == ([2, 1] if reverse else [1, 2])
