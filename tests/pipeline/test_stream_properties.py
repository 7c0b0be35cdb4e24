"""Whatever reads, with however many threads and however little memory: a loader's batches are `reader.take(order)`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from arrow_tables import arrow_tables
from batches import by_rows, comparable, with_engine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard import _core
from fastshard.errors import Error, NullError

ENGINES = ["mmap", "threads", "scrambled:1", "scrambled:2"] + (
    ["uring"] if _core.uring_refusal() is None else []
)


def deliverable(path: Path, names: list[str], forms: dict[str, Any]) -> list[str]:
    """Columns whose nulls have a form in batches."""
    found = []
    for name in names:
        reader = fs.open(path, columns=[name], **forms)
        try:
            reader.check_nulls()
            reader.take(range(len(reader)))
        except NullError:
            continue
        found.append(name)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    table=arrow_tables(),
    compression=st.sampled_from(["none", "lz4", "zstd"]),
    block_bytes=st.sampled_from([1, 300, 1 << 20]),
    engine=st.sampled_from(ENGINES),
    threads=st.integers(1, 3),
    prefetch=st.integers(1, 4),
    memory=st.sampled_from([0, 2000, None]),
    verify=st.sampled_from(["auto", "always", "once", "never"]),
    shuffle=st.sampled_from(["none", "block", "global"]),
    binary=st.sampled_from(["bytes", "view"]),
    rows=st.booleans(),
    only=st.integers(0, 3),
)
def test_batches_are_those_of_take(
    table: pa.Table,
    compression: Any,
    block_bytes: int,
    engine: str,
    threads: int,
    prefetch: int,
    memory: int | None,
    verify: Any,
    shuffle: str,
    binary: Any,
    rows: bool,
    only: int,
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fastshard-stream-"))
    try:
        path = folder / "data"
        try:
            fs.write(table, path, compression=compression, block_bytes=block_bytes, shard_bytes=4000)
        except Error:
            return  # types that cannot be written: the tests of writing say which
        if not table.num_rows:
            return
        forms = {"null_masks": True, "binary": binary}
        columns = deliverable(path, table.column_names, forms)
        columns = columns[only % len(columns) :] if columns else []
        reader = fs.open(path, columns=columns, **forms)
        loader = fs.ShardLoader(
            path,
            batch_size=3,
            tail="exact",
            shuffle=shuffle,
            columns=columns,
            threads=threads,
            prefetch=prefetch,
            memory=memory,
            verify=verify,
            **forms,
        )
        with by_rows(with_engine(loader, engine)) if rows else with_engine(loader, engine):
            for _ in range(2):
                count = 0
                for batch in loader:
                    expected = reader.take(batch.ids.numpy()).to_torch()
                    assert comparable(batch) == comparable(expected)
                    count += batch.num_samples
                assert count == table.num_rows
    finally:
        shutil.rmtree(folder)
