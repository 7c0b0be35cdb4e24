"""What conversions wrote, for tests to compare."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import fastshard as fs


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
