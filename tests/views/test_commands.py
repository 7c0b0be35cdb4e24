"""Parts of data sets on the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import fastshard as fs
from fastshard.cli import main
from fastshard.errors import CorruptError


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


def test_verify_checks_the_shards_of_a_view(path: str, run: Callable[..., str]) -> None:
    part = f"{path}?select=150:220"
    assert f"{part}: all is well: 70 samples in 2 shards" in run("verify", part)
    document = json.loads(run("verify", "--json", part))
    assert (document["ok"], document["rows"], document["path"]) == (True, 70, path)
    assert document["view"] == {"steps": ["select=150:220"], "of_rows": 500, "in_shards": 2}
    shards = json.loads(run("info", "--json", "--shards", path))["shard_files"]
    assert document["bytes"] == sum(shard["bytes"] for shard in shards[:2])
    assert "view" not in json.loads(run("verify", "--json", path))
    assert "0 samples in 0 shards" in run("verify", f"{path}?select=0:0")


def test_verify_finds_faults_in_the_shards_of_a_view_alone(
    path: str, run: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = shutil.copytree(path, str(tmp_path / "copy"))
    first, *_, last = json.loads(run("info", "--json", "--shards", path))["shard_files"]
    damaged = Path(path) / last["path"]
    damaged.write_bytes(damaged.read_bytes()[:-8])
    run("verify", f"{path}?select=0:10")
    for part in ("select=-1:", "split=0.5:1", "where=label = 3"):  # the last: damage hides what it selects
        assert main(["verify", f"{path}?{part}"]) == 1
        out, err = capsys.readouterr()
        assert last["path"] in out
        assert (first["path"] in out, err) == (False, "")
    with pytest.raises(CorruptError, match=last["path"]):
        fs.write(fs.open(path).select(slice(-10, None)), tmp_path / "written")


@pytest.mark.parametrize("command", ["vacuum", "index"])
def test_what_takes_whole_data_sets_says_so(
    path: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"{path}?split=val"]) == 1
    assert f"{command} takes whole data sets, not parts: say {path}\n" in capsys.readouterr().err
    with pytest.raises(fs.Error, match="takes whole data sets"):
        getattr(fs, command)(f"{path}?split=val")


def test_bench_delivers_a_view(path: str, run: Callable[..., str]) -> None:
    measured = json.loads(run("bench", "--json", "--cold", "-b", "10", f"{path}?select=0:50"))
    assert measured["samples"] == 40  # behind the first batch


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


@pytest.mark.parametrize("command", ["info", "head", "verify", "plan -b 8", "bench", "vacuum", "index"])
def test_what_cannot_be_read_is_one_line(path: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), f"{path}?splt=val"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "not splt=" in error


def test_help_mentions_parts() -> None:
    from fastshard.cli import cli

    for command in ("info", "head", "verify", "plan"):
        assert "?split=val" in CliRunner().invoke(cli, [command, "--help"]).output
