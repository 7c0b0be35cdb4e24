"""`fs.spark.make_spark_converter`: Petastorm's signatures, its cache, its loaders."""

from __future__ import annotations

import logging
import os
import sys
import types
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastshard as fs
from fastshard.spark import TransformSpec, make_spark_converter
from fastshard.spark._inputs import reads_only_files

CONF = "fastshard.spark.converter.parentCacheDirUrl"
OLD_CONF = "petastorm.spark.converter.parentCacheDirUrl"


def small(spark: Any, rows: int = 10) -> Any:
    return spark.range(0, rows, 1, 2).selectExpr("id", "id * 0.5D AS half", "array(id * 1.0D, 1.0D) AS pair")


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.mkdir()
    table = pa.table({"id": pa.array(range(20), pa.int64()), "half": np.arange(20) * 0.5})
    pq.write_table(table, path / "part-0.parquet")
    return path


def file_converter(parquet: Path, cache: Path, **options: Any) -> Any:
    """A converter that needs no Spark."""
    return make_spark_converter(str(parquet), str(cache), **options)


@pytest.mark.spark
def test_case_p48_the_cache_directory_is_read_afresh_and_delete_removes_its_own(
    spark: Any, tmp_path: Path
) -> None:
    frame = small(spark)
    try:
        spark.conf.set(OLD_CONF, f"file://{tmp_path}/x")
        first = make_spark_converter(frame)
        spark.conf.set(CONF, (tmp_path / "y").as_uri())
        second = make_spark_converter(frame)
    finally:
        spark.conf.unset(CONF)
        spark.conf.unset(OLD_CONF)
    assert Path(first.path).parent == tmp_path / "x"
    assert Path(second.path).parent == tmp_path / "y"
    for converter in (first, second):
        assert len(converter) == converter.dataset_size == 10
        with converter.make_torch_dataloader(batch_size=4, num_epochs=1) as loader:
            assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(10))
    (tmp_path / "y" / "mine").mkdir()
    second.delete()
    second.delete()
    assert os.listdir(tmp_path / "y") == ["mine"]
    assert len(fs.open(first.path)) == 10
    first.delete()
    assert os.listdir(tmp_path / "x") == []
    with pytest.raises(fs.errors.InvalidError, match="was deleted"):
        first.make_torch_dataloader()


