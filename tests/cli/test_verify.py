"""`fastshard verify` finds every fault, names it, and says so by its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three shards of several blocks each."""
    table = pa.table(
        {"x": pa.array(range(30_000), pa.int64()), "text": [f"sample {i}" for i in range(30_000)]}
    )
    fs.write(table, tmp_path / "data", block_bytes=50_000, shard_bytes=250_000)
    assert len(shards(tmp_path / "data")) >= 3
    return tmp_path / "data"


def shards(path: Path) -> list[Path]:
    return sorted(path.glob("shard-*.arrow"))


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def verify(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    code = main(["verify", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_whole_data_set(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(path)]) == 0
    assert "all is well: 30,000 samples" in capsys.readouterr().out
    code, document = verify(path, capsys)
    assert (code, document["ok"], document["faults"], document["rows"]) == (0, True, [], 30_000)
    assert document["bytes"] == sum(shard.stat().st_size for shard in shards(path))
    assert main(["verify", "--quiet", str(path)]) == 0
    assert capsys.readouterr().out == ""


def test_every_damaged_shard_is_listed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_, last = shards(path)
    flip(first, first.stat().st_size // 2)
    second.write_bytes(second.read_bytes()[:-100])
    last.unlink()
    assert main(["verify", str(path)]) == 1
    text = capsys.readouterr().out
    for shard in (first, second, last):
        assert shard.name in text
    code, document = verify(path, capsys)
    assert (code, document["ok"]) == (1, False)
    assert {fault["file"] for fault in document["faults"]} == {first.name, second.name, last.name}
    assert all(fault["message"] for fault in document["faults"])


def test_a_swapped_shard(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = shards(path)
    first.write_bytes(second.read_bytes())
    code, document = verify(path, capsys)
    assert code == 1
    assert {fault["file"] for fault in document["faults"]} == {first.name}


def test_a_flipped_byte_anywhere_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = shards(path)[1]
    size = shard.stat().st_size
    for offset in (0, 9, 100, size // 3, size - 300, size - 5):
        flip(shard, offset)
        code, document = verify(path, capsys)
        assert code == 1
        assert {fault["file"] for fault in document["faults"]} == {shard.name}
        flip(shard, offset)
    assert verify(path, capsys)[0] == 0


@pytest.mark.parametrize("pattern", ["index-*.arrow", "blocks-*.arrow"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_table(path: Path, pattern: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = path.glob(pattern)
    if damage == "flip":
        flip(file, file.stat().st_size // 2)
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-64])
    else:
        file.unlink()
    code, document = verify(path, capsys)
    assert code == 1
    assert any(file.name in fault["message"] for fault in document["faults"])


def test_a_damaged_index(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = path / "index.json"
    file.write_bytes(file.read_bytes()[:-40])
    code, document = verify(path, capsys)
    assert code == 1
    assert document["faults"][0]["file"] == "index.json"


def test_no_data_set_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert str(tmp_path) in captured.err
    assert not captured.out


def test_an_empty_data_set_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fs.write(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "data")
    code, document = verify(tmp_path / "data", capsys)
    assert (code, document["ok"], document["rows"]) == (0, True, 0)


def test_a_part_that_is_misspelt_is_an_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step, message in (("split=0:2", "a part lies between two shares"), ("select=a", "select=")):
        assert main(["verify", f"{path}?{step}"]) == 1
        captured = capsys.readouterr()
        assert message in captured.err
        assert not captured.out
