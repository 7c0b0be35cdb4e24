"""Any Arrow table, read in every way, is what pyarrow says it is, under the rules of docs/types.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import arrow_tables
from every_way import EXAMPLES, FORMS, assert_reads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard.errors import NullError

SETTINGS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("options", FORMS)
@SETTINGS
@given(
    table=arrow_tables(),
    block_bytes=st.sampled_from([1, 64, 300, 1 << 20]),
    shard_bytes=st.sampled_from([1, 900, 1 << 28]),
    seed=st.integers(0, 2**32),
)
def test_any_table_reads_as_it_is(
    memory_folder: Path,
    compression: str,
    options: str,
    table: pa.Table,
    block_bytes: int,
    shard_bytes: int,
    seed: int,
) -> None:
    path = memory_folder / "data"
    fs.write(
        table,
        path,
        mode="overwrite",
        compression=compression,
        block_bytes=block_bytes,
        shard_bytes=shard_bytes,
    )
    assert_reads(path, options, seed)


@SETTINGS
@given(table=arrow_tables(), block_bytes=st.sampled_from([1, 300, 1 << 20]))
def test_masks_leave_no_null_unsaid(memory_folder: Path, table: pa.Table, block_bytes: int) -> None:
    path = memory_folder / "data"
    fs.write(table, path, mode="overwrite", block_bytes=block_bytes)
    reader = fs.open(path, null_masks=True)
    plain = fs.open(path)
    for form in reader.plan.forms:
        only = fs.open(path, columns=[form.name], null_masks=True)
        stats = reader.index.columns[form.name]
        name = f"{form.name}__valid"
        if form.kind == "ragged" and stats.child_null_count and not form.delivers_floating:
            with pytest.raises(NullError):
                only.plan.check_nulls()
            continue
        try:
            batch = only.to_numpy()
        except NullError:
            assert form.kind in ("struct", "tensors")  # nulls inside of ragged fields
            continue
        assert (name in batch) == (
            form.kind in ("array", "ragged", "struct") and stats.null_count + stats.child_null_count > 0
        )
        if name not in batch:
            continue
        mask = batch[name]
        assert np.array_equal(only[name], mask)
        for i in range(len(reader)):
            value = plain[i][form.name]
            if form.kind == "array" and stats.child_null_count:
                assert mask.shape == batch[form.name].shape
                flags = np.array(value, dtype=object)
                gone = np.equal(flags, None) | (flags != flags) if value is not None else np.True_
                assert (gone | mask[i]).all()
                assert not mask[i].any() or value is not None
            else:
                assert mask[i] == (value is not None) or form.delivers_floating
            assert bool(np.array_equal(only[i][name], mask[i]))
