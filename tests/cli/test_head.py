"""`fastshard head` prints samples, for people and as JSON lines."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import torch

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "label": pa.array(range(100), pa.int64()),
            "text": pa.array([None if i == 3 else f"sample {i}\n漢字" for i in range(100)]),
        }
    )
    fs.write(table, tmp_path / "data")
    return str(tmp_path / "data")


def test_short_values_are_a_table(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", "-n", "5", path]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "label", "text"]
    assert len(rows) == 5
    assert rows[0].split("  ")[-1] == "sample 0\\n漢字"
    assert rows[3].split() == ["3", "3", "null"]


def test_ten_samples_unless_told_otherwise(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", path]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 11


def test_long_values_are_one_below_the_other_and_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"x": pa.array([[*range(1000)]], pa.list_(pa.int32())), "text": ["y" * 10_000]})
    fs.write(table, tmp_path / "data")
    assert main(["head", str(tmp_path / "data")]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "sample 0"
    assert [line.split()[0] for line in rest] == ["x", "text"]
    assert rest[1].endswith("...")
    assert max(map(len, rest)) <= 160


def test_json_has_one_object_a_line_with_exact_values(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", "-n", "4", "--skip", "2", "--json", path]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sample["label"] for sample in samples] == [2, 3, 4, 5]
    assert samples[0]["text"] == "sample 2\n漢字"
    assert samples[1]["text"] is None


def test_columns_are_chosen(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", "-n", "1", "--columns", "text", "--json", path]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["text"]
    assert main(["head", "--columns", "nonsense", path]) == 1
    assert "nonsense" in capsys.readouterr().err


def test_the_end_of_the_data_is_no_error(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["head", "-n", "10", "--skip", "98", "--json", path]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["head", "--skip", "100", path]) == 0
    assert capsys.readouterr().out == "no samples (100 in the data set)\n"
    assert main(["head", "-n", "0", "--json", path]) == 0
    assert capsys.readouterr().out == ""


def test_dates_and_times_are_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5)
    table = pa.table(
        {
            "day": pa.array([moment.date(), None]),
            "naive": pa.array([moment, None], pa.timestamp("ns")),
            "zoned": pa.array([moment, None], pa.timestamp("s", "Europe/Vienna")),
            "clock": pa.array([moment.time(), None], pa.time32("ms")),
            "took": pa.array([datetime.timedelta(seconds=90), None], pa.duration("s")),
        }
    )
    fs.write(table, tmp_path / "data")
    assert main(["head", "--json", str(tmp_path / "data")]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["day"] == "2020-01-02"
    assert first["naive"].startswith("2020-01-02 03:04:05")
    assert first["zoned"].startswith("2020-01-02 04:04:05+01")
    assert first["clock"].startswith("03:04:05")
    assert first["took"] == "90 seconds"
    assert set(second.values()) == {None}


def test_every_type_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table(
        {
            "decimal": pa.array([Decimal("1.20")]),
            "binary": pa.array([b"\0\xff"]),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
            "struct": pa.array([{"a": [1, None], "b": float("nan")}]),
            "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
            "null": pa.array([None], pa.null()),
            "lists": pa.array([[[1], []]]),
        }
    )
    fs.write(table, tmp_path / "data")
    assert main(["head", str(tmp_path / "data")]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2
    assert main(["head", "--json", str(tmp_path / "data")]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "decimal": "1.20",
        "binary": "AP8=",
        "map": [["k", 1]],
        "struct": {"a": [1, None], "b": "NaN"},
        "interval": [1, 2, 3],
        "null": None,
        "lists": [[1], []],
    }


def test_bfloat16_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fs.ShardWriter(tmp_path / "data") as writer:
        writer.write({"x": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)})
    assert main(["head", "--json", str(tmp_path / "data")]) == 0
    assert json.loads(capsys.readouterr().out) == {"x": [1.5, -2.0]}
