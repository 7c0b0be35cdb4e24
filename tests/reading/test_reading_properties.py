"""Any Arrow table, read in every way, is what pyarrow says it is, under the rules of docs/types.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import arrow_tables
from expected_samples import same, samples_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard.errors import NullError

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORMS: dict[str, Any] = {
    "plain": {},
    "small cache": {"cache_bytes": 0, "max_open": 1},
    "unchecked": {"verify": "never"},
}


def assert_samples(found: list[dict[str, Any]], expected: list[dict[str, Any]], table: pa.Table) -> None:
    assert len(found) == len(expected)
    for row, (left, right) in enumerate(zip(found, expected, strict=True)):
        for name in right:
            assert same(left[name], right[name]), (row, table[name].type, left[name], right[name])
        assert list(left) == list(right)


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
    with fs.open(path, **FORMS[options]) as reader:
        assert reader.verify() == []
        stored = reader.to_arrow()
        columns = {name: samples_of(stored[name]) for name in stored.column_names}
        expected = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows = len(expected)
        assert len(reader) == rows == table.num_rows
        assert_samples([reader[i] for i in range(rows)], expected, stored)
        assert_samples(list(reader), expected, stored)
        if not rows:
            assert reader.take([]).num_samples == 0
            return
        ids = np.random.default_rng(seed).integers(-rows, rows, 30)
        assert_samples(reader.__getitems__(ids.tolist()), [expected[i] for i in ids], stored)
        for name in columns:
            assert_column(path, name, options, expected, ids, stored)


def assert_column(
    path: Path, name: str, options: str, expected: list[dict[str, Any]], ids: Any, stored: pa.Table
) -> None:
    """One column of batches: the rows of samples, or `NullError` where those are None and a batch cannot be."""
    with fs.open(path, columns=[name], **FORMS[options]) as reader:
        (form,) = reader.plan.forms
        for chosen in (ids, slice(1, None, 2), slice(None)):
            wanted = [expected[i] for i in (ids if chosen is ids else range(len(expected))[chosen])]
            wanted = [{name: sample[name]} for sample in wanted]
            try:
                batch = reader[chosen]
            except NullError:
                assert form.kind in ("array", "ragged", "struct", "tensors")
                assert any(has_none(sample[name]) for sample in wanted)
                continue
            assert batch.num_samples == len(wanted)
            if form.kind != "struct" or None not in [sample[name] for sample in wanted]:
                assert_samples(list(batch.samples()), wanted, stored)
            if isinstance(chosen, slice) and chosen == slice(None):
                whole = fs.Batch({name: reader[name]}, ids=batch.ids, forms=batch._forms)
                assert repr(list(whole.samples())) == repr(list(batch.samples()))


def has_none(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_none(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_none(item) for item in value)
    return value is None


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
