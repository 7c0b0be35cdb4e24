"""What a written data set must be: the checks of docs/format.md, done slowly with pyarrow and the standard library."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard import _core


def read_back(path: str | Path) -> pa.Table:
    """All rows of a data set by pyarrow, in the order of the shard table, with every promise of the format checked."""
    directory = Path(path)
    index = json.loads((directory / "index.json").read_text())
    assert index["format"] == "fastshard"
    assert index["version"] == 1
    shard_table = _table(directory, index["shard_table"])
    block_file = pa.ipc.open_file(pa.memory_map(str(directory / index["block_table"]["path"])))
    _check_file(directory, index["block_table"])
    block_bytes = (directory / index["block_table"]["path"]).read_bytes()
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(index["schema_ipc"])))
    assert [(f["name"], f["type"], f["nullable"]) for f in index["schema"]] == [
        (field.name, str(field.type), field.nullable) for field in schema
    ]

    shards = shard_table.to_pylist()
    assert len(shards) == index["shards"] == block_file.num_record_batches
    tables = []
    fingerprint = b""
    for number, shard in enumerate(shards):
        batch = block_file.get_batch(number)
        span = block_bytes[shard["table_offset"] : shard["table_offset"] + shard["table_bytes"]]
        assert _core.xxh3_64(span) == shard["table_hash"]
        assert pa.ipc.read_record_batch(pa.py_buffer(span), block_file.schema).equals(batch)
        tables.append(_check_shard(directory, shard, batch.to_pylist(), schema))
        fingerprint += struct.pack("<qq", shard["rows"], shard["bytes"]) + shard["hash"]
    for name in ("rows", "blocks", "bytes", "raw_bytes"):
        assert index[name] == sum(shard[name] for shard in shards)
    assert index["fingerprint"] == _core.xxh3_128(fingerprint).hex()
    _check_order(index, shards)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    assert index["columns"] == {name: column_statistics(table[name]) for name in schema.names}
    return table


def _check_order(index: Mapping[str, Any], shards: Sequence[Mapping[str, Any]]) -> None:
    rows, raw = index["rows"], index["raw_bytes"]
    assert index["order"]["window"] == (min(rows, max(1, rows * 2**29 // raw)) if raw else rows)
    units = index["order"]["unit_blocks"]
    assert sum(-(-shard["blocks"] // units) for shard in shards) <= 2**22
    assert units == 1 or sum(-(-shard["blocks"] // (units // 2)) for shard in shards) > 2**22


def _check_file(directory: Path, ref: Mapping[str, Any]) -> None:
    path = directory / ref["path"]
    assert path.stat().st_size == ref["bytes"]
    assert _core.xxh3_128_file(str(path)).hex() == ref["hash"]
    assert path.stem.endswith(f"-{ref['hash'][:16]}")


def _table(directory: Path, ref: Mapping[str, Any]) -> pa.Table:
    _check_file(directory, ref)
    return pa.ipc.open_file(str(directory / ref["path"])).read_all()


def _check_shard(
    directory: Path, shard: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], schema: pa.Schema
) -> pa.Table:
    path = directory / shard["path"]
    data = path.read_bytes()
    assert len(data) == shard["bytes"]
    assert _core.xxh3_128(data) == shard["hash"]
    reader = pa.ipc.open_file(pa.py_buffer(data))
    assert reader.schema.equals(schema)
    assert reader.num_record_batches == len(blocks) == shard["blocks"] >= 1
    batches = [reader.get_batch(number) for number in range(len(blocks))]
    for batch, block in zip(batches, blocks, strict=True):
        batch.validate(full=True)
        assert batch.num_rows == block["rows"]
        message = data[block["offset"] : block["offset"] + block["metadata_bytes"] + block["body_bytes"]]
        assert message[:4] == b"\xff\xff\xff\xff"
        assert _core.xxh3_64(message[: block["metadata_bytes"]]) == block["metadata_hash"]
        assert same(pa.ipc.read_record_batch(pa.py_buffer(message), schema).to_pylist(), batch.to_pylist())
        assert len(block["column_hashes"]) == len(schema)
    rows = [batch.num_rows for batch in batches]
    assert sum(rows) == shard["rows"]
    if shard["block_rows"]:
        assert set(rows[:-1]) <= {shard["block_rows"]}
        assert 1 <= rows[-1] <= shard["block_rows"]
    return pa.Table.from_batches(batches)


def column_statistics(column: pa.ChunkedArray) -> dict[str, Any]:
    """What `index.json` says of a column, worked out value by value."""
    values = column.to_pylist()
    kind = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    lengths = [n for n in (_length(value, kind) for value in values if value is not None) if n is not None]
    return {
        "null_count": column.null_count,
        "child_null_count": sum(_child_nulls(value, kind) for value in values if value is not None),
        "min_length": min(lengths, default=None),
        "max_length": max(lengths, default=None),
    }


def _length(value: Any, kind: pa.DataType) -> int | None:
    if isinstance(value, str):
        return len(value.encode())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_struct(kind):
        return None
    return len(value) if isinstance(value, (bytes, list)) else None


def _child_nulls(value: Any, kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        children = [(value[kind.field(i).name], kind.field(i).type) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [
            (part, t) for pair in value for part, t in zip(pair, (kind.key_type, kind.item_type), strict=True)
        ]
    elif isinstance(value, list):
        children = [(item, kind.value_type) for item in value]
    else:
        return 0
    return sum(1 if child is None else _child_nulls(child, t) for child, t in children)


def same(left: Any, right: Any) -> bool:
    """Whether two Python values are equal, NaN to NaN and -0.0 to -0.0 only."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and bool(left == right)
