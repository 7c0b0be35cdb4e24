"""`fs.spark.write`: rows, order, modes, what is refused, and that every row arrives once whatever fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.converters._options import WriteOptions
from fastshard.converters._run import Job
from fastshard.schema import schema_message
from fastshard.spark import _probe

pytestmark = pytest.mark.spark

ROWS = 1_000
DEFAULTS = WriteOptions()


def numbers(spark: Any, partitions: int = 4, rows: int = ROWS) -> Any:
    """Ids in order, in partitions of consecutive rows, with a text and a list beside each."""
    return spark.range(0, rows, 1, partitions).selectExpr(
        "id", "concat('row ', cast(id as string)) AS text", "array(cast(id as double), -1.0D) AS pair"
    )


def check_numbers(path: Any, rows: int = ROWS) -> None:
    """The data set holds `numbers`, each row once and in order, and no file that nothing names."""
    with fs.open(path) as reader:
        assert len(reader) == rows
        batch = reader.take(np.arange(rows))
        assert batch["id"].tolist() == list(range(rows))
        assert batch["text"] == [f"row {i}" for i in range(rows)]
        assert batch["pair"].tolist() == [[float(i), -1.0] for i in range(rows)]
        assert not reader.verify()
    assert not leftovers(path)


def leftovers(path: Any) -> list[str]:
    return [name for name in os.listdir(path) if name.startswith(".tmp-")]


@pytest.mark.parametrize("partitions", [1, 4, 200])
def test_rows_come_in_the_order_of_the_partitions(spark: Any, tmp_path: Path, partitions: int) -> None:
    result = fs.spark.write(numbers(spark, partitions), tmp_path / "out")
    assert (result.rows, result.shards, result.generation) == (ROWS, partitions, 1)
    assert os.fspath(result) == str(tmp_path / "out")
    check_numbers(result)


def test_empty_and_skewed_partitions_lose_nothing(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 8).where("id < 3 OR id >= 900")
    with fs.open(fs.spark.write(frame, tmp_path / "out")) as reader:
        assert reader.take(np.arange(len(reader)))["id"].tolist() == [0, 1, 2, *range(900, ROWS)]
        assert reader.index.shards == 2


def test_an_empty_frame_gives_an_empty_data_set_with_its_schema(spark: Any, tmp_path: Path) -> None:
    for name, frame in {"none": numbers(spark).where("id < 0"), "sql": numbers(spark).limit(0)}.items():
        with fs.open(fs.spark.write(frame, tmp_path / name)) as reader:
            assert len(reader) == 0
            assert reader.schema.names == ["id", "text", "pair"]
            assert reader.schema.field("id").type == pa.int64()


def test_writing_twice_gives_the_same_data_set(spark: Any, tmp_path: Path) -> None:
    first = fs.spark.write(numbers(spark), tmp_path / "first")
    second = fs.spark.write(numbers(spark), tmp_path / "second")
    assert first.fingerprint == second.fingerprint
    shards = [sorted(p.name for p in (tmp_path / n).glob("shard-*")) for n in ("first", "second")]
    assert shards[0] == shards[1]


def test_a_partition_becomes_several_shards_in_order(spark: Any, tmp_path: Path) -> None:
    result = fs.spark.write(numbers(spark, 2), tmp_path / "out", shard_bytes=4096, block_bytes=1024)
    assert result.shards > 4
    check_numbers(result)


def test_modes(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fs.spark.write(numbers(spark).where("id < 400"), out)
    with pytest.raises(fs.errors.InvalidError, match="a data set is there already"):
        fs.spark.write(numbers(spark), out)
    result = fs.spark.write(numbers(spark).where("id >= 400"), out, mode="append")
    assert (result.rows, result.generation) == (ROWS, 2)
    check_numbers(out)
    fs.spark.write(numbers(spark, 2, 50), out, mode="overwrite")
    check_numbers(out, 50)


def test_columns_casts_tensors_and_layout(spark: Any, tmp_path: Path) -> None:
    result = fs.spark.write(
        numbers(spark),
        tmp_path / "out",
        columns=["pair", "id"],
        cast={"id": "int32", "float64": "float32"},
        tensors={"pair": ("float32", (2, 1))},
        compression="zstd",
        metadata={"split": "train"},
    )
    with fs.open(result) as reader:
        assert reader.schema.names == ["pair", "id"]
        assert reader.schema.field("id").type == pa.int32()
        assert reader[7]["pair"].shape == (2, 1)
        assert reader[7]["pair"].dtype == np.float32
        assert reader.index.metadata == {"split": "train"}
        assert reader.index.settings["compression"] == "zstd"
        assert reader.index.provenance["source"] == "spark"


def test_a_transform_of_arrow_batches(spark: Any, tmp_path: Path) -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"twice": [2 * value.as_py() for value in batch.column(0)]})

    with fs.open(
        fs.spark.write(numbers(spark), tmp_path / "out", columns=["id"], transform=double)
    ) as reader:
        assert reader.take(np.arange(ROWS))["twice"].tolist() == [2 * i for i in range(ROWS)]
        assert "double" in reader.index.provenance["transform"]


def test_a_transform_annotated_with_pandas_gets_frames(spark: Any, tmp_path: Path) -> None:
    import pandas as pd

    def keep_even(frame: pd.DataFrame) -> pd.DataFrame:
        assert type(frame).__module__.startswith("pandas")
        return frame[frame.id % 2 == 0]

    frame = numbers(spark).selectExpr("id", "if(id % 3 = 0, null, id) AS third")
    with fs.open(fs.spark.write(frame, tmp_path / "out", transform=keep_even)) as reader:
        assert reader.schema.field("third").type == pa.int64()
        found = list(reader)
    assert [row["id"] for row in found] == list(range(0, ROWS, 2))
    assert [row["third"] for row in found] == [None if i % 3 == 0 else i for i in range(0, ROWS, 2)]


def test_a_transform_of_an_empty_frame_says_what_it_makes(spark: Any, tmp_path: Path) -> None:
    def rename(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.rename_columns(["number"])

    frame = numbers(spark).where("id < 0")
    with fs.open(fs.spark.write(frame, tmp_path / "out", columns=["id"], transform=rename)) as reader:
        assert (len(reader), reader.schema.names) == (0, ["number"])


def test_wrong_names_are_found_before_anything_is_written(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(fs.errors.InvalidError, match="no column 'texd'; did you mean 'text'"):
        fs.spark.write(numbers(spark), out, columns=["texd"])
    with pytest.raises(fs.errors.InvalidError, match="neither a column nor a type"):
        fs.spark.write(numbers(spark), out, cast={"nope": "int8"})
    with pytest.raises(Exception, match="nope"):
        fs.spark.write(numbers(spark).select("nope"), out)
    assert not out.exists()


def test_a_value_that_does_not_fit_names_partition_row_and_column(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(fs.errors.SourceError, match=r"partition 0: row 128, column 'id'.*int8"):
        fs.spark.write(numbers(spark, 1), out, cast={"id": "int8"})
    assert not out.exists()


def test_a_failed_job_leaves_the_old_data_set(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fs.spark.write(numbers(spark), out)
    before = sorted(os.listdir(out))

    def fail_late(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column(0)[-1].as_py() == ROWS - 1:
            raise RuntimeError("the last batch")
        return batch

    for mode in ("overwrite", "append"):
        with pytest.raises(fs.errors.SourceError, match="the last batch"):
            fs.spark.write(numbers(spark), out, mode=mode, transform=fail_late)
        wait_until(lambda: sorted(os.listdir(out)) == before)
    check_numbers(out)


def wait_until(condition: Callable[[], bool]) -> None:
    """Other tasks of a job that failed are stopped a little later."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_attempt_ends_when_the_driver_has_given_up(tmp_path: Path) -> None:
    options = WriteOptions(block_bytes=1024, shard_bytes=2048)
    frame, job, transaction = prepared_job(tmp_path / "out", options)
    marker = tmp_path / "marker"
    marker.touch()
    job = replace(job, marker=str(marker))
    with transaction:
        writer = attempt(job, 1)
        batches = iter(frame.to_batches(max_chunksize=100))

        def given_up() -> Iterator[pa.RecordBatch]:
            yield next(batches)
            marker.unlink()
            yield from batches

        with pytest.raises(fs.errors.StorageError, match="the driver gave up this write"):
            list(writer.run(given_up()))
        assert not [name for name in os.listdir(tmp_path / "out") if "-task-" in name]


