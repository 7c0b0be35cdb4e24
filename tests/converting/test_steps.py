"""What happens to rows on their way: columns, filter, cast, tensors, transform."""

from __future__ import annotations

import datetime
import pickle
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import fastshard as fs
from fastshard.converters._steps import plan_steps

Convert = Callable[..., pa.Table]

TABLE = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "x": pa.array([i / 4 for i in range(10)]),
        "name": pa.array([None if i % 3 == 2 else f"n{i}" for i in range(10)]),
        "v": pa.array([[i, i + 1] for i in range(10)], pa.list_(pa.float64())),
    }
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    pq.write_table(TABLE, path, row_group_size=4)
    return path


# Columns


def test_columns_are_taken_in_the_order_asked_for(convert: Convert, source: Path) -> None:
    assert convert(source, columns=["name", "id"]).equals(TABLE.select(["name", "id"]))
    assert convert(source, columns=("x",)).equals(TABLE.select(["x"]))


def test_columns_not_taken_are_not_read(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []
    original = pq.ParquetFile.iter_batches

    def watch(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(options["columns"])
        return original(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watch)
    fs.convert(source, tmp_path / "out", columns=["id"], filter=pc.field("x") > 1)
    assert {name for names in asked for name in names} == {"id", "x"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["idd"], "no column 'idd'; did you mean 'id'"),
        (["zzzzzz"], r"no column 'zzzzzz'; the columns are \['id'"),
        (["id", "id"], "twice"),
        ([], "empty"),
        ("id", "list of names"),
        (5, "list of names"),
    ],
)
def test_wrong_columns_are_refused(source: Path, tmp_path: Path, columns: Any, message: str) -> None:
    with pytest.raises(fs.errors.InvalidError, match=message):
        fs.convert(source, tmp_path / "out", columns=columns)
    assert not (tmp_path / "out").exists()


# Filter


def test_a_filter_may_look_at_columns_that_are_not_taken(convert: Convert, source: Path) -> None:
    found = convert(source, columns=["id"], filter=(pc.field("x") > 1) & pc.field("name").is_valid())
    assert found["id"].to_pylist() == [6, 7, 9]


def test_a_filter_as_text(convert: Convert, source: Path) -> None:
    found = convert(source, columns=["id"], filter="x > 1 and name is not null")
    assert found == convert(source, columns=["id"], filter=(pc.field("x") > 1) & pc.field("name").is_valid())
    assert found.num_rows


def test_a_destination_that_is_no_path(source: Path) -> None:
    with pytest.raises(fs.errors.InvalidError, match="None is not a path"):
        fs.convert(source, None)  # type: ignore[arg-type]


def test_a_filter_that_takes_nothing_leaves_an_empty_data_set(convert: Convert, source: Path) -> None:
    found = convert(source, filter=pc.field("id") > 100, transform=lambda batch: batch)
    assert (found.num_rows, found.schema) == (0, TABLE.schema)


def test_a_filter_on_a_hive_key(convert: Convert, tmp_path: Path) -> None:
    for year in (2023, 2024):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [year]}), tmp_path / "in" / f"year={year}" / "f.parquet")
    assert convert(tmp_path / "in", filter=pc.field("year") == 2024, columns=["x"])["x"].to_pylist() == [2024]


def test_a_filter_on_a_hive_key_reads_no_other_directory(convert: Convert, tmp_path: Path) -> None:
    for year in (2023, 2024, None):
        folder = tmp_path / "in" / f"year={'__HIVE_DEFAULT_PARTITION__' if year is None else year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [year or 0] * 3, "y": [1, 2, 3]}), folder / "f.parquet")
        if year == 2023:
            content = bytearray((folder / "f.parquet").read_bytes())
            content[4:40] = bytes(36)  # its pages; what they hold is told at the end
            (folder / "f.parquet").write_bytes(content)
    year = pc.field("year")
    found = convert(tmp_path / "in", filter=(year == 2024) & (pc.field("y") > 1))
    assert found.to_pylist() == [{"x": 2024, "y": y, "year": 2024} for y in (2, 3)]
    assert convert(tmp_path / "in", filter=year.is_null())["x"].to_pylist() == [0] * 3
    assert convert(tmp_path / "in", filter=~(year == 2023))["x"].to_pylist() == [2024] * 3
    with pytest.raises(fs.errors.SourceError, match="year=2023"):
        convert(tmp_path / "in", filter=(year == 2023) | (pc.field("y") == 3))


