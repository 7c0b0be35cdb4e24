"""Which files a source names, and in which order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import fastshard as fs
from fastshard.converters._discover import natural_key

Convert = Callable[..., pa.Table]


def write(path: Path, values: list[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), path)
    return path


def test_one_file(convert: Convert, tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [3, 1, 2])
    for source in (file, str(file), f"file://{file}"):
        assert convert(source)["x"].to_pylist() == [3, 1, 2]


def test_relative_and_home_paths(convert: Convert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in" / "a.parquet", [1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for source in ("in", "in/a.parquet", "./in", "~/in", "in/*.parquet", ["in", "~/in/a.parquet"]):
        assert set(convert(source)["x"].to_pylist()) == {1}


def test_a_directory_is_read_in_natural_order_at_any_depth(convert: Convert, tmp_path: Path) -> None:
    for name in ("part-10", "part-2", "b/part-1", "a/part-11", "a/part-9", "part-1"):
        write(tmp_path / "in" / f"{name}.parquet", [int(name.rpartition("-")[2])])
    assert convert(tmp_path / "in")["x"].to_pylist() == [9, 11, 1, 1, 2, 10]


def test_natural_order_is_total() -> None:
    names = ["a1", "a01", "a10", "a2", "b", "", "1", "01", "a1b2", "a1b10", "é"]
    assert len({natural_key(name) for name in names}) == len(names)
    assert sorted(names, key=natural_key) == sorted([*names[5:], *names[:5]], key=natural_key)
    assert sorted(["x10y2", "x9y10", "x9y9"], key=natural_key) == ["x9y9", "x9y10", "x10y2"]


def test_hidden_names_are_passed_over(convert: Convert, tmp_path: Path) -> None:
    write(tmp_path / "in" / "part-0.snappy.parquet", [1])
    for name in (
        "_SUCCESS",
        ".part-0.snappy.parquet.crc",
        "_metadata",
        "_temporary/0/part-1.parquet",
        ".git/x",
    ):
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"not data")
    assert convert(tmp_path / "in")["x"].to_pylist() == [1]
    assert convert(f"{tmp_path}/in/*")["x"].to_pylist() == [1]


def test_a_hidden_file_can_be_named(convert: Convert, tmp_path: Path) -> None:
    file = write(tmp_path / "_a.parquet", [1])
    assert convert(file)["x"].to_pylist() == [1]
    assert convert(f"{tmp_path}/_*.parquet")["x"].to_pylist() == [1]


def test_globs(convert: Convert, tmp_path: Path) -> None:
    for name, value in (("d1/a", 1), ("d2/a", 2), ("d2/b", 3), ("d10/e/a", 4)):
        write(tmp_path / "in" / f"{name}.parquet", [value])

    def matched(pattern: str) -> list[int]:
        return convert(f"{tmp_path}/in/{pattern}")["x"].to_pylist()

    assert matched("d*/a.parquet") == [1, 2]
    assert matched("d2/*.parquet") == [2, 3]
    assert matched("d[12]/[!b].parquet") == [1, 2]
    assert matched("d?/a.parquet") == [1, 2]
    assert matched("**/a.parquet") == [1, 2, 4]
    assert matched("**") == [1, 2, 3, 4]
    assert matched("*") == [1, 2, 3, 4]
    assert matched("**/*") == [1, 2, 3, 4]


def test_a_name_with_glob_characters_is_taken_as_it_is(convert: Convert, tmp_path: Path) -> None:
    write(tmp_path / "a[1].parquet", [1])
    write(tmp_path / "a1.parquet", [2])
    assert convert(tmp_path / "a[1].parquet")["x"].to_pylist() == [1]


def test_a_list_keeps_its_order(convert: Convert, tmp_path: Path) -> None:
    first, second = write(tmp_path / "b.parquet", [1]), write(tmp_path / "a.parquet", [2])
    write(tmp_path / "d" / "c.parquet", [3])
    assert convert([first, str(second), tmp_path / "d"])["x"].to_pylist() == [1, 2, 3]
    assert convert((second, first, second))["x"].to_pylist() == [2, 1, 2]


@pytest.mark.parametrize(
    "values", [["1", "2"], ["007", "-5"], ["2147483648"], ["a b", "1"], ["0x1F"], ["+5"], ["1.5", ""]]
)
def test_hive_partitions_are_typed_as_pyarrow_types_them(
    convert: Convert, tmp_path: Path, values: list[str]
) -> None:
    for i, value in enumerate(values):
        write(tmp_path / "in" / f"k={value.replace(' ', '%20')}" / "f.parquet", [i])
    ours = convert(tmp_path / "in")
    theirs = ds.dataset(tmp_path / "in", partitioning="hive").to_table()
    assert ours.schema.field("k").type == theirs.schema.field("k").type
    assert sorted(ours.to_pylist(), key=str) == sorted(theirs.to_pylist(), key=str)


def test_hive_partitions_of_several_levels_with_nulls(convert: Convert, tmp_path: Path) -> None:
    write(tmp_path / "in" / "year=2024" / "name=__HIVE_DEFAULT_PARTITION__" / "f.parquet", [1])
    write(tmp_path / "in" / "year=__HIVE_DEFAULT_PARTITION__" / "name=%C3%BC" / "f.parquet", [2])
    assert convert(tmp_path / "in").to_pylist() == [
        {"x": 1, "year": 2024, "name": None},
        {"x": 2, "year": None, "name": "ü"},
    ]


def test_hive_partition_below_a_glob(convert: Convert, tmp_path: Path) -> None:
    for year in (2023, 2024):
        write(tmp_path / "in" / f"year={year}" / "f.parquet", [year % 100])
    expected = [{"x": 23, "year": 2023}, {"x": 24, "year": 2024}]
    for pattern in ("year=*", "year=*/*.parquet", "*/f.parquet", "**/*.parquet"):
        assert convert(f"{tmp_path}/in/{pattern}").to_pylist() == expected
    assert convert(tmp_path / "in" / "year=2024").to_pylist() == [{"x": 24}]


def test_a_key_that_is_a_column_too_comes_from_the_directory(convert: Convert, tmp_path: Path) -> None:
    write(tmp_path / "in" / "x=7" / "f.parquet", [1, 2])
    table = convert(tmp_path / "in")
    assert table["x"].to_pylist() == [7, 7]
    assert table.schema.field("x").type == pa.int64()


def test_partition_columns_alone(convert: Convert, tmp_path: Path) -> None:
    for key in ("a", "b"):
        write(tmp_path / "in" / f"k={key}" / "f.parquet", [1, 2])
    assert convert(tmp_path / "in", columns=["k"])["k"].to_pylist() == ["a", "a", "b", "b"]


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fs.errors.NotFoundError, match=r"nothing/here: no such file.*looked in"):
        fs.convert("nothing/here", tmp_path / "out")
    with pytest.raises(fs.errors.SourceError, match=r"no file matches"):
        fs.convert("*.parquet", tmp_path / "out")
    with pytest.raises(fs.errors.NotFoundError, match=r"missing\.parquet"):
        fs.convert([write(tmp_path / "a.parquet", [1]), tmp_path / "missing.parquet"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(fs.errors.SourceError, match="holds no files"):
        fs.convert(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "_SUCCESS").touch()
    with pytest.raises(fs.errors.SourceError, match="_SUCCESS"):
        fs.convert(tmp_path / "in", tmp_path / "out")


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", [1])
    (tmp_path / "in" / "README.txt").write_text("hello")
    with pytest.raises(fs.errors.SourceError, match=r"README\.txt: neither a Parquet nor an Arrow file"):
        fs.convert(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "README.txt").unlink()
    (tmp_path / "in" / "empty.parquet").touch()
    with pytest.raises(fs.errors.SourceError, match=r"empty\.parquet: the file is empty"):
        fs.convert(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "empty.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(fs.errors.SourceError, match=r"empty\.parquet: cannot be read"):
        fs.convert(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_are_told_by_their_first_bytes(convert: Convert, tmp_path: Path) -> None:
    os.rename(write(tmp_path / "a.parquet", [1]), tmp_path / "part-0")
    with pa.ipc.new_file(tmp_path / "part-1", pa.schema([("x", pa.int64())])) as writer:
        writer.write_table(pa.table({"x": [2]}))
    assert convert([tmp_path / "part-0", tmp_path / "part-1"])["x"].to_pylist() == [1, 2]


def test_what_lies_inside_a_delta_table_is_refused_with_the_right_call(tmp_path: Path) -> None:
    file = write(tmp_path / "table" / "year=2024" / "part-0.parquet", [1])
    (tmp_path / "table" / "_delta_log").mkdir()
    (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    for source in (
        tmp_path / "table" / "year=2024",
        file,
        f"{tmp_path}/table/*/*.parquet",
        f"{tmp_path}/*/*/*.parquet",
        f"{tmp_path}/tab*",
        tmp_path,
    ):
        with pytest.raises(fs.errors.SourceError, match=r'Delta table.*fs\.convert\(fs\.Delta\(".*table"\)'):
            fs.convert(source, tmp_path / "out")


def test_tables_of_a_data_set_are_not_data(tmp_path: Path) -> None:
    fs.convert(write(tmp_path / "a.parquet", [1]), tmp_path / "sub" / "set")
    with pytest.raises(fs.errors.SourceError, match="table of a fastshard data set"):
        fs.convert(f"{tmp_path}/sub/set/*.arrow", tmp_path / "out")
    with pytest.raises(fs.errors.SourceError, match=r"sub/set: this is a fastshard data set"):
        fs.convert(tmp_path / "sub", tmp_path / "out")


@pytest.mark.parametrize("source", ["", 5, None, ["x", 5], object(), b"bytes"])
def test_what_is_no_source_is_refused(source: object, tmp_path: Path) -> None:
    with pytest.raises(fs.errors.Error):
        fs.convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
