"""`fs.ray.write`: every row once, in order, whatever happens to tasks; or the data set that was there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import ray

import fastshard as fs
from fastshard.errors import InvalidError, SchemaError, SourceError

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


def files(path: Path) -> set[str]:
    """Those that no index names, as a rule left behind by somebody."""
    names = {ref.name for ref in path.iterdir()}
    index = fs.open(path).index
    known = {"index.json", index.shard_table.path, index.block_table.path}
    return {name for name in names - known if not name.startswith("shard-")}


def ids(path: Any) -> list[int]:
    return fs.open(path).to_arrow()["id"].to_pylist()


def test_rows_in_order(tmp_path: Path) -> None:
    ds = ray.data.range(1000, override_num_blocks=7)
    result = fs.ray.write(ds, tmp_path / "data", shard_bytes=2000, metadata={"made": "by Ray"})
    assert ids(result) == list(range(1000))
    assert result.shards > 7
    again = fs.ray.write(ds, tmp_path / "again", shard_bytes=2000)
    assert again.fingerprint == result.fingerprint
    index = fs.open(result).index
    assert index.provenance["source"] == "ray"
    assert index.metadata == {"made": "by Ray"}
    assert files(tmp_path / "data") <= {".fastshard.lock"}


def test_types_and_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array(range(6), pa.int32()),
            "text": ["a", None, "é", "", "x", "y"],
            "list": pa.array([[1.0, 2.0]] * 6),
            "map": pa.array([[("k", 1)]] * 6, pa.map_(pa.string(), pa.int64())),
        }
    )
    ds = ray.data.from_arrow([table.slice(0, 2), table.slice(2)])
    fs.ray.write(ds, tmp_path / "all")
    assert fs.open(tmp_path / "all").to_arrow().to_pylist() == table.to_pylist()
    options: dict[str, Any] = {"tensors": {"list": ("float32", (2,))}, "cast": {"id": "int64"}}
    fs.ray.write(ds, tmp_path / "some", columns=["list", "id"], compression="zstd", **options)
    some = fs.open(tmp_path / "some")
    assert some.schema.names == ["list", "id"]
    assert some.take([3])["list"].tolist() == [[1.0, 2.0]]


def test_arrays_and_pandas(tmp_path: Path) -> None:
    ds = ray.data.range(10).map_batches(
        lambda batch: {
            "id": batch["id"],
            "image": np.stack([np.full((2, 3), i, "float32") for i in batch["id"]]),
        }
    )
    fs.ray.write(ds, tmp_path / "arrays")
    assert fs.open(tmp_path / "arrays").take([7])["image"].tolist() == [[[7.0] * 3] * 2]
    frame = pd.DataFrame({"id": [0, 1], "name": ["a", "b"], "x": [0.5, 1.5]})
    fs.ray.write(ray.data.from_pandas(frame), tmp_path / "pandas")
    assert fs.open(tmp_path / "pandas").to_arrow().to_pylist() == frame.to_dict("records")


def test_append_overwrite_and_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    fs.ray.write(ray.data.range(5), path)
    with pytest.raises(InvalidError, match="data"):
        fs.ray.write(ray.data.range(5), path)
    fs.ray.write(ray.data.range(3), path, mode="append")
    assert ids(path) == [0, 1, 2, 3, 4, 0, 1, 2]
    fs.ray.write(ray.data.range(2), path, mode="overwrite")
    assert ids(path) == [0, 1]


def test_a_task_that_was_killed_once(tmp_path: Path) -> None:
    """Its worker dies after half of its work; the retry leaves each row once, and nothing else."""
    mark = tmp_path / "killed"

    def kill_once(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if 150 in batch["id"] and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    ds = ray.data.range(200, override_num_blocks=2).map_batches(kill_once, batch_size=10)
    fs.ray.write(ds, tmp_path / "data", shard_bytes=400)
    assert mark.exists()
    assert ids(tmp_path / "data") == list(range(200))
    assert files(tmp_path / "data") <= {".fastshard.lock"}
    assert fs.open(tmp_path / "data").verify() == []


def test_a_job_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "data"
    fs.ray.write(ray.data.range(5), path)

    def fail(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if 40 in batch["id"]:
            raise ValueError("no")
        return batch

    with pytest.raises(Exception, match="no"):
        fs.ray.write(ray.data.range(50, override_num_blocks=5).map_batches(fail), path, mode="overwrite")
    assert ids(path) == [0, 1, 2, 3, 4]
    assert files(path) <= {".fastshard.lock"}
    fs.ray.write(ray.data.range(1), path, mode="append")
    assert ids(path) == [0, 1, 2, 3, 4, 0]


def test_blocks_that_do_not_fit(tmp_path: Path) -> None:
    def texts(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"id": np.array(["x"] * len(batch["id"]))} if 40 in batch["id"] else batch

    ds = ray.data.range(50, override_num_blocks=5).map_batches(texts)
    with pytest.raises((SourceError, SchemaError), match="id"):
        fs.ray.write(ds, tmp_path / "data")
    assert not (tmp_path / "data" / "index.json").exists()


def test_errors_are_ours(tmp_path: Path) -> None:
    ds = ray.data.from_arrow(pa.table({"id": [1, 2], "x": pa.array([[1.0], [1.0, 2.0]])}))
    with pytest.raises(fs.Error, match="column 'x'"):
        fs.ray.write(ds, tmp_path / "data", tensors={"x": ("float32", (1,))})
    with pytest.raises(InvalidError, match="'nothing'"):
        fs.ray.write(ds, tmp_path / "other", columns=["nothing"])


def test_an_empty_one(tmp_path: Path) -> None:
    empty = ray.data.from_arrow(pa.table({"id": pa.array([], pa.int64())}))
    assert fs.ray.write(empty, tmp_path / "data").rows == 0
    assert fs.open(tmp_path / "data").schema.names == ["id"]
