"""The data source: `format("fastshard")`, to write and to read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from frames import CASES, every_type

import fastshard as fs

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark4")]


def numbers(spark: Any, rows: int = 100, partitions: int = 4) -> Any:
    return spark.range(0, rows, 1, partitions).selectExpr("id", "array(cast(id as double), 0.5D) AS pair")


def test_overwrite_append_and_read_again(spark: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    numbers(spark).write.format("fastshard").mode("overwrite").save(out)
    with fs.open(out) as reader:
        assert reader.take(np.arange(100))["id"].tolist() == list(range(100))
        assert reader.index.provenance["source"] == "spark"
    numbers(spark, 10, 2).write.format("fastshard").mode("append").save(out)
    with fs.open(out) as reader:
        assert reader["id"].tolist() == [*range(100), *range(10)]
        assert reader.index.generation == 2
    assert not [name for name in os.listdir(out) if name.startswith(".tmp-")]
    frame = spark.read.format("fastshard").load(out)
    assert [row["id"] for row in frame.select("id").collect()] == [*range(100), *range(10)]
    assert frame.where("id = 7").collect()[0]["pair"] == [7.0, 0.5]
    numbers(spark, 5, 1).write.format("fastshard").mode("overwrite").option("compression", "zstd").save(out)
    with fs.open(out) as reader:
        assert (len(reader), reader.index.settings["compression"]) == (5, "zstd")


@pytest.mark.parametrize(
    "partitions", [7, pytest.param(1, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
def test_counts_and_checksums_equal_the_frames(spark: Any, tmp_path: Path, partitions: int) -> None:
    """Some partitions are empty, and one has most of the rows."""
    frame = (
        spark.range(0, 3000, 1, partitions)
        .where("id < 5 OR id BETWEEN 1000 AND 1010 OR id >= 1500")
        .selectExpr(
            "id",
            "if(id % 3 = 0, null, cast(id as int)) AS third",
            "sha2(cast(id as string), 256) AS text",
            "id / 7 AS ratio",
            "array(id, null) AS pair",
            "cast(id as decimal(20, 3)) AS exact",
        )
    )
    checksum = ("count(*)", "sum(cast(xxhash64(id, third, text, ratio, pair, exact) as decimal(38, 0)))")
    fs.spark.write(frame, tmp_path / "out")
    back = spark.read.format("fastshard").load(str(tmp_path / "out"))
    assert back.selectExpr(*checksum).collect() == frame.selectExpr(*checksum).collect()


def test_modes_that_spark_does_not_offer(spark: Any, tmp_path: Path) -> None:
    writer = numbers(spark).write.format("fastshard")
    for mode in (None, "error", "ignore"):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            (writer if mode is None else writer.mode(mode)).save(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_same_as_writing_by_function(spark: Any, tmp_path: Path) -> None:
    result = fs.spark.write(numbers(spark), tmp_path / "one")
    numbers(spark).write.format("fastshard").mode("append").save(str(tmp_path / "two"))
    with fs.open(tmp_path / "two") as reader:
        assert reader.fingerprint == result.fingerprint


def test_a_failed_write_leaves_the_old_data_set(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fs.spark.write(numbers(spark), out)
    before = sorted(os.listdir(out))
    failing = numbers(spark).selectExpr("if(id = 99, raise_error('at the end'), id) AS id", "pair")
    failing = failing.selectExpr("cast(id as bigint) AS id", "pair")
    with pytest.raises(Exception, match="at the end"):
        failing.write.format("fastshard").mode("append").save(str(out))
    assert sorted(os.listdir(out)) == before
    with pytest.raises(Exception, match=r"not expected 'other'|missing 'pair'"):
        spark.range(3).selectExpr("id", "1 AS other").write.format("fastshard").mode("append").save(str(out))
    with pytest.raises(Exception, match="has no option 'nonsense'"):
        numbers(spark).write.format("fastshard").mode("append").option("nonsense", "1").save(str(out))
    assert sorted(os.listdir(out)) == before


def test_spark_reads_back_every_type_that_it_wrote(spark: Any, tmp_path: Path) -> None:
    frame = every_type(spark)
    out = fs.spark.write(frame, tmp_path / "out")
    back = spark.read.format("fastshard").load(os.fspath(out))
    as_months = [name for name, _, _, _ in CASES if name in ("months", "years")]
    same = [name for name, *_ in CASES if name not in as_months]
    ticked = ["`" + name.replace("`", "``") + "`" for name in same]
    assert back.select(*ticked).dtypes == frame.select(*ticked).dtypes
    assert back.select(*ticked).collect() == frame.select(*ticked).collect()


def test_types_that_spark_lacks_come_as_the_next_that_holds_them(spark: Any, tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    table = pa.table(
        {
            "u8": pa.array([200, None], pa.uint8()),
            "u64": pa.array([2**64 - 1, 0], pa.uint64()),
            "half": pa.array(np.array([1.5, 2.5], np.float16)),
            "big": pa.array(["a", "b"], pa.large_utf8()),
            "nanos": pa.array([1_000, 2_000], pa.timestamp("ns", "Asia/Tokyo")),
            "fixed": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)),
            "tensor": tensors,
        }
    )
    fs.write(table, tmp_path / "out")
    rows = spark.read.format("fastshard").load(str(tmp_path / "out")).collect()
    assert [(r["u8"], int(r["u64"]), r["half"], r["big"], r["fixed"]) for r in rows] == [
        (200, 2**64 - 1, 1.5, "a", [1, 2]),
        (None, 0, 2.5, "b", [3, 4]),
    ]
    assert rows[1]["tensor"] == [float(i) for i in range(6, 12)]


def test_an_empty_data_set(spark: Any, tmp_path: Path) -> None:
    fs.write(pa.table({"x": pa.array([], pa.int32())}), tmp_path / "out")
    frame = spark.read.format("fastshard").load(str(tmp_path / "out"))
    assert frame.columns == ["x"]
    assert frame.collect() == []
