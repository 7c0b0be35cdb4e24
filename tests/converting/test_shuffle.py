"""`shuffle_seed=`: a true shuffle of all rows, the same for any division of the work, in bounded memory and disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outputs import files_of, stored

import fastshard as fs
from fastshard.converters import shuffle
from fastshard.converters.shuffle import check_seed, shuffle_keys

Convert = Callable[..., pa.Table]


def order(seed: int, rows: int) -> np.ndarray:
    """The rows of a table in shuffled order, directly."""
    return np.argsort(shuffle_keys(check_seed(seed), np.arange(rows)), kind="stable")


def table_of(rows: int) -> pa.Table:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(max(rows, 1) * 4.0).reshape(-1, 2, 2))
    return pa.table(
        {
            "i": np.arange(rows),
            "s": [None if i % 7 == 0 else "x" * (i % 50) for i in range(rows)],
            "v": [[j] * (i % 4) for j, i in enumerate(range(rows))],
            "st": [{"a": i, "b": [f"{i}"]} for i in range(rows)],
            "t": tensors.slice(0, rows),
        }
    )


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs and buckets for little data."""
    monkeypatch.setattr(shuffle, "_RUN_MIN", 4000)
    monkeypatch.setattr(shuffle, "_RUN_MAX", 4000)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_the_order_is_that_of_the_keys(convert: Convert, tmp_path: Path, rows: int) -> None:
    table = table_of(rows)
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=70)
    wanted = table.take(order(7, rows))
    assert convert(tmp_path / "in.parquet", shuffle_seed=7).equals(wanted)
    assert convert(table, shuffle_seed=7).equals(wanted)
    assert convert(tmp_path / "in.parquet", shuffle_seed=7, shard_bytes=5000, block_bytes=300).equals(wanted)


@pytest.mark.usefixtures("small_runs")
def test_the_order_does_not_depend_on_files_and_row_groups(convert: Convert, tmp_path: Path) -> None:
    table = table_of(300)
    wanted = table.take(order(1, 300))
    for number, sizes in enumerate([[300], [1, 299], [100, 0, 150, 50], [7] * 42 + [6]]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        start = 0
        for part, size in enumerate(sizes):
            pq.write_table(
                table.slice(start, size), folder / f"{part}.parquet", row_group_size=1 + number * 9
            )
            start += size
        assert convert(folder, shuffle_seed=1).equals(wanted)


@pytest.mark.usefixtures("small_runs")
def test_a_filter_leaves_the_others_in_their_order(convert: Convert, tmp_path: Path) -> None:
    table = table_of(500)
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=64)
    condition = pc.bit_wise_and(pc.field("i"), 3) == 1
    wanted = table.take(order(5, 500)).filter(condition)
    assert convert(tmp_path / "in.parquet", shuffle_seed=5, filter=condition).equals(wanted)
    assert convert(table, shuffle_seed=5, filter=condition).equals(wanted)
    assert convert(tmp_path / "in.parquet", shuffle_seed=5, filter=pc.field("i") < 0).num_rows == 0


