"""The system refuses: an error that names the file and what to do, and nothing half-done."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import read_back

import fastshard as fs
from fastshard import _commit, _directory, _storage
from fastshard.converters import _shards
from fastshard.errors import StorageError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where this process may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system; the limit on file sizes is tested below")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


NOISE = np.random.default_rng(0).integers(0, 2**62, 300_000)


def snapshot(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()} if path.exists() else {}


@pytest.mark.parametrize("shard_bytes", [100_000, 1 << 28])
def test_a_full_disk(small_disk: Path, shard_bytes: int) -> None:
    path = small_disk / "d"
    for mode in ("error", "overwrite", "append"):
        before = snapshot(path)
        with pytest.raises(
            StorageError, match="No space left on device; free space on that file system"
        ) as caught:
            fs.write({"x": NOISE}, path, mode=mode, shard_bytes=shard_bytes)
        assert caught.value.errno == errno.ENOSPC
        assert str(path) in str(caught.value)
        assert snapshot(path) == before
        if mode == "error":
            assert not path.exists()
            fs.write({"x": NOISE[:1000]}, path)
    assert read_back(path).num_rows == 1000


def test_a_full_disk_by_samples(small_disk: Path) -> None:
    with pytest.raises(StorageError, match="No space left"):
        fs.write(({"x": NOISE[i * 1000 : (i + 1) * 1000]} for i in range(300)), small_disk / "d")
    assert os.listdir(small_disk) == []


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    code = f"""
import resource, signal, sys
import numpy as np
import fastshard as fs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    fs.write({{"x": np.arange(1_000_000)}}, {str(tmp_path / "d")!r})
except fs.errors.StorageError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "File too large; the file system or a limit of this process" in result.stdout
    assert not (tmp_path / "d").exists()


# What the writer asks of the system, in the order in which it does.
CALLS = ["sync shard", "index shard", "sync_file", "write_durably", "publish", "sync_directory", "replace"]


def break_call(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Make the n-th call fail with EIO."""
    owner, attribute = {
        "sync shard": (_shards, "sync_file"),
        "index shard": (_shards._core, "index_file"),
        "sync_file": (_commit, "sync_file"),
        "write_durably": (_commit, "write_durably"),
        "publish": (_storage.os, "replace"),
        "sync_directory": (_directory, "sync_directory"),
        "replace": (_directory, "publish"),
    }[name]
    real = getattr(owner, attribute)
    calls = 0

    def broken(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += name != "replace" or str(args[1]).endswith("index.json")
        if calls == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args, **options)

    monkeypatch.setattr(owner, attribute, broken)


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, mode: str
) -> None:
    path = tmp_path / "d"
    if mode != "error":
        fs.write({"x": NOISE[:500]}, path)
    before = snapshot(path)
    break_call(monkeypatch, name, number)
    committed = False
    try:
        fs.write({"x": NOISE[:3000]}, path, mode=mode, block_bytes=1000, shard_bytes=10_000)  # type: ignore[arg-type]
        committed = True
    except StorageError as error:
        assert error.errno == errno.EIO  # noqa: PT017
        assert "Input/output error; the device failed" in str(error)  # noqa: PT017
    monkeypatch.undo()
    if committed or (name == "sync_directory" and number == 2):  # after the rename there is no way back
        assert read_back(path).num_rows == (3500 if mode == "append" else 3000)
    else:
        assert snapshot(path) == before
    fs.write({"x": NOISE[:10]}, path, mode="overwrite")
    assert read_back(path).num_rows == 10


@pytest.mark.parametrize("number", [1, 2, 5, 13])
def test_an_interruption_at_any_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "d"
    fs.write({"x": NOISE[:500]}, path)
    before = snapshot(path)
    real, calls = os.replace, 0

    def interrupted(*args: Any) -> None:
        nonlocal calls
        calls += 1
        real(*args)
        if calls == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(_storage.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fs.write({"x": NOISE[:3000]}, path, mode="overwrite", block_bytes=1000, shard_bytes=2_000)
    monkeypatch.undo()
    assert snapshot(path) == before
    assert read_back(path).num_rows == 500


def test_an_interruption_right_after_the_commit_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d"
    fs.write({"x": NOISE[:500]}, path)
    real = _directory.publish

    def interrupted(temporary: str, final: str) -> None:
        real(temporary, final)
        if final.endswith("index.json"):
            raise KeyboardInterrupt

    monkeypatch.setattr(_directory, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fs.write({"x": NOISE[:3000]}, path, mode="overwrite")
    monkeypatch.undo()
    assert read_back(path).num_rows == 3000
    fs.write({"x": NOISE[:10]}, path, mode="append")
    assert read_back(path).num_rows == 3010
