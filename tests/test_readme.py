"""The examples of README.md and of the guide run, in the order in which they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.unsanitized

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "README.md", ROOT / "docs" / "guide.md") if page.exists()]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A folder with what the examples take as given: `export/` of Parquet files and `feather/` of Arrow files."""
    rng = np.random.default_rng(0)
    for number in range(3):
        x = rng.normal(size=(500, 16)).astype("float32")
        table = pa.table(
            {
                "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 16),
                "y": pa.array(x.sum(axis=1), pa.float32()),
            }
        )
        (tmp_path / "export").mkdir(exist_ok=True)
        (tmp_path / "feather").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "export" / f"part-{number}.parquet", row_group_size=200)
        feather.write_feather(
            table, tmp_path / "feather" / f"part-{number}.feather", compression="uncompressed"
        )
    return tmp_path


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page that are to be run: their language, and what they hold.

    Python goes on where the block before it ended, up to the next block of commands.
    """
    found: list[tuple[str, str]] = []
    for language, text in re.findall(
        r"^```(python|console)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
    ):
        if language == "python" and found and found[-1][0] == "python":
            text = found.pop()[1] + text
        found.append((language, text))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, export: Path) -> None:
    examples = blocks(page)
    assert examples
    for language, text in examples:
        if language == "python":
            calls = [[sys.executable, "-W", "error", "-c", text]]
        else:
            calls = [command(line) for line in text.splitlines() if line.startswith("$ ")]
        for call in calls:
            result = subprocess.run(
                call,
                cwd=export,
                capture_output=True,
                text=True,
                timeout=200,
                env={**os.environ, "COLUMNS": "100"},
            )
            assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"


def command(line: str) -> list[str]:
    words = shlex.split(line.removeprefix("$ "), comments=True)
    assert words[0] == "fastshard"
    return [sys.executable, "-m", *words]


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_names_every_command() -> None:
    from fastshard.cli import _COMMANDS

    text = (ROOT / "README.md").read_text()
    assert not [name for name in _COMMANDS if f"`{name}`" not in text]
