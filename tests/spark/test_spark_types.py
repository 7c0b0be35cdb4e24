"""Every type of Spark's, by executors and collected; what cannot be stored says how to leave it out or cast it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from frames import CASES, every_type, vectors

import fastshard as fs

pytestmark = pytest.mark.spark


def by_executors(frame: Any, path: Path, **options: Any) -> Any:
    return fs.open(fs.spark.write(frame, path, **options))


def collected(frame: Any, path: Path, **options: Any) -> Any:
    return fs.open(fs.convert(frame, path, **options))


WAYS = pytest.mark.parametrize("way", [by_executors, collected])


@WAYS
def test_every_type_and_nulls(spark: Any, tmp_path: Path, way: Any) -> None:
    with way(every_type(spark), tmp_path / "out") as reader:
        assert [str(field.type) for field in reader.schema] == [kind for *_, kind in CASES]
        table = reader.to_arrow()
        assert table.column_names == [name for name, *_ in CASES]
        for name, _, value, _ in CASES:
            assert table[name].to_pylist() == [value, None, value], name


@WAYS
def test_vectors_become_lists_and_of_one_size_arrays(spark: Any, tmp_path: Path, way: Any) -> None:
    with way(vectors(spark), tmp_path / "out") as reader:
        assert reader["v"].dtype == np.float64
        assert reader["v"].tolist() == [[1.0, 2.0, 3.0], [0.0, 5.0, 0.0], [7.0, 0.0, 8.0], [0.0, 0.0, 0.0]]
        assert reader.to_arrow()["w"].to_pylist() == [[1.0], None, [0.0, 4.0], []]


@WAYS
def test_case_p47(spark: Any, tmp_path: Path, way: Any) -> None:
    """Arrays, vectors, booleans and bytes come without a user's function; shards are hardly larger than their rows."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql import types as t

    rows = 1000
    kinds = {
        "a": t.ArrayType(t.DoubleType()),
        "dense": VectorUDT(),
        "sparse": VectorUDT(),
        "yes": t.BooleanType(),
        "small": t.ByteType(),
    }
    row = ([1.0, 2.0, 3.0], Vectors.dense([1.0, 2.0, 3.0]), Vectors.sparse(3, [1], [5.0]), True, -1)
    schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
    frame = spark.createDataFrame([row] * rows, schema).coalesce(1)
    with way(frame, tmp_path / "out") as reader:
        sample = reader[5]
        for name, values in {"a": [1, 2, 3], "dense": [1, 2, 3], "sparse": [0, 5, 0]}.items():
            assert (sample[name].shape, sample[name].dtype) == ((3,), np.float64)
            assert sample[name].tolist() == values
        assert (sample["yes"].dtype, bool(sample["yes"])) == (np.bool_, True)
        assert (sample["small"].dtype, int(sample["small"])) == (np.int8, -1)
        payload = rows * (3 * 3 * 8 + 1 / 8 + 1)
        assert reader.index.bytes <= 1.1 * payload + 64 * 1024


@WAYS
def test_partitions_and_batches_of_nulls_alone(spark: Any, tmp_path: Path, way: Any) -> None:
    """Chunks that say nothing of their type: it is the frame's, and integers stay integers."""
    columns = {
        "i": "cast(id as int)",
        "b": "id % 2 = 0",
        "s": "cast(id as string)",
        "a": "array(id)",
        "d": "id * 0.5D",
        "m": "map('k', id)",
        "r": "named_struct('x', id)",
        "day": "date_add(date'2024-01-01', cast(id as int))",
    }
    frame = spark.range(0, 40, 1, 4).selectExpr(
        *(f"if(id < 10 or id >= 30, null, {sql}) AS {name}" for name, sql in columns.items())
    )
    with way(frame, tmp_path / "out") as reader:
        kinds = {field.name: str(field.type) for field in reader.schema}
        assert (kinds["i"], kinds["b"], kinds["d"]) == ("int32", "bool", "double")
        table = reader.to_arrow()
        assert table["i"].to_pylist() == [None] * 10 + list(range(10, 30)) + [None] * 10
        for name in columns:
            nulls = [value is None for value in table[name].to_pylist()]
            assert nulls == [True] * 10 + [False] * 20 + [True] * 10, name
        assert table["a"].to_pylist()[10] == [10]
        assert not reader.verify()


