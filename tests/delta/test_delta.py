"""Delta tables become data sets: the right rows of the right version, in an order that never changes."""

from __future__ import annotations

import re
import shutil
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta_tables import HandMade, column, vector_in_file, vector_inline
from deltalake import DeltaTable, write_deltalake

import fastshard as fs
from fastshard.cli import main
from fastshard.errors import InvalidError, NotFoundError, SourceError, UnsupportedError


def converted(source: Any, dest: Path, **options: Any) -> pa.Table:
    fs.convert(source, dest, progress=False, **options)
    return fs.open(dest).to_arrow()


def table_of(first: int, end: int, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(first, end)), **columns})


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """Three versions: 0 has ids 0 to 4, 1 also 5 to 7, 2 only those below 3."""
    path = tmp_path / "table"
    write_deltalake(path, table_of(0, 5))
    write_deltalake(path, table_of(5, 8), mode="append")
    DeltaTable(path).delete("id >= 3")
    return path


def test_the_newest_version_by_its_directory(versions: Path, tmp_path: Path) -> None:
    assert sorted(converted(versions, tmp_path / "data")["id"].to_pylist()) == [0, 1, 2]
    provenance = fs.open(tmp_path / "data").index.provenance
    assert provenance["format"] == "delta"
    assert provenance["version"] == 2
    assert provenance["source"] == str(versions)


