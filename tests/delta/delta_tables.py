"""Delta tables made by hand: what delta-rs cannot write, that is column mapping and deletion vectors."""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
MAGIC = 1681511377


def z85(data: bytes) -> str:
    """ZeroMQ's base 85; the length is a multiple of 4."""
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        digits = []
        for _ in range(5):
            word, digit = divmod(word, 85)
            digits.append(Z85[digit])
        text += "".join(reversed(digits))
    return text


def bitmap(rows: Sequence[int]) -> bytes:
    """The "portable" form of deleted rows: a magic number and an array of 32-bit roaring bitmaps."""
    parts: dict[int, list[int]] = {}
    for row in rows:
        parts.setdefault(row >> 32, []).append(row & 0xFFFFFFFF)
    body = struct.pack("<IQ", MAGIC, len(parts))
    for key, low in sorted(parts.items()):
        body += struct.pack("<I", key) + BitMap(low).serialize()
    return body


def vector_inline(rows: Sequence[int]) -> dict[str, Any]:
    data = bitmap(rows)
    padded = data + bytes(-len(data) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(padded),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def vector_in_file(folder: Path, rows: Sequence[int]) -> dict[str, Any]:
    data = bitmap(rows)
    name = uuid.uuid4()
    content = b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{name}.bin").write_bytes(content)
    return {
        "storageType": "u",
        "pathOrInlineDv": z85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


@dataclass
class HandMade:
    """A Delta table whose log is written line by line.

    Attributes:
        folder: where it lies.
        schema: the members of its schema, as Delta's JSON.
        partitions: names of the columns that it is partitioned by.
        mapping: of columns: "none", "name" or "id".
        vectors: it may have deletion vectors.
    """

    folder: Path
    schema: Sequence[Mapping[str, Any]]
    partitions: Sequence[str] = ()
    mapping: str = "none"
    vectors: bool = False
    version: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        (self.folder / "_delta_log").mkdir(parents=True)

    def file(
        self,
        table: pa.Table,
        name: str,
        *,
        partition: Mapping[str, str | None] | None = None,
        deleted: Mapping[str, Any] | None = None,
        row_group_size: int | None = None,
        claimed: int | None = None,
    ) -> dict[str, Any]:
        """Writes a Parquet file; returns its `add` action, which says that it has `claimed` rows."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=row_group_size)
        add: dict[str, Any] = {
            "path": quote(name),
            "partitionValues": dict(partition or {}),
            "size": path.stat().st_size,
            "modificationTime": 1700000000000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": table.num_rows if claimed is None else claimed}),
        }
        if deleted is not None:
            add["deletionVector"] = dict(deleted)
        return {"add": add}

    def metadata(self) -> list[dict[str, Any]]:
        """The first commit's protocol and metadata."""
        features = [
            *(["columnMapping"] if self.mapping != "none" else []),
            *(["deletionVectors"] if self.vectors else []),
        ]
        configuration = {} if self.mapping == "none" else {"delta.columnMapping.mode": self.mapping}
        if self.vectors:
            configuration["delta.enableDeletionVectors"] = "true"
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
        metadata = {
            "id": str(uuid.UUID(int=1)),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(self.schema)}),
            "partitionColumns": list(self.partitions),
            "configuration": configuration,
            "createdTime": 1700000000000,
        }
        return [{"protocol": protocol}, {"metaData": metadata}]

    def commit(self, *actions: Mapping[str, Any], at: int | None = None) -> int:
        """Writes the next version; returns its number."""
        self.version += 1
        info = {"commitInfo": {"timestamp": at or 1700000000000 + self.version * 1000, "operation": "WRITE"}}
        lines = [info, *(self.metadata() if self.version == 0 else []), *actions]
        path = self.folder / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if at is not None:  # the time of a version is that of its file
            os.utime(path, (at / 1000, at / 1000))
        return self.version


def column(name: str, type_: Any, *, physical: str = "", number: int = 0) -> dict[str, Any]:
    """A field of a schema, mapped to a column of files if `physical` is given."""
    metadata = (
        {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number} if physical else {}
    )
    return {"name": name, "type": type_, "nullable": True, "metadata": metadata}