@pytest.mark.spark
def test_doubles_are_narrowed_and_said(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fastshard.spark"):
        converter = make_spark_converter(small(spark), str(tmp_path))
    assert "half to float" in caplog.text
    assert "pair to" in caplog.text
    with fs.open(converter.path) as reader:
        assert reader.schema.field("half").type == pa.float32()
        assert reader[3]["pair"].dtype == np.float32
    with fs.open(make_spark_converter(small(spark), str(tmp_path), dtype=None).path) as reader:
        assert reader.schema.field("half").type == pa.float64()


@pytest.mark.spark
def test_a_frame_of_unchanged_files_is_reused_and_of_changed_ones_not(
    spark: Any, tmp_path: Path, parquet: Path
) -> None:
    cache = str(tmp_path / "cache")

    def make() -> Any:
        return make_spark_converter(spark.read.parquet(str(parquet)).where("id < 15").select("id"), cache)

    first, again = make(), make()
    assert first.path == again.path
    pq.write_table(pa.table({"id": [1, 2], "half": [0.0, 0.0]}), parquet / "part-1.parquet")
    spark.catalog.refreshByPath(str(parquet))
    changed = make()
    assert changed.path != first.path
    assert (len(first), len(changed)) == (15, 17)


@pytest.mark.spark
def test_what_cannot_be_shown_to_be_unchanged_is_written_anew(
    spark: Any, tmp_path: Path, parquet: Path
) -> None:
    frame = spark.read.parquet(str(parquet)).selectExpr("id", "rand() AS r")
    paths = {make_spark_converter(frame, str(tmp_path / "cache")).path for _ in range(2)}
    assert len(paths) == 2


def test_plans_that_read_files_alone() -> None:
    files = "Project [id#1L]\n+- Filter (id#1L < 3)\n   +- Relation [id#1L,half#2] parquet\n"
    assert reads_only_files(files)
    join = "Join Inner\n:- Relation [a#1] parquet\n+- Range (0, 3, step=1, splits=Some(2))\n"
    assert reads_only_files(join)
    assert not reads_only_files(join.replace("Relation [a#1] parquet", "Relation [a#1] JDBCRelation(t)"))
    assert not reads_only_files("LogicalRDD [a#1], false\n")
    assert not reads_only_files(files.replace("id#1L < 3", "rand(7) < 0.5"))
    assert not reads_only_files("MapInArrow <lambda>(id#0L)#1\n+- Range (0, 3, step=1, splits=Some(2))\n")


def test_parquet_by_path_without_spark(tmp_path: Path, parquet: Path) -> None:
    converter = file_converter(parquet, tmp_path / "cache")
    assert len(converter) == 20
    assert converter.cache_dir_url.startswith("file://")
    assert all(url.startswith(converter.cache_dir_url) for url in converter.file_urls)
    assert file_converter(parquet, tmp_path / "cache").path == converter.path
    assert file_converter(parquet, tmp_path / "cache", dtype=None).path != converter.path


def test_a_data_set_by_path_is_used_as_it_is_and_never_deleted(tmp_path: Path) -> None:
    fs.write({"x": np.arange(5)}, tmp_path / "data")
    converter = make_spark_converter(str(tmp_path / "data"))
    assert converter.path == str(tmp_path / "data")
    converter.delete()
    assert len(fs.open(tmp_path / "data")) == 5


def test_kept_folders_are_found_by_other_processes(tmp_path: Path, parquet: Path) -> None:
    import subprocess

    code = (
        "import sys; from fastshard.spark import make_spark_converter;"
        "print(make_spark_converter(sys.argv[1], sys.argv[2], keep=sys.argv[3] == 'keep').path)"
    )

    def run(keep: str) -> str:
        command = [sys.executable, "-c", code, str(parquet), str(tmp_path / "cache"), keep]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()

    assert not os.path.exists(run("remove"))
    kept = run("keep")
    assert len(fs.open(kept)) == 20
    assert run("keep") == kept
    assert run("remove") == kept
    assert len(fs.open(kept)) == 20


def test_epochs_without_end_and_epochs_counted(tmp_path: Path, parquet: Path) -> None:
    converter = file_converter(parquet, tmp_path / "cache")
    with converter.make_torch_dataloader(batch_size=8) as loader:
        ids = [batch["id"].tolist() for batch in islice(loader, 9)]
        with pytest.raises(TypeError, match="no end"):
            len(loader)
    epochs = [list(chain(*ids[start : start + 3])) for start in (0, 3, 6)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(20))] * 3
    assert epochs[0] != epochs[1]
    with converter.make_torch_dataloader(batch_size=8, num_epochs=2) as loader:
        assert len(loader) == 6
        assert sum(len(batch["id"]) for batch in loader) == 40
    with converter.make_torch_dataloader(batch_size=8, num_epochs=1, shuffle_row_groups=False) as loader:
        assert [i for batch in loader for i in batch["id"].tolist()] == list(range(20))


def test_shards_of_several_ranks(tmp_path: Path, parquet: Path) -> None:
    converter = file_converter(parquet, tmp_path / "cache")
    parts = []
    for rank in range(3):
        with converter.make_torch_dataloader(
            batch_size=4, num_epochs=1, cur_shard=rank, shard_count=3
        ) as loader:
            parts.append([i for batch in loader for i in batch["id"].tolist()])
    assert {len(part) for part in parts} == {7}
    assert set(chain(*parts)) == set(range(20))
    with pytest.raises(fs.errors.InvalidError, match="give both or none"):
        converter.make_torch_dataloader(cur_shard=0)


