"""Parts of data sets on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import fastshard as fs
from fastshard.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command and returns what it printed; it must succeed."""

    def call(*arguments: str) -> str:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return call


def test_head_shows_the_samples_of_a_view_with_their_ids(path: str, run: Callable[..., str]) -> None:
    lines = run("head", "-n", "2", "--columns", "label,id", f"{path}?where=label = 3").splitlines()
    assert [line.split() for line in lines] == [["id", "label", "id"], ["3", "3", "3"], ["13", "3", "13"]]
    documents = [
        json.loads(line) for line in run("head", "--json", "--skip", "1", f"{path}?select=3,7").splitlines()
    ]
    assert [document["id"] for document in documents] == [7]
    assert run("head", f"{path}?select=0:0") == "no samples (0 in the data set)\n"


def test_info_says_what_a_view_has(path: str, run: Callable[..., str]) -> None:
    text = run("info", f"{path}?split=val&seed=2")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "view split=0.9:1&seed=2" in lines
    assert "view samples 50 (10.00%) in 3 shards" in lines
    assert "samples 500" in lines
    document = json.loads(run("info", "--json", "--shards", f"{path}?select=150:220"))
    assert document["rows"] == 70
    assert document["path"] == path
    assert document["view"]["of_rows"] == 500
    assert document["view"]["in_shards"] == 2
    assert document["view"]["fingerprint"] == fs.open(path).select(slice(150, 220)).fingerprint
    assert [shard["selected"] for shard in document["shard_files"]] == [50, 20, 0, 0]
    assert "selected" in run("info", "--shards", f"{path}?select=150:220")
    assert "selected" not in run("info", "--shards", path)


def test_verify_checks_the_whole_data_set(path: str, run: Callable[..., str]) -> None:
    assert f"{path}: all is well: 500 samples" in run("verify", f"{path}?split=val")


def test_convert_writes_a_view(path: str, run: Callable[..., str], tmp_path: Path) -> None:
    run("convert", f"{path}?where=label = 3&select=::2", tmp_path / "threes")
    with fs.open(tmp_path / "threes") as reader:
        assert (
            reader["id"].tolist()
            == fs.open(path).filter("label = 3").select(slice(None, None, 2))["id"].tolist()
        )
        assert reader.index.provenance["source"] == f"{path}?where=label = 3&select=::2"


def test_writing_a_view_from_python(path: str, tmp_path: Path) -> None:
    view = fs.open(path).split(seed=1)["val"]
    fs.write(view, tmp_path / "written")
    fs.convert(view, tmp_path / "converted", workers=1)
    fs.convert(f"{path}?split=val&seed=1", tmp_path / "text", workers=1)
    for name in ("written", "converted", "text"):
        assert fs.open(tmp_path / name)["id"].tolist() == view["id"].tolist()


@pytest.mark.parametrize("command", ["info", "head", "verify"])
def test_what_cannot_be_read_is_one_line(path: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, f"{path}?splt=val"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "not splt=" in error


def test_help_mentions_parts() -> None:
    from fastshard.cli import cli

    for command in ("info", "head"):
        assert "?split=val" in CliRunner().invoke(cli, [command, "--help"]).output