def test_a_filter_on_a_field_of_a_struct_and_by_position(convert: Convert, tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3], "s": [{"q": 1}, None, {"q": 3}]})
    pq.write_table(table, tmp_path / "in.parquet")
    assert convert(tmp_path / "in.parquet", filter=pc.field("s", "q") > 1, columns=["a"])[
        "a"
    ].to_pylist() == [3]
    assert convert(tmp_path / "in.parquet", filter=pc.field(0) > 2, columns=["s"])["s"].to_pylist() == [
        {"q": 3}
    ]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pc.field("nope") > 1, "nope.*the columns are"),
        (pc.field("id"), "it gives int64 for each row"),
        (pc.field("name") > 3, "no kernel"),
        (3, "must be a pyarrow expression or a text.*not int"),
        ("nope > 3", "there is no column 'nope'"),
    ],
)
def test_a_wrong_filter_is_refused(source: Path, tmp_path: Path, condition: Any, message: str) -> None:
    with pytest.raises(fs.errors.InvalidError, match=message):
        fs.convert(source, tmp_path / "out", filter=condition)
    assert not (tmp_path / "out").exists()


def test_a_filter_keeps_the_rows_in_order(convert: Convert, tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": range(200_000)}), tmp_path / "in.parquet")
    found = convert(tmp_path / "in.parquet", filter=pc.bit_wise_and(pc.field("i"), 3) == 1)
    assert found["i"].to_pylist() == list(range(1, 200_000, 4))


# Cast


def test_cast_by_column_and_by_type(convert: Convert, source: Path) -> None:
    found = convert(source, cast={"id": "int16", "float64": "float32"})
    assert [str(field.type) for field in found.schema] == ["int16", "float", "string", "list<element: float>"]
    assert found.to_pylist() == TABLE.to_pylist()


def test_a_columns_own_cast_wins(convert: Convert, source: Path) -> None:
    found = convert(source, cast={"float64": "float32", "x": "float16", "v": "int8"})
    assert found.schema.field("x").type == pa.float16()
    assert found.schema.field("v").type.value_type == pa.int8()


@pytest.mark.parametrize(
    "target", ["float32", np.float32, np.dtype("float32"), pa.float32(), "torch.float32"]
)
def test_types_may_be_named_in_many_ways(convert: Convert, source: Path, target: Any) -> None:
    assert convert(source, cast={"x": target}).schema.field("x").type == pa.float32()


def test_cast_to_many_types(convert: Convert, tmp_path: Path) -> None:
    table = pa.table(
        {"s": ["12", None], "d": [1.25, 2.5], "t": pa.array([0, 10**6], pa.timestamp("us")), "i": [0, 1]}
    )
    pq.write_table(table, tmp_path / "in.parquet")
    cast = {"s": "int64", "d": "decimal128(10, 2)", "t": "int64", "i": "bool"}
    found = convert(tmp_path / "in.parquet", cast=cast)
    assert found.to_pylist() == [
        {"s": 12, "d": Decimal("1.25"), "t": 0, "i": False},
        {"s": None, "d": Decimal("2.50"), "t": 10**6, "i": True},
    ]


def test_cast_to_bfloat16_rounds_to_nearest_even(convert: Convert, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, 1e-40, 1.00390625, 1.01171875]
    values = np.concatenate([special, rng.standard_normal(1000) * 10 ** rng.uniform(-30, 30, 1000)]).astype(
        np.float32
    )
    pq.write_table(
        pa.table({"x": [None, *values.tolist()]}, schema=pa.schema([("x", pa.float32())])),
        tmp_path / "in.parquet",
    )
    found = convert(tmp_path / "in.parquet", cast={"x": "bfloat16"})
    storage = found["x"].combine_chunks().storage
    assert storage[0].as_py() is None
    wanted = torch.from_numpy(values).bfloat16()
    ours = torch.from_numpy(storage[1:].to_numpy().copy()).view(torch.bfloat16)
    assert torch.equal(torch.isnan(ours), torch.isnan(wanted))
    numbers = ~torch.isnan(wanted)
    assert torch.equal(ours.view(torch.int16)[numbers], wanted.view(torch.int16)[numbers])


@pytest.mark.parametrize(
    ("column", "target", "row"),
    [
        (pa.array([1, 2, 300]), "int8", 2),
        (pa.array([1, -1, 300]), "uint64", 1),
        (pa.array([1.0, None, 2.5, 3.5]), "int64", 2),
        (pa.array([1, 2**24 + 1]), "float32", 1),
        (pa.array(["1", "2", "x"]), "int64", 2),
        (pa.array([[1], [2, 3], [2, 300]]), "int8", 2),
        (pa.array([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 1)]), "date32", None),
        (pa.array([{"a": 1}, {"a": 300}]), "int8", 1),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_named_with_row_and_column(
    tmp_path: Path, convert: Convert, column: pa.Array, target: str, row: int | None
) -> None:
    table = pa.table({"ok": pa.nulls(len(column) * 5, pa.int8()), "c": pa.concat_arrays([column] * 5)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=3)
    if row is None:
        assert convert(tmp_path / "in.parquet", cast={"c": target}).num_rows == len(table)
        return
    with pytest.raises(fs.errors.SourceError, match=rf"in\.parquet: row {row}, column 'c': cannot cast"):
        fs.convert(tmp_path / "in.parquet", tmp_path / "out", cast={"c": target})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 1)], ids=str
)
def test_values_outside_of_a_slice_do_not_matter(convert: Convert, kind: pa.DataType) -> None:
    lists = pa.list_(pa.int64(), 1) if pa.types.is_fixed_size_list(kind) else pa.list_(pa.int64())
    wide = pa.array([[300], [1], [2], [300]], lists)
    found = convert(pa.table({"c": wide}).slice(1, 2), cast={"c": kind})
    assert found["c"].to_pylist() == [[1], [2]]


