"""`fs.cached` converts once, on first use, and again where something has changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from outputs import stored

import fastshard as fs
from fastshard._fingerprint import describe_function
from fastshard.cache import cache_root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(3):
        pq.write_table(pa.table({"x": range(i * 10, i * 10 + 10)}), tmp_path / "in" / f"{i}.parquet")
    return tmp_path / "in"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def data_sets(cache: Path) -> list[str]:
    return sorted(path.parent.name for path in cache.glob("*/index.json"))


def test_the_second_call_finds_what_the_first_made(source: Path, cache: Path) -> None:
    first = fs.cached(source, cache)
    assert os.path.dirname(first) == str(cache)
    assert os.path.basename(first).startswith("in-")
    made = os.stat(os.path.join(first, "index.json"))
    assert fs.cached(str(source), cache) == first
    now = os.stat(os.path.join(first, "index.json"))
    assert (made.st_ino, made.st_mtime_ns) == (now.st_ino, now.st_mtime_ns)
    assert stored(first)["x"].to_pylist() == list(range(30))


def test_the_working_directory_does_not_matter(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fs.cached(source, cache)
    monkeypatch.chdir(source.parent)
    assert fs.cached("in", "cache") == first


def touched(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


def test_a_changed_source_is_converted_again(source: Path, cache: Path) -> None:
    paths = [fs.cached(source, cache)]
    touched(source / "1.parquet")
    paths.append(fs.cached(source, cache))
    pq.write_table(pa.table({"x": [100]}), source / "3.parquet")
    paths.append(fs.cached(source, cache))
    (source / "0.parquet").unlink()
    paths.append(fs.cached(source, cache))
    (source / "1.parquet").rename(source / "9.parquet")
    paths.append(fs.cached(source, cache))
    assert len(set(paths)) == 5
    assert stored(paths[-1])["x"].to_pylist() == [*range(20, 30), 100, *range(10, 20)]
    assert stored(paths[0])["x"].to_pylist() == list(range(30))


def test_every_argument_that_matters_is_told_apart(source: Path, cache: Path) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"columns": ["x"]},
        {"filter": pc.field("x") > 3},
        {"filter": pc.field("x") > 4},
        {"filter": pc.field("x").isin(list(range(100)))},
        {"filter": pc.field("x").isin([*range(50), *range(51, 100)])},
        {"cast": {"x": "int32"}},
        {"cast": {"x": "int16"}},
        {"shuffle_seed": 1},
        {"shuffle_seed": 2},
        {"compression": "zstd"},
        {"block_bytes": 1000},
        {"shard_bytes": 1000},
        {"metadata": {"a": 1}},
        {"transform": lambda batch: batch.slice(1)},
        {"transform": lambda batch: batch.slice(2)},
    ]
    paths = [fs.cached(source, cache, **option) for option in options]
    assert len(set(paths)) == len(options)
    assert [fs.cached(source, cache, **option) for option in options] == paths
    same = [
        {"workers": 2, "shuffle_seed": 1},
        {"progress": False, "cast": {"x": "int32"}},
        {"compression": "none"},
    ]
    assert [fs.cached(source, cache, **option) for option in same] == [paths[8], paths[6], paths[0]]
    assert len(data_sets(cache)) == len(options)


def test_data_in_memory_are_told_by_their_values(cache: Path) -> None:
    table = pa.table({"x": range(1000), "s": ["a"] * 1000})
    first = fs.cached(table, cache)
    assert fs.cached(pa.concat_tables([table.slice(0, 10), table.slice(10)]), cache) == first
    assert fs.cached(table.slice(1), cache) != first
    assert fs.cached(table.rename_columns(["x", "t"]), cache) != first
    pandas = pytest.importorskip("pandas")
    assert fs.cached(pandas.DataFrame({"x": [1]}), cache) == fs.cached(pandas.DataFrame({"x": [1]}), cache)
    assert fs.cached({"x": np.arange(3)}, cache) != fs.cached({"x": np.arange(4)}, cache)


def test_a_data_set_is_told_by_its_fingerprint(source: Path, tmp_path: Path, cache: Path) -> None:
    def key(name: str) -> str:
        return fs.cached(tmp_path / name, cache).rpartition("-")[2]

    for name in "ab":
        fs.convert(source, tmp_path / name)
    assert key("a") == key("b")
    fs.convert(source, tmp_path / "a", mode="overwrite", shuffle_seed=1)
    assert key("a") != key("b")


def test_a_stream_cannot_be_cached(cache: Path) -> None:
    for stream in (iter([{"x": 1}]), pa.table({"x": [1]}).to_reader()):
        with pytest.raises(fs.errors.InvalidError, match="cannot tell whether it is the same"):
            fs.cached(stream, cache)
    assert not cache.exists()


def test_where_the_cache_is(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FASTSHARD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == str(tmp_path / "home" / ".cache" / "fastshard")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == str(tmp_path / "xdg" / "fastshard")
    monkeypatch.setenv("FASTSHARD_CACHE", str(tmp_path / "own"))
    assert cache_root() == str(tmp_path / "own")
    assert cache_root("~/other") == str(tmp_path / "home" / "other")
    assert fs.cached(source).startswith(str(tmp_path / "own") + os.sep)


def test_what_is_left_of_a_conversion_is_taken_over(source: Path, cache: Path) -> None:
    path = Path(fs.cached(source, cache))
    shutil.rmtree(path)
    path.mkdir()
    (path / ".tmp-0123456789ab-task-000000-000000.arrow").write_bytes(b"half")
    (path / "shard-00000-0123456789abcdef.arrow").write_bytes(b"half")
    (path / ".fastshard.lock").touch()
    assert fs.cached(source, cache) == str(path)
    assert stored(path)["x"].to_pylist() == list(range(30))
    assert len(list(path.glob("shard-*"))) == 1
    assert not list(path.glob(".tmp-*"))


@pytest.mark.parametrize("damage", ["garbage", "table"])
def test_a_damaged_cache_is_made_anew(source: Path, cache: Path, damage: str) -> None:
    path = Path(fs.cached(source, cache))
    if damage == "garbage":
        (path / "index.json").write_text("{")
    else:
        next(path.glob("index-*")).unlink()
    assert fs.cached(source, cache) == str(path)
    assert stored(path)["x"].to_pylist() == list(range(30))


def test_a_failed_conversion_is_tried_again(source: Path, cache: Path) -> None:
    fails = True

    class Transform:
        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            if fails:
                raise RuntimeError("not yet")
            return batch

        def __reduce__(self) -> Any:
            return str, ("the same",)

    with pytest.raises(fs.errors.SourceError, match="not yet"):
        fs.cached(source, cache, transform=Transform())
    assert not data_sets(cache)
    fails = False
    assert stored(fs.cached(source, cache, transform=Transform()))["x"].to_pylist() == list(range(30))


# Processes at once

ASK = """
import os, sys
import fastshard as fs
import fastshard.cache

