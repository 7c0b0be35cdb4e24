"""Types of the native core. Private: its names may change at any release."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

_Int64 = npt.NDArray[np.int64]
_UInt64 = npt.NDArray[np.uint64]

def fault_codes() -> list[str]: ...
def uring_refusal() -> str | None: ...
def file_system(path: str) -> str: ...
def xxh3_64(buffer: Buffer) -> int: ...
def xxh3_128(buffer: Buffer) -> bytes: ...
def xxh3_128_file(path: str) -> bytes: ...

class IndexedFile:
    schema_ipc: bytes
    rows: int
    bytes: int
    raw_bytes: int
    blocks: int
    block_rows: int
    hash: bytes  # type: ignore[valid-type]
    offset: _Int64
    metadata_bytes: _Int64
    body_bytes: _Int64
    rows_of_block: _Int64
    metadata_hash: _UInt64
    column_hashes: _UInt64
    columns: list[tuple[int, int, int | None, int | None]]

def index_file(path: str, *, kind: Literal["auto", "file", "stream"] = "auto") -> IndexedFile: ...

class Projection: ...

class BatchStream:
    def __init__(
        self,
        *,
        set: ShardSet,
        projection: Projection,
        order: EpochOrder,
        partition: Partition,
        first: int,
        step: int,
        selection: _Int64 | None,
        threads: int,
        prefetch: int,
        keep_going: bool = False,
        reading: dict[str, Any] | None = None,
    ) -> None: ...
    def next(self, timeout: float) -> tuple[list[Any], _Int64, _Int64, int] | None: ...
    def stop(self) -> None: ...
    def stats(self) -> dict[str, int]: ...

class ShardSet:
    def __init__(
        self,
        *,
        root: str,
        shard_table: str,
        block_table: str,
        shard_table_hash: bytes,
        block_table_bytes: int,
        rows: int,
        shards: int,
        schema_ipc: bytes,
        check_columns: bool,
        cache_bytes: int,
        max_open: int,
    ) -> None: ...
    rows: int
    shards: int
    fields: list[dict[str, Any]]
    def projection(self, columns: Sequence[int], forms: tuple[Any, ...]) -> Projection: ...
    def take(self, ids: _Int64, projection: Projection) -> list[Any]: ...
    def sampler(self, projection: Projection) -> Any: ...
    def shard_rows(self) -> _Int64: ...
    def shard_blocks(self) -> _Int64: ...
    def shard_block_rows(self) -> _Int64: ...
    def shard_bytes(self) -> _Int64: ...
    def shard_path(self, shard: int) -> str: ...
    def locate(self, id: int) -> tuple[int, int]: ...
    def fingerprint(self, shards: int | None = None) -> bytes: ...
    def verify(
        self, shard: int
    ) -> tuple[list[tuple[str, str]], list[tuple[int, int, int | None, int | None]]]: ...
    def check(self, shard: int, columns: Sequence[int]) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def close(self) -> None: ...

def default_lanes(
    *, shard_rows: _Int64, shard_blocks: _Int64, shard_block_rows: _Int64, unit_blocks: int
) -> int: ...

class EpochOrder:
    def __init__(
        self,
        *,
        kind: str,
        size: int,
        seed: int = 0,
        epoch: int = 0,
        lanes: int | None = None,
        shard_rows: _Int64 | None = None,
        shard_blocks: _Int64 | None = None,
        shard_block_rows: _Int64 | None = None,
        window: int = 0,
        unit_blocks: int = 1,
    ) -> None: ...
    size: int
    lanes: int
    def ids(self, positions: _UInt64) -> _UInt64: ...

class Partition:
    def __init__(
        self,
        *,
        size: int,
        start: int = 0,
        lanes: int = 1,
        batch_size: int,
        world_size: int = 1,
        rank: int = 0,
        replication: int = 1,
        tail: str = "pad",
    ) -> None: ...
    global_batch_size: int
    num_batches: int
    num_samples: int
    num_repeats: int
    num_steps: int
    num_dropped: int
    def position_after(self, steps: int) -> int: ...
    def batch(self, batch: int) -> tuple[_UInt64, npt.NDArray[np.bool_] | None]: ...