def test_versions_are_pinned(versions: Path, tmp_path: Path) -> None:
    old = fs.Delta(versions, version=0)
    newest = fs.Delta(str(versions))
    assert (old.version, newest.version) == (0, 2)
    write_deltalake(versions, table_of(100, 101), mode="append")
    assert sorted(converted(newest, tmp_path / "newest")["id"].to_pylist()) == [0, 1, 2]
    assert sorted(converted(old, tmp_path / "old")["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert sorted(converted(fs.Delta(DeltaTable(versions, version=1)), tmp_path / "b")["id"].to_pylist()) == [
        *range(8)
    ]
    assert fs.open(tmp_path / "old").index.provenance["version"] == 0
    assert repr(old).endswith("version=0)")


def test_by_time(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long")])
    for day in (1, 2, 3):
        at = int(datetime(2024, 6, day, 12, tzinfo=timezone.utc).timestamp() * 1000)
        made.commit(made.file(table_of(day, day + 1), f"part-{day}.parquet"), at=at)
    for moment in (
        "2024-06-02 13:00:00",
        datetime(2024, 6, 3, 11, tzinfo=timezone.utc),
        "2024-06-02T12:00:00Z",
    ):
        assert fs.Delta(made.folder, timestamp=moment).version == 1
    assert fs.Delta(made.folder, timestamp="2024-07-01").version == 2
    with pytest.raises(
        InvalidError, match=r"no version as old as 2024-06-01 11:59:59.*: version 0.* 2024-06-01 12:00"
    ):
        fs.Delta(made.folder, timestamp="2024-06-01 11:59:59")


def test_what_is_not_there(versions: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="no version 9: the newest is 2"):
        fs.Delta(versions, version=9)
    with pytest.raises(InvalidError, match="one of the two"):
        fs.Delta(versions, version=1, timestamp="2024-01-01")
    with pytest.raises(InvalidError, match="version=-1"):
        fs.Delta(versions, version=-1)
    with pytest.raises(InvalidError, match="'yesterday'"):
        fs.Delta(versions, timestamp="yesterday")
    with pytest.raises(NotFoundError, match="no Delta table"):
        fs.Delta(tmp_path)


def test_files_come_in_natural_order_whatever_the_log_says(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long")])
    files = [made.file(table_of(10 * i, 10 * i + 3), f"part-{i}.parquet") for i in (2, 10, 1)]
    made.commit(*files)
    expected = [10, 11, 12, 20, 21, 22, 100, 101, 102]
    assert converted(made.folder, tmp_path / "a")["id"].to_pylist() == expected
    other = HandMade(tmp_path / "other", [column("id", "long")])
    for i in (10, 1, 2):
        other.commit(other.file(table_of(10 * i, 10 * i + 3), f"part-{i}.parquet"))
    assert converted(other.folder, tmp_path / "b")["id"].to_pylist() == expected


def mapped_table(folder: Path, mapping: str) -> HandMade:
    """Columns whose names in the files are others, inside structs, arrays and maps too."""

    def inner(number: int) -> dict[str, Any]:
        return {"type": "struct", "fields": [column("new", "integer", physical=f"c{number}", number=number)]}

    def struct(number: int) -> pa.StructType:
        numbered = pa.field(f"c{number}", pa.int16(), metadata={"PARQUET:field_id": str(number)})
        return pa.struct([numbered, pa.field("gone", pa.int8())])

    array = {"type": "array", "elementType": inner(6), "containsNull": True}
    map_ = {"type": "map", "keyType": "string", "valueType": inner(7), "valueContainsNull": True}
    schema = [
        column("id", "long", physical="c1", number=1),
        column("s", inner(5), physical="c2", number=2),
        column("list", array, physical="c3", number=3),
        column("map", map_, physical="c4", number=4),
        column("added", "string", physical="c9", number=9),
    ]
    made = HandMade(folder, schema, mapping=mapping)
    types = [pa.int64(), struct(5), pa.list_(struct(6)), pa.map_(pa.string(), struct(7))]
    fields = [(f"c{number}", type_, number) for number, type_ in enumerate(types, 1)]
    names = [name if mapping == "name" else f"other_{name}" for name, _, _ in fields]
    arrow = pa.schema(
        [
            pa.field(name, type_, metadata={"PARQUET:field_id": str(number)} if mapping == "id" else None)
            for name, (_, type_, number) in zip(names, fields, strict=True)
        ]
    )
    rows = [
        [0, {"c5": 7, "gone": 1}, [{"c6": 1, "gone": 1}, None], [("k", {"c7": 3, "gone": 0})]],
        [1, None, None, None],
        [2, {"c5": None, "gone": 2}, [], []],
        [3, {"c5": 9, "gone": 3}, [{"c6": 2, "gone": 1}], [("a", None), ("b", {"c7": 4, "gone": 5})]],
    ]
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(arrow)]
    made.commit(made.file(pa.Table.from_arrays(arrays, schema=arrow), "part-0.parquet", row_group_size=3))
    return made


@pytest.mark.parametrize("mapping", ["name", "id"])
def test_column_mapping(mapping: str, tmp_path: Path) -> None:
    made = mapped_table(tmp_path / "table", mapping)
    expected = [
        {"id": 0, "s": {"new": 7}, "list": [{"new": 1}, None], "map": [("k", {"new": 3})], "added": None},
        {"id": 1, "s": None, "list": None, "map": None, "added": None},
        {"id": 2, "s": {"new": None}, "list": [], "map": [], "added": None},
        {
            "id": 3,
            "s": {"new": 9},
            "list": [{"new": 2}],
            "map": [("a", None), ("b", {"new": 4})],
            "added": None,
        },
    ]
    assert converted(made.folder, tmp_path / "all").to_pylist() == expected
    some = converted(made.folder, tmp_path / "some", columns=["list", "id"], filter=pc.field("id") > 1)
    assert some.to_pylist() == [{"list": row["list"], "id": row["id"]} for row in expected[2:]]
    only = converted(made.folder, tmp_path / "only", columns=["added"])
    assert only.to_pylist() == [{"added": None}] * 4


def test_deletion_vectors(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    made = HandMade(folder, [column("id", "long")], vectors=True)
    made.commit(
        made.file(table_of(0, 10), "part-0.parquet", deleted=vector_inline([0, 3, 4, 9]), row_group_size=4),
        made.file(
            table_of(10, 20), "part 1.parquet", deleted=vector_in_file(folder, [1, 8]), row_group_size=3
        ),
        made.file(table_of(20, 23), "part-2.parquet", deleted=vector_inline([0, 1, 2])),
        made.file(table_of(23, 26), "part-3.parquet"),
    )
    expected = [10, *range(12, 18), 19, 1, 2, 5, 6, 7, 8, 23, 24, 25]
    for name, options in {"a": {}, "b": {"workers": 2, "shard_bytes": 32}}.items():
        found = converted(folder, tmp_path / name, **options)
        assert found["id"].to_pylist() == expected
    scanned = pa.RecordBatchReader.from_stream(DeltaTable(folder).scan()).read_all()
    assert sorted(scanned["id"].to_pylist()) == sorted(expected)
    shuffled = [
        converted(folder, tmp_path / f"shuffled-{size}", shuffle_seed=1, shard_bytes=size)["id"].to_pylist()
        for size in (32, 1 << 20)
    ]
    assert shuffled[0] == shuffled[1] != expected
    assert sorted(shuffled[0]) == sorted(expected)


def test_deleted_rows_that_the_file_does_not_have(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long")], vectors=True)
    made.commit(made.file(table_of(0, 3), "part-0.parquet", deleted=vector_inline([5]), claimed=9))
    with pytest.raises(SourceError, match=r"row 5 is deleted .* has 3 rows"):
        fs.convert(made.folder, tmp_path / "data")


def test_a_deletion_vector_that_is_not_there(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long")], vectors=True)
    made.commit(made.file(table_of(0, 3), "part-0.parquet", deleted=vector_in_file(made.folder, [1])))
    for path in made.folder.glob("*.bin"):
        path.unlink()
    with pytest.raises(SourceError, match=r"table: .*deletion_vector_"):
        fs.convert(made.folder, tmp_path / "data")


def test_partition_columns_have_their_types_and_places(tmp_path: Path) -> None:
    table = pa.table(
        {
            "day": pa.array([date(2024, 1, 2), None, date(2024, 1, 2)]),
            "id": pa.array([0, 1, 2]),
            "text": pa.array(["a/b c%d", "é=ü", None]),
            "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(9, 2)),
            "on": pa.array([True, False, None]),
        }
    )
    write_deltalake(tmp_path / "table", table, partition_by=["day", "text", "price", "on"])
    found = converted(tmp_path / "table", tmp_path / "data")
    assert found.schema.names == table.schema.names
    assert found.schema.types == table.schema.types
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == table.to_pylist()
    only = converted(tmp_path / "table", tmp_path / "only", columns=["on"])
    assert sorted(map(str, only["on"].to_pylist())) == ["False", "None", "True"]


def test_a_mapped_table_with_partitions_and_deleted_rows(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    schema = [column("id", "long", physical="c1", number=1), column("day", "date", physical="c2", number=2)]
    made = HandMade(folder, schema, partitions=["day"], mapping="name", vectors=True)
    made.commit(
        made.file(
            pa.table({"c1": [0, 1, 2]}),
            "xY/part-0.parquet",
            partition={"c2": "2024-01-31"},
            deleted=vector_in_file(folder, [1]),
        ),
        made.file(pa.table({"c1": [3]}), "zz/part-1.parquet", partition={"c2": None}),
    )
    assert converted(folder, tmp_path / "data").to_pylist() == [
        {"id": 0, "day": date(2024, 1, 31)},
        {"id": 2, "day": date(2024, 1, 31)},
        {"id": 3, "day": None},
    ]


def test_columns_added_and_widened_later(tmp_path: Path) -> None:
    made = HandMade(
        tmp_path / "table", [column("id", "long"), column("x", "double"), column("at", "timestamp")]
    )
    made.commit(
        made.file(pa.table({"id": pa.array([0, 1], pa.int32())}), "part-0.parquet"),
        made.file(
            pa.table(
                {
                    "at": pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")),
                    "id": pa.array([2]),
                    "x": pa.array([0.5], pa.float32()),
                }
            ),
            "part-1.parquet",
        ),
    )
    found = converted(made.folder, tmp_path / "data")
    assert found.schema.types == [pa.int64(), pa.float64(), pa.timestamp("us", "UTC")]
    assert found["x"].to_pylist() == [None, None, 0.5]
    assert found["at"].to_pylist() == [None, None, datetime(2024, 1, 1, tzinfo=timezone.utc)]


def test_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "b": pa.array([1, None], pa.int8()),
            "s": pa.array([1, None], pa.int16()),
            "i": pa.array([1, None], pa.int32()),
            "f": pa.array([1.5, None], pa.float32()),
            "bin": pa.array([b"\x00", None]),
            "ts": pa.array([datetime(2024, 1, 1, tzinfo=timezone.utc), None], pa.timestamp("us", "UTC")),
            "ntz": pa.array([datetime(2024, 1, 1), None], pa.timestamp("us")),
            "names": pa.array([["a", None], None]),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    write_deltalake(tmp_path / "table", table)
    found = converted(tmp_path / "table", tmp_path / "data")
    assert found.to_pylist() == table.to_pylist()


def test_unknown_types_and_features_are_named(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long"), column("v", "geometry")])
    made.commit(made.file(table_of(0, 1), "part-0.parquet"))
    with pytest.raises((UnsupportedError, SourceError), match="geometry"):
        fs.convert(made.folder, tmp_path / "data")


def test_an_empty_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", table_of(0, 0))
    found = converted(tmp_path / "table", tmp_path / "data")
    assert (found.num_rows, found.schema.names) == (0, ["id"])
    made = HandMade(tmp_path / "deleted", [column("id", "long")], vectors=True)
    made.commit(made.file(table_of(0, 2), "part-0.parquet", deleted=vector_inline([0, 1])))
    assert converted(made.folder, tmp_path / "none").num_rows == 0


def test_parquet_files_inside_a_table_are_refused(versions: Path, tmp_path: Path) -> None:
    inside = [
        versions / "*.parquet",
        [next(versions.glob("*.parquet"))],
        tmp_path,
        tmp_path / "*" / "*.parquet",
    ]
    for source in inside:
        with pytest.raises(SourceError, match="Delta table"):
            fs.convert(source if isinstance(source, list) else str(source), tmp_path / "data")


def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    for first in range(0, 3000, 1000):
        write_deltalake(tmp_path / "table", table_of(first, first + 1000), mode="append")
    one = fs.convert(tmp_path / "table", tmp_path / "one", shard_bytes=4096)
    two = fs.convert(tmp_path / "table", tmp_path / "two", shard_bytes=4096, workers=2)
    assert one.fingerprint == two.fingerprint
    assert one.shards > 2


def test_cached_by_version(versions: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = fs.cached(fs.Delta(versions, version=0), cache)
    assert fs.cached(fs.Delta(versions, version=0), cache) == first
    assert fs.cached(versions, cache) != first
    assert len(fs.open(first)) == 5


def test_another_place_than_this_machine(
    versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read through deltalake's own storage where a table's URL is not one of this machine's."""
    from fastshard.converters import delta

    write_deltalake(tmp_path / "parts", pa.table({"p": ["a b", "c%d"], "id": [0, 1]}), partition_by=["p"])
    monkeypatch.setattr(delta, "_path_of", lambda uri: None)
    assert sorted(converted(versions, tmp_path / "data")["id"].to_pylist()) == [0, 1, 2]
    found = converted(tmp_path / "parts", tmp_path / "parts-data", workers=2)
    assert sorted(found.to_pylist(), key=str) == [{"p": "a b", "id": 0}, {"p": "c%d", "id": 1}]


def test_the_guide(versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of docs/delta.md run."""
    text = (Path(__file__).parents[2] / "docs" / "delta.md").read_text()
    versions.rename(tmp_path / "sales")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTSHARD_CACHE", str(tmp_path / "cache"))
    command = re.search(r"^\$ fastshard (.*)$", text, re.MULTILINE)
    assert command
    assert main(command[1].split()) == 0
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert example
    exec(compile(example[1], "delta.md", "exec"), {})
    assert [len(fs.open(name)) for name in ("newest", "train", "first", "then")] == [3, 3, 5, 3]


def test_a_table_that_moved(versions: Path, tmp_path: Path) -> None:
    shutil.move(versions, tmp_path / "ein Ordner")
    assert converted(tmp_path / "ein Ordner", tmp_path / "data").num_rows == 3


def test_parquet_files_inside_a_table_elsewhere_are_refused(versions: Path, tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(versions), "/bucket/table", recursive=True)
    try:
        for source in ("memory://bucket/table/*.parquet", "memory://bucket/*/*.parquet", "memory://bucket"):
            with pytest.raises(SourceError, match="Delta table"):
                fs.convert(source, tmp_path / "data")
    finally:
        memory.rm("/bucket", recursive=True)
