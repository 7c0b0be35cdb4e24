"""Parquet files, odd ones included, are read batch by batch in bounded memory, and every value is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from outputs import data_files, stored

import fastshard as fs
from fastshard.converters import _format, parquet
from fastshard.converters._discover import discover

Convert = Callable[..., pa.Table]

CORRUPT = {
    "datapage_v1-corrupt-checksum.parquet": "a",
    "rle-dict-uncompressed-corrupt-checksum.parquet": "long_field",
}
LARGE = "large_string_map.brotli.parquet"


def bits(value: Any) -> Any:
    """A value that is equal only to the same bits: NaN to NaN, 0.0 not to -0.0."""
    if isinstance(value, float):
        return (math.copysign(1, value), "nan") if math.isnan(value) else (math.copysign(1, value), value)
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return value


@pytest.mark.parametrize("path", data_files("parquet-testing"), ids=lambda path: path.name)
def test_each_odd_file_is_read_as_pyarrow_reads_it_or_refused(path: Path, tmp_path: Path) -> None:
    if path.name in CORRUPT:
        pattern = rf"{path.name}: row group 0, column '{CORRUPT[path.name]}': .*CRC checksum"
        with pytest.raises(fs.errors.SourceError, match=pattern):
            fs.convert(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    if path.name == LARGE:
        pytest.skip("needs gigabytes: see the slow test")
    fs.convert(path, tmp_path / "out")
    found, wanted = stored(tmp_path / "out"), pq.read_table(path)
    assert found.schema == wanted.schema
    assert bits(found.to_pylist()) == bits(wanted.to_pylist())


@pytest.mark.parametrize("path", data_files("real"), ids=lambda path: path.name)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_each_real_file_reads_back_equal(path: Path, tmp_path: Path, compression: str) -> None:
    fs.convert(path, tmp_path / "out", compression=compression)
    assert stored(tmp_path / "out").equals(pq.read_table(path))


@pytest.mark.slow
@pytest.mark.skipif(not data_files("parquet-testing"), reason="FASTSHARD_TEST_DATA is not set")
def test_a_map_with_strings_past_two_gibibytes(tmp_path: Path) -> None:
    path = next(path for path in data_files("parquet-testing") if path.name == LARGE)
    with pytest.raises(pa.ArrowNotImplementedError):
        pq.read_table(path)
    assert fs.convert(path, tmp_path / "out").rows == 2
    with fs.open(tmp_path / "out") as reader:
        for batch in reader.to_arrow().to_batches():
            maps = batch.column(0)
            assert maps.offsets.to_pylist() == list(range(len(maps) + 1))
            assert maps.items.to_pylist() == [1] * len(maps)
            assert pc.binary_length(maps.keys).to_pylist() == [2**30] * len(maps)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_three_strings_of_800_mebibytes_in_one_row_group(tmp_path: Path, kind: pa.DataType) -> None:
    size = 800 << 20
    with pq.ParquetWriter(tmp_path / "in.parquet", pa.schema([("s", kind)]), compression="zstd") as writer:
        table = pa.table({"s": pa.chunked_array([pa.array([chr(97 + i) * size], kind) for i in range(3)])})
        writer.write_table(table, row_group_size=3)
        del table
    assert pq.read_metadata(tmp_path / "in.parquet").num_row_groups == 1
    assert fs.convert(tmp_path / "in.parquet", tmp_path / "out").rows == 3
    with fs.open(tmp_path / "out") as reader:
        assert reader.schema.field("s").type == kind
        for i in range(3):
            value = reader[i]["s"]
            assert len(value) == size
            assert value == chr(97 + i) * size


class LimitedParquet:
    """A Parquet file whose strings cannot be put into one batch past a limit, as Arrow's cannot past 2 GiB."""

    def __init__(self, inner: pq.ParquetFile, limit: int, asked: list[int]) -> None:
        self._inner = inner
        self._limit = limit
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> LimitedParquet:
        return self

    def __exit__(self, *details: object) -> None:
        self._inner.close(force=True)

    def iter_batches(self, batch_size: int, **options: Any) -> Iterator[pa.RecordBatch]:
        self._asked.append(batch_size)
        for batch in self._inner.iter_batches(batch_size=batch_size, **options):
            if pc.sum(pc.binary_length(batch.column(0))).as_py() > self._limit:
                raise pa.ArrowNotImplementedError(
                    "Nested data conversions not implemented for chunked array outputs"
                )
            yield batch


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_rows_that_one_batch_cannot_hold_are_read_in_smaller_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    values = [*("abcdefgh"[i % 8] * (i % 40) for i in range(100)), "x" * 800, "y" * 800, "z" * 800]
    pq.write_table(pa.table({"s": pa.array(values, kind)}), tmp_path / "in.parquet", use_dictionary=False)
    asked: list[int] = []
    original = pq.ParquetFile
    monkeypatch.setattr(
        pq, "ParquetFile", lambda *args, **options: LimitedParquet(original(*args, **options), 1000, asked)
    )
    fs.convert(tmp_path / "in.parquet", tmp_path / "out")
    monkeypatch.undo()
    assert stored(tmp_path / "out")["s"].to_pylist() == values
    assert asked[-1] == 1
    assert len(asked) < 30