def test_the_row_named_is_that_of_the_file_also_after_a_filter(tmp_path: Path) -> None:
    pq.write_table(pa.table({"i": range(1000)}), tmp_path / "in.parquet", row_group_size=100)
    with pytest.raises(fs.errors.SourceError, match="row 300, column 'i'"):
        fs.convert(
            tmp_path / "in.parquet",
            tmp_path / "out",
            cast={"i": "uint8"},
            filter=~pc.field("i").isin(range(10, 300)),
        )


@pytest.mark.parametrize(
    ("cast", "message"),
    [
        ({"nope": "int8"}, "neither a column nor a type"),
        ({"x": "float33"}, "'float33' names no type"),
        ({"x": None}, "names no type"),
        (["x"], "cast= must be a dict"),
    ],
)
def test_a_wrong_cast_is_refused(source: Path, tmp_path: Path, cast: Any, message: str) -> None:
    with pytest.raises(fs.errors.InvalidError, match=message):
        fs.convert(source, tmp_path / "out", cast=cast)


# Tensors

IMAGES = np.arange(5 * 2 * 3 * 4, dtype=np.uint8).reshape(5, 2, 3, 4)


def nested(values: np.ndarray, outer: int, fixed: bool = False) -> pa.Array:
    """Arrays as lists, `outer` of them deep, the innermost flat."""
    inner = values.reshape(*values.shape[:outer], -1)
    array = pa.array(inner.reshape(-1))
    for length in reversed(inner.shape[1:]):
        if fixed:
            array = pa.FixedSizeListArray.from_arrays(array, length)
        else:
            array = pa.ListArray.from_arrays(
                pa.array(np.arange(0, len(array) + 1, length, dtype=np.int32)), array
            )
    return array