@pytest.mark.usefixtures("small_runs")
def test_a_transform_that_changes_the_number_of_rows_is_shuffled_row_by_row(convert: Convert) -> None:
    def repeat(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(
            {"i": np.repeat(batch["i"].to_numpy(), 3), "k": np.tile(np.arange(3), batch.num_rows)}
        )

    found = convert(pa.table({"i": range(200)}), shuffle_seed=2, transform=repeat)
    pairs = list(zip(found["i"].to_pylist(), found["k"].to_pylist(), strict=True))
    assert sorted(pairs) == [(i, k) for i in range(200) for k in range(3)]
    neighbours = sum(a[0] == b[0] for a, b in pairwise(pairs))
    assert neighbours < 20


@pytest.mark.usefixtures("small_runs")
def test_streams_whose_length_is_unknown(convert: Convert) -> None:
    def stream() -> Any:
        for start in range(0, 1000, 10):
            yield pa.record_batch({"i": np.arange(start, start + 10)})

    assert np.array_equal(convert(stream(), shuffle_seed=3)["i"].to_numpy(), order(3, 1000))


def test_no_rows_at_all(convert: Convert) -> None:
    table = table_of(3).slice(0, 0)
    found = convert(table, shuffle_seed=3)
    assert (found.num_rows, found.schema) == (0, table.schema)


def test_seeds_are_told_apart(convert: Convert) -> None:
    table = pa.table({"i": range(1000)})
    orders = [convert(table, shuffle_seed=seed)["i"].to_pylist() for seed in (0, 1, -1, 2**63, np.int64(5))]
    assert len({tuple(order) for order in orders}) == len(orders)
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert convert(table, shuffle_seed=0)["i"].to_pylist() == orders[0]


@pytest.mark.parametrize("seed", ["1", 1.5, True, 2**64, -(2**63) - 1])
def test_what_is_no_seed_is_refused(tmp_path: Path, seed: Any) -> None:
    with pytest.raises(fs.errors.InvalidError, match="shuffle_seed="):
        fs.convert(pa.table({"i": [1]}), tmp_path / "out", shuffle_seed=seed)


def test_the_keys_are_a_bijection() -> None:
    numbers = np.concatenate([np.arange(100_000), np.arange(2**62, 2**62 + 100_000)])
    assert len(np.unique(shuffle_keys(1, numbers))) == len(numbers)


def test_every_order_of_a_few_rows_comes_as_often_as_any() -> None:
    counts = Counter(tuple(order(seed, 4)) for seed in range(24_000))
    assert set(counts) == set(permutations(range(4)))
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 49.7  # the 0.999 quantile for 23 degrees of freedom


def test_rows_go_anywhere() -> None:
    places = np.argsort(order(11, 100_000))
    counts, _, _ = np.histogram2d(np.arange(100_000), places, bins=(20, 20))
    chi_square = float(((counts - 250) ** 2 / 250).sum())
    assert (
        chi_square < 461
    )  # the 0.999 quantile for 361 degrees of freedom is 448; the sums are fixed on both sides
    assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.015


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(0, 400),
    group=st.integers(1, 100),
    run=st.integers(200, 20_000),
    shard=st.integers(1000, 50_000),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_division_gives_the_same_order(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    group: int,
    run: int,
    shard: int,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    table = table_of(rows)
    pq.write_table(table, folder / "in.parquet", row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_RUN_MIN", run)
        patch.setattr(shuffle, "_RUN_MAX", run)
        fs.convert(folder / "in.parquet", folder / "out", shuffle_seed=seed, shard_bytes=shard)
    assert stored(folder / "out").equals(table.take(order(seed, rows)))


@pytest.mark.usefixtures("small_runs")
def test_a_bucket_much_larger_than_expected_is_taken_row_by_row(
    convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(500)
    monkeypatch.setattr(shuffle, "_JOIN_MAX", 1000)
    monkeypatch.setattr(shuffle, "READ_BYTES", 2000)
    assert convert(table, shuffle_seed=4).equals(table.take(order(4, 500)))


def test_rows_that_one_batch_cannot_hold_are_given_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [pa.record_batch({"s": [f"{i}" * 300]}) for i in range(8)]
    original = shuffle._joined

    def limited(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        joined = original(batches)
        if pc.sum(pc.binary_length(joined["s"])).as_py() > 1000:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return joined

    monkeypatch.setattr(shuffle, "_joined", limited)
    rows = np.array([5, 2, 7, 1, 0, 3, 6, 4])
    found = list(shuffle._take(pieces, np.arange(9), rows, pieces[0].schema))
    assert [value[0] for batch in found for value in batch["s"].to_pylist()] == [str(row) for row in rows]
    assert max(batch.num_rows for batch in found) == 2


def big(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    schema = pa.schema([("i", pa.int64()), ("x", pa.list_(pa.float32(), 100))])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 20_000):
            x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(20_000 * 100, np.float32)), 100)
            writer.write_table(pa.table([pa.array(np.arange(start, start + 20_000)), x], schema=schema))


def test_memory_and_disk_are_bounded(tmp_path: Path) -> None:
    rows = 400_000  # 160 MB
    big(tmp_path / "in.parquet", rows)
    pool = pa.default_memory_pool()
    before, memory, disk = pool.bytes_allocated(), 0, 0

    def watch(_: Any) -> None:
        nonlocal memory, disk
        memory = max(memory, pool.bytes_allocated() - before)
        sizes = 0
        for entry in os.scandir(tmp_path / "out"):
            sizes += entry.stat().st_size
        disk = max(disk, sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_RUN_MIN", 8 << 20)
        patch.setattr(shuffle, "_RUN_MAX", 8 << 20)
        result = fs.convert(
            tmp_path / "in.parquet", tmp_path / "out", shuffle_seed=1, progress=watch, shard_bytes=32 << 20
        )
    assert memory <= 150 << 20
    assert disk <= 2.1 * result.raw_bytes
    assert np.array_equal(stored(tmp_path / "out")["i"].to_numpy(), order(1, rows))
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".tmp-")]


@pytest.mark.usefixtures("small_runs")
def test_appending_shuffles_what_is_added(tmp_path: Path) -> None:
    fs.convert(pa.table({"i": range(100)}), tmp_path / "out")
    fs.convert(pa.table({"i": range(100, 200)}), tmp_path / "out", mode="append", shuffle_seed=1)
    found = stored(tmp_path / "out")["i"].to_numpy()
    assert np.array_equal(found, np.concatenate([np.arange(100), 100 + order(1, 100)]))


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("what", ["error", "interrupt"])
def test_a_failure_while_gathering_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt if what == "interrupt" else fs.errors.SourceError("no")

    monkeypatch.setattr(shuffle, "_gather", fail)
    with pytest.raises(KeyboardInterrupt if what == "interrupt" else fs.errors.SourceError):
        fs.convert(table_of(100), tmp_path / "out", shuffle_seed=1)
    assert not (tmp_path / "out").exists()


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    for name in "ab":
        fs.convert(table_of(100), tmp_path / name, shuffle_seed=9)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
