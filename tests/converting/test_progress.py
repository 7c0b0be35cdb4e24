"""How far a conversion has come."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import fastshard as fs
from fastshard import _progress


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for part in range(3):
        table = pa.table({"x": np.random.default_rng(part).random(50_000)})
        pq.write_table(table, tmp_path / "in" / f"{part}.parquet", row_group_size=10_000)
    return tmp_path / "in"


@pytest.mark.parametrize("options", [{}, {"shuffle_seed": 1}, {"workers": 2}], ids=str)
def test_a_function_is_told_of_rows_and_bytes(source: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    told: list[Any] = []
    fs.convert(source, tmp_path / "out", progress=told.append, shard_bytes=200_000, **options)
    assert len(told) > 3
    for before, after in itertools.pairwise(told):
        assert before.rows <= after.rows
        assert before.bytes <= after.bytes
    last = told[-1]
    assert (last.rows, last.total_rows) == (150_000, 150_000)
    assert last.bytes == last.total_bytes > 0
    assert len({progress.total_bytes for progress in told}) == 1


def test_rows_are_unknown_where_a_filter_decides(source: Path, tmp_path: Path) -> None:
    told: list[Any] = []
    fs.convert(source, tmp_path / "out", progress=told.append, filter=pc.field("x") > 0.5)
    assert told[-1].total_rows is None
    assert 0 < told[-1].rows < 150_000
    assert told[-1].bytes == told[-1].total_bytes


def test_a_stream_counts_its_rows(tmp_path: Path) -> None:
    def stream() -> Iterator[pa.RecordBatch]:
        for _ in range(10):
            yield pa.record_batch({"x": range(100)})

    told: list[Any] = []
    fs.convert(stream(), tmp_path / "out", progress=told.append)
    assert (told[-1].rows, told[-1].total_rows) == (1000, None)


def test_a_bar(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fs.convert(source, tmp_path / "out", progress=True)
    error = capsys.readouterr().err
    assert "convert to out: 100%" in error
    assert "150k of 150k rows" in error
    assert "rows/s" in error
    fs.convert(iter([{"x": 1}]), tmp_path / "stream", progress=True)
    assert "1 rows" in capsys.readouterr().err


@pytest.mark.parametrize(("watched", "shown"), [(True, True), (False, False)])
def test_by_default_only_where_someone_is_watching(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    watched: bool,
    shown: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    fs.convert(source, tmp_path / "out")
    assert bool(capsys.readouterr().err) == shown


def test_a_notebook_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    class IPython:
        get_ipython = staticmethod(ZMQInteractiveShell)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert not _progress._is_watched()
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert _progress._is_watched()


def test_the_bar_ends_with_an_error(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(fs.errors.SourceError):
        fs.convert(source, tmp_path / "out", progress=True, transform=lambda batch: 1 / 0)

    def fail(progress: Any) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fs.convert(source, tmp_path / "out", progress=fail)
    assert not (tmp_path / "out").exists()
    assert capsys.readouterr() is not None


@pytest.mark.parametrize("option", ["yes", 1, 0, []])
def test_what_is_no_progress_is_refused(source: Path, tmp_path: Path, option: Any) -> None:
    with pytest.raises(fs.errors.InvalidError, match="progress="):
        fs.convert(source, tmp_path / "out", progress=option)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (123_456, "123k"), (2.5e6, "2.5M"), (3e12, "3000G")],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert _progress._short(number) == text