LAYOUTS = {
    "binary": pa.array([image.tobytes() for image in IMAGES]),
    "large binary": pa.array([image.tobytes() for image in IMAGES], pa.large_binary()),
    "fixed-size binary": pa.array([image.tobytes() for image in IMAGES], pa.binary(24)),
    "flat list": nested(IMAGES, 1),
    "flat fixed-size list": nested(IMAGES, 1, fixed=True),
    "large list": nested(IMAGES, 1).cast(pa.large_list(pa.uint8())),
    "list of lists": nested(IMAGES, 2),
    "list of lists of lists": nested(IMAGES, 3),
    "fixed-size lists": nested(IMAGES, 3, fixed=True),
    "list of wider integers": nested(IMAGES.astype(np.int64), 1),
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(IMAGES),
    "tensors of another shape": pa.FixedShapeTensorArray.from_numpy_ndarray(IMAGES.reshape(5, 24)),
}


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_become_tensors(convert: Convert, layout: str, start: int) -> None:
    table = pa.table({"image": LAYOUTS[layout]}).slice(start)
    found = convert(table, tensors={"image": ("uint8", (2, 3, 4))})
    assert found.schema.field("image").type == pa.fixed_shape_tensor(pa.uint8(), (2, 3, 4))
    assert np.array_equal(found["image"].combine_chunks().to_numpy_ndarray(), IMAGES[start:])


@pytest.mark.parametrize("kind", ["float32", "float64", "int16", "float16", "uint64"])
def test_bytes_are_little_endian_elements(convert: Convert, tmp_path: Path, kind: str) -> None:
    values = np.arange(12, dtype=np.dtype(kind).newbyteorder("<")).reshape(2, 6)
    pq.write_table(pa.table({"x": [row.tobytes() for row in values]}), tmp_path / "in.parquet")
    found = convert(tmp_path / "in.parquet", tensors={"x": (kind, [2, 3])})
    assert np.array_equal(found["x"].combine_chunks().to_numpy_ndarray(), values.reshape(2, 2, 3))


def test_tensors_in_the_reader(tmp_path: Path) -> None:
    fs.convert(
        pa.table({"image": LAYOUTS["binary"]}), tmp_path / "out", tensors={"image": ("uint8", (2, 3, 4))}
    )
    with fs.open(tmp_path / "out") as reader:
        assert np.array_equal(reader[3]["image"], IMAGES[3])


def test_a_cast_comes_before_tensors(convert: Convert) -> None:
    table = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]})
    found = convert(table, cast={"float64": "float16"}, tensors={"x": ("float16", 2)})
    assert found.schema.field("x").type == pa.fixed_shape_tensor(pa.float16(), (2,))


def test_an_empty_source_has_tensors_in_its_schema(convert: Convert) -> None:
    for layout in LAYOUTS.values():
        found = convert(pa.table({"x": layout}).slice(0, 0), tensors={"x": ("uint8", (2, 3, 4))})
        assert found.schema.field("x").type == pa.fixed_shape_tensor(pa.uint8(), (2, 3, 4))


