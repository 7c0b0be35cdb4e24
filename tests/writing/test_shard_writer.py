"""ShardWriter and write: what they take, when they commit, and what they leave behind when they do not."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from written import read_back

import fastshard as fs
from fastshard.errors import InvalidError, LockedError, SchemaError, UnsupportedError

datasets.disable_progress_bars()
TABLE = pa.table({"a": [1, 2, 3], "s": ["x", None, "é"]})
ROWS = TABLE.to_pylist()


def empty(path: Path) -> bool:
    return not path.exists() or not list(path.iterdir())


def polars_frame() -> Any:
    return pl.DataFrame({"a": [1, 2, 3], "s": ["x", None, "é"]})


DATA: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(),
    "chunked": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "polars": polars_frame,
    "polars lazy": lambda: polars_frame().lazy(),
    "pandas": lambda: pd.DataFrame({"a": [1, 2, 3], "s": ["x", None, "é"]}),
    "pandas shuffled": lambda: pd.DataFrame(
        {"a": [3, 1, 2], "s": ["é", "x", None]}, index=[2, 0, 1]
    ).sort_index(),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
    "datasets": lambda: datasets.Dataset.from_dict({"a": [1, 2, 3], "s": ["x", None, "é"]}),
    "datasets with indices": lambda: datasets.Dataset.from_dict(
        {"a": [2, 3, 1], "s": [None, "é", "x"]}
    ).select([2, 0, 1]),
    "datasets streamed": lambda: datasets.Dataset.from_dict(
        {"a": [1, 2, 3], "s": ["x", None, "é"]}
    ).to_iterable_dataset(),
    "columns": lambda: {"a": np.array([1, 2, 3]), "s": ["x", None, "é"]},
    "torch columns": lambda: {"a": torch.tensor([1, 2, 3]), "s": ("x", None, "é")},
    "arrow columns": lambda: {"a": pa.array([1, 2, 3]), "s": TABLE["s"]},
    "pandas columns": lambda: {"a": pd.Series([1, 2, 3]), "s": pd.Series(["x", None, "é"])},
    "samples": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "map-style": lambda: MapStyle(),
    "batches": lambda: TABLE.to_batches(max_chunksize=2),
    "frames": lambda: iter([polars_frame()[:1], polars_frame()[1:]]),
}


class MapStyle(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return ROWS[index]


@pytest.mark.parametrize("name", DATA)
def test_whatever_holds_rows_is_written(tmp_path: Path, name: str) -> None:
    result = fs.write(DATA[name](), tmp_path / "d")
    assert read_back(tmp_path / "d").to_pylist() == ROWS
    assert (result.rows, result.shards, result.generation) == (3, 1, 1)
    assert result.path == str(tmp_path / "d") == os.fspath(result)


@pytest.mark.parametrize(
    "data", [TABLE.slice(0, 0), polars_frame()[:0], pd.DataFrame({"a": np.zeros(0, int)}), {"a": []}]
)
def test_no_rows_are_a_data_set_of_none(tmp_path: Path, data: Any) -> None:
    result = fs.write(data, tmp_path / "d")
    assert (result.rows, result.shards, result.blocks, result.bytes) == (0, 0, 0, 0)
    assert read_back(tmp_path / "d").num_rows == 0
    assert len(fs.open(tmp_path / "d")) == 0


def test_one_row_and_a_huge_row(tmp_path: Path) -> None:
    fs.write([{"b": b"x"}], tmp_path / "one")
    assert read_back(tmp_path / "one").to_pylist() == [{"b": b"x"}]
    fs.write([{"b": b""}, {"b": b"y" * (20 << 20)}, {"b": b""}], tmp_path / "huge")
    assert [len(row["b"]) for row in read_back(tmp_path / "huge").to_pylist()] == [0, 20 << 20, 0]


def test_nothing_to_tell_a_schema_by_is_refused(tmp_path: Path) -> None:
    for data in ([], iter(()), {}):
        with pytest.raises(SchemaError, match=r"no samples and no schema|no columns"):
            fs.write(data, tmp_path / "d")
        assert empty(tmp_path / "d")
    fs.write([], tmp_path / "d", schema=TABLE.schema)
    assert read_back(tmp_path / "d").schema == TABLE.schema


def test_arrays_by_column_keep_dtype_and_shape(tmp_path: Path) -> None:
    columns = {
        "scalar": np.arange(5, dtype=np.int16),
        "vector": np.arange(10, dtype=np.float32).reshape(5, 2),
        "image": np.arange(60, dtype=np.uint8).reshape(5, 3, 4)[:, ::-1],
        "brain": torch.arange(5, dtype=torch.bfloat16).reshape(5, 1),
        "flag": np.array([True, False] * 2 + [True]),
        "when": np.array(["2020-01-01", "NaT"] * 2 + ["1970-01-01"], "M8[us]"),
        "text": np.array(["a", "bc", "", "é", "x"]),
    }
    fs.write(columns, tmp_path / "d", block_bytes=64)
    table = read_back(tmp_path / "d")
    assert table.schema.field("scalar").type == pa.int16()
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 2)
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.uint8(), (3, 4))
    assert table.schema.field("when").type == pa.timestamp("us")
    assert table["image"].to_pylist() == columns["image"].reshape(5, 12).tolist()
    assert table["vector"].to_pylist() == columns["vector"].tolist()
    assert table["when"].null_count == 2
    assert table["text"].to_pylist() == ["a", "bc", "", "é", "x"]
    batch = fs.open(tmp_path / "d").take([4, 0])
    assert np.array_equal(batch["image"], columns["image"][[4, 0]])


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ({"a": [1], "b": [1, 2]}, SchemaError, "column 'b' has 2 rows, column 'a' has 1"),
        ({"a": 1, "b": 2}, SchemaError, r"column 'a' is int, not an array .* \[sample\]"),
        ({"a": "text"}, SchemaError, "column 'a' is str"),
        ({1: [1]}, SchemaError, "1 is not a column name"),
        ({"a": [1, "x"]}, SchemaError, "row 1: column 'a'"),
        ({"a": np.ones(2, complex)}, SchemaError, "column 'a': cannot store"),
        (pa.array([1, 2]), InvalidError, "gives no Arrow table"),
        (pd.DataFrame({"a": [1, "x"]}), SchemaError, "cannot be stored as Arrow: .*column a"),
        (
            datasets.DatasetDict({"train": datasets.Dataset.from_dict({"a": [1]})}),
            InvalidError,
            r"one of \['train'\]",
        ),
        ([TABLE, iter([{"a": 1}])], InvalidError, "among Arrow batches; pass one kind"),
    ],
)
def test_what_cannot_be_written_is_named(
    tmp_path: Path, data: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        fs.write(data, tmp_path / "d")
    assert empty(tmp_path / "d")


def test_a_structured_array_is_its_fields(tmp_path: Path) -> None:
    fs.write(np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")]), tmp_path / "d")
    assert read_back(tmp_path / "d").to_pylist() == [{"a": 1, "b": 2.5}, {"a": 3, "b": 4.5}]


def test_a_named_index_of_pandas_is_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index([7, 8], name="id"))
    fs.write(frame, tmp_path / "d")
    assert read_back(tmp_path / "d").select(["a", "id"]).to_pylist() == [{"a": 1, "id": 7}, {"a": 2, "id": 8}]


def test_samples_and_batches_keep_their_turn(tmp_path: Path) -> None:
    with fs.ShardWriter(tmp_path / "d") as writer:
        writer.write({"a": 1, "s": "x"})
        writer.write_batch(TABLE.slice(1, 1))
        writer.write({"a": 3, "s": "é"})
        writer.write_batch({"a": [4], "s": ["z"]})
        assert writer.rows == 4
    assert read_back(tmp_path / "d")["a"].to_pylist() == [1, 2, 3, 4]
    assert writer.result is not None
    assert writer.schema == TABLE.schema
    with pytest.raises(InvalidError, match="use write for each"), fs.ShardWriter(tmp_path / "e") as writer:
        writer.write_batch([{"a": 1}])


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_a_failing_block_commits_nothing_and_leaves_nothing(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "deep" / "d"

    def fail() -> None:
        with fs.ShardWriter(path, mode=mode, block_bytes=100, shard_bytes=1000) as writer:
            for i in range(5000):
                writer.write({"x": i})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not (tmp_path / "deep").exists()
    path.mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert empty(path)
    if mode != "error":
        fs.write({"x": [7]}, path)
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with pytest.raises(KeyboardInterrupt):
            fail()
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_closing_twice_is_harmless_and_use_after_it_an_error(tmp_path: Path) -> None:
    writer = fs.ShardWriter(tmp_path / "d")
    assert "open" in repr(writer)
    writer.write({"x": 1})
    first = writer.close()
    assert writer.close() is first is writer.result
    assert "committed" in repr(writer)
    writer.abort()
    for use in (lambda: writer.write({"x": 1}), lambda: writer.write_batch(TABLE)):
        with pytest.raises(InvalidError, match=r'this writer is closed; .* mode="append"'):
            use()
    assert read_back(tmp_path / "d").num_rows == 1


def test_after_abort_there_is_nothing_to_close(tmp_path: Path) -> None:
    writer = fs.ShardWriter(tmp_path / "d")
    writer.write({"x": 1})
    writer.abort()
    assert writer.close() is None
    assert not (tmp_path / "d").exists()


def test_a_forgotten_writer_commits_nothing(tmp_path: Path) -> None:
    writer = fs.ShardWriter(tmp_path / "d", block_bytes=1)
    writer.write({"x": 1})
    writers = [writer]
    del writer
    with pytest.warns(ResourceWarning, match="not closed: nothing was committed"):
        writers.clear()
    gc.collect()
    assert not (tmp_path / "d").exists()
    fs.write({"x": [1]}, tmp_path / "d")


def test_a_writer_that_failed_will_not_commit(tmp_path: Path) -> None:
    writer = fs.ShardWriter(tmp_path / "d", block_bytes=1)
    writer.write({"x": 1})
    with pytest.raises(SchemaError):
        writer.write({"x": "a"})
    with pytest.raises(InvalidError, match=r"failed before .*row 1.* will commit nothing"):
        writer.write({"x": 2})
    with pytest.raises(InvalidError, match="failed before"):
        writer.close()
    assert not (tmp_path / "d").exists()

    def swallow() -> None:
        with fs.ShardWriter(tmp_path / "d", block_bytes=1) as other:
            other.write({"x": 1})
            with contextlib.suppress(SchemaError):
                other.write({"x": "a"})

    with pytest.raises(InvalidError, match="failed before"):
        swallow()
    assert not (tmp_path / "d").exists()


def test_a_sample_refused_at_once_does_no_harm(tmp_path: Path) -> None:
    with fs.ShardWriter(tmp_path / "d") as writer:
        writer.write({"x": 1})
        with pytest.raises(SchemaError, match="row 1: column 'x' is missing"):
            writer.write({})
        writer.write({"x": 2})
    assert read_back(tmp_path / "d")["x"].to_pylist() == [1, 2]


def test_two_writers_at_once(tmp_path: Path) -> None:
    with fs.ShardWriter(tmp_path / "d") as writer:
        for mode in ("error", "overwrite", "append"):
            with pytest.raises(LockedError, match=r"another writer is at work .* \.fastshard\.lock"):
                fs.ShardWriter(tmp_path / "d", mode=mode)
        writer.write({"x": 1})
    assert read_back(tmp_path / "d").num_rows == 1
    fs.write({"x": [2]}, tmp_path / "d", mode="append")
    assert read_back(tmp_path / "d")["x"].to_pylist() == [1, 2]


def test_many_threads_append_one_after_another(tmp_path: Path) -> None:
    fs.write({"x": [-1]}, tmp_path / "d")

    def append(number: int) -> None:
        while True:
            try:
                fs.write({"x": [number]}, tmp_path / "d", mode="append")
                return
            except LockedError:
                pass

    threads = [threading.Thread(target=append, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(read_back(tmp_path / "d")["x"].to_pylist()) == list(range(-1, 8))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"compression": "gzip"}, 'compression=\'gzip\': expected "none", "lz4", "zstd"'),
        ({"compression": "zstd:0"}, "compression='zstd:0'"),
        ({"compression": "zstd:x"}, "compression='zstd:x'"),
        ({"compression": ("lz4", 3)}, "compression="),
        ({"compression": ("zstd", 23)}, "compression="),
        ({"block_bytes": 0}, "block_bytes=0: expected a positive number"),
        ({"shard_bytes": 1.5}, "shard_bytes=1.5"),
        ({"mode": "replace"}, 'mode=\'replace\': expected "error", "overwrite" or "append"'),
        ({"metadata": {"a": object()}}, "metadata= must hold JSON values only"),
        ({"metadata": {"a": float("nan")}}, "metadata= must hold JSON values only"),
        ({"metadata": {"a": "\ud800"}}, "metadata= must hold JSON values only"),
        ({"metadata": [1]}, "metadata= must be a mapping"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_made(tmp_path: Path, options: Any, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        fs.ShardWriter(tmp_path / "d", **options)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("dest", ["", 5, "a\0b", "s3://bucket/key", "https://host/x"])
def test_destinations_that_are_no_local_path(dest: Any) -> None:
    with pytest.raises((InvalidError, UnsupportedError)):
        fs.write(TABLE, dest)


def test_destinations_of_all_sorts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for dest, place in (
        ("relative", "relative"),
        ("~/home", "home"),
        ((tmp_path / "url é").as_uri(), "url é"),
        (tmp_path / "a" / "b" / "c", "a/b/c"),
        (os.fsencode(tmp_path / "bytes"), None),
    ):
        if place is None:
            with pytest.raises(InvalidError):
                fs.write(TABLE, dest)
        else:
            fs.write(TABLE, dest)
            assert read_back(tmp_path / place).num_rows == 3


def test_metadata_and_settings_are_in_the_index(tmp_path: Path) -> None:
    result = fs.write(
        TABLE, tmp_path / "d", compression="zstd:7", block_bytes=1000, metadata={"k": ["☃", None]}
    )
    document = json.loads((tmp_path / "d" / "index.json").read_text())
    assert document["metadata"] == {"k": ["☃", None]}
    assert document["settings"] == {
        "compression": "zstd",
        "level": 7,
        "block_bytes": 1000,
        "shard_bytes": 256 << 20,
    }
    assert document["provenance"] == {"fastshard": fs.__version__, "source": "pyarrow.lib.Table"}
    assert pickle.loads(pickle.dumps(result)) == result


def test_appending_keeps_settings_metadata_and_shards(tmp_path: Path) -> None:
    path = tmp_path / "d"
    fs.write(TABLE, path, compression="lz4", block_bytes=1000, metadata={"a": 1, "b": 1})
    shards = {file.name: file.read_bytes() for file in path.glob("shard-*")}
    result = fs.write(TABLE, path, mode="append", metadata={"b": 2})
    document = json.loads((path / "index.json").read_text())
    assert (result.rows, result.generation) == (6, 2)
    assert document["settings"]["compression"] == "lz4"
    assert document["settings"]["block_bytes"] == 1000
    assert document["metadata"] == {"a": 1, "b": 2}
    assert len(document["provenance"]["appended"]) == 1
    for name, data in shards.items():
        assert (path / name).read_bytes() == data
    fs.write(TABLE, path, mode="append", compression="none")
    assert read_back(path).num_rows == 9


def test_appending_samples_fits_them_to_the_schema(tmp_path: Path) -> None:
    fs.write(pa.table({"x": pa.array([1.5], pa.float32()), "n": pa.array([1], pa.int8())}), tmp_path / "d")
    fs.write([{"n": 2, "x": 0.1}], tmp_path / "d", mode="append")
    table = read_back(tmp_path / "d")
    assert table.schema.types == [pa.float32(), pa.int8()]
    assert table["x"].to_pylist() == [1.5, float(np.float32(0.1))]
    with pytest.raises(SchemaError, match="column 'n': 300 does not fit int8"):
        fs.write([{"n": 300, "x": 0.1}], tmp_path / "d", mode="append")
    with pytest.raises(SchemaError, match="column 'n' is string, and the data set stores int8"):
        fs.write({"x": np.ones(1, np.float32), "n": ["a"]}, tmp_path / "d", mode="append")
    assert read_back(tmp_path / "d").num_rows == 2


def test_tensors_of_every_sort_are_appended(tmp_path: Path) -> None:
    rows = [
        {
            "fixed": torch.ones((2, 2), dtype=torch.bfloat16) * i,
            "brain": torch.tensor(float(i), dtype=torch.bfloat16),
            "varying": np.ones((i, 2), np.float32),
        }
        for i in range(3)
    ]
    fs.write(rows, tmp_path / "d")
    fs.write(rows, tmp_path / "d", mode="append")
    fs.write(read_back(tmp_path / "d"), tmp_path / "d", mode="append")
    table = read_back(tmp_path / "d")
    assert table.num_rows == 12
    assert table.slice(0, 6).to_pylist() == table.slice(6).to_pylist()


def test_the_same_data_make_the_same_bytes(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        for i in range(1000):
            yield {"x": i, "v": np.full(i % 5, i, np.float32), "n": None if i % 3 else i}

    for name in ("one", "two"):
        fs.write(rows(), tmp_path / name, compression="zstd", block_bytes=1000, shard_bytes=5000)
    one, two = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two")
    )
    assert one == two


def test_a_forked_child_does_not_disturb_its_parent(tmp_path: Path) -> None:
    writer = fs.ShardWriter(tmp_path / "d", block_bytes=1)
    writer.write({"x": 1})
    child = os.fork()
    if child == 0:  # as a DataLoader's worker would, with a copy of the writer
        try:
            writer.abort()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(LockedError):
        fs.ShardWriter(tmp_path / "d", mode="append")
    writer.write({"x": 2})
    writer.close()
    assert read_back(tmp_path / "d")["x"].to_pylist() == [1, 2]
