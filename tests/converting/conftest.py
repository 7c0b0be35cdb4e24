"""What tests of converting share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outputs import stored

import fastshard as fs


@pytest.fixture
def convert(tmp_path: Path) -> Callable[..., pa.Table]:
    """Convert, and read back with the reader: a table of what the data set holds."""
    count = 0

    def run(source: Any, **options: Any) -> pa.Table:
        nonlocal count
        count += 1
        dest = tmp_path / f"out-{count}"
        fs.convert(source, dest, progress=False, **options)
        return stored(dest)

    return run
