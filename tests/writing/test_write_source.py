"""Tasks of a source become shards: the same bytes whatever the workers, and nothing when one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sources import SCHEMA, NumberSource, expected
from written import read_back

import fastshard as fs
from fastshard.converters._write import Progress, WriteOptions, write_source
from fastshard.errors import InvalidError, SchemaError, SourceError, StorageError

SMALL = WriteOptions(block_bytes=1000, shard_bytes=9000)


def bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_bytes_do_not_depend_on_the_workers(tmp_path: Path, compression: str) -> None:
    options = WriteOptions(block_bytes=1000, shard_bytes=9000, compression=compression)
    results = [
        write_source(NumberSource(5500), tmp_path / str(workers), options=options, workers=workers)
        for workers in (1, 2, 3)
    ]
    assert {(result.rows, result.fingerprint) for result in results} == {(5500, results[0].fingerprint)}
    assert bytes_of(tmp_path / "1") == bytes_of(tmp_path / "2") == bytes_of(tmp_path / "3")
    table = read_back(tmp_path / "2")
    assert table.equals(expected(5500))
    assert table.schema.metadata == SCHEMA.metadata
    element = table.schema.field("v").type.value_field
    assert (element.name, element.nullable, element.metadata) == ("element", False, {b"unit": b"m"})


@pytest.mark.parametrize("workers", [1, 2])
def test_no_tasks_and_tasks_without_rows(tmp_path: Path, workers: int) -> None:
    assert write_source(NumberSource(0), tmp_path / "none", workers=workers).rows == 0
    assert read_back(tmp_path / "none").schema.names == SCHEMA.names


@pytest.mark.parametrize("workers", [1, 2])
def test_appending_fits_the_schema_of_the_data_set(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "d"
    wider = pa.schema([("word", pa.large_utf8()), ("id", pa.int64()), ("v", pa.list_(pa.float64()))])
    fs.write(pa.table({name: [] for name in wider.names}, schema=wider), path)
    with pytest.raises(SchemaError, match=r"column 'v' is fixed_size_list"):
        write_source(NumberSource(10), path, mode="append", workers=workers)
    other = tmp_path / "e"
    write_source(NumberSource(1500), other, options=SMALL)
    write_source(NumberSource(1500), other, mode="append", workers=workers)
    assert read_back(other).equals(pa.concat_tables([expected(1500)] * 2))
    assert fs.open(other).index.settings["block_bytes"] == 1000


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("trouble", "error", "text"),
    [
        ("source error", SourceError, "rows from 2000 are nowhere"),
        ("unpicklable", Exception, "trouble at 2000"),
    ],
)
def test_a_failing_task_leaves_what_was_there(
    tmp_path: Path, workers: int, trouble: str, error: type[Exception], text: str
) -> None:
    path = tmp_path / "d"
    source = NumberSource(6000, trouble=trouble, trouble_at=2500)
    with pytest.raises(error, match=text):
        write_source(source, path, options=SMALL, workers=workers)
    assert not path.exists()
    fs.write({"x": [1]}, path)
    before = bytes_of(path)
    with pytest.raises(error, match=text):
        write_source(source, path, options=SMALL, workers=workers, mode="overwrite")
    assert bytes_of(path) == before


def test_a_worker_that_dies_is_an_error(tmp_path: Path) -> None:
    source = NumberSource(4000, trouble="die", trouble_at=2500)
    with pytest.raises(StorageError, match=r"a worker process died .* fewer workers="):
        write_source(source, tmp_path / "d", options=SMALL, workers=2)
    assert not (tmp_path / "d").exists()


def test_a_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    announced = SCHEMA.set(0, pa.field("id", pa.int32(), nullable=False))
    with pytest.raises(SchemaError, match="column 'id' is int64, and in the schema announced it is int32"):
        write_source(NumberSource(10, schema=announced), tmp_path / "d")
    with pytest.raises(SchemaError, match="missing 'more'"):
        write_source(NumberSource(10, schema=SCHEMA.append(pa.field("more", pa.int8()))), tmp_path / "e")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_all_rows_and_bytes(tmp_path: Path, workers: int) -> None:
    seen: list[Progress] = []
    write_source(NumberSource(5500), tmp_path / "d", workers=workers, progress=seen.append)
    assert seen[-1] == Progress(5500, 55_000, 5500, 55_000)
    assert [update.rows for update in seen] == sorted(update.rows for update in seen)
    assert [update.bytes for update in seen] == sorted(update.bytes for update in seen)
    assert len(seen) >= 6


def test_a_progress_that_raises_stops_the_write(tmp_path: Path) -> None:
    def stop(update: Progress) -> None:
        raise KeyboardInterrupt

    for workers in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            write_source(NumberSource(5500), tmp_path / "d", workers=workers, progress=stop)
        assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_workers_are_a_positive_number(tmp_path: Path, workers: Any) -> None:
    with pytest.raises(InvalidError, match="workers="):
        write_source(NumberSource(10), tmp_path / "d", workers=workers)


HANG = """
import sys
sys.path.insert(0, sys.argv[1])
from sources import NumberSource
from fastshard.converters._write import write_source
if __name__ == "__main__":
    write_source(NumberSource(4000, trouble="hang", trouble_at=500, folder=sys.argv[3]), sys.argv[2], workers=2)
"""


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text(HANG)
    signs = tmp_path / "signs"
    signs.mkdir()
    arguments = [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path / "d"), str(signs)]
    with subprocess.Popen(arguments) as parent:
        try:
            deadline = time.monotonic() + 60
            while not list(signs.glob("0-*")) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            parent.send_signal(signal.SIGKILL)
    workers = [int(sign.name.partition("-")[2]) for sign in signs.iterdir()]
    assert workers
    deadline = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_running, workers))
    write_source(NumberSource(100), tmp_path / "d", mode="overwrite")
    assert read_back(tmp_path / "d").num_rows == 100
    assert not list((tmp_path / "d").glob(".tmp-*"))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
