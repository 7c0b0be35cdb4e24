"""A fastshard data set as a source: to filter, shuffle, compress or cut it anew, or to bring it to this machine."""

from __future__ import annotations

import os
import re
import tempfile
from functools import cached_property
from typing import Any

import pyarrow as pa

from fastshard._index import INDEX_NAME, read_index
from fastshard._store import Store, fetch_index
from fastshard._tables import read_tables
from fastshard.converters._discover import SourceFile
from fastshard.converters._paths import Place, has_magic, is_url, locate
from fastshard.converters.files import FilesSource
from fastshard.errors import SchemaError
from fastshard.schema import read_schema

__all__ = ["DatasetSource", "is_dataset"]

# Of a URL that names a file.
_FILE = re.compile(r"\.(parquet|pq|parq|pqt|arrows?|feather|ipc|ftr)/?$")


def is_dataset(path: Any) -> bool:
    """Whether a path or URL is that of a data set."""
    if not isinstance(path, str | os.PathLike):
        return False
    text = os.fspath(path)
    if is_url(text) and (has_magic(text) or _FILE.search(text)):
        return False
    place = locate(path)
    if place.local:
        return os.path.isfile(os.path.join(place.path, INDEX_NAME)) and _is_ours(place.child(INDEX_NAME))
    try:
        return _is_ours(place.child(INDEX_NAME))
    except Exception:  # there is none, or listing the place as files meets the error and names it
        return False


def _is_ours(index: Place) -> bool:
    with index.filesystem.open_input_stream(index.path) as file:
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
        with tempfile.TemporaryDirectory(prefix="fastshard-") as folder:
            if place.local:
                folder = place.path
                self._index = read_index(folder)
            else:
                self._index = fetch_index(Store(os.fspath(path)), folder)
            with read_tables(folder, self._index) as (entries, _):
                files = [
                    SourceFile(place.child(entry.path), entry.bytes, "", digest=entry.hash.hex())
                    for entry in entries
                ]
        super().__init__(path, files=files)

    @cached_property
    def _settled(self) -> tuple[pa.Schema, dict[str, SchemaError]]:
        return read_schema(self._index.schema_ipc), {}

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
