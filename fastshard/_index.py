"""`index.json`: what it says, as frozen objects, read with every value checked. Needs neither pyarrow nor numpy."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from fastshard.errors import CorruptError, NotFoundError, StorageError, UnsupportedError

__all__ = [
    "FORMAT_VERSION",
    "INDEX_NAME",
    "ColumnStats",
    "DatasetIndex",
    "FieldText",
    "FileRef",
    "check_path",
    "parse_index",
    "read_index",
]

FORMAT_VERSION = 1
INDEX_NAME = "index.json"
_INT64_MAX = 2**63 - 1
_LARGEST_INDEX = 1 << 30
_UNITS_MAX = 1 << 22
_NO_CHECKSUM = "0" * 32  # what its digits count as
_HASH = re.compile(r"[0-9a-f]{32}")
_URL = re.compile(r"/([A-Za-z][A-Za-z0-9+.-]+):/(.*)", re.DOTALL)
_PATH_SCHEMES = {
    "file": "give the path that follows file://",
    "dbfs": "dbfs:/Volumes/x is /Volumes/x, any other dbfs:/x is /dbfs/x",
}
_T = TypeVar("_T")
_Bytes: TypeAlias = bytes  # `bytes` is a field below


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file of the data set: its relative path, size in bytes and xxh3-128 as 32 hexadecimal digits."""

    path: str
    bytes: int
    hash: str


