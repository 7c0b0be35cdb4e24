"""Data sets that an older fastshard wrote are read today, value by value."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from written import read_back, same

import fastshard as fs
from fastshard._index import read_index

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT = GOLDEN / "version-1"
sys.path.append(str(GOLDEN))

from contents import every_type, numbers, tensors  # noqa: E402

WRITTEN: dict[str, Any] = {
    **{f"types-{name}": every_type for name in ("none", "lz4", "zstd", "zstd-19")},
    "tensors": tensors,
    "empty": lambda: numbers(0, 0),
    "several-shards": lambda: numbers(0, 400),
    "replaced": lambda: numbers(10, 10),
}
EXPECTED = {**WRITTEN, "foreign": lambda: pa.concat_tables([numbers(0, 20)] * 3)}


def test_no_golden_file_has_changed_and_none_is_missing() -> None:
    sums = dict(reversed(line.split("  ")) for line in (ROOT / "SHA256SUMS").read_text().splitlines())
    found = {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in ROOT.rglob("*")
        if path.is_file() and path.name not in ("SHA256SUMS", ".fastshard.lock")
    }
    assert found == sums
    assert {path.name for path in ROOT.iterdir() if path.is_dir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_value_is_read(name: str) -> None:
    expected = EXPECTED[name]()
    reader = fs.open(ROOT / name)
    assert len(reader) == len(expected)
    assert reader.schema.names == expected.schema.names
    if len(expected):
        assert same(reader.to_arrow().to_pylist(), expected.to_pylist())
    assert reader.verify() == []
    for number in range(len(expected)):
        assert reader[number].keys() == set(expected.schema.names)


@pytest.mark.parametrize("name", WRITTEN)
def test_it_keeps_every_promise_of_the_format(name: str) -> None:
    table = read_back(ROOT / name)
    expected = WRITTEN[name]()
    assert table.schema.equals(expected.schema, check_metadata=True)
    assert same(table.to_pylist(), expected.to_pylist())


def test_what_the_indexes_say() -> None:
    several = read_index(ROOT / "several-shards")
    assert (several.generation, several.rows) == (2, 400)
    assert several.shards > 3
    assert several.metadata == {"note": "grüße", "numbers": [1, 2.5]}
    assert several.settings["compression"] == "zstd"
    assert several.columns["text"].null_count == 57
    assert (several.columns["tail"].min_length, several.columns["tail"].max_length) == (0, 3)
    replaced = read_index(ROOT / "replaced")
    assert (replaced.generation, len(replaced.previous)) == (2, 3)
    assert all((ROOT / "replaced" / name).exists() for name in replaced.previous)
