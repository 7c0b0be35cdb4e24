"""Writing to a mounted object store: each file by one pass of writes, and nothing else."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fastshard as fs
from fastshard import _commit
from fastshard._commit import Transaction
from fastshard.converters._options import WriteOptions
from fastshard.converters._run import Job
from fastshard.converters._steps import plan_steps
from fastshard.converters._write import DatasetWrite
from fastshard.schema import schema_message
from fastshard.spark._places import is_mount, resolve_place
from fastshard.spark._task import PartitionJob, PartitionWriter
from fastshard.spark._wire import decode_entry


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which everything is refused but making, writing once, reading, listing and removing."""
    root = tmp_path / "mount"
    root.mkdir()

    def refuse_in_mount(module: Any, name: str) -> None:
        real = getattr(module, name)

        def guarded(path: Any, *others: Any, **named: Any) -> Any:
            if any(isinstance(p, (str, Path)) and str(p).startswith(str(root)) for p in (path, *others)):
                raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
            return real(path, *others, **named)

        monkeypatch.setattr(module, name, guarded)

    for name in ("rename", "replace", "link", "symlink", "truncate", "fsync"):
        refuse_in_mount(os, name)
    refuse_in_mount(pa, "memory_map")
    monkeypatch.setattr(fcntl, "flock", _refused)
    real_open = os.open

    def no_update(path: Any, flags: int, *others: Any, **named: Any) -> int:
        if str(path).startswith(str(root)) and flags & (os.O_RDWR | os.O_APPEND):
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
        return real_open(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", no_update)
    return root


def _refused(*_: Any) -> None:
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


TABLE = pa.table({"id": pa.array(range(1000), pa.int64()), "text": [f"row {i}" for i in range(1000)]})


def write(path: Path, mode: Any, tmp_path: Path, *, commit: bool = True, attempts: int = 1) -> None:
    """What the driver and two executors do."""
    staging = tmp_path / "staging"
    staging.mkdir(exist_ok=True)
    with Transaction(path, mode, mounted=True) as transaction:
        writing = DatasetWrite(
            transaction, TABLE.schema, options=WriteOptions(block_bytes=1024, shard_bytes=4096)
        )
        job = PartitionJob(
            frame=schema_message(TABLE.schema),
            vectors=(False, False),
            steps=plan_steps(TABLE.schema).with_schema(TABLE.schema),
            output=Job.of(TABLE.schema, None, writing.options, transaction.task_prefix),
            staged=True,
            staging=str(staging),
        )
        for partition in range(2):
            for attempt in range(attempts):
                writer = PartitionWriter(job, partition, attempt)
                reports = []
                for report in writer.run(
                    iter(TABLE.slice(500 * partition, 500).to_batches(max_chunksize=50))
                ):
                    reports += report.to_pylist()
                    assert len(list(staging.rglob("*.arrow"))) <= 2
            for row in reports:
                if row["shard"] >= 0:
                    entry = decode_entry(row["entry"])
                    object.__setattr__(entry.table, "path", row["file"])
                    writing.add_file(entry)
        assert not list(staging.iterdir())
        if commit:
            transaction.sweep_tasks()
            writing.commit()


def names(path: Path) -> set[str]:
    return set(os.listdir(path)) if path.exists() else set()


def check(path: Path, table: pa.Table = TABLE) -> None:
    with fs.open(path) as reader:
        assert reader["id"].tolist() == table["id"].to_pylist()
        assert reader["text"] == table["text"].to_pylist()
        assert not reader.verify()


def test_all_modes(mount: Path, tmp_path: Path) -> None:
    path = mount / "data"
    write(path, "error", tmp_path)
    check(path)
    with pytest.raises(fs.errors.InvalidError, match="a data set is there already"):
        write(path, "error", tmp_path)
    write(path, "append", tmp_path)
    check(path, pa.concat_tables([TABLE, TABLE]))
    write(path, "overwrite", tmp_path)
    check(path)


def test_files_of_failed_attempts_and_of_failed_writes_go(mount: Path, tmp_path: Path) -> None:
    path = mount / "data"
    write(path, "error", tmp_path, attempts=2)
    with fs.open(path) as reader:
        assert len([name for name in names(path) if name.startswith("shard-")]) == reader.index.shards
    before = names(path)
    write(path, "append", tmp_path, commit=False)
    assert names(path) == before
    write(mount / "other", "error", tmp_path, commit=False)
    assert not (mount / "other").exists()


def test_an_attempt_that_is_not_wanted_any_more_removes_what_it_wrote(mount: Path, tmp_path: Path) -> None:
    """Spark may stop it later than the driver gives up, or commits what another attempt wrote."""
    staging = tmp_path / "staging"
    staging.mkdir()
    with Transaction(mount / "data", "error", mounted=True) as transaction:
        options = WriteOptions(block_bytes=1024, shard_bytes=4096)
        job = PartitionJob(
            frame=schema_message(TABLE.schema),
            vectors=(False, False),
            steps=plan_steps(TABLE.schema).with_schema(TABLE.schema),
            output=Job.of(TABLE.schema, None, options, transaction.task_prefix),
            staged=True,
            staging=str(staging),
            marker=transaction.mark(),
        )

        def given_up() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(TABLE.to_batches(max_chunksize=50)):
                if number == 15:
                    transaction.sweep_tasks()
                    assert not names(mount / "data")
                yield batch

        with pytest.raises(fs.errors.StorageError, match="the driver gave up this write"):
            list(PartitionWriter(job, 0, 0).run(given_up()))
        assert not names(mount / "data")
        assert not list(staging.iterdir())


def test_a_failing_commit_leaves_the_old_data_set(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = mount / "data"
    write(path, "error", tmp_path)
    before = names(path)
    with monkeypatch.context() as patch:
        patch.setattr(_commit, "write_durably", _refused)
        with pytest.raises(fs.errors.StorageError):
            write(path, "overwrite", tmp_path)
    assert names(path) == before
    check(path)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("dbfs:/ml/train", "/dbfs/ml/train"),
        ("dbfs:///ml/train", "/dbfs/ml/train"),
        ("file:///dbfs/ml/train", "/dbfs/ml/train"),
        ("file:/dbfs/ml/train", "/dbfs/ml/train"),
        ("/dbfs/ml/train/", "/dbfs/ml/train"),
        ("dbfs:/Volumes/c/s/v/train", "/Volumes/c/s/v/train"),
        ("/Volumes/c/s/v/train", "/Volumes/c/s/v/train"),
    ],
)
def test_one_place_has_several_names(given: str, path: str) -> None:
    assert resolve_place(given) == path
    assert is_mount(path)


@pytest.mark.parametrize("given", ["/Workspace/Users/me/train", "file:/Workspace/x", "dbfs:/Workspace/x"])
def test_workspace_folders_are_refused(given: str) -> None:
    with pytest.raises(fs.errors.InvalidError, match=r"workspace folders.*choose a volume"):
        resolve_place(given)


def test_other_places() -> None:
    assert resolve_place("/data/train") == "/data/train"
    assert not is_mount("/data/Volumes/train")
    assert not is_mount("/Volumes2/train")
    with pytest.raises(fs.errors.UnsupportedError, match="s3://"):
        resolve_place("s3://bucket/train")