@WAYS
def test_instants_are_the_same_in_every_time_zone(spark: Any, tmp_path: Path, way: Any) -> None:
    key = "spark.sql.session.timeZone"
    before = spark.conf.get(key)
    found = []
    try:
        for number, zone in enumerate(("UTC", "Asia/Kolkata", "America/Los_Angeles", "+05:30")):
            spark.conf.set(key, zone)
            frame = spark.range(0, 3, 1, 1).selectExpr(
                "timestamp_micros(id * 3600000000 - 1) AS t", "timestamp_ntz'2024-03-10 02:30:00' AS local"
            )
            with way(frame, tmp_path / str(number)) as reader:
                found.append((reader.fingerprint, reader.to_arrow().to_pylist()))
    finally:
        spark.conf.set(key, before)
    assert all(other == found[0] for other in found)
    rows = found[0][1]
    assert [row["t"].timestamp() for row in rows] == [i * 3600 - 1e-6 for i in range(3)]
    assert str(rows[0]["local"]) == "2024-03-10 02:30:00"


@WAYS
@pytest.mark.usefixtures("spark4")
def test_what_cannot_be_stored_says_what_to_do(spark: Any, tmp_path: Path, way: Any) -> None:
    frame = spark.sql("SELECT 1 AS one, parse_json('{}') AS doc")
    with pytest.raises(
        fs.errors.SchemaError, match=r"column 'doc' has the Spark type variant.*to_json.*drop\('doc'\)"
    ):
        way(frame, tmp_path / "out")
    twice = spark.sql("SELECT 1 AS x, 2 AS x")
    with pytest.raises(fs.errors.SchemaError, match="two columns of the frame are named 'x'"):
        way(twice, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    nested = spark.sql("SELECT array(interval '1-2' year to month) AS terms")
    with pytest.raises(
        fs.errors.SchemaError, match=r"column 'terms': terms\[\] has the Spark type interval year"
    ):
        way(nested, tmp_path / "out")


@WAYS
def test_names_that_differ_by_case(spark: Any, tmp_path: Path, way: Any) -> None:
    frame = spark.range(0, 3, 1, 1).selectExpr("id AS x", "id + 10 AS X")
    with way(frame, tmp_path / "out") as reader:
        assert reader.take([2])["x"].tolist() == [2]
        assert reader.take([2])["X"].tolist() == [12]


@pytest.mark.usefixtures("spark4")
def test_intervals_of_all_units(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT make_interval(1, 2, 0, 4, 5, 6, 7.5) AS span")
    with by_executors(frame, tmp_path / "out") as reader:
        assert reader.schema.field("span").type == pa.month_day_nano_interval()
        months, days, nanoseconds = reader.to_arrow()["span"][0].as_py()
        assert (months, days, nanoseconds) == (14, 4, (5 * 3600 + 6 * 60 + 7.5) * 1e9)


def test_collecting_takes_what_convert_takes(spark: Any, tmp_path: Path) -> None:
    import pyarrow.compute as pc

    frame = spark.range(0, 100, 1, 3).selectExpr("id", "id * 2.0D AS x")
    reader = collected(
        frame,
        tmp_path / "out",
        columns=["x"],
        filter=pc.field("id") >= 50,
        cast={"x": "float32"},
        transform=lambda batch: batch.append_column("y", pc.negate(batch["x"])),
        compression="lz4",
    )
    with reader:
        assert reader.to_pandas()["y"].tolist() == [-2.0 * i for i in range(50, 100)]
        assert reader.to_numpy()["x"].dtype == np.float32
        assert reader.index.provenance["source"] == "spark"


def test_collecting_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    with collected(spark.range(0).selectExpr("id", "'a' AS text"), tmp_path / "out") as reader:
        assert (len(reader), reader.schema.names) == (0, ["id", "text"])


def test_collecting_does_not_import_pandas(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("through pandas")

    frame = spark.range(0, 10, 1, 2)
    monkeypatch.setattr(pd, "DataFrame", refuse)
    with collected(frame, tmp_path / "out") as reader:
        assert len(reader) == 10
