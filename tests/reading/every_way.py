"""Reads a data set in every way, and holds it against what pyarrow says is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from expected_samples import same, samples_of

import fastshard as fs
from fastshard.errors import NullError

# Of tables for each property: the instrumented core takes several times as long.
EXAMPLES = 10 if "FASTSHARD_SANITIZER" in os.environ else 40

# Ways to open a data set.
FORMS: dict[str, Any] = {
    "plain": {},
    "small cache": {"cache_bytes": 0, "max_open": 1},
    "unchecked": {"verify": "never"},
}


def assert_reads(path: Path, options: str, seed: int, table: pa.Table | None = None) -> None:
    """Samples and batches, one by one and many, in any order and repeated, are those of the Arrow data.

    Args:
        path: The data set.
        options: Key of `FORMS`.
        seed: Of the ids that are taken.
        table: What the files hold; None: what `to_arrow` gives, which other tests hold against what was written.
    """
    with fs.open(path, **FORMS[options]) as reader:
        assert reader.verify() == []
        stored = reader.to_arrow() if table is None else table
        columns = {name: samples_of(stored[name]) for name in stored.column_names}
        expected = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        rows = len(expected)
        assert len(reader) == rows == stored.num_rows
        assert_samples([reader[i] for i in range(rows)], expected, stored)
        assert_samples(list(reader), expected, stored)
        if not rows:
            assert reader.take([]).num_samples == 0
            return
        ids = np.random.default_rng(seed).integers(-rows, rows, 30)
        assert_samples(reader.__getitems__(ids.tolist()), [expected[i] for i in ids], stored)
    for name in columns:
        assert_column(path, name, options, expected, ids, stored)


def assert_samples(found: list[dict[str, Any]], expected: list[dict[str, Any]], table: pa.Table) -> None:
    assert len(found) == len(expected)
    for row, (left, right) in enumerate(zip(found, expected, strict=True)):
        for name in right:
            assert same(left[name], right[name]), (row, table[name].type, left[name], right[name])
        assert list(left) == list(right)


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
            # A batch has null structs as dicts of nulls.
            if not any(has_null_struct(sample[name], stored[name].type) for sample in wanted):
                assert_samples(list(batch.samples()), wanted, stored)
            if isinstance(chosen, slice) and chosen == slice(None):
                whole = fs.Batch({name: reader[name]}, ids=batch.ids, forms=batch._forms)
                assert repr(list(whole.samples())) == repr(list(batch.samples()))


def has_null_struct(value: Any, kind: pa.DataType) -> bool:
    """Whether a struct is null, or one that is its field."""
    if not pa.types.is_struct(kind):
        return False
    return value is None or any(has_null_struct(value[field.name], field.type) for field in kind)


def has_none(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_none(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_none(item) for item in value)
    return value is None
