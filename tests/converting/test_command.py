"""`fastshard convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from outputs import stored

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def source(tmp_path: Path) -> Path:
    images = [np.full(12, i, np.uint8).tobytes() for i in range(10)]
    table = pa.table({"id": range(10), "x": [i / 2 for i in range(10)], "image": images, "a,b": ["t"] * 10})
    pq.write_table(table, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def run(*arguments: Any) -> int:
    return main(["convert", "--workers", "1", *map(str, arguments)])


def test_a_file(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{tmp_path}/out: 10 samples in 1 shard, ")
    assert captured.err == ""
    assert stored(tmp_path / "out").equals(pq.read_table(source))


def test_several_sources(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, source, f"{tmp_path}/*.parquet", tmp_path / "out", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["shards"], document["generation"]) == (30, 1, 1)
    assert document["path"] == str(tmp_path / "out")
    assert document["seconds"] > 0


def test_all_options(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--columns", "image, id", "--where", "id < 4 or x >= 4", "--cast", "id=int8", "--tensor", "image=uint8:3x2,2",
        "--shuffle-seed", "1", "--compression", "zstd:3", "--metadata", "n=[1]", "--metadata", "text=plain words",
        "--block-bytes", "1KiB", "--shard-bytes", "1.5m", "--no-progress",
    ]  # fmt: skip
    assert run(source, tmp_path / "out", *options) == 0, capsys.readouterr().err
    table = stored(tmp_path / "out")
    assert table.schema.names == ["image", "id"]
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.uint8(), (3, 2, 2))
    assert sorted(table["id"].to_pylist()) == [0, 1, 2, 3, 8, 9]
    assert table["id"].to_pylist() != [0, 1, 2, 3, 8, 9]
    with fs.open(tmp_path / "out") as reader:
        assert reader.index.metadata == {"n": [1], "text": "plain words"}
        settings = reader.index.settings
    assert settings == {"compression": "zstd", "level": 3, "block_bytes": 1024, "shard_bytes": 1_500_000}


def test_a_transform_of_a_module(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_steps.py").write_text("def only_id(batch):\n    return batch.select(['id'])\n")
    monkeypatch.chdir(tmp_path)
    assert run(source, tmp_path / "out", "--transform", "own_steps:only_id") == 0
    assert stored(tmp_path / "out").schema.names == ["id"]


def test_a_column_whose_name_has_a_comma(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", "--columns", "a,b") == 0
    assert stored(tmp_path / "out").schema.names == ["a,b"]


def test_overwrite_and_append(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "out") == 0
    assert run(source, tmp_path / "out") == 1
    assert "a data set is there already" in capsys.readouterr().err
    assert run(source, tmp_path / "out", "--append") == 0
    assert stored(tmp_path / "out").num_rows == 20
    assert run(source, tmp_path / "out", "--overwrite") == 0
    assert stored(tmp_path / "out").num_rows == 10
    assert run(source, tmp_path / "out", "--overwrite", "--append") == 2
    assert "--overwrite and --append contradict each other" in capsys.readouterr().err
    assert stored(tmp_path / "out").num_rows == 10


def test_what_does_not_fit_is_told_with_the_data_set(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(source, tmp_path / "out") == 0
    assert run(source, tmp_path / "out", "--append", "--columns", "id") == 1
    assert f"{tmp_path / 'out'}: cannot append: the columns are not the data set's" in capsys.readouterr().err
    assert run(source, tmp_path / "out", "--append", "--cast", "id=string") == 1
    assert f"{tmp_path / 'out'}: cannot append: column 'id' is " in capsys.readouterr().err


def test_more_workers_by_default(source: Path, tmp_path: Path) -> None:
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0
    assert stored(tmp_path / "out").num_rows == 10


def test_progress_on_request(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, tmp_path / "out", "--progress") == 0
    error = capsys.readouterr().err
    assert "convert to out" in error
    assert "10 of 10 rows" in error


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--where", "id >> 3"], 1, "character 5: expected a column or a value"),
        (["--where", "idd > 3"], 1, "did you mean 'id'"),
        (["--columns", "nope"], 1, "no column 'nope'"),
        (["--cast", "id"], 2, "is not of the form NAME=VALUE"),
        (["--cast", "id=float99"], 1, "names no type"),
        (["--tensor", "image"], 2, "is not of the form NAME=TYPE:SHAPE"),
        (["--tensor", "image=uint8:5"], 1, "row 0, column 'image': 12 bytes where uint8 (5,) takes 5"),
        (["--block-bytes", "0"], 2, "is no size in bytes"),
        (["--block-bytes", "-5"], 2, "is no size in bytes"),
        (["--shard-bytes", "5 parsec"], 2, "is no size in bytes"),
        (["--compression", "gzip"], 1, "compression='gzip'"),
        (["--transform", "os"], 2, "is not of the form MODULE:FUNCTION"),
        (["--transform", "no_such_module:f"], 2, "cannot import 'no_such_module'"),
        (["--transform", "os:nothing"], 2, "has no function 'nothing'"),
        (["--workers", "0"], 2, "0"),
        (["--shuffle-seed", "x"], 2, "'x' is not a valid integer"),
    ],
)
def test_wrong_calls_are_one_line_and_write_nothing(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    assert main(["convert", str(source), str(tmp_path / "out"), *options]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    if code == 1:
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nothing.parquet", tmp_path / "out") == 1
    assert "no such file or directory to convert" in capsys.readouterr().err
    assert run(tmp_path) == 2


def test_help_reads_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--help"]) == 0
    text = capsys.readouterr().out
    assert "fastshard convert export/ train/" in text
    assert all(len(line) <= 120 for line in text.splitlines())
    assert main(["--help"]) == 0
    assert "convert" in capsys.readouterr().out
