"""What tests of converting share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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


def stored(path: str | os.PathLike[str]) -> pa.Table:
    """A data set as a table that needs it no more."""
    with fs.open(path) as reader:
        table = reader.to_arrow()
        return pa.Table.from_batches(
            [pa.ipc.read_record_batch(batch.serialize(), table.schema) for batch in table.to_batches()],
            table.schema,
        )


def files_of(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The files of a data set, by name, but for the lock."""
    return {file.name: file.read_bytes() for file in Path(path).iterdir() if file.name != ".fastshard.lock"}


def data_files(part: str) -> list[Path]:
    """Real Parquet files, where FASTSHARD_TEST_DATA says; none elsewhere."""
    root = os.environ.get("FASTSHARD_TEST_DATA")
    return sorted((Path(root) / part).glob("*.parquet")) if root else []
