"""`filter=` on a Delta table: files that the log rules out are not read, and no row is lost by it."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta_tables import HandMade, column, vector_inline
from deltalake import DeltaTable, write_deltalake

import fastshard as fs
from fastshard.converters.delta import DeltaSource


def converted(source: Any, dest: Path, condition: pc.Expression, **options: Any) -> pa.Table:
    fs.convert(source, dest, filter=condition, progress=False, **options)
    return fs.open(dest).to_arrow()


def only_these_are_read(folder: Path, wanted: pc.Expression) -> int:
    """Removes all files but those that hold wanted rows; returns how many are left."""
    import pyarrow.parquet as pq

    left = 0
    for path in folder.rglob("*.parquet"):
        if pq.ParquetFile(path).read().filter(wanted).num_rows:
            left += 1
        else:
            path.unlink()
    return left


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    """Five files, one a day and one without a day, of 10 rows each: amount counts on, name and at follow it."""
    folder = tmp_path / "sales"
    for file in range(5):
        amounts = range(10 * file, 10 * file + 10)
        table = pa.table(
            {
                "amount": pa.array(amounts, pa.int32()),
                "name": [f"{'n' * 90}{amount:03}" for amount in amounts],
                "at": pa.array(
                    [
                        datetime(2024, 1, 1 + file, tzinfo=timezone.utc) + timedelta(microseconds=a * 1001)
                        for a in amounts
                    ],
                    pa.timestamp("us", "UTC"),
                ),
                "sparse": pa.array([None if file == 3 or a % 2 else a for a in amounts], pa.int64()),
                "day": pa.array([date(2024, 1, 1 + file) if file < 4 else None] * 10),
            }
        )
        write_deltalake(folder, table, mode="append", partition_by=["day"])
    return folder


def test_partitions_are_ruled_out(sales: Path, tmp_path: Path) -> None:
    assert only_these_are_read(sales, pc.field("amount") < 20) == 2
    found = converted(sales, tmp_path / "a", pc.field("day") <= date(2024, 1, 2))
    assert sorted(found["amount"].to_pylist()) == list(range(20))
    found = converted(
        sales,
        tmp_path / "b",
        (pc.field("day") == date(2024, 1, 1)) & (pc.field("amount") > 4),
        columns=["amount"],
    )
    assert found["amount"].to_pylist() == list(range(5, 10))
    assert fs.open(tmp_path / "b").index.provenance["files"] == 5
    assert converted(sales, tmp_path / "c", pc.field("day") > date(2025, 1, 1)).num_rows == 0
    with pytest.raises(fs.Error):
        converted(sales, tmp_path / "d", pc.field("day").is_null())


def test_rows_without_a_day(sales: Path, tmp_path: Path) -> None:
    assert only_these_are_read(sales, pc.field("amount") >= 40) == 1
    found = converted(sales, tmp_path / "a", pc.field("day").is_null())
    assert found["amount"].to_pylist() == list(range(40, 50))
    assert found["day"].to_pylist() == [None] * 10


@pytest.mark.parametrize(
    "condition",
    [
        pc.field("amount") == 17,
        (pc.field("amount") > 9) & (pc.field("amount") < 20),
        pc.field("amount").isin([13, 19]),
        pc.field("name") == "n" * 90 + "012",
        (pc.field("at") > datetime(2024, 1, 2, tzinfo=timezone.utc))
        & (pc.field("at") < datetime(2024, 1, 3, tzinfo=timezone.utc)),
        # Bounds of times are cut to milliseconds; row 19 is at .019019.
        pc.field("at") == datetime(2024, 1, 2, 0, 0, 0, 19019, tzinfo=timezone.utc),
    ],
    ids=str,
)
def test_statistics_rule_files_out(condition: pc.Expression, sales: Path, tmp_path: Path) -> None:
    everything = DeltaTable(sales).to_pyarrow_table()
    expected = everything.filter(condition)
    assert expected.num_rows
    source = DeltaSource(fs.Delta(sales))
    fields = [name for name in everything.schema.names if name in str(condition)]
    # The names are alike in more characters than statistics keep.
    files = 5 if "name" in fields else 1
    assert len(source.narrowed(fields, condition, fields)._files) == files
    if files == 1:
        assert only_these_are_read(sales, pc.field("amount").isin(expected["amount"])) == 1
    found = converted(sales, tmp_path / "a", condition)
    assert found.to_pylist() == expected.sort_by("amount").to_pylist()


def test_files_of_nulls(sales: Path, tmp_path: Path) -> None:
    source = DeltaSource(fs.Delta(sales))

    def left(condition: pc.Expression) -> int:
        return len(source.narrowed(["sparse"], condition, ["sparse"])._files)

    assert left(pc.field("sparse").is_valid()) == 4
    assert left(pc.field("sparse").is_null()) == 5
    assert left(pc.field("sparse") >= 0) == 4
    assert left(pc.field("sparse") == 22) == 1
    found = converted(sales, tmp_path / "a", pc.field("sparse").is_null())
    assert len(found) == 10 + 4 * 5


def with_statistics(action: dict[str, Any], **statistics: Any) -> dict[str, Any]:
    """An `add` action with more of them."""
    known = json.loads(action["add"]["stats"])
    action["add"]["stats"] = json.dumps({**known, **statistics})
    return action


def test_columns_that_have_each_others_names_in_the_files(tmp_path: Path) -> None:
    """Renamed: what the table calls a is b in the files, and the other way about."""
    schema = [
        column("a", "long", physical="b", number=1),
        column("b", "long", physical="a", number=2),
        column("day", "date", physical="d", number=3),
    ]
    made = HandMade(tmp_path / "table", schema, partitions=["day"], mapping="name", vectors=True)
    actions = []
    for file in range(3):
        a, b = [10 * file, 10 * file + 1, 10 * file + 2], [100 + file] * 3
        action = made.file(
            pa.table({"b": a, "a": b}),
            f"part-{file}.parquet",
            partition={"d": f"2024-01-0{file + 1}"},
            deleted=vector_inline([0]),
            row_group_size=1,
        )
        bounds = {"minValues": {"b": a[0], "a": b[0]}, "maxValues": {"b": a[2], "a": b[2]}}
        actions.append(with_statistics(action, tightBounds=False, nullCount={"a": 0, "b": 0}, **bounds))
    made.commit(*actions)
    rows = [
        {"a": 10 * file + i, "b": 100 + file, "day": date(2024, 1, file + 1)}
        for file in range(3)
        for i in (1, 2)
    ]
    assert converted(made.folder, tmp_path / "none", pc.field("a") == 10).num_rows == 0  # it was deleted
    (made.folder / "part-0.parquet").unlink()
    (made.folder / "part-2.parquet").unlink()
    for number, condition in enumerate(
        [pc.field("a").isin([10, 11, 12]), pc.field("b") == 101, pc.field("day") == date(2024, 1, 2)]
    ):
        assert converted(made.folder, tmp_path / f"{number}", condition).to_pylist() == rows[2:4]


def test_row_groups_are_ruled_out(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "table", [column("id", "long")], vectors=True)
    table = pa.table({"id": range(100)})
    made.commit(made.file(table, "part-0.parquet", row_group_size=10, deleted=vector_inline([0, 34, 50])))
    source = DeltaSource(fs.Delta(made.folder))
    condition = (pc.field("id") > 32) & (pc.field("id") < 47)
    (task,) = source.narrowed(["id"], condition, ["id"]).tasks(1 << 20)
    assert [piece.units for piece in task.pieces] == [(3, 4)]
    found = converted(made.folder, tmp_path / "a", condition)
    assert found["id"].to_pylist() == [33, *range(35, 47)]


@pytest.mark.parametrize("seed", range(4))
def test_no_row_is_lost(seed: int, tmp_path: Path) -> None:
    """Any condition leaves the rows that it leaves of the whole table."""
    choice = random.Random(seed)
    for _ in range(4):
        rows = choice.randrange(1, 6)

        def some(values: list[Any], type_: pa.DataType, rows: int = rows) -> pa.Array:
            few = choice.sample(values, choice.randrange(1, len(values)))
            return pa.array([choice.choice(few) for _ in range(rows)], type_)

        at = datetime(2024, 1, 1, tzinfo=timezone.utc)
        table = pa.table(
            {
                "i": some([None, -1, 0, 1, 2**62], pa.int64()),
                "f": some([None, float("nan"), -0.0, 1.5, float("inf")], pa.float64()),
                "s": some([None, "", "a", "é", "z" * 70, "z" * 71], pa.string()),
                "t": some(
                    [None, at, at + timedelta(microseconds=999), at + timedelta(days=1)],
                    pa.timestamp("us", "UTC"),
                ),
                "b": some([None, True, False], pa.bool_()),
                "p": pa.array([choice.choice([None, -1, 0, 1])] * rows, pa.int32()),
                "q": pa.array([choice.choice([None, "", "a/b", "z"])] * rows, pa.string()),
            }
        )
        write_deltalake(tmp_path / "table", table, mode="append", partition_by=["p", "q"])
    fs.convert(tmp_path / "table", tmp_path / "all", progress=False)
    everything = fs.open(tmp_path / "all").to_arrow()

    def values(name: str) -> Any:
        found = [value for value in everything[name] if value.is_valid]
        return choice.choice(found) if found else pa.scalar(None, everything.schema.field(name).type)

    def leaf() -> pc.Expression:
        name = choice.choice(everything.schema.names)
        field, value = pc.field(name), values(name)
        kind = choice.randrange(8)
        if kind == 0:
            return field.is_null()
        if kind == 1:
            return field.is_valid()
        if kind == 2 and name != "b":
            return field.isin(pa.array([value.as_py(), value.as_py()], value.type))
        return [field == value, field != value, field < value, field >= value, field > value, field <= value][
            kind - 2
        ]

    def condition(depth: int) -> pc.Expression:
        kind = choice.randrange(4) if depth else 3
        if kind == 0:
            return condition(depth - 1) & condition(depth - 1)
        if kind == 1:
            return condition(depth - 1) | condition(depth - 1)
        return ~condition(depth - 1) if kind == 2 else leaf()

    skipped = 0
    for _ in range(60):
        wanted = condition(2)
        source = DeltaSource(fs.Delta(tmp_path / "table"))
        fields = [name for name in everything.schema.names if name in _fields_of(wanted, everything.schema)]
        narrowed = source.narrowed(everything.schema.names, wanted, fields)
        skipped += len(source._files) - len(narrowed._files)
        read = [batch for task in narrowed.tasks(1 << 20) for batch in task.batches()]
        found = pa.Table.from_batches(read, narrowed.schema).filter(wanted)
        # NaN is not equal to itself, so rows are compared as they print.
        assert list(map(str, found.to_pylist())) == list(map(str, everything.filter(wanted).to_pylist())), (
            wanted
        )
    assert skipped > 20


def _fields_of(condition: pc.Expression, schema: pa.Schema) -> set[str]:
    from fastshard.converters._steps import plan_steps

    return set(plan_steps(schema, filter=condition).condition_fields)
