"""The examples of docs/views.md run, in the order in which they stand there."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "views.md"


def table(first: int, count: int) -> pa.Table:
    rng = np.random.default_rng(first)
    x = rng.normal(size=(count, 16)).astype("float32")
    texts = [("a refund please" if i % 3 else "fine") for i in range(first, first + count)]
    return pa.table(
        {
            "user": [f"user {i % 97}" for i in range(first, first + count)],
            "stars": pa.array(rng.integers(1, 6, count), pa.int8()),
            "text": texts,
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 16),
        }
    )


def test_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fs.write(table(0, 1200), "reviews", block_bytes=4096)
    fs.write(table(1200, 300), "forum", block_bytes=4096)
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 8
    names: dict[str, Any] = {}
    for language, text in blocks:
        if language == "python":
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(text, str(PAGE), "exec"), names)
            shown = [
                line.split("#")[1].strip() for line in text.splitlines() if re.search(r"print\(.*#.*\d", line)
            ]
            for line, expected in zip(printed.getvalue().splitlines(), shown, strict=False):
                assert line == expected
            continue
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            assert words[0] == "fastshard"
            assert main(words[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "epoch.png").stat().st_size > 10_000


def test_a_part_by_its_shares_is_the_part_by_its_name(tmp_path: Path) -> None:
    """As the table of section 4 says."""
    from fastshard.views import open_spec

    fs.write(table(0, 1200), tmp_path / "reviews")
    part = fs.open(tmp_path / "reviews").split({"train": 0.8, "val": 0.1, "test": 0.1}, seed=7)["val"]
    assert open_spec(f"{tmp_path}/reviews?split=0.8:0.9&seed=7").fingerprint == part.fingerprint
