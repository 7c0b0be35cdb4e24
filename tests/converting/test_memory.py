"""Data in memory, and streams of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import fastshard as fs
from fastshard.converters import _format

Convert = Callable[..., pa.Table]

TABLE = pa.table({"a": [1, 2, 3, 4], "b": ["x", None, "z", "w"], "c": [[1.0], [], None, [2.0, 3.0]]})


def batches() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=3)


def polars_frame() -> Any:
    return pytest.importorskip("polars").from_arrow(TABLE)


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "chunked table": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "record batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda: TABLE.to_reader(max_chunksize=3),
    "generator of batches": batches,
    "list of tables": lambda: [TABLE.slice(0, 3), TABLE.slice(3)],
    "list of samples": TABLE.to_pylist,
    "generator of samples": lambda: iter(TABLE.to_pylist()),
    "dict of columns": lambda: TABLE.to_pydict(),
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(TABLE.to_pydict()),
    "polars": polars_frame,
    "polars lazy": lambda: polars_frame().lazy(),
    "duckdb": lambda: pytest.importorskip("duckdb").from_arrow(TABLE),
    "hugging face": lambda: pytest.importorskip("datasets").Dataset.from_dict(TABLE.to_pydict()),
    "hugging face stream": lambda: (
        pytest.importorskip("datasets").Dataset.from_dict(TABLE.to_pydict()).to_iterable_dataset()
    ),
    "hugging face view": lambda: (
        pytest.importorskip("datasets")
        .Dataset.from_dict(pa.concat_tables([TABLE] * 2).to_pydict())
        .select([4, 1, 6, 3])
    ),
    "pyarrow data set": lambda: ds.dataset(TABLE),
    "pyarrow scanner": lambda: ds.dataset(TABLE).scanner(),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_whatever_holds_rows_is_a_source(convert: Convert, kind: str) -> None:
    make = SOURCES[kind]
    assert convert(make()).to_pylist() == TABLE.to_pylist()
    found = convert(make(), filter=pc.field("a") > 1, columns=["b", "a"], cast={"a": "int8"})
    assert found.to_pylist() == TABLE.filter(pc.field("a") > 1).select(["b", "a"]).to_pylist()
    found = convert(make(), transform=lambda batch: batch.select(["a"]), shuffle_seed=0)
    assert sorted(found["a"].to_pylist()) == [1, 2, 3, 4]
    found = convert(make(), filter=pc.field("a") > 9, transform=lambda batch: batch.select(["a"]))
    assert (found.num_rows, found.schema.names) == (0, ["a"])
    gc.collect()


@pytest.mark.parametrize("kind", [*SOURCES, "reader of a data set", "view", "concat", "source"])
def test_each_step_by_itself_works_on_whatever_holds_rows(
    convert: Convert, tmp_path: Path, kind: str
) -> None:
    make = SOURCES.get(kind) or OURS[kind](tmp_path)
    rows = TABLE.to_pylist()
    for columns in (["c"], ["b", "a"], ["c", "b", "a"], ["a", "b", "c"]):
        found = convert(make(), columns=columns)
        assert found.schema.names == columns
        assert found.to_pylist() == TABLE.select(columns).to_pylist()
        shuffled = convert(make(), columns=columns, shuffle_seed=1)
        assert shuffled.schema.names == columns
        assert sorted(map(repr, shuffled.to_pylist())) == sorted(map(repr, TABLE.select(columns).to_pylist()))
    assert convert(make(), filter=pc.field("b") != "z").to_pylist() == [rows[0], rows[3]]
    assert convert(make(), filter=pc.field("b") != "z", columns=["c"])["c"].to_pylist() == [[1.0], [2.0, 3.0]]
    assert convert(make(), cast={"a": "float32"}).schema.field("a").type == pa.float32()
    assert convert(make(), cast={"float64": "float32"})["c"].to_pylist() == TABLE["c"].to_pylist()
    one = convert(make(), filter=pc.field("a") == 4, tensors={"c": ("float32", (2,))}, columns=["c"])
    assert one.schema.field("c").type == pa.fixed_shape_tensor(pa.float32(), [2])
    assert one["c"].combine_chunks().to_numpy_ndarray().tolist() == [[2.0, 3.0]]
    doubled = convert(
        make(), columns=["a"], transform=lambda batch: pa.record_batch({"d": pc.add(batch["a"], batch["a"])})
    )
    assert doubled.to_pydict() == {"d": [2, 4, 6, 8]}
    for wrong in ({"columns": ["no"]}, {"filter": pc.field("no") > 1}, {"cast": {"no": "int8"}}):
        with pytest.raises(fs.errors.InvalidError, match="no"):
            convert(make(), **wrong)
    gc.collect()


UNION = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])


@pytest.mark.parametrize("kind", ["table", "reader", "file", "stream"])
def test_a_column_that_cannot_be_stored_can_be_left_out(convert: Convert, tmp_path: Path, kind: str) -> None:
    table = pa.table({"u": UNION, "x": [1, 2], "v": UNION})

    def make() -> Any:
        if kind == "table":
            return table
        if kind == "reader":
            return table.to_reader()
        path = tmp_path / "in.arrow"
        with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
        return path

    where = r"in\.arrow: " if kind in ("file", "stream") else ""
    for columns in (None, ["x", "u"], ["u"]):
        with pytest.raises(
            fs.errors.SchemaError, match=rf"{where}column 'u' is a union \(sparse_union.*leave it out"
        ):
            convert(make(), columns=columns)
    assert convert(make(), columns=["x"]).to_pydict() == {"x": [1, 2]}
    assert convert(make(), columns=["x"], filter=pc.field("x") > 1).to_pydict() == {"x": [2]}
    with pytest.raises(fs.errors.InvalidError, match="there is no column 'w'"):
        convert(make(), columns=["w"])


def _data_set(folder: Path) -> Path:
    fs.write(TABLE, folder / "data", block_bytes=16)
    return folder / "data"


def _concat(folder: Path) -> Callable[[], Any]:
    fs.write(TABLE.slice(0, 1), folder / "first")
    fs.write(TABLE.slice(1), folder / "second")
    return lambda: fs.concat([folder / "first", folder / "second"])


class _Task:
    rows = None
    bytes = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        return batches()


class _Source:
    schema = TABLE.schema
    provenance: dict[str, Any] = {}  # noqa: RUF012

    def tasks(self, shard_bytes: int) -> list[_Task]:
        return [_Task()]


OURS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "reader of a data set": lambda folder: partial(fs.open, _data_set(folder)),
    "view": lambda folder: partial(fs.open(_data_set(folder)).select, [0, 1, 2, 3]),
    "concat": _concat,
    "source": lambda folder: _Source,
}


def test_workers_do_not_matter(convert: Convert) -> None:
    assert convert(TABLE, workers=3).equals(TABLE)


def test_a_pyarrow_data_set_on_disk(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(5):
        pq.write_table(pa.table({"x": range(i * 100, i * 100 + 100)}), tmp_path / "in" / f"{i}.parquet")
    assert convert(ds.dataset(tmp_path / "in"))["x"].to_pylist() == list(range(500))
    scanner = ds.dataset(tmp_path / "in").scanner(columns=["x"], filter=pc.field("x") >= 250)
    assert convert(scanner)["x"].to_pylist() == list(range(250, 500))


def test_a_generator_is_read_once_and_in_bounded_memory(tmp_path: Path) -> None:
    pool = pa.default_memory_pool()
    before, most, made = pool.bytes_allocated(), 0, 0

    def stream() -> Iterator[pa.RecordBatch]:
        nonlocal most, made
        for i in range(100):
            made += 1
            yield pa.record_batch({"x": pa.array(np.full(500_000, i))})
            most = max(most, pool.bytes_allocated() - before)

    result = fs.convert(stream(), tmp_path / "out", transform=lambda batch: batch, shard_bytes=64 << 20)
    assert (result.rows, made) == (50_000_000, 100)
    assert most <= 100 << 20


def test_a_generator_of_samples_may_use_one_array_again(convert: Convert) -> None:
    def samples() -> Iterator[dict[str, Any]]:
        buffer = np.zeros(3, np.float32)
        for i in range(5):
            buffer[:] = i
            yield {"x": buffer, "i": i}

    found = convert(samples())
    assert found["x"].to_pylist() == [[float(i)] * 3 for i in range(5)]


def test_a_large_batch_is_taken_in_slices(tmp_path: Path) -> None:
    sizes: list[int] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.nbytes)
        return batch

    fs.convert(pa.table({"x": np.arange(8_000_000)}), tmp_path / "out", transform=look)
    assert max(sizes) <= 1.1 * _format.READ_BYTES


@pytest.mark.parametrize("data", [iter([]), [], (sample for sample in ())])
def test_no_samples_have_no_schema(tmp_path: Path, data: Any) -> None:
    with pytest.raises(fs.errors.Error, match=r"no samples|empty"):
        fs.convert(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_source_that_fails_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[dict[str, int]]:
        for i in range(100_000):
            yield {"x": i}
        raise RuntimeError("the database went away")

    with pytest.raises(fs.errors.SourceError, match="RuntimeError: the database went away"):
        fs.convert(failing(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sample_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(fs.errors.SchemaError, match=r"row 2.*'x'"):
        fs.convert(({"x": value} for value in (1, 2, "three")), tmp_path / "out")
    with pytest.raises(fs.errors.SchemaError, match=r"row 1.*'y'"):
        fs.convert([{"x": 1}, {"x": 1, "y": 2}], tmp_path / "out")


def test_a_source_of_someone_elses(convert: Convert, tmp_path: Path) -> None:
    class Task:
        rows = 3
        bytes = 24

        def __init__(self, first: int) -> None:
            self.first = first

        def batches(self) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"x": [self.first, self.first + 1, self.first + 2]})

    class Source:
        schema = pa.schema([("x", pa.int64())])
        provenance = {"source": "elsewhere"}  # noqa: RUF012

        def tasks(self, shard_bytes: int) -> list[Task]:
            return [Task(0), Task(3)]

    assert convert(Source())["x"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert sorted(convert(Source(), shuffle_seed=1)["x"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(fs.errors.SourceError, match="elsewhere, part 1: row 0 and on"):
        fs.convert(Source(), tmp_path / "out", transform=_fail_from_three)


def _fail_from_three(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch["x"][0].as_py() >= 3:
        raise ValueError("no")
    return batch
