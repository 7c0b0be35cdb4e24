"""However a table is spread over files and row groups, what is read back is the table."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outputs import files_of, stored

import fastshard as fs

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    pa.large_string(): st.text("abc", max_size=20),
    pa.binary(): st.binary(max_size=8),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)),
    pa.decimal128(9, 2): st.decimals(-(10**6), 10**6, places=2),
    pa.list_(pa.int16()): st.lists(st.none() | st.integers(-5, 5), max_size=4),
    pa.list_(pa.float32(), 2): st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
    pa.list_(pa.list_(pa.string())): st.lists(
        st.none() | st.lists(st.text("xy", max_size=3), max_size=3), max_size=3
    ),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(-9, 9), "b": st.none() | st.text("xy", max_size=3)}
    ),
    pa.map_(pa.string(), pa.int32()): st.dictionaries(
        st.text("kl", max_size=3), st.integers(0, 9), max_size=3
    ).map(lambda entries: list(entries.items())),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = draw(st.integers(0, 60))
    columns = {}
    for number, kind in enumerate(kinds):
        values = draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.array(values, kind)
    return pa.table(columns)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    table=tables(),
    splits=st.lists(st.integers(0, 60), max_size=4),
    group=st.integers(1, 40),
    dictionary=st.booleans(),
    compression=st.sampled_from(["none", "snappy", "zstd"]),
    shard_bytes=st.sampled_from([1, 300, 5000, 1 << 28]),
    block_bytes=st.sampled_from([1, 100, 1 << 20]),
)
def test_any_layout_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory,
    table: pa.Table,
    splits: list[int],
    group: int,
    dictionary: bool,
    compression: str,
    shard_bytes: int,
    block_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("layout")
    bounds = [0, *sorted(min(split, table.num_rows) for split in splits), table.num_rows]
    (folder / "in").mkdir()
    for part, (start, stop) in enumerate(itertools.pairwise(bounds)):
        pq.write_table(
            table.slice(start, stop - start),
            folder / "in" / f"part-{part}.parquet",
            row_group_size=group,
            use_dictionary=dictionary,
            compression=compression,
        )
    fs.convert(folder / "in", folder / "out", shard_bytes=shard_bytes, block_bytes=block_bytes)
    found = stored(folder / "out")
    assert found.schema == table.schema
    assert found.to_pylist() == table.to_pylist()
    fs.convert(folder / "in", folder / "again", shard_bytes=shard_bytes, block_bytes=block_bytes)
    assert files_of(folder / "out") == files_of(folder / "again")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    left=st.lists(st.none() | st.integers(-5, 5), max_size=20),
    right=st.lists(st.none() | st.integers(-5, 5), max_size=20),
    group=st.integers(1, 7),
    number=st.integers(-6, 6),
    negated=st.booleans(),
)
def test_any_filter_takes_what_pyarrow_takes(
    tmp_path_factory: pytest.TempPathFactory,
    left: list[int | None],
    right: list[int | None],
    group: int,
    number: int,
    negated: bool,
) -> None:
    folder = tmp_path_factory.mktemp("filter")
    schema = pa.schema([("x", pa.int64()), ("i", pa.int64())])
    parts = [pa.table([values, list(range(len(values)))], schema=schema) for values in (left, right)]
    for part, table in enumerate(parts):
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=group)
    x = pc.field("x")
    conditions = [x > number, x == number, x != number, x.isin([number, 0]), (x < number) | x.is_null()]
    for condition in [*conditions, x + 1 >= number]:
        if negated:
            condition = ~condition
        fs.convert(f"{folder}/*.parquet", folder / "out", filter=condition, mode="overwrite")
        assert stored(folder / "out").to_pylist() == pa.concat_tables(parts).filter(condition).to_pylist()


def test_thousands_of_small_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(1500):
        pq.write_table(pa.table({"x": [part, -part]}), tmp_path / "in" / f"{part}.parquet")
    result = fs.convert(tmp_path / "in", tmp_path / "out")
    assert (result.rows, result.shards, result.blocks) == (3000, 1, 1)
    assert stored(tmp_path / "out")["x"].to_pylist() == [x for part in range(1500) for x in (part, -part)]


def test_row_groups_of_a_large_file_become_several_tasks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(10_000)}), tmp_path / "in.parquet", row_group_size=100)
    result = fs.convert(tmp_path / "in.parquet", tmp_path / "out", shard_bytes=20_000)
    assert result.rows == 10_000
    assert 4 <= result.shards <= 5
    assert stored(tmp_path / "out")["x"].to_pylist() == list(range(10_000))
    few = pc.field("x") < 9
    result = fs.convert(tmp_path / "in.parquet", tmp_path / "narrow", cast={"x": "int8"}, filter=few)
    assert (result.rows, result.shards) == (9, 1)