source, cache, log = sys.argv[1:]
original = fastshard.cache.convert_source

def watched(*args, **options):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    return original(*args, **options)

fastshard.cache.convert_source = watched
sys.stdin.readline()
path = fs.cached(source, cache, columns=["x"])
with fs.open(path) as reader:
    print(path, len(reader), int(reader["x"].sum()))
"""


def ask(source: Path, cache: Path, log: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK, str(source), str(cache), str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(processes: list[subprocess.Popen[str]]) -> Iterator[str]:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        yield out


def test_eight_processes_at_once_convert_once(source: Path, cache: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(200_000)}), source / "9.parquet")
    found = list(answers([ask(source, cache, tmp_path / "log") for _ in range(8)]))
    assert len(set(found)) == 1
    path, rows, total = found[0].split()
    assert (int(rows), int(total)) == (200_030, sum(range(30)) + sum(range(200_000)))
    assert len((tmp_path / "log").read_text().split()) == 1
    assert not [name for name in os.listdir(path) if name.startswith(".tmp-")]


DIE = """
import os, signal, sys
import fastshard as fs

def die(progress):
    if progress.rows > 20_000:
        print("dying", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

fs.cached(sys.argv[1], sys.argv[2], columns=["x"], progress=die, shard_bytes=10_000, block_bytes=1000)
"""


def test_a_killed_converter_is_followed_by_the_next(source: Path, cache: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(50_000)}), source / "9.parquet", row_group_size=1000)
    result = subprocess.run(
        [sys.executable, "-c", DIE, str(source), str(cache)], capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "dying\n")
    (half,) = (path for path in cache.iterdir() if path.is_dir())
    assert not (half / "index.json").exists()
    assert list(half.iterdir())
    path = fs.cached(source, cache, columns=["x"], shard_bytes=10_000, block_bytes=1000)
    assert path == str(half)
    assert stored(path).num_rows == 50_030
    assert not list(half.glob(".tmp-*"))


def test_who_waits_says_so(source: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = fs.cached(source, cache)
    shutil.rmtree(path)
    code = textwrap.dedent("""
        import fcntl, sys, time
        with open(sys.argv[1], "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            print("held", flush=True)
            time.sleep(1)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code, f"{path}.lock"], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        start = time.monotonic()
        with caplog.at_level("INFO", "fastshard"):
            assert fs.cached(source, cache) == path
        assert time.monotonic() - start > 0.5
    assert "another process is converting" in caplog.text


# What a transform does

CONSTANT = 1


def helper(batch: Any) -> Any:
    return batch.slice(CONSTANT)


def uses_helper(batch: Any) -> Any:
    return helper(batch)


def test_functions_are_told_by_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(function: Any) -> str:
        return json.dumps(describe_function(function))

    def make(n: int) -> Any:
        return lambda batch: batch.slice(n)

    assert told(make(1)) == told(make(1))
    assert told(make(1)) != told(make(2))
    before = told(uses_helper)
    assert told(uses_helper) == before
    monkeypatch.setitem(globals(), "CONSTANT", 2)
    assert told(uses_helper) != before
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "helper", lambda batch: batch)
    assert told(uses_helper) != before
    with pytest.raises(fs.errors.InvalidError, match="may have changed unseen"):
        told(make(number for number in [1]))  # type: ignore[arg-type]


def test_functions_are_told_alike_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "NAMES = {'b', 'a', 'c'}\n"
        "def f(batch, k='x', *, d=3):\n"
        "    return batch if k in {'q', 'r', 's'} else f(batch)\n"
    )
    code = "import json, work; from fastshard._fingerprint import describe_function as d; print(json.dumps(d(work.f)))"
    found = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=environment,
        )
        assert result.returncode == 0, result.stderr
        found.add(result.stdout)
    assert len(found) == 1
