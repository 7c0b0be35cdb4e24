"""Scripts that train, and data sets for them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a script into the test's folder."""

    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., str]:
    """Writes a data set of so many samples: id, x float32 [4], y = a linear function of x."""

    def write(rows: int, name: str = "train", shards: int = 3) -> str:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(rows, 4)).astype("float32")
        y = (x @ np.array([1.0, -2.0, 0.5, 3.0], dtype="float32")).astype("float32")
        table = pa.table(
            {
                "id": pa.array(np.arange(rows)),
                "x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 4),
                "y": pa.array(y),
            }
        )
        path = tmp_path / name
        size = -(-rows // shards)
        for first in range(0, rows, size):
            fs.write(table.slice(first, size), path, mode="append" if path.exists() else "error")
        return str(path)

    return write