@pytest.mark.parametrize(
    ("column", "shape", "message"),
    [
        (pa.array([b"1234", b"123", b"1234"]), (4,), "row 1, column 'c': 3 bytes where uint8 (4,) takes 4"),
        (pa.array([[1, 2], [3, 4], [5]], pa.list_(pa.uint8())), (2,), "row 2, column 'c': 1 elements where"),
        (pa.array([[1, 2], [3, 4], None], pa.list_(pa.uint8())), (2,), "row 2, column 'c': null"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.uint8())), (2,), "row 1, column 'c': element 1 is null"),
        (
            pa.array([[[1], [2]], [[3], None]], pa.list_(pa.list_(pa.uint8()))),
            (2, 1),
            "row 1, column 'c': element 1 is null",
        ),
        (
            pa.array([[[1], [2]], [[3], [4, 5]]], pa.list_(pa.list_(pa.uint8()))),
            (2, 1),
            "row 1, column 'c': 2 elements",
        ),
        (pa.array([[1, 2], [3, 300]]), (2,), "row 1, column 'c': cannot cast int64 to uint8"),
        (pa.array([b"12", None]), (2,), "row 1, column 'c': null"),
        (pa.array([b"123", b"123"], pa.binary(3)), (2,), "row 0, column 'c': 3 bytes"),
    ],
    ids=str,
)
def test_what_is_no_tensor_is_named_with_row_and_column(
    tmp_path: Path, column: pa.Array, shape: tuple[int, ...], message: str
) -> None:
    good = column.slice(0, 1)
    lead = [good] * 7 if "row 0" not in message else []
    pq.write_table(pa.table({"c": pa.concat_arrays([*lead, column])}), tmp_path / "in.parquet")
    pattern = re.sub(
        r"row (\d)", lambda match: f"row {int(match[1]) + len(lead)}", re.escape(message).replace(r"\ ", " ")
    )
    with pytest.raises((fs.errors.SourceError, fs.errors.NullError), match=pattern):
        fs.convert(tmp_path / "in.parquet", tmp_path / "out", tensors={"c": ("uint8", shape)})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tensors", "error", "message"),
    [
        ({"nope": ("uint8", (2,))}, fs.errors.InvalidError, "no such column"),
        ({"v": "uint8"}, fs.errors.InvalidError, "expected a type and a shape"),
        ({"v": ("uint8", ("a",))}, fs.errors.InvalidError, "expected a type and a shape"),
        ({"v": ("uint8", ())}, fs.errors.InvalidError, "at least 1"),
        ({"v": ("uint8", (0, 2))}, fs.errors.InvalidError, "at least 1"),
        ({"v": ("string", (2,))}, fs.errors.InvalidError, "not string"),
        (
            {"name": ("uint8", (2,))},
            fs.errors.SchemaError,
            "'name' is of type string, which cannot become tensors",
        ),
        ({"id": ("uint8", (2,))}, fs.errors.SchemaError, "cannot become tensors"),
    ],
)
def test_wrong_tensors_are_refused(
    source: Path, tmp_path: Path, tensors: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fs.convert(source, tmp_path / "out", tensors=tensors)
    assert not (tmp_path / "out").exists()


# Transform


def test_a_transform_makes_what_it_likes(convert: Convert, source: Path) -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"double": pc.multiply(batch["id"], 2), "text": batch["name"].fill_null("")})

    found = convert(source, transform=twice)
    assert found["double"].to_pylist() == list(range(0, 20, 2))
    assert found["text"].to_pylist() == TABLE["name"].fill_null("").to_pylist()


def test_a_transform_may_return_tables_and_change_the_number_of_rows(convert: Convert, source: Path) -> None:
    def explode(batch: pa.RecordBatch) -> pa.Table:
        table = pa.Table.from_batches([batch])
        return pa.concat_tables([table.filter(pc.field("id") > 4), table.slice(0, 0)])

    assert convert(source, transform=explode)["id"].to_pylist() == [5, 6, 7, 8, 9]

    def repeat(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 3)))

    assert convert(source, transform=repeat)["id"].to_pylist() == np.repeat(np.arange(10), 3).tolist()


def test_a_transform_gets_what_the_other_steps_made(convert: Convert, source: Path) -> None:
    seen = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.schema)
        return batch

    convert(
        source, columns=["v", "x"], cast={"x": "float32"}, tensors={"v": ("float32", (2,))}, transform=look
    )
    wanted = pa.schema([("v", pa.fixed_shape_tensor(pa.float32(), (2,))), ("x", pa.float32())])
    assert {schema.remove_metadata() for schema in seen} == {wanted}


def test_the_schema_comes_from_the_first_output_also_without_rows(convert: Convert, tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "in.parquet")
    found = convert(tmp_path / "in.parquet", transform=lambda batch: batch.select(["x"]))
    assert (found.num_rows, found.schema.names) == (0, ["x"])