@dataclass(frozen=True, slots=True)
class FieldText:
    """A column for people: its name, its type in Arrow's text form, and whether it may hold nulls."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """What is known of a column over the whole data set.

    Attributes:
        null_count: Nulls of the column itself.
        child_null_count: Nulls in its descendants that a non-null parent slot can see.
        min_length: Smallest length of the non-null values of a string (bytes), binary or list (elements) column;
            None where there is no value, or for columns of another type.
        max_length: The largest, likewise.
    """

    null_count: int
    child_null_count: int
    min_length: int | None = None
    max_length: int | None = None

    def merge(self, other: ColumnStats) -> ColumnStats:
        """The statistics of the rows of both."""
        lows = [n for n in (self.min_length, other.min_length) if n is not None]
        highs = [n for n in (self.max_length, other.max_length) if n is not None]
        return ColumnStats(
            self.null_count + other.null_count,
            self.child_null_count + other.child_null_count,
            min(lows) if lows else None,
            max(highs) if highs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIndex:
    """One generation of a data set, as its `index.json` says. docs/format.md section 2 explains each member."""

    version: int
    generation: int
    rows: int
    shards: int
    blocks: int
    bytes: int
    raw_bytes: int
    fingerprint: str
    schema: tuple[FieldText, ...]
    schema_ipc: _Bytes
    shard_table: FileRef
    block_table: FileRef
    columns: Mapping[str, ColumnStats]
    window: int
    unit_blocks: int
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    metadata: Mapping[str, Any]
    previous: tuple[str, ...]

    def to_json(self) -> _Bytes:
        """The bytes of `index.json`: equal for equal contents."""
        document = {
            "format": "fastshard",
            "version": self.version,
            "generation": self.generation,
            "rows": self.rows,
            "shards": self.shards,
            "blocks": self.blocks,
            "bytes": self.bytes,
            "raw_bytes": self.raw_bytes,
            "fingerprint": self.fingerprint,
            "schema": [{"name": f.name, "type": f.type, "nullable": f.nullable} for f in self.schema],
            "schema_ipc": base64.b64encode(self.schema_ipc).decode("ascii"),
            "shard_table": _file_json(self.shard_table),
            "block_table": _file_json(self.block_table),
            "columns": {
                name: {
                    "null_count": stats.null_count,
                    "child_null_count": stats.child_null_count,
                    "min_length": stats.min_length,
                    "max_length": stats.max_length,
                }
                for name, stats in self.columns.items()
            },
            "order": {"window": self.window, "unit_blocks": self.unit_blocks},
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
            "metadata": dict(self.metadata),
            "previous": list(self.previous),
            "checksum": _NO_CHECKSUM,
        }
        data = (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
        head, tail = data.rsplit(_NO_CHECKSUM.encode(), 1)
        return head + _checksum(data).encode() + tail


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _file_json(ref: FileRef) -> dict[str, Any]:
    return {"path": ref.path, "bytes": ref.bytes, "hash": ref.hash}


def read_index(path: str | os.PathLike[str]) -> DatasetIndex:
    """Read and check the `index.json` of the data set in a directory.

    The tables that it names are verified by whoever maps them.

    Raises:
        NotFoundError: There is no data set.
        CorruptError: The file is not what docs/format.md says; the message names the member.
        UnsupportedError: A newer fastshard wrote it.
        StorageError: The operating system cannot read it.
    """
    directory = os.fspath(path)
    where = os.path.join(directory, INDEX_NAME)
    try:
        with open(where, "rb") as file:
            data = file.read(_LARGEST_INDEX + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(_not_found(directory)) from None
    except OSError as error:
        raise StorageError(f"{where}: could not read the index: {error.strerror}") from error
    return parse_index(data, where)


def _not_found(directory: str) -> str:
    if os.path.isfile(directory):
        return (
            f"{directory}: this is a file, and a data set is a directory with {INDEX_NAME}; "
            'make one with "fastshard convert" or, for Arrow files, "fastshard index"'
        )
    url = _URL.search(os.path.abspath(directory))  # the working directory goes before a URL
    if url is not None and not os.path.isdir(directory):
        scheme, rest = url[1], url[2].partition("?")[0].rpartition("@")[2]
        named = f"{scheme}:/{'' if scheme in _PATH_SCHEMES else '/'}{rest}"
        advice = _PATH_SCHEMES.get(scheme, "fs.cached(url) brings one here and gives its path")
        return f"{named}: data sets are opened by paths of this machine, not by URLs; {advice}"
    if not os.path.isdir(directory):
        return f"{directory}: there is no such directory"
    return (
        f"{directory}: no data set here: the directory has no {INDEX_NAME}; "
        'make one with "fastshard convert" or, for Arrow files, "fastshard index"'
    )


def check_path(path: str, where: str) -> str:
    """Return a path of the index, or raise `CorruptError` if it may leave the directory (docs/format.md section 2)."""
    if not path or path.startswith("/") or "\0" in path or "\\" in path or ".." in path.split("/"):
        raise CorruptError(f"{where} is {path!r}, which is not a path inside the data set")
    return path


def parse_index(data: bytes, where: str = INDEX_NAME) -> DatasetIndex:
    """Check the bytes of an `index.json`; `where` names it in errors. Raises as `read_index` does."""
    if len(data) > _LARGEST_INDEX:
        raise CorruptError(f"{where}: larger than {_LARGEST_INDEX} bytes")
    try:
        document = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_members, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            f"{where}: not valid JSON ({error or 'nested too deeply'}); restore the file or write the data set again"
        ) from None
    reader = _Members(document, where)
    if reader.document.get("format") != "fastshard":
        raise CorruptError(f'{where}: member "format" is {reader.document.get("format")!r}, not "fastshard"')
    version = reader.integer("version", at_least=1)
    if version > FORMAT_VERSION:
        raise UnsupportedError(
            f"{where}: format version {version}, and this fastshard reads up to {FORMAT_VERSION}; upgrade fastshard"
        )
    index = _read_members(reader, version)
    if "checksum" in reader.document:  # last, so that a member that is wrong by itself is named
        said = reader.hash("checksum").encode()
        if data.count(said) != 1 or _checksum(data.replace(said, _NO_CHECKSUM.encode())).encode() != said:
            raise reader.fault(
                "the file was changed: its bytes do not have the checksum that it gives; restore it, or write the data "
                'set again (an index that was edited on purpose has no member "checksum")'
            )
    return index


def _read_members(reader: _Members, version: int) -> DatasetIndex:
    rows, shards, blocks = (reader.integer(name) for name in ("rows", "shards", "blocks"))
    if (
        not shards <= blocks
        or (shards == 0) != (blocks == 0)
        or (shards == 0) != (rows == 0)
        or rows < shards
    ):
        raise reader.fault(f"{rows} rows in {shards} shards and {blocks} blocks cannot be")
    order = reader.child("order")
    window = order.integer("window", at_least=min(rows, 1), at_most=rows)
    unit_blocks = order.integer("unit_blocks", at_least=1)
    if unit_blocks & (unit_blocks - 1):
        raise order.fault(f'member "unit_blocks" is {unit_blocks}, not a power of two')
    schema = reader.items("schema", _read_field)
    names = [field.name for field in schema]
    if not names or len(set(names)) != len(names) or "" in names:
        raise reader.fault('member "schema" has no columns, or names that are empty or not unique')
    return DatasetIndex(
        version=version,
        generation=reader.integer("generation", at_least=1),
        rows=rows,
        shards=shards,
        blocks=blocks,
        bytes=reader.integer("bytes"),
        raw_bytes=reader.integer("raw_bytes"),
        fingerprint=reader.hash("fingerprint"),
        schema=schema,
        schema_ipc=reader.base64("schema_ipc"),
        shard_table=_read_file(reader.child("shard_table")),
        block_table=_read_file(reader.child("block_table")),
        columns=_read_columns(reader.child("columns"), names, rows),
        window=window,
        unit_blocks=unit_blocks,
        settings=reader.child("settings").document,
        provenance=reader.child("provenance").document,
        metadata=reader.child("metadata").document,
        previous=reader.items("previous", lambda item, where: check_path(_string(item, where), where)),
    )


def _read_field(item: Any, where: str) -> FieldText:
    field = _Members(item, where)
    return FieldText(field.string("name"), field.string("type"), field.boolean("nullable"))


def _read_file(reader: _Members) -> FileRef:
    path = check_path(reader.string("path"), f'{reader.where}: member "path"')
    return FileRef(path, reader.integer("bytes"), reader.hash("hash"))


def _read_columns(reader: _Members, names: list[str], rows: int) -> dict[str, ColumnStats]:
    if set(reader.document) != set(names):
        raise reader.fault('its names are not those of "schema"')
    columns = {}
    for name in names:
        column = reader.child(name)
        low, high = column.optional_integer("min_length"), column.optional_integer("max_length")
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            raise column.fault(f"lengths from {low} to {high} cannot be")
        columns[name] = ColumnStats(
            column.integer("null_count", at_most=rows), column.integer("child_null_count"), low, high
        )
    return columns


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise CorruptError(f"{where} is {_shown(value)}, not a string")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise CorruptError(f"{where} is {value!r}, which is not valid Unicode")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class _Members:
    """A JSON object with accessors that check; `where` says in errors what it is."""

    def __init__(self, document: Any, where: str) -> None:
        if not isinstance(document, dict):
            raise CorruptError(f"{where}: {_shown(document)} is not a JSON object")
        self.document: dict[str, Any] = document
        self.where = where

    def fault(self, text: str) -> CorruptError:
        return CorruptError(f"{self.where}: {text}")

    def _get(self, name: str) -> Any:
        if name not in self.document:
            raise self.fault(f'member "{name}" is missing')
        return self.document[name]

    def integer(self, name: str, *, at_least: int = 0, at_most: int = _INT64_MAX) -> int:
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
            raise self.fault(
                f'member "{name}" is {_shown(value)}, not an integer from {at_least} to {at_most}'
            )
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.document.get(name) is None else self.integer(name)

    def boolean(self, name: str) -> bool:
        value = self._get(name)
        if not isinstance(value, bool):
            raise self.fault(f'member "{name}" is {_shown(value)}, not true or false')
        return value

    def string(self, name: str) -> str:
        return _string(self._get(name), f'{self.where}: member "{name}"')

    def hash(self, name: str) -> str:
        value = self.string(name)
        if not _HASH.fullmatch(value):
            raise self.fault(f'member "{name}" is {_shown(value)}, not 32 hexadecimal digits')
        return value

    def base64(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.string(name), validate=True)
        except (binascii.Error, ValueError):
            raise self.fault(f'member "{name}" is not base64') from None

    def child(self, name: str) -> _Members:
        return _Members(self._get(name), f'{self.where}: member "{name}"')

    def items(self, name: str, read: Callable[[Any, str], _T]) -> tuple[_T, ...]:
        values = self._get(name)
        if not isinstance(values, list):
            raise self.fault(f'member "{name}" is {_shown(values)}, not an array')
        return tuple(read(value, f'{self.where}: member "{name}"[{i}]') for i, value in enumerate(values))


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"member {name!r} is there twice")
        members[name] = value
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