def test_a_failing_commit_leaves_the_old_data_set(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastshard import _commit

    out = tmp_path / "out"
    fs.spark.write(numbers(spark), out)
    before = sorted(os.listdir(out))

    def refuse(path: str, data: bytes) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(_commit, "write_durably", refuse)
        with pytest.raises(fs.errors.StorageError, match="could not commit the index"):
            fs.spark.write(numbers(spark), out, mode="overwrite")
    assert sorted(os.listdir(out)) == before
    check_numbers(out)


class Once:
    """Calls `action` in the first attempt that comes to the given row, and in no other."""

    def __init__(self, marker: Path, action: Any, row: int = ROWS - 1) -> None:
        self._marker = str(marker)
        self._action = action
        self._row = row

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._row in batch.column(0).to_pylist():
            try:
                os.close(os.open(self._marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return batch
            self._action()
        return batch


def fail() -> None:
    raise RuntimeError("once")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("action", [fail, die])
@pytest.mark.usefixtures("classic")  # tasks are tried again there only
def test_a_task_that_is_tried_again_leaves_no_row_twice(spark: Any, tmp_path: Path, action: Any) -> None:
    marker = tmp_path / "marker"
    result = fs.spark.write(
        numbers(spark, 2),
        tmp_path / "out",
        transform=Once(marker, action),
        shard_bytes=4096,  # several shards are finished when the attempt ends
        block_bytes=1024,
    )
    assert marker.exists()
    check_numbers(result)


def test_two_attempts_at_a_partition_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As with speculation: both run at once, one wins, the other is killed or goes on."""
    frame, job, transaction = prepared_job(tmp_path / "out")
    with transaction:
        writers = [attempt(job, number) for number in (1, 2)]
        batches = frame.to_batches(max_chunksize=100)
        reports: list[list[pa.RecordBatch]] = [[], []]
        for batch in batches:
            for writer in writers:
                writer.take(batch)
        for place, writer in enumerate(writers):
            reports[place] = list(writer.run(iter(())))
        names = [set(pa.Table.from_batches(rows)["file"].to_pylist()) - {""} for rows in reports]
        assert not names[0] & names[1]
        assert names[0] | names[1] <= set(os.listdir(tmp_path / "out"))
        transaction.sweep_tasks()
        assert not names[0] & set(os.listdir(tmp_path / "out"))


def prepared_job(path: Path, options: WriteOptions = DEFAULTS) -> Any:
    from fastshard._commit import Transaction
    from fastshard.converters._steps import plan_steps
    from fastshard.spark._task import PartitionJob

    table = pa.table({"id": pa.array(range(ROWS), pa.int64())})
    transaction = Transaction(path, "error")
    job = PartitionJob(
        frame=schema_message(table.schema),
        vectors=(False,),
        steps=plan_steps(table.schema).with_schema(table.schema),
        output=Job.of(table.schema, None, options, transaction.task_prefix),
        staged=False,
        staging=None,
    )
    return table, job, transaction


def attempt(job: Any, number: int) -> Any:
    from fastshard.spark._task import PartitionWriter

    return PartitionWriter(job, 0, number)


def test_executors_without_the_package_are_told_how_to_install_it(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(
        fs.errors.MissingDependencyError, match=r"cannot import no_such_package.*%pip install"
    ):
        _probe.probe(spark, str(tmp_path), package="no_such_package")
    assert not os.listdir(tmp_path)


def test_executors_with_another_version_are_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fs, "__version__", "9.9.9")
    with pytest.raises(fs.errors.InvalidError, match=r"the executors have fastshard .*here it is 9\.9\.9"):
        fs.spark.write(numbers(spark), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_that_executors_do_not_see_is_refused(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _probe._probe_function

    def elsewhere(package: str, question: str, answer: str) -> Any:
        return real(package, question.replace(str(tmp_path), "/nowhere"), answer)

    monkeypatch.setattr(_probe, "_probe_function", elsewhere)
    with pytest.raises(fs.errors.InvalidError, match=r"does not find there what the driver wrote.*/Volumes/"):
        fs.spark.write(numbers(spark), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_an_executor_writes_must_arrive_here(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _probe._probe_function
    other = tmp_path / "other"
    other.mkdir()

    def elsewhere(package: str, question: str, answer: str) -> Any:
        return real(package, question, str(other / "answer"))

    monkeypatch.setattr(_probe, "_probe_function", elsewhere)
    with pytest.raises(fs.errors.InvalidError, match="did not arrive here"):
        fs.spark.write(numbers(spark), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_second_writer_is_refused(spark: Any, tmp_path: Path) -> None:
    from fastshard._commit import Transaction

    with Transaction(tmp_path / "out", "overwrite"), pytest.raises(fs.errors.LockedError):
        fs.spark.write(numbers(spark), tmp_path / "out", mode="overwrite")
