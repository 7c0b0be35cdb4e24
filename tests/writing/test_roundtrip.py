"""Any Arrow table, written, is the same table: by pyarrow's reading of the shards, and by fastshard's own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from arrow_tables import arrow_tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from written import read_back, same

import fastshard as fs

SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_same(written: pa.Table, original: pa.Table) -> None:
    assert written.num_rows == original.num_rows
    assert written.column_names == original.column_names
    for name in original.column_names:
        for row, (left, right) in enumerate(
            zip(written[name].to_pylist(), original[name].to_pylist(), strict=True)
        ):
            assert same(left, right), (name, row, original[name].type, left, right)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", ("zstd", 9)])
@SETTINGS
@given(
    table=arrow_tables(),
    block_bytes=st.sampled_from([1, 64, 300, 1 << 20]),
    shard_bytes=st.sampled_from([1, 900, 1 << 28]),
)
def test_any_table_is_written_as_it_is(
    memory_folder: Path,
    compression: str | tuple[str, int],
    table: pa.Table,
    block_bytes: int,
    shard_bytes: int,
) -> None:
    path = memory_folder / "data"
    result = fs.write(
        table,
        path,
        mode="overwrite",
        compression=compression,
        block_bytes=block_bytes,
        shard_bytes=shard_bytes,
    )
    written = read_back(path)
    assert result.rows == table.num_rows
    assert_same(written, table)
    if table.num_rows:
        assert_same(fs.open(path).to_arrow(), written)


@SETTINGS
@given(table=arrow_tables(), cut=st.floats(0, 1))
def test_appended_rows_come_after_the_others(memory_folder: Path, table: pa.Table, cut: float) -> None:
    path = memory_folder / "data"
    first = int(table.num_rows * cut)
    fs.write(table.slice(0, first), path, mode="overwrite", block_bytes=200)
    fs.write(table.slice(first), path, mode="append")
    assert_same(read_back(path), table)


@SETTINGS
@given(table=arrow_tables())
def test_batches_of_any_size_are_the_same_rows(memory_folder: Path, table: pa.Table) -> None:
    path = memory_folder / "data"
    with fs.ShardWriter(path, mode="overwrite", block_bytes=128) as writer:
        writer.write_batch(table.slice(0, 0))
        for batch in table.to_batches(max_chunksize=7):
            writer.write_batch(batch)
    assert_same(read_back(path), table)


@SETTINGS
@given(table=arrow_tables(views=False, encoded=False))
def test_what_needs_no_decoding_keeps_its_schema(memory_folder: Path, table: pa.Table) -> None:
    path = memory_folder / "data"
    table = table.replace_schema_metadata({"made": "by a test"})
    fs.write(table, path, mode="overwrite")
    written = read_back(path)
    assert written.schema.equals(table.schema, check_metadata=True)
    assert_same(written, table)
