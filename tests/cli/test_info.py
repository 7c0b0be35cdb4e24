"""`fastshard info` says what the index holds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "image": pa.array([[1, 2, 3, 4]] * 50, pa.list_(pa.uint8(), 4)),
            "text": pa.array([None, "a", "漢字", *["x" * 12] * 47]),
            "tokens": pa.array([[1, None], *[[]] * 49], pa.list_(pa.int32())),
            "label": pa.array(range(50), pa.int64()),
        },
        schema=pa.schema(
            [
                pa.field("image", pa.list_(pa.uint8(), 4)),
                pa.field("text", pa.string()),
                pa.field("tokens", pa.list_(pa.int32())),
                pa.field("label", pa.int64(), nullable=False),
            ]
        ),
    )
    fs.write(
        table, tmp_path / "data", compression="zstd:3", metadata={"note": "two\nlines", "numbers": [1, 2]}
    )
    return str(tmp_path / "data")


def lines(text: str) -> dict[str, str]:
    """The named values of the text before its first empty line."""
    pairs = (line.split("  ", 1) for line in text.split("\n\n")[0].splitlines())
    return {name: value.strip() for name, value in pairs}


def test_text_names_sizes_settings_and_metadata(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", path]) == 0
    shown = lines(capsys.readouterr().out)
    assert shown["data set"] == path
    assert shown["samples"] == "50"
    assert shown["shards"] == "1 (1 block)"
    assert shown["compression"] == "zstd (level 3)"
    assert shown["fingerprint"] == fs.open(path).fingerprint
    assert shown["written by version"] == fs.__version__
    assert shown["metadata note"] == "two\\nlines"
    assert shown["metadata numbers"] == "[1, 2]"
    assert "ratio" in shown["size"]


def test_text_lists_columns_with_nulls_and_lengths(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", path]) == 0
    table = capsys.readouterr().out.split("\n\n")[1].splitlines()
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in table]
    assert [cell.strip() for cell in cells[0]] == ["column", "type", "nulls", "inner nulls", "length"]
    by_name = {row[0]: [cell.strip() for cell in row[1:]] for row in cells[1:]}
    assert by_name["text"] == ["string", "1", "0", "1 to 12"]
    assert by_name["tokens"] == ["list<item: int32>", "0", "1", "0 to 2"]
    assert by_name["image"][-1] == "4"
    assert by_name["label"] == ["int64 not null", "0", "0"]


def test_tensors_are_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = pa.array([[0] * 6], pa.list_(pa.uint8(), 6))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.uint8(), (2, 3)), storage)
    fs.write(pa.table({"x": tensors}), tmp_path / "tensors")
    assert main(["info", str(tmp_path / "tensors")]) == 0
    assert "tensor<uint8>[2, 3] " in capsys.readouterr().out


def test_json_holds_the_same(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", path, "--json", "--shards"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["shards"], document["blocks"], document["generation"]) == (50, 1, 1, 1)
    assert document["metadata"] == {"note": "two\nlines", "numbers": [1, 2]}
    assert document["ratio"] == pytest.approx(document["raw_bytes"] / document["bytes"], abs=1e-3)
    columns = {column["name"]: column for column in document["columns"]}
    assert columns["text"]["null_count"] == 1
    assert (columns["text"]["min_length"], columns["text"]["max_length"]) == (1, 12)
    assert columns["tokens"]["child_null_count"] == 1
    assert not columns["label"]["nullable"]
    (shard,) = document["shard_files"]
    assert shard["rows"] == 50
    assert (Path(path) / shard["path"]).stat().st_size == shard["bytes"] == document["bytes"]


def test_shards_are_listed_on_request(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", path]) == 0
    assert "shard-00000" not in capsys.readouterr().out
    assert main(["info", path, "--shards"]) == 0
    assert "shard-00000" in capsys.readouterr().out


def test_an_empty_data_set_has_no_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fs.write(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "data")
    assert main(["info", str(tmp_path / "data")]) == 0
    shown = lines(capsys.readouterr().out)
    assert (shown["samples"], shown["size"], shown["per sample"]) == ("0", "0 B", "-")
    assert main(["info", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ratio"] is None


def test_wrong_paths_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for path in (tmp_path / "nowhere", tmp_path, file):
        assert main(["info", str(path)]) == 1
        captured = capsys.readouterr()
        assert str(path) in captured.err
        assert not captured.out
