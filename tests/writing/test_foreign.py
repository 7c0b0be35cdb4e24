"""Arrow files that fastshard did not write become data sets where they lie."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from arrow_tables import arrow_tables
from hypothesis import HealthCheck, given, settings
from written import read_back, same

import fastshard as fs
from fastshard._index import read_index
from fastshard.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    SchemaError,
    SourceError,
    UnsupportedError,
)

datasets.disable_progress_bars()
TABLE = pa.table({"x": [1, 2, None, 4], "s": ["a", None, "ccc", ""], "l": [[1.5], [], None, [2.5, None]]})


def write_file(path: Path, table: pa.Table, **options: Any) -> None:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)


def write_stream(path: Path, table: pa.Table, **options: Any) -> None:
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=3)


WRITERS: dict[str, Any] = {
    "file.arrow": write_file,
    "stream.arrows": write_stream,
    "stream.arrow": write_stream,
    "lz4.feather": lambda path, table: pyarrow.feather.write_feather(table, path, compression="lz4"),
    "zstd.feather": lambda path, table: pyarrow.feather.write_feather(table, path, compression="zstd"),
    "plain.feather": lambda path, table: pyarrow.feather.write_feather(
        table, path, compression="uncompressed"
    ),
    "zstd.ipc": lambda path, table: write_file(path, table, compression="zstd"),
    "old.arrow": lambda path, table: write_file(path, table, metadata_version=pa.ipc.MetadataVersion.V4),
    "older.arrows": lambda path, table: write_stream(
        path, table, metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=True
    ),
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = fs.open(path).to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("name", WRITERS)
def test_one_file_of_any_sort(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, TABLE)
    data = (tmp_path / name).read_bytes()
    result = fs.index(tmp_path / name)
    assert (result.path, result.rows, result.shards) == (str(tmp_path), 4, 1)
    assert (tmp_path / name).read_bytes() == data
    assert rows_of(tmp_path) == TABLE.to_pylist()
    sample = fs.open(tmp_path)[3]
    assert sample["x"] == 4
    assert sample["s"] == ""
    assert sorted(os.listdir(tmp_path)) == sorted(
        [".fastshard.lock", "index.json", name, *(ref.path for ref in tables(tmp_path))]
    )


def tables(path: Path) -> list[Any]:
    index = read_index(path)
    return [index.shard_table, index.block_table]


def test_a_directory_in_the_order_of_its_names(tmp_path: Path) -> None:
    names = ["b/2.arrow", "b/1.feather", "a.arrows", "c.IPC", "b/deeper/x.arrow"]
    for number, name in enumerate(sorted(names)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_stream(tmp_path / name, pa.table({"n": [number]}))
    for name in (
        "_skip.arrow",
        ".skip.arrow",
        "_skipped/x.arrow",
        ".skipped/x.arrow",
        "notes.txt",
        "x.parquet",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not Arrow")
    write_stream(tmp_path / "empty.arrow", pa.table({"n": pa.array([], pa.int64())}))
    result = fs.index(tmp_path)
    assert result.shards == len(names)
    assert [row["n"] for row in rows_of(tmp_path)] == [0, 1, 2, 3, 4]
    assert not (tmp_path / "index.json").read_text().count(str(tmp_path))


def test_lists_and_patterns_lie_in_what_they_have_in_common(tmp_path: Path) -> None:
    for name in ("a/1.arrow", "b/2.arrow", "b/3.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_file(tmp_path / name, pa.table({"n": [int(name[2])]}))
    assert fs.index([tmp_path / "b" / "3.arrow", tmp_path / "a" / "1.arrow"]).path == str(tmp_path)
    assert [row["n"] for row in rows_of(tmp_path)] == [3, 1]
    assert fs.index(f"{tmp_path}/*/*.arrow", mode="overwrite").generation == 2
    assert [row["n"] for row in rows_of(tmp_path)] == [1, 2, 3]
    assert fs.index(tmp_path / "b" / "*.arrow").path == str(tmp_path / "b")
    assert fs.index(tmp_path / "b" / "2.arrow", tmp_path, mode="overwrite").rows == 1


def test_where_an_index_can_lie(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_file(tmp_path / "a" / "1.arrow", TABLE)
    with pytest.raises(InvalidError, match=r"does not lie in .* leave out dest=, or choose"):
        fs.index(tmp_path / "a" / "1.arrow", tmp_path / "b")
    assert not (tmp_path / "b").exists()
    fs.index(tmp_path / "a")
    with pytest.raises(InvalidError, match="a data set is there already"):
        fs.index(tmp_path / "a")
    assert fs.index(tmp_path / "a", mode="overwrite").generation == 2


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array(["a", "b"]).dictionary_encode(), "dictionary"),
        (pa.ListArray.from_arrays([0, 1, 2], pa.array(["a", "b"]).dictionary_encode()), "dictionary"),
        (pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"]), "run-end"),
        (pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), "union"),
    ],
)
def test_what_needs_converting_is_refused_by_name(tmp_path: Path, array: pa.Array, text: str) -> None:
    path = tmp_path / "encoded.arrow"
    write_file(path, pa.table({"c": array}))
    with pytest.raises(UnsupportedError, match=rf"encoded\.arrow: .*{text}.*fastshard convert"):
        fs.index(tmp_path)
    assert os.listdir(tmp_path) == ["encoded.arrow"]


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "empty|bytes"), (b"this is no Arrow file at all", "message|Arrow"), (b"ARROW1\0\0", "")],
)
def test_what_is_no_arrow_file_is_refused_by_name(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "x.arrow").write_bytes(data)
    with pytest.raises(CorruptError, match=rf"{tmp_path}/x\.arrow: .*({text})"):
        fs.index(tmp_path)
    assert os.listdir(tmp_path) == ["x.arrow"]


def test_a_damaged_file_among_many_leaves_no_index(tmp_path: Path) -> None:
    for number in range(20):
        write_file(tmp_path / f"{number:02d}.arrow", TABLE)
    data = (tmp_path / "13.arrow").read_bytes()
    (tmp_path / "13.arrow").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptError, match=r"13\.arrow"):
        fs.index(tmp_path)
    assert len(os.listdir(tmp_path)) == 20


def test_files_of_different_columns_are_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "1.arrow", TABLE)
    write_file(tmp_path / "2.arrow", TABLE.set_column(0, "x", pa.array([1.0] * 4)))
    with pytest.raises(
        SchemaError, match=r"2\.arrow: column 'x' is double, and column 'x' is int64 in .*1\.arrow"
    ):
        fs.index(tmp_path)
    write_file(tmp_path / "2.arrow", TABLE.select(["x"]))
    with pytest.raises(SchemaError, match=r"2\.arrow: it has 1 columns, and 3 has .*1\.arrow"):
        fs.index(tmp_path)


def test_names_that_cannot_be_columns_are_refused(tmp_path: Path) -> None:
    write_file(tmp_path / "1.arrow", pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(SchemaError, match="two columns are named 'a'"):
        fs.index(tmp_path)


def test_no_files_and_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no Arrow files here"):
        fs.index(tmp_path)
    with pytest.raises(NotFoundError, match="no such file or directory"):
        fs.index(tmp_path / "nothing")
    with pytest.raises(NotFoundError, match="as a pattern it finds none"):
        fs.index(tmp_path / "*.arrow")
    with pytest.raises(NotFoundError, match="no such file"):
        fs.index([tmp_path / "nothing"])
    with pytest.raises(InvalidError, match="empty list"):
        fs.index([])
    with pytest.raises(InvalidError, match="expected a path or several, not int"):
        fs.index(5)  # type: ignore[arg-type]
    write_file(tmp_path / "1.arrow", TABLE)
    with pytest.raises(InvalidError, match="named twice"):
        fs.index([tmp_path / "1.arrow"] * 2)
    with pytest.raises(InvalidError, match="mode='append'"):
        fs.index(tmp_path, mode="append")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError):
        fs.index("s3://bucket/x.arrow")
    assert os.listdir(tmp_path) == ["1.arrow"]


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    data = datasets.Dataset.from_dict(
        {
            "n": list(range(100)),
            "t": [f"text {i}" for i in range(100)],
            "l": [[i] * (i % 3) for i in range(100)],
        }
    )
    data = data.cast_column("n", datasets.Value("int16")).filter(lambda row: row["n"] % 2 == 0)
    data.save_to_disk(tmp_path / "hf", num_shards=3)
    result = fs.index(tmp_path / "hf")
    assert (result.rows, result.shards) == (50, 3)
    assert rows_of(tmp_path / "hf") == data.with_format(None).to_list()
    assert datasets.load_from_disk(tmp_path / "hf").to_list() == data.to_list()
    assert read_index(tmp_path / "hf").provenance["source"] == "save_to_disk"
    assert b"huggingface" in pa.ipc.read_schema(pa.py_buffer(read_index(tmp_path / "hf").schema_ipc)).metadata


def test_hugging_face_folders_that_are_not_whole(tmp_path: Path) -> None:
    data = datasets.Dataset.from_dict({"n": [1, 2]})
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "splits")
    with pytest.raises(InvalidError, match=r"index one of \['test', 'train'\]"):
        fs.index(tmp_path / "splits")
    assert fs.index(tmp_path / "splits" / "train").rows == 2
    data.save_to_disk(tmp_path / "hf")
    state = json.loads((tmp_path / "hf" / "state.json").read_text())
    for change, error in (
        ({"_data_files": [{"filename": "../x.arrow"}]}, SourceError),
        ({"_data_files": [{"filename": "gone.arrow"}]}, NotFoundError),
        ({"_data_files": "x"}, SourceError),
        ({"_data_files": []}, NotFoundError),
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, UnsupportedError),
    ):
        (tmp_path / "hf" / "state.json").write_text(json.dumps({**state, **change}))
        with pytest.raises(error):
            fs.index(tmp_path / "hf")
        assert not (tmp_path / "hf" / "index.json").exists()


def test_the_users_files_are_never_removed(tmp_path: Path) -> None:
    write_file(tmp_path / "1.arrow", TABLE)
    data = (tmp_path / "1.arrow").read_bytes()
    fs.index(tmp_path)
    for mode in ("append", "overwrite", "overwrite", "overwrite"):
        fs.write(TABLE, tmp_path, mode=mode)  # type: ignore[arg-type]
        assert (tmp_path / "1.arrow").read_bytes() == data
    fs.vacuum(tmp_path)
    assert (tmp_path / "1.arrow").read_bytes() == data
    assert read_index(tmp_path).rows == 4


def test_rows_are_appended_to_indexed_files(tmp_path: Path) -> None:
    write_file(tmp_path / "1.arrow", TABLE)
    fs.index(tmp_path)
    fs.write(TABLE, tmp_path, mode="append", compression="zstd")
    assert rows_of(tmp_path) == TABLE.to_pylist() * 2


def test_shards_without_their_index_can_be_indexed_again(tmp_path: Path) -> None:
    fs.write({"x": np.arange(1000)}, tmp_path, mode="overwrite", block_bytes=100, shard_bytes=1000)
    shards = sorted(tmp_path.glob("shard-*"))
    for file in (tmp_path / "index.json", *tmp_path.glob("index-*"), *tmp_path.glob("blocks-*")):
        file.unlink()
    with pytest.raises(NotFoundError, match="but fastshard's own"):
        fs.index(tmp_path)
    assert sorted(tmp_path.glob("shard-*")) == shards
    fs.index(shards)
    assert [row["x"] for row in rows_of(tmp_path)] == list(range(1000))
    assert read_index(tmp_path).blocks > len(shards)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=arrow_tables(encoded=False, max_rows=20))
def test_any_file_reads_as_pyarrow_reads_it(memory_folder: Path, table: pa.Table) -> None:
    path = memory_folder / "foreign"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    write_file(path / "1.arrow", table)
    write_stream(path / "2.arrow", table, compression="lz4")
    fs.index(path)
    found = fs.open(path).to_arrow().to_pylist() if table.num_rows else []
    expected = table.to_pylist() * 2
    assert same(found, expected)
    assert read_index(path).shards == (2 if table.num_rows else 0)


def test_an_index_of_foreign_files_keeps_the_promises_of_the_format(tmp_path: Path) -> None:
    write_file(tmp_path / "1.arrow", TABLE)
    write_file(tmp_path / "2.arrow", TABLE)
    fs.index(tmp_path)
    assert read_back(tmp_path).num_rows == 8
