"""A fastshard data set as a source: to filter, shuffle, compress or cut it anew."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import pyarrow as pa

from fastshard._index import INDEX_NAME, read_index
from fastshard._tables import read_tables
from fastshard.converters._discover import SourceFile
from fastshard.converters._paths import locate
from fastshard.converters.files import FilesSource
from fastshard.errors import SchemaError

__all__ = ["DatasetSource", "is_dataset"]


def is_dataset(path: Any) -> bool:
    """Whether a path is that of a data set of this machine."""
    if not isinstance(path, str | os.PathLike):
        return False
    place = locate(path)
    return place.local and os.path.isfile(os.path.join(place.path, INDEX_NAME)) and _is_ours(place.path)


def _is_ours(path: str) -> bool:
    with open(os.path.join(path, INDEX_NAME), "rb") as file:
        return b'"fastshard"' in file.read(4096)


class DatasetSource(FilesSource):
    """The shards of a data set, each held against its hash before it is read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the index.

        Raises:
            CorruptError: The index is damaged.
            UnsupportedError: A newer fastshard wrote it.
        """
        place = locate(path)
        self._index = read_index(place.path)
        with read_tables(place.path, self._index) as (entries, _):
            files = [
                SourceFile(place.child(entry.path), entry.bytes, "", digest=entry.hash.hex())
                for entry in entries
            ]
        super().__init__(path, files=files)

    @cached_property
    def _settled(self) -> tuple[pa.Schema, dict[str, SchemaError]]:
        return pa.ipc.read_schema(pa.py_buffer(self._index.schema_ipc)), {}

    @property
    def provenance(self) -> dict[str, Any]:
        return {
            "source": self.name,
            "format": "fastshard",
            "fingerprint": self._index.fingerprint,
            "provenance": dict(self._index.provenance),
        }

    def identity(self) -> object:
        return ["fastshard", self._index.fingerprint, self._index.schema_ipc.hex()]
