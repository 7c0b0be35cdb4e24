"""Where shards and blocks end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written import read_back

import fastshard as fs
from fastshard.converters._blocks import Block, BlockCutter, offset_spans
from fastshard.converters._options import WriteOptions
from fastshard.converters._write import write_source


def cut(table: pa.Table, *, chunk: int | None = None, **options: Any) -> list[Block]:
    cutter = BlockCutter(table.schema, **options)
    blocks = [block for batch in table.to_batches(max_chunksize=chunk) for block in cutter.push(batch)]
    return blocks + list(cutter.finish())


def shards_of(blocks: list[Block]) -> list[list[int]]:
    """The rows of each block, by shard."""
    shards: list[list[int]] = []
    for block in blocks:
        if block.starts_shard:
            shards.append([])
        shards[-1].append(block.batch.num_rows)
    return shards


def check(blocks: list[Block], table: pa.Table, block_bytes: int) -> None:
    assert pa.Table.from_batches([block.batch for block in blocks], table.schema).equals(table)
    for rows in shards_of(blocks):
        assert len(set(rows[:-1])) <= 1
        assert rows[-1] <= rows[0]
    for block in blocks:
        assert block.batch.num_rows == 1 or block.batch.nbytes <= 4 * block_bytes


def binary_of(sizes: list[int]) -> pa.Table:
    return pa.table({"b": pa.array([b"x" * size for size in sizes], pa.binary())})


def test_fixed_width_rows_make_equal_blocks_of_about_the_size_asked_for() -> None:
    table = pa.table({"x": np.arange(100_000)})
    blocks = cut(table, block_bytes=8000)
    check(blocks, table, 8000)
    assert shards_of(blocks) == [[1000] * 100]


@pytest.mark.parametrize("chunk", [1, 7, 999, 1000, 1001, None])
def test_blocks_run_across_the_borders_of_batches(chunk: int | None) -> None:
    table = pa.table({"x": np.arange(5_000), "s": [str(i) for i in range(5_000)]})
    blocks = cut(table, chunk=chunk, block_bytes=8000)
    check(blocks, table, 8000)
    assert len(shards_of(blocks)) == 1


def test_a_huge_row_is_a_block_of_its_own() -> None:
    table = binary_of([10] * 500 + [10_000] + [10] * 500)
    blocks = cut(table, block_bytes=1000)
    check(blocks, table, 1000)
    assert [b.batch.num_rows for b in blocks if b.batch.nbytes > 4000] == [1]
    assert len(shards_of(blocks)) <= 4


def test_huge_rows_share_shards() -> None:
    table = binary_of([10_000] * 50)
    assert shards_of(cut(table, block_bytes=1000)) == [[1] * 50]


def test_rows_that_become_smaller_or_larger_end_shards_now_and_then() -> None:
    table = binary_of([10] * 20_000 + [1000] * 200 + [10] * 20_000)
    blocks = cut(table, block_bytes=1000)
    check(blocks, table, 1000)
    assert 2 <= len(shards_of(blocks)) <= 8
    assert len(blocks) < 3 * table.nbytes / 1000


def test_lognormal_rows_seldom_end_a_shard() -> None:
    sizes = np.random.default_rng(0).lognormal(6, 1, 20_000).astype(int).tolist()
    table = binary_of(sizes)
    blocks = cut(table, block_bytes=20_000)
    check(blocks, table, 20_000)
    assert len(shards_of(blocks)) <= 3
    assert 0.5 < len(blocks) / (table.nbytes / 20_000) < 2


def test_rows_without_bytes_are_bounded_by_number() -> None:
    table = pa.table({"n": pa.nulls(3_000_000)})
    rows = [block.batch.num_rows for block in cut(table, block_bytes=1 << 20)]
    assert sum(rows) == 3_000_000
    assert max(rows) <= 1 << 20


def test_no_rows_no_blocks() -> None:
    assert cut(pa.table({"x": pa.array([], pa.int8())}), block_bytes=100) == []


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 50, 90, 400, 401, 5000]), max_size=120),
    chunk=st.integers(1, 130),
    block_bytes=st.sampled_from([1, 100, 1000]),
    limit=st.sampled_from([100, 1000, 2**31 - 1]),
)
def test_any_rows_are_cut_within_the_limits(
    sizes: list[int], chunk: int, block_bytes: int, limit: int
) -> None:
    table = binary_of(sizes)
    blocks = cut(table, chunk=chunk, block_bytes=block_bytes, offset_limit=limit)
    check(blocks, table, block_bytes)
    for block in blocks:
        assert block.batch.num_rows == 1 or max(offset_spans(block.batch.column(0))) <= limit


def test_offsets_of_elements_without_bytes_are_counted() -> None:
    lists = pa.array([[None] * 40] * 100, pa.list_(pa.null()))
    blocks = cut(pa.table({"l": lists}), block_bytes=1 << 20, offset_limit=400)
    assert {block.batch.num_rows for block in blocks} == {10}


@pytest.mark.parametrize(
    ("array", "spans"),
    [
        (pa.array(["ab", None, "c"]), [3]),
        (pa.array(["ab", None, "c"], pa.large_utf8()), []),
        (pa.array([["ab"], ["c", "d"]]), [3, 4]),
        (pa.array([["ab"], ["c", "d"]], pa.large_list(pa.utf8())), [4]),
        (pa.array([["ab", "c"], ["c", "d"]], pa.list_(pa.utf8(), 2)), [5]),
        (pa.array([{"a": "x", "b": [1, 2]}]), [1, 2]),
        (pa.array([[("k", [1])], [("kk", [2, 3])]], pa.map_(pa.utf8(), pa.list_(pa.int8()))), [2, 3, 3]),
        (pa.array([1, 2]), []),
    ],
)
def test_offset_spans_of_any_nesting_and_slice(array: pa.Array, spans: list[int]) -> None:
    assert offset_spans(array) == spans
    padded = pa.concat_arrays([array, array, array])
    assert offset_spans(padded.slice(len(array), len(array))) == spans


class OneTask:
    """A source whose rows come in one batch, as from one row group."""

    rows = None
    bytes = 0

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.schema = table.schema
        self.provenance = {"source": "test"}

    def tasks(self, shard_bytes: int) -> list[OneTask]:
        return [self]

    def batches(self) -> Any:
        return iter(self.table.to_batches())


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8(), pa.binary(), pa.large_binary()])
def test_strings_beyond_the_limit_of_offsets_become_blocks_of_their_own(
    tmp_path: Path, kind: pa.DataType
) -> None:
    values = ["a" * 800, "b" * 800, "c" * 800]
    table = pa.table({"s": pa.array(values).cast(kind)})
    write_source(OneTask(table), tmp_path / "d", options=WriteOptions(offset_limit=1000))
    assert read_back(tmp_path / "d").equals(table)
    reader = fs.open(tmp_path / "d")
    assert len(reader) == 3
    assert [len(reader[i]["s"]) for i in range(3)] == [800] * 3
    limited = "large" not in str(kind)
    assert reader.index.blocks == (3 if limited else 1)


def test_shards_end_at_about_the_size_asked_for_and_leave_no_crumb(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(130_500)})
    fs.write(table, tmp_path / "d", block_bytes=8_000, shard_bytes=100_000)
    sizes = [path.stat().st_size for path in (tmp_path / "d").glob("shard-*")]
    assert len(sizes) in (10, 11)
    assert max(sizes) < 120_000
    read_back(tmp_path / "d")
    fs.write(table.slice(0, 12_700), tmp_path / "one", block_bytes=8_000, shard_bytes=100_000)
    assert len(list((tmp_path / "one").glob("shard-*"))) == 1