def test_transform_spec(tmp_path: Path, parquet: Path) -> None:
    def double(frame: Any) -> Any:
        frame["twice"] = frame["id"] * 2
        frame["image"] = [np.full((2, 2), i) for i in frame["id"]]
        return frame

    converter = file_converter(parquet, tmp_path / "cache")
    spec = TransformSpec(double, removed_fields=["half"])
    with converter.make_torch_dataloader(batch_size=20, num_epochs=1, transform_spec=spec) as loader:
        (batch,) = list(loader)
    assert set(batch) == {"id", "twice", "image"}
    assert batch["twice"].tolist() == [2 * i for i in batch["id"].tolist()]
    assert tuple(batch["image"].shape) == (20, 2, 2)
    only = TransformSpec(selected_fields=["half"])
    with converter.make_torch_dataloader(batch_size=20, num_epochs=1, transform_spec=only) as loader:
        assert [set(batch) for batch in loader] == [{"half"}]


def test_arguments_that_mean_nothing_are_told_once_and_unknown_ones_raise(
    tmp_path: Path, parquet: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastshard.spark import _converter

    monkeypatch.setattr(_converter._FOLDERS, "told", set())
    converter = file_converter(
        parquet, tmp_path / "cache", parquet_row_group_size_bytes=1 << 20, compression_codec="gzip"
    )
    with fs.open(converter.path) as reader:
        assert reader.index.settings["compression"] == "zstd"
    for _ in range(2):
        converter.make_torch_dataloader(
            reader_pool_type="thread", workers_count=2, shuffling_queue_capacity=100
        )
    assert caplog.text.count("reader_pool_type") == 1
    assert caplog.text.count("parquet_row_group_size_bytes") == 1
    for name, match in {
        "nonsense": "unknown argument 'nonsense'",
        "predicate": "select the rows in Spark",
    }.items():
        with pytest.raises(fs.errors.InvalidError, match=match):
            converter.make_torch_dataloader(**{name: 1})
    with pytest.raises(fs.errors.InvalidError, match="compression_codec='rar'"):
        file_converter(parquet, tmp_path / "cache", compression_codec="rar")
    with pytest.raises(fs.errors.InvalidError, match="nothing says where the cache is"):
        make_spark_converter(str(parquet))


def test_schema_fields(tmp_path: Path, parquet: Path) -> None:
    converter = file_converter(parquet, tmp_path / "cache")
    with converter.make_torch_dataloader(num_epochs=1, schema_fields=["ha.*"]) as loader:
        assert {name for batch in loader for name in batch} == {"half"}


def test_tensorflow_gets_named_tuples(tmp_path: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in with TensorFlow's signatures; test_real_tensorflow.py has an environment of its own."""

    class Dataset:
        def __init__(self, make: Any) -> None:
            self.make = make

        @classmethod
        def from_generator(cls, make: Any, *, output_signature: Any) -> Dataset:
            cls.signature = output_signature
            return cls(make)

        def prefetch(self, count: int) -> Dataset:
            assert count == 2
            return self

    tf = types.ModuleType("tensorflow")
    tf.data = types.SimpleNamespace(Dataset=Dataset, AUTOTUNE=-1)  # type: ignore[attr-defined]
    tf.TensorSpec = lambda shape, dtype: (shape, dtype)  # type: ignore[attr-defined]
    tf.as_dtype = np.dtype  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow", tf)
    converter = file_converter(parquet, tmp_path / "cache")
    with converter.make_tf_dataset(batch_size=8, num_epochs=1, prefetch=2) as dataset:
        batches = list(dataset.make())
    assert Dataset.signature.id == ((None,), np.int64)
    assert sorted(i for batch in batches for i in batch.id) == list(range(20))
    assert [len(batch.half) for batch in batches] == [8, 8, 4]


def test_tensorflow_is_asked_for_only_there(
    tmp_path: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(fs.errors.MissingDependencyError, match="make_tf_dataset needs tensorflow"):
        file_converter(parquet, tmp_path / "cache").make_tf_dataset()
