"""The one path from Arrow batches to a committed data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fastshard.converters._source import Source

__all__ = ["Mode", "Progress", "ProgressCallback", "WriteOptions", "WriteResult", "write_source"]

Mode: TypeAlias = Literal["error", "overwrite", "append"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How shards are laid out; validated on construction.

    Attributes:
        compression: `"none"`, `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`.
        block_bytes: Size that a block's body aims at, before compression.
        shard_bytes: Size that a shard's file aims at.
    """

    compression: str | tuple[str, int] = "none"
    block_bytes: int = 1 << 20
    shard_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a write has come. `bytes` and `total_bytes` are the source's, as its tasks estimate them."""

    rows: int
    bytes: int
    total_rows: int | None
    total_bytes: int


ProgressCallback: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a commit wrote: the totals of the data set after it."""

    path: str
    rows: int
    shards: int
    blocks: int
    bytes: int
    raw_bytes: int
    generation: int
    fingerprint: str


def write_source(
    source: Source,
    dest: str | os.PathLike[str],
    *,
    options: WriteOptions | None = None,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> WriteResult:
    """Write a source as a data set and commit it.

    Args:
        source: Where the rows come from.
        dest: The data set's directory; made where it does not exist.
        options: How shards are laid out.
        mode: What to do where a data set exists: refuse, replace it, or add to it.
        metadata: JSON values of the user's, kept in `index.json`.
        workers: Processes that run the tasks; the bytes written do not depend on it.
        progress: Called in this process, now and then, and once at the end.
    """
    raise NotImplementedError
