"""`fastshard vacuum` removes what the current generation does not use, and says how much."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data set whose older generation is still there."""
    fs.write({"x": [1, 2, 3]}, tmp_path / "data")
    fs.write({"x": [4, 5]}, tmp_path / "data", mode="overwrite")
    return tmp_path / "data"


def test_old_files_go_and_the_data_stay(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file.name: file.stat().st_size for file in path.iterdir()}
    assert main(["vacuum", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    gone = before.keys() - {file.name for file in path.iterdir()}
    assert len(gone) == 3
    assert document == {"path": str(path), "files": 3, "bytes": sum(before[name] for name in gone)}
    assert [sample["x"] for sample in fs.open(path)] == [4, 5]


def test_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vacuum", str(path)]) == 0
    assert "removed 3 files" in capsys.readouterr().out
    assert main(["vacuum", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: nothing to remove\n"


def test_no_data_set_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("x")
    assert main(["vacuum", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert (tmp_path / "precious").exists()