def test_a_row_that_no_batch_can_hold_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"s": ["a", "b" * 2000]}), tmp_path / "in.parquet")
    original = pq.ParquetFile
    monkeypatch.setattr(
        pq, "ParquetFile", lambda *args, **options: LimitedParquet(original(*args, **options), 1000, [])
    )
    with pytest.raises(fs.errors.SourceError, match=r"in\.parquet: row group 0, column 's'"):
        fs.convert(tmp_path / "in.parquet", tmp_path / "out")


def test_dictionaries_that_differ_between_row_groups(convert: Convert, tmp_path: Path) -> None:
    schema = pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))])
    groups = [["foo", None, "bar", "foo"], ["baz", "foo", None]]
    with pq.ParquetWriter(tmp_path / "in.parquet", schema) as writer:
        for group in groups:
            writer.write_table(pa.table({"c": pa.array(group).dictionary_encode()}, schema=schema))
    found = convert(tmp_path / "in.parquet")
    assert found["c"].to_pylist() == groups[0] + groups[1]
    assert found.schema.field("c").type == pa.string()


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.date32(), pa.decimal128(12, 2), pa.large_string(), pa.float32()]
)
def test_dictionaries_of_any_type(convert: Convert, tmp_path: Path, kind: pa.DataType) -> None:
    column = pa.array([1, None, 2, 1], pa.int32()).cast(kind)
    table = pa.table({"c": column.dictionary_encode(), "n": [[1], None, [], [2]]})
    pq.write_table(table, tmp_path / "in.parquet")
    found = convert(tmp_path / "in.parquet")
    assert found["c"].to_pylist() == column.to_pylist()
    assert not pa.types.is_dictionary(found.schema.field("c").type)


def batches_of(path: Path) -> list[pa.RecordBatch]:
    file = discover(path)[0]
    contents = parquet.inspect(file)
    return [batch for _, batch in parquet.read(file, range(len(contents.units)), None)]


def test_a_huge_row_group_is_read_in_batches_of_bounded_size(tmp_path: Path) -> None:
    rows = 1_000_000
    table = pa.table({"a": np.arange(rows), "b": np.random.default_rng(0).random(rows)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=rows)
    batches = batches_of(tmp_path / "in.parquet")
    assert max(batch.nbytes for batch in batches) <= 1.1 * _format.READ_BYTES
    assert len(batches) <= 4
    assert pa.Table.from_batches(batches).equals(table)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("stored_as", ["dictionary", "plain"])
def test_large_values_in_a_small_dictionary_do_not_take_memory(
    tmp_path: Path, nested: bool, stored_as: str
) -> None:
    rows, size = 100_000, 20_000  # 2 GB, in a file of a few kilobytes
    column: Any = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    if nested:
        column = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), column)
    pq.write_table(pa.table({"c": column}), tmp_path / "in.parquet", store_schema=stored_as == "dictionary")
    assert (tmp_path / "in.parquet").stat().st_size < 200_000
    file = discover(tmp_path / "in.parquet")[0]
    from fastshard.converters.files import FilesSource

    source = FilesSource(file.place.path)
    found = largest = 0
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    for part in source.tasks(1 << 28)[0].parts():
        found += part.batch.num_rows
        largest = max(largest, part.batch.nbytes)
        most = max(most, pool.bytes_allocated() - before)
    assert found == rows
    assert largest <= 4 * _format.READ_BYTES
    assert most <= 16 * _format.READ_BYTES


def test_rows_that_grow_beyond_expectation_are_read_in_smaller_batches(tmp_path: Path) -> None:
    small, big = ["s"] * 3000, ["b" * 50_000] * 3000  # in a dictionary, so that the metadata say nothing
    pq.write_table(pa.table({"c": small + big + small}), tmp_path / "in.parquet")
    batches = batches_of(tmp_path / "in.parquet")
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == small + big + small
    assert max(batch.nbytes for batch in batches) <= 9 * _format.READ_BYTES


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.float32(), 64))])
    rng = np.random.default_rng(0)

    def write(path: Path, groups: int) -> None:
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(groups):
                floats = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(64 * 50_000, np.float32)), 64)
                writer.write_table(pa.table([pa.array(np.arange(50_000)), floats], schema=schema))

    peaks = []
    for groups in (4, 24):
        write(tmp_path / f"{groups}.parquet", groups)
        pool = pa.default_memory_pool()
        before, most = pool.bytes_allocated(), 0

        def watch(_: Any, pool: pa.MemoryPool = pool, before: int = before) -> None:
            nonlocal most
            most = max(most, pool.bytes_allocated() - before)

        fs.convert(
            tmp_path / f"{groups}.parquet", tmp_path / f"out-{groups}", progress=watch, shard_bytes=64 << 20
        )
        peaks.append(most)
    assert peaks[1] <= 1.5 * peaks[0] + (8 << 20)
    assert peaks[1] <= 128 << 20


