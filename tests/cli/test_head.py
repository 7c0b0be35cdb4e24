"""`fastshard head` prints samples, for people and as JSON lines."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
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


NAN = float("nan")
MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5)
# Type, a value, what the line has for it; beside the value each column has a null.
JSON_OF = [
    (pa.bool_(), True, True),
    (pa.int8(), -1, -1),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float16(), 0.5, 0.5),
    (pa.float32(), NAN, "NaN"),
    (pa.float64(), float("-inf"), "-Infinity"),
    (pa.string(), 'é "漢\u2028\n', 'é "漢\u2028\n'),
    (pa.large_string(), "", ""),
    (pa.binary(), b"\0\xff", "AP8="),
    (pa.binary(2), b"\0\xff", "AP8="),
    (pa.decimal128(10, 2), Decimal("-1.20"), "-1.20"),
    (pa.decimal256(50, 1), Decimal("1.0"), "1.0"),
    (pa.date32(), MOMENT.date(), "2020-01-02"),
    (pa.date64(), MOMENT.date(), "2020-01-02"),
    (pa.timestamp("s"), MOMENT, "2020-01-02 03:04:05"),
    (pa.timestamp("us", "UTC"), MOMENT, "2020-01-02 03:04:05.000000Z"),
    (pa.timestamp("s"), 2**62, "<value out of range: 4611686018427387904>"),
    (pa.time32("s"), MOMENT.time(), "03:04:05"),
    (pa.time64("ns"), MOMENT.time(), "03:04:05.000000000"),
    (pa.duration("ms"), datetime.timedelta(seconds=1), "1000 milliseconds"),
    (pa.month_day_nano_interval(), (1, 2, 3), [1, 2, 3]),
    (pa.null(), None, None),
    (pa.list_(pa.float32()), [1.5, None, NAN], [1.5, None, "NaN"]),
    (pa.large_list(pa.int8()), [], []),
    (pa.list_(pa.float64(), 2), [None, 1.0], [None, 1.0]),
    (pa.list_(pa.date32()), [MOMENT.date(), None], ["2020-01-02", None]),
    (pa.list_(pa.list_(pa.binary())), [[b"x", None], None], [["eA==", None], None]),
    (
        pa.struct({"a": pa.float32(), "t": pa.timestamp("s"), "l": pa.list_(pa.decimal128(4, 1))}),
        {"a": None, "t": MOMENT, "l": [Decimal("1.5")]},
        {"a": None, "t": "2020-01-02 03:04:05", "l": ["1.5"]},
    ),
    (pa.map_(pa.string(), pa.float64()), [("k", NAN), ("l", None)], [["k", "NaN"], ["l", None]]),
    (pa.fixed_shape_tensor(pa.int8(), (2, 2)), [1, 2, 3, 4], [[1, 2], [3, 4]]),
    (pa.fixed_shape_tensor(pa.int8(), (1, 2), permutation=[1, 0]), [1, 2], [[1], [2]]),
]


def test_every_type_and_null_is_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {}
    for place, (kind, value, _) in enumerate(JSON_OF):
        storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        column = pa.array([value, None], storage)
        columns[f"{place} {kind}"] = (
            pa.ExtensionArray.from_storage(kind, column) if storage != kind else column
        )
    fs.write(pa.table(columns), tmp_path / "data")
    assert main(["head", "--json", str(tmp_path / "data")]) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = capsys.readouterr().out.split("\n")  # and not at other line separators of Unicode
    first, second, end = lines
    found = json.loads(first, parse_constant=refuse)
    assert found == dict(zip(columns, (expected for *_, expected in JSON_OF), strict=True))
    assert json.loads(second, parse_constant=refuse) == dict.fromkeys(columns)
    assert end == ""
    assert main(["head", str(tmp_path / "data")]) == 0
    text = capsys.readouterr().out
    sample = text[text.index("sample 1\n") :].splitlines()[1:]
    assert {line.rsplit(maxsplit=1)[1] for line in sample} == {"null"}


def test_arrays_of_varying_shape_are_nested_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fs.ShardWriter(tmp_path / "data") as writer:
        writer.write({"x": np.array([[1.0, NAN]], np.float32)})
        writer.write({"x": np.array([[1.0], [2.0]], np.float32)})
    assert main(["head", "--json", str(tmp_path / "data")]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["x"], second["x"]) == ([[1.0, "NaN"]], [[1.0], [2.0]])


def test_bfloat16_is_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fs.ShardWriter(tmp_path / "data") as writer:
        writer.write({"x": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)})
    assert main(["head", "--json", str(tmp_path / "data")]) == 0
    assert json.loads(capsys.readouterr().out) == {"x": [1.5, -2.0]}
