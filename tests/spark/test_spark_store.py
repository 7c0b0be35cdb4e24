"""Destinations in an object store: the same promises, kept by single writes of whole files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stores import SECRET, ObjectStore, object_store

import fastshard as fs
from fastshard import _store
from fastshard._commit import Transaction
from fastshard._tables import read_tables

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


def numbers(spark: Any, rows: int = 100, partitions: int = 4) -> Any:
    return spark.range(0, rows, 1, partitions).selectExpr("id", "array(cast(id as double), 0.5D) AS pair")


def brought(server: ObjectStore, name: str, cache: Path) -> fs.ShardReader:
    """The data set, brought here as a machine that trains does."""
    return fs.open(fs.cached(server.url(name), cache))


def leftovers(server: ObjectStore, name: str, folder: Path) -> set[str]:
    """Files that neither the generation that stands uses nor the one before."""
    index = _store.fetch_index(_store.Store(server.url(name)), str(folder))
    with read_tables(str(folder), index) as (entries, _):
        used = {entry.path for entry in entries}
    used |= {"index.json", index.shard_table.path, index.block_table.path, *index.previous}
    return server.names(name) - used


def test_executors_write_to_a_store(spark: Any, tmp_path: Path, server: ObjectStore) -> None:
    local = fs.spark.write(numbers(spark), tmp_path / "local")
    staging = tmp_path / "staging"
    staging.mkdir()
    result = fs.spark.write(numbers(spark), server.url("train", "s3a"), staging=staging)
    assert (result.path, result.rows, result.shards) == ("s3://data/train", 100, 4)
    assert not os.listdir(staging)
    assert result.fingerprint == local.fingerprint
    with brought(server, "train", tmp_path / "cache") as reader:
        assert reader["id"].tolist() == list(range(100))
        assert reader["pair"].tolist() == [[i, 0.5] for i in range(100)]
        assert reader.index.provenance["format"] == "fastshard"
        assert SECRET not in (Path(reader.path) / "index.json").read_text()


class CountStaged:
    """A transform that notes how many shards lie in a folder, when it is the most so far."""

    def __init__(self, staging: Path, notes: Path) -> None:
        self._staging, self._notes = str(staging), str(notes)
        self._most = -1

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = sum(len(files) for _, _, files in os.walk(self._staging))
        if found > self._most:
            self._most = found
            Path(self._notes, f"{os.getpid()}-{found}").touch()
        return batch


@pytest.mark.slow
def test_case_p46_no_more_than_two_shards_of_a_task_are_staged(
    spark: Any, tmp_path: Path, server: ObjectStore
) -> None:
    """20 partitions of 4 shards by 2 tasks at a time: at most 4 files on local disk, and the index at the store."""
    staging, notes = tmp_path / "staging", tmp_path / "notes"
    staging.mkdir()
    notes.mkdir()
    frame = spark.range(0, 20 * 4096, 1, 20)
    result = fs.spark.write(
        frame,
        server.url("p46"),
        staging=staging,
        transform=CountStaged(staging, notes),
        shard_bytes=8192,
        block_bytes=8192,  # one block each
    )
    assert (result.rows, result.shards) == (20 * 4096, 80)
    counts = [int(name.split("-")[1]) for name in os.listdir(notes)]
    assert 1 <= max(counts) <= 4
    assert not os.listdir(staging)
    assert len(server.names("p46")) == 80 + 3
    with brought(server, "p46", tmp_path / "cache") as reader:
        assert np.array_equal(reader["id"], np.arange(20 * 4096))


def test_all_modes_and_what_is_left(spark: Any, tmp_path: Path, server: ObjectStore) -> None:
    url = server.url("modes")
    fs.spark.write(numbers(spark), url)
    with pytest.raises(
        fs.errors.InvalidError, match="s3://data/modes: a data set is there already"
    ) as caught:
        fs.spark.write(numbers(spark), url)
    assert SECRET not in str(caught.value)
    fs.spark.write(numbers(spark, 10, 1), url, mode="append")
    with brought(server, "modes", tmp_path) as reader:
        assert reader["id"].tolist() == [*range(100), *range(10)]
    for rows in (20, 30):  # the first replaces, the second lets go of what the first replaced
        result = fs.spark.write(numbers(spark, rows, 1), url, mode="overwrite")
    assert result.generation == 4
    with brought(server, "modes", tmp_path) as reader:
        assert reader["id"].tolist() == list(range(30))
    assert not leftovers(server, "modes", tmp_path / "index")


def test_a_failed_job_leaves_the_store_as_it_was(spark: Any, tmp_path: Path, server: ObjectStore) -> None:
    url = server.url("failed")
    failing = numbers(spark).selectExpr("if(id = 99, raise_error('at the end'), id) AS id")
    with pytest.raises(Exception, match="at the end"):
        fs.spark.write(failing, url)
    assert not server.names("failed")
    fs.spark.write(numbers(spark).select("id"), url)
    before = server.names("failed")
    with pytest.raises(Exception, match="at the end"):
        fs.spark.write(failing.selectExpr("cast(id as bigint) AS id"), url, mode="append")
    assert server.names("failed") == before


def test_a_store_that_executors_do_not_reach_is_refused(
    spark: Any, tmp_path: Path, server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastshard.spark import _probe

    real = _probe._store_probe_function

    def elsewhere(package: str, url: str, question: str, answer: str) -> Any:
        return real(package, url.replace("//me:", "//you:").replace("data/", "none/"), question, answer)

    monkeypatch.setattr(_probe, "_store_probe_function", elsewhere)
    with pytest.raises(fs.errors.Error, match=r"s3://data/unseen.*an executor"):
        fs.spark.write(numbers(spark), server.url("unseen"))
    assert not server.names("unseen")
    with pytest.raises(fs.errors.StorageError, match=r"s3://absent-bucket/x/\S+: could not write: .*BUCKET"):
        fs.spark.write(numbers(spark), server.url("x").replace("@data", "@absent-bucket"))


@pytest.mark.slow
@pytest.mark.usefixtures("spark4")
def test_the_data_source_writes_to_a_store(spark: Any, tmp_path: Path, server: ObjectStore) -> None:
    url = server.url("source")
    numbers(spark).write.format("fastshard").mode("append").save(url)
    numbers(spark, 10, 1).write.format("fastshard").mode("append").save(url)
    with brought(server, "source", tmp_path) as reader:
        assert reader["id"].tolist() == [*range(100), *range(10)]
    before = server.names("source")
    failing = numbers(spark).selectExpr("if(id = 99, raise_error('at the end'), id) AS id", "pair")
    with pytest.raises(Exception, match="at the end"):
        failing.selectExpr("cast(id as bigint) AS id", "pair").write.format("fastshard").mode("append").save(
            url
        )
    assert server.names("source") == before
    with pytest.raises(Exception, match=r"s3://data/source.*not from a store.*fs\.cached"):
        spark.read.format("fastshard").load(url).collect()


# The store's folder itself, without Spark


class Lost(_store.Store):
    """A store that answers nothing after index.json was written, or wrote it and says that it failed."""

    written = False
    lost = False

    def write(self, name: str, data: bytes) -> None:
        super().write(name, data)
        if name == "index.json":
            type(self).written = True
            raise fs.errors.StorageError("timed out")

    def read(self, name: str) -> bytes | None:
        if self.written and self.lost:
            raise fs.errors.StorageError("timed out")
        return super().read(name)


def put(url: str, rows: int, mode: Any = "overwrite", *, meanwhile: Any = None) -> None:
    """Write a data set through the transaction that Spark's driver uses."""
    from fastshard.converters._shards import FinishedShard, finish_shard
    from fastshard.converters._write import DatasetWrite

    table = pa.table({"x": np.arange(rows)})
    with Transaction(url, mode, mounted=True) as transaction:
        writing = DatasetWrite(transaction, table.schema)
        path = transaction.temporary("shard.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, writing.schema) as file:
            file.write_table(table)
        writing.add(FinishedShard(finish_shard(path).entry, path))
        if meanwhile is not None:
            meanwhile()
        writing.commit()


def test_another_commit_meanwhile_is_seen(tmp_path: Path, server: ObjectStore) -> None:
    url = server.url("two")
    put(url, 10)
    with pytest.raises(fs.errors.StorageError, match="another writer committed meanwhile"):
        put(url, 20, meanwhile=lambda: put(url, 30))
    with brought(server, "two", tmp_path) as reader:
        assert len(reader) == 30
    assert not leftovers(server, "two", tmp_path / "index")


@pytest.mark.parametrize("lost", [False, True])
def test_a_commit_that_seems_to_fail_and_did_not(
    tmp_path: Path, server: ObjectStore, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    url = server.url(f"unsure-{lost}")
    put(url, 10)
    with monkeypatch.context() as patch:
        patch.setattr(_store, "Store", type("Lost", (Lost,), {"lost": lost}))
        if lost:
            with pytest.raises(fs.errors.StorageError, match="is not known: the new files stay"):
                put(url, 20)
        else:
            put(url, 20)
    with brought(server, f"unsure-{lost}", tmp_path) as reader:
        assert len(reader) == 20


def test_a_commit_that_fails_leaves_what_was_there(
    tmp_path: Path, server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url("refused")
    put(url, 10)
    before = server.names("refused")

    def refuse(self: Any, name: str, data: bytes) -> None:
        raise fs.errors.StorageError(f"{name}: denied")

    with monkeypatch.context() as patch:
        patch.setattr(_store.Store, "write", refuse)
        with pytest.raises(fs.errors.StorageError, match="denied"):
            put(url, 20)
    assert server.names("refused") == before
    with brought(server, "refused", tmp_path) as reader:
        assert len(reader) == 10


def test_a_damaged_shard_is_not_brought_here(tmp_path: Path, server: ObjectStore) -> None:
    put(server.url("damaged"), 1000)
    (shard,) = [name for name in server.names("damaged") if name.startswith("shard-")]
    server.break_file(f"damaged/{shard}")
    with pytest.raises(fs.errors.CorruptError, match=rf"s3://data/damaged/{shard}: its xxh3-128 is"):
        fs.cached(server.url("damaged"), tmp_path)


def test_urls_are_not_opened_and_say_what_to_do(server: ObjectStore) -> None:
    for use in (fs.open, lambda url: fs.ShardLoader(url, batch_size=2)):
        with pytest.raises(fs.errors.Error, match=r"s3://data/train: .*fs\.cached\(url\)") as caught:
            use(server.url("train"))
        assert SECRET not in str(caught.value)
    with pytest.raises(fs.errors.NotFoundError, match=r"dbfs:/Volumes/x/y: .*is /Volumes/x"):
        fs.open("dbfs:/Volumes/x/y")
    with pytest.raises(fs.errors.UnsupportedError, match="only this process sees"):
        fs.spark._write.Transaction("memory://bucket/x", "error", mounted=True)