def test_a_file_is_open_only_while_it_is_read(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(50):
        pq.write_table(pa.table({"x": [i]}), tmp_path / "in" / f"{i}.parquet")
    process = psutil.Process()
    most = 0

    def watch(_: Any) -> None:
        nonlocal most
        most = max(most, sum(1 for file in process.open_files() if "/in/" in file.path))

    assert convert(tmp_path / "in")["x"].to_pylist() == list(range(50))
    fs.convert(tmp_path / "in", tmp_path / "watched", progress=watch)
    assert most <= 2
    assert not [file for file in process.open_files() if "/in/" in file.path]


def damaged(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(data)


def test_a_flipped_byte_in_a_page_is_an_error_that_names_the_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.random(10_000), "b": rng.random(10_000), "c": rng.random(10_000)})
    path = tmp_path / "in.parquet"
    pq.write_table(
        table, path, write_page_checksum=True, compression="none", use_dictionary=False, row_group_size=5000
    )
    chunk = pq.read_metadata(path).row_group(1).column(1)
    damaged(path, chunk.data_page_offset + chunk.total_compressed_size // 2)
    with pytest.raises(fs.errors.SourceError, match=r"in\.parquet: row group 1, column 'b'.*checksum"):
        fs.convert(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    fs.convert(path, tmp_path / "out", columns=["a", "c"])
    assert stored(tmp_path / "out").equals(table.select(["a", "c"]))


def test_a_file_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(fs.errors.SourceError, match=r"in\.parquet: cannot be read"):
        fs.convert(path, tmp_path / "out")


def test_a_file_that_goes_away_meanwhile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(pa.table({"a": range(1000)}), tmp_path / "in" / f"{i}.parquet")

    def remove(_: Any) -> None:
        (tmp_path / "in" / "1.parquet").unlink(missing_ok=True)

    with pytest.raises(fs.errors.NotFoundError, match=r"1\.parquet: the file is not there"):
        fs.convert(tmp_path / "in", tmp_path / "out", progress=remove)
    assert not (tmp_path / "out").exists()


# Row groups that the filter rules out


def read_groups(path: Path, condition: pc.Expression, schema: pa.Schema) -> list[int]:
    file = discover(path)[0]
    return parquet.prune(file, parquet.inspect(file), condition, list(schema))


def test_row_groups_that_a_filter_rules_out_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": range(100), "b": range(100)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=10)
    read: list[int] = []
    original = parquet.read
    monkeypatch.setattr(
        parquet, "read", lambda file, units, columns: read.extend(units) or original(file, units, columns)
    )
    condition = (pc.field("a") >= 35) & (pc.field("a") < 52)
    fs.convert(tmp_path / "in.parquet", tmp_path / "out", filter=condition, columns=["b"])
    assert read == [3, 4, 5]
    assert stored(tmp_path / "out")["b"].to_pylist() == list(range(35, 52))


NAN = math.nan
FILTERED = pa.table(
    {
        "i": pa.array([1, None, 3, 10, 11, None, None, None, None]),
        "f": pa.array([5.0, NAN, 5.0, 1.0, 2.0, None, NAN, NAN, NAN]),
        "s": pa.array(["a", "b", None, "x", "y", "z", None, None, None]),
        "b": pa.array([True, True, None, False, False, False, None, True, False]),
    }
)
i, f, s, b = (pc.field(name) for name in "ifsb")


@pytest.mark.parametrize(
    "condition",
    [
        i > 5, i < 5, i == 3, i != 3, i.is_null(), i.is_valid(), ~(i == 3), ~i.isin([1, 3]), i.isin([10]),
        f == 5.0, f != 5.0, ~(f == 5.0), f.is_nan(), ~f.is_nan(), f.is_null(nan_is_null=True), f > 1.0, f.is_null(),
        s == "a", s != "a", s > "c", s.is_null(), ~(s > "c"), b, ~b, b.is_null(),
        (i > 5) | i.is_null(), (i > 5) & (f < 2.0), (i > 5) | (s == "a"), pc.if_else(i.is_null(), True, i > 5),
        pc.scalar(True), pc.scalar(False), i + 1 > 5,
    ],
    ids=str,
)  # fmt: skip
def test_a_filter_takes_what_pyarrow_takes(
    convert: Convert, tmp_path: Path, condition: pc.Expression
) -> None:
    pq.write_table(FILTERED, tmp_path / "in.parquet", row_group_size=3)
    found = convert(tmp_path / "in.parquet", filter=condition)
    assert bits(found.to_pylist()) == bits(FILTERED.filter(condition).to_pylist())


def test_statistics_of_a_narrower_file_do_not_mislead(convert: Convert, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int8())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": pa.array([2.5, 300.0])}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": pa.array([7])}), tmp_path / "2.parquet")
    source = f"{tmp_path}/*.parquet"
    assert convert(source, filter=pc.field("a") > 1.5)["a"].to_pylist() == [2, 2.5, 300]
    assert convert(source, filter=pc.field("a").is_null())["b"].to_pylist() == [7]
