"""The notebook of examples/ runs, cell by cell, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark_to_training.ipynb"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("classic")
def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={
            **os.environ,
            "FASTSHARD_EXAMPLE_FOLDER": str(tmp_path / "data"),
            "PYSPARK_PYTHON": sys.executable,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "2 process(es): loss" in done.stdout