def test_the_first_output_is_of_rows_where_there_are_any(convert: Convert, tmp_path: Path) -> None:
    def stack(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"x": np.stack(batch["id"].to_pylist())})  # raises for no rows

    (tmp_path / "in").mkdir()
    pq.write_table(TABLE.slice(0, 0), tmp_path / "in" / "0.parquet")
    pq.write_table(TABLE, tmp_path / "in" / "1.parquet", row_group_size=5)
    found = convert(tmp_path / "in", transform=stack, filter=pc.field("id") > 4)
    assert found["x"].to_pylist() == [5, 6, 7, 8, 9]


def test_a_later_output_of_a_fitting_type_is_cast(convert: Convert, source: Path) -> None:
    def loose(batch: pa.RecordBatch) -> pa.RecordBatch:
        first = batch["id"][0].as_py()
        values: list[Any] = [None] * batch.num_rows if first else batch["id"].to_pylist()
        return pa.record_batch({"x": values})

    found = convert(source, transform=loose)
    assert found["x"].to_pylist() in ([*range(4), *[None] * 6], [*range(10)])


@pytest.mark.parametrize(
    ("transform", "error", "message"),
    [
        (
            lambda batch: None,
            fs.errors.SchemaError,
            "must return a pyarrow.RecordBatch or Table, not NoneType",
        ),
        (lambda batch: {"x": [1]}, fs.errors.SchemaError, "not dict"),
        (lambda batch: 1 / 0, fs.errors.SourceError, "row 0 and on: transform= failed.*ZeroDivisionError"),
        (5, fs.errors.InvalidError, "must be a function"),
    ],
)
def test_a_transform_that_does_not_work_is_an_error(
    source: Path, tmp_path: Path, transform: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fs.convert(source, tmp_path / "out", transform=transform)
    assert not (tmp_path / "out").exists()


def test_a_transform_must_always_return_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(pa.table({"i": [i]}), tmp_path / "in" / f"{i}.parquet")

    def names(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({f"x{batch['i'][0]}": [1]})

    with pytest.raises(
        fs.errors.SchemaError, match=r"1\.parquet: row 0: transform= returned the columns \['x1'\]"
    ):
        fs.convert(tmp_path / "in", tmp_path / "out", transform=names)

    def types(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"x": ["text"] if batch["i"][0].as_py() else [1]})

    with pytest.raises(
        fs.errors.SchemaError, match=r"1\.parquet: row 0: .*column 'x' as string, at first it was int64"
    ):
        fs.convert(tmp_path / "in", tmp_path / "out", transform=types)


def test_an_interrupted_transform_leaves_nothing(source: Path, tmp_path: Path) -> None:
    calls = 0

    def interrupt(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyboardInterrupt
        return batch

    for options in ({}, {"shuffle_seed": 1}):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            fs.convert(source, tmp_path / "out", transform=interrupt, **options)
        assert not (tmp_path / "out").exists()


def test_what_was_done_is_in_the_provenance(source: Path, tmp_path: Path) -> None:
    fs.convert(source, tmp_path / "out", filter=pc.field("id") > 2, cast={"id": "int8"}, shuffle_seed=3)
    with fs.open(tmp_path / "out") as reader:
        told = reader.index.provenance
    assert told["source"] == str(source)
    assert told["filter"] == "(id > 2)"
    assert told["cast"] == {"id": "int8"}
    assert told["shuffle_seed"] == 3


def test_pickled_steps_keep_the_names_of_nested_fields() -> None:
    nested = pa.struct([pa.field("a", pa.int8(), nullable=False, metadata={"unit": "m"})])
    listed = pa.list_(pa.field("entry", pa.int16()))
    steps = plan_steps(
        pa.schema({"s": nested, "x": listed}), cast={"x": pa.list_(pa.field("entry", pa.int64()))}
    )
    again = pickle.loads(pickle.dumps(steps))
    assert again == steps
    assert again.schema.equals(steps.schema, check_metadata=True)
    assert again.casts["x"].field(0).name == "entry"
