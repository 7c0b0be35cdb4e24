"""`fastshard index` makes a data set of Arrow files where they lie."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for part in range(3):
        table = pa.table({"x": pa.array(range(part * 10, part * 10 + 10), pa.int32())})
        feather.write_feather(table, tmp_path / "files" / f"part-{part}.feather", compression="zstd")
    return tmp_path / "files"


def test_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file: file.read_bytes() for file in folder.iterdir()}
    assert main(["index", str(folder)]) == 0
    assert "30 samples in 3 files" in capsys.readouterr().out
    assert fs.open(folder)["x"].tolist() == list(range(30))
    assert all(file.read_bytes() == data for file, data in before.items())


def test_several_files_with_the_index_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(folder / "part-2.feather"), str(folder / "part-0.feather")]
    assert main(["index", *files, "--dest", str(folder.parent), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["rows"], document["shards"]) == (str(folder.parent), 20, 2)
    assert fs.open(folder.parent)["x"].tolist() == [*range(20, 30), *range(10)]


def test_an_index_is_replaced_only_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", str(folder)]) == 0
    assert main(["index", str(folder)]) == 1
    assert "index" in capsys.readouterr().err
    assert main(["index", "--overwrite", str(folder)]) == 0


def test_what_is_no_arrow_file_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "part-1.feather").write_bytes(b"not an Arrow file at all")
    assert main(["index", str(folder)]) == 1
    assert "part-1.feather" in capsys.readouterr().err
    assert not (folder / "index.json").exists()
