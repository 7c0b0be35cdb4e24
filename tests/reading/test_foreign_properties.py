"""Arrow files of others, of any types and layout, read in every way are what pyarrow says they are."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
from arrow_tables import arrow_tables
from every_way import EXAMPLES, FORMS, assert_reads
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import fastshard as fs

datasets.disable_progress_bars()
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def empty_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def write_ipc(path: Path, table: pa.Table, seed: int, *, stream: bool, **options: Any) -> None:
    """Record batches of any sizes, some of no rows."""
    rng = np.random.default_rng(seed)
    cuts = sorted([0, table.num_rows, *rng.integers(0, table.num_rows + 1, rng.integers(0, 6))])
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for start, stop in pairwise(cuts):
            rows = table.slice(start, stop - start).combine_chunks()
            for batch in rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
                writer.write_batch(batch, custom_metadata={"note": "x" * int(rng.integers(0, 30))})


V4 = pa.ipc.MetadataVersion.V4


@pytest.mark.parametrize("options", FORMS)
@SETTINGS
@given(
    table=arrow_tables(encoded=False),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    old=st.sampled_from([{}, {"metadata_version": V4}, {"metadata_version": V4, "use_legacy_format": True}]),
    stream=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_ipc_files_and_streams(
    memory_folder: Path,
    options: str,
    table: pa.Table,
    compression: str | None,
    old: dict[str, Any],
    stream: bool,
    seed: int,
) -> None:
    path = empty_folder(memory_folder / "ipc")
    write_ipc(path / "a.arrow", table, seed, stream=stream, compression=compression, **old)
    write_ipc(
        path / "b.arrow", table.slice(0, 7), seed + 1, stream=not stream, compression=compression, **old
    )
    fs.index(path)
    assert_reads(path, options, seed, pa.concat_tables([table, table.slice(0, 7)]))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
@SETTINGS
@given(table=arrow_tables(encoded=False), chunk=st.integers(1, 50), seed=st.integers(0, 2**32))
def test_feather(memory_folder: Path, compression: str, table: pa.Table, chunk: int, seed: int) -> None:
    path = empty_folder(memory_folder / "feather")
    try:
        pyarrow.feather.write_feather(
            table, str(path / "a.feather"), compression=compression, chunksize=chunk
        )
    except pa.ArrowException:
        assume(False)  # pyarrow's own limits
    fs.index(path)
    assert_reads(path, "plain", seed, table)


@SETTINGS
@given(table=arrow_tables(encoded=False, views=False), shards=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_hugging_face_folders(memory_folder: Path, table: pa.Table, shards: int, seed: int) -> None:
    path = empty_folder(memory_folder / "hugging face")
    try:
        data = datasets.Dataset(table)
        data.save_to_disk(path, num_shards=min(shards, max(1, len(data))))
    except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, pa.ArrowException):
        assume(False)  # types that they do not have
    fs.index(path)
    assert_reads(path, "plain", seed, data.data.table)
