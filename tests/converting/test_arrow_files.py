"""Arrow IPC files and streams, Feather of both versions, saved Hugging Face data sets, and fastshard data sets."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pytest
from outputs import files_of, stored

import fastshard as fs
from fastshard.converters import _format

Convert = Callable[..., pa.Table]

TABLE = pa.table(
    {
        "i": pa.array([1, None, 3, 4, 5, 6, 7], pa.int32()),
        "s": ["a", "b", None, "d", "e", "", "g"],
        "v": [[1.5], [], None, [2.5, 3.5], [], [4.5], [None]],
    }
)


def write_file(path: Path, table: pa.Table, chunk: int | None = None, **options: Any) -> Path:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, chunk)
    return path


def write_stream(path: Path, table: pa.Table, chunk: int | None = None, **options: Any) -> Path:
    with pa.ipc.new_stream(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, chunk)
    return path


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("write", [write_file, write_stream])
def test_files_and_streams(convert: Convert, tmp_path: Path, write: Any, compression: str | None) -> None:
    path = write(tmp_path / "in.arrow", TABLE, 2, compression=compression)
    assert convert(path).equals(TABLE)
    assert convert(path, columns=["v", "i"], filter=pc.field("s") > "c").equals(
        TABLE.filter(pc.field("s") > "c").select(["v", "i"])
    )


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_files_without_rows(convert: Convert, tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "in.arrow", TABLE.slice(0, 0))
    found = convert([path, write(tmp_path / "more.arrow", TABLE), path])
    assert found.equals(TABLE)
    assert convert(path).schema == TABLE.schema


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather(convert: Convert, tmp_path: Path, compression: str) -> None:
    feather.write_feather(TABLE, tmp_path / "in.feather", compression=compression, chunksize=3)
    assert convert(tmp_path / "in.feather").equals(TABLE)


def test_feather_of_version_1(convert: Convert, tmp_path: Path) -> None:
    table = TABLE.select(["i", "s"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        feather.write_feather(table, tmp_path / "in.feather", version=1)
    assert convert(tmp_path / "in.feather").equals(table)
    assert convert(tmp_path / "in.feather", columns=["s"]).equals(table.select(["s"]))


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_what_is_stored_otherwise_is_decoded(convert: Convert, tmp_path: Path, write: Any) -> None:
    table = pa.table(
        {
            "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
            "runs": pc.run_end_encode(pa.array([1, 1, None, 2])),
            "view": pa.array(["a", None, "b" * 40, ""], pa.string_view()),
            "nested": pa.ListArray.from_arrays(
                pa.array([0, 1, 1, 3, 4], pa.int32()), pa.array(list("abca")).dictionary_encode()
            ),
        }
    )
    found = convert(write(tmp_path / "in.arrow", table, 2 if write is write_stream else None))
    assert found.to_pylist() == table.to_pylist()
    assert [str(field.type) for field in found.schema] == [
        "string",
        "int64",
        "large_string",
        "list<item: string>",
    ]


def test_dictionaries_that_grow_from_batch_to_batch(convert: Convert, tmp_path: Path) -> None:
    schema = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))])
    with pa.ipc.new_stream(
        tmp_path / "in.arrows", schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    ) as writer:
        for values in (["a", "b"], ["a", "b", "c"]):
            writer.write_batch(
                pa.record_batch(
                    [pa.DictionaryArray.from_arrays(pa.array([0, len(values) - 1], pa.int8()), values)],
                    schema=schema,
                )
            )
    assert convert(tmp_path / "in.arrows")["c"].to_pylist() == ["a", "b", "a", "c"]


def test_a_large_batch_is_taken_in_slices(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(10_000_000), "s": pa.repeat("text", 10_000_000)})
    write_file(tmp_path / "in.arrow", table.combine_chunks())
    from fastshard.converters.files import FilesSource

    tasks = FilesSource(tmp_path / "in.arrow").tasks(1 << 30)
    sizes = [part.batch.nbytes for part in tasks[0].parts()]
    assert max(sizes) <= 1.1 * _format.READ_BYTES
    assert sum(sizes) >= table.nbytes * 0.99


def test_record_batches_become_tasks(tmp_path: Path) -> None:
    write_file(tmp_path / "in.arrow", pa.table({"x": range(10_000)}), 1000)
    result = fs.convert(tmp_path / "in.arrow", tmp_path / "out", shard_bytes=20_000)
    assert (result.rows, result.shards) == (10_000, 5)


def test_parquet_and_arrow_files_in_one_directory(convert: Convert, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(TABLE, tmp_path / "0.parquet")
    write_stream(tmp_path / "1.arrow", TABLE)
    write_file(tmp_path / "2.arrow", TABLE)
    assert convert(f"{tmp_path}/*").equals(pa.concat_tables([TABLE] * 3))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    for write in (write_file, write_stream):
        path = write(tmp_path / "in.arrow", pa.table({"x": range(1000)}))
        path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(fs.errors.SourceError, match=r"in\.arrow: cannot be read"):
            fs.convert(path, tmp_path / "out")


def test_wrong_offsets_are_an_error_that_names_the_column(tmp_path: Path) -> None:
    path = write_file(tmp_path / "in.arrow", pa.table({"ok": [1, 2, 3], "s": ["aaaa", "bbbb", "cccc"]}))
    data = bytearray(path.read_bytes())
    place = data.find(np.array([0, 4, 8, 12], "<i4").tobytes())
    data[place + 4 : place + 8] = np.array([10_000], "<i4").tobytes()
    path.write_bytes(data)
    with pytest.raises(
        fs.errors.SourceError, match=r"in\.arrow: record batch 0, column 's': not valid Arrow data"
    ):
        fs.convert(path, tmp_path / "out")


# Hugging Face


def test_a_saved_hugging_face_data_set(convert: Convert, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": list(range(100)), "s": [f"{i}" for i in range(100)]})
    data.save_to_disk(tmp_path / "saved", num_shards=12)
    assert convert(tmp_path / "saved")["x"].to_pylist() == list(range(100))


def test_a_saved_data_set_with_splits_is_refused(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": [1]})
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "saved")
    with pytest.raises(fs.errors.SourceError, match=r"DatasetDict with the splits \['test', 'train'\]"):
        fs.convert(tmp_path / "saved", tmp_path / "out")


# Our own


def test_a_data_set_is_a_source(convert: Convert, tmp_path: Path) -> None:
    fs.convert(TABLE, tmp_path / "a", compression="zstd", block_bytes=64, shard_bytes=200, metadata={"k": 1})
    assert convert(tmp_path / "a").equals(TABLE)
    assert convert(str(tmp_path / "a"), filter=pc.field("i") > 3, columns=["s"])["s"].to_pylist() == [
        "d",
        "e",
        "",
        "g",
    ]
    fs.convert(tmp_path / "a", tmp_path / "b", compression="lz4")
    with fs.open(tmp_path / "a") as first, fs.open(tmp_path / "b") as second:
        assert second.index.provenance["fingerprint"] == first.fingerprint


def test_an_empty_data_set_is_a_source(convert: Convert, tmp_path: Path) -> None:
    fs.convert(TABLE.slice(0, 0), tmp_path / "a")
    assert convert(tmp_path / "a").schema == TABLE.schema


def test_a_data_set_is_shuffled_in_its_place(tmp_path: Path) -> None:
    fs.convert(pa.table({"x": range(1000)}), tmp_path / "a")
    fs.convert(tmp_path / "a", tmp_path / "a", shuffle_seed=1, mode="overwrite")
    found = stored(tmp_path / "a")["x"].to_pylist()
    assert found != list(range(1000))
    assert sorted(found) == list(range(1000))


def test_a_damaged_shard_is_not_written_anew_as_if_it_were_whole(tmp_path: Path) -> None:
    fs.convert(pa.table({"x": range(1000)}), tmp_path / "a")
    shard = next((tmp_path / "a").glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[data.find(np.arange(500, 504, dtype="<i8").tobytes())] ^= 1
    shard.write_bytes(data)
    with pytest.raises(fs.errors.CorruptError, match=r"shard-00000-.*xxh3-128.*fastshard verify"):
        fs.convert(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_appending_adds_what_fits(tmp_path: Path) -> None:
    fs.convert(TABLE, tmp_path / "a", compression="zstd")
    before = files_of(tmp_path / "a")
    write_file(tmp_path / "more.arrow", TABLE.select(["v", "s", "i"]))
    result = fs.convert(tmp_path / "more.arrow", tmp_path / "a", mode="append")
    assert (result.rows, result.generation) == (14, 2)
    assert stored(tmp_path / "a").equals(pa.concat_tables([TABLE, TABLE]))
    after = files_of(tmp_path / "a")
    assert {name: after[name] for name in before if name.startswith("shard-")} == {
        name: data for name, data in before.items() if name.startswith("shard-")
    }
    with pytest.raises(fs.errors.SchemaError, match="'other'"):
        fs.convert(pa.table({"other": [1]}), tmp_path / "a", mode="append")
    with pytest.raises(fs.errors.InvalidError, match="overwrite"):
        fs.convert(TABLE, tmp_path / "a")
    assert stored(tmp_path / "a").num_rows == 14
