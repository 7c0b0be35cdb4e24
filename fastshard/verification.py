"""Everything that can be checked about a data set on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastshard import _core
from fastshard._index import ColumnStats, DatasetIndex
from fastshard.errors import Error

__all__ = ["Fault", "verify"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: Which file, relative to the data set.
        code: A short name of the kind of fault.
        message: One line for people; begins with the file's name.
    """

    file: str
    code: str
    message: str


def verify(
    root: str,
    index: DatasetIndex,
    core: Any,
    progress: Callable[[int, int], None] | None = None,
    shards: Sequence[int] | None = None,
) -> list[Fault]:
    """All faults of a data set whose index could be read: tables, totals, every shard byte by byte.

    Args:
        root, index, core: The data set.
        progress: Called with bytes done and bytes in all.
        shards: Which shards; None for all, and then the statistics in the index are compared with the values as well.
    """
    faults = [*_table_faults(root, index), *_total_faults(index, core)]
    sizes = core.shard_bytes().tolist()
    checked = range(len(sizes)) if shards is None else shards
    total = sum(sizes[shard] for shard in checked)
    done = 0
    whole = shards is None
    found = {field["name"]: ColumnStats(0, 0) for field in core.fields}
    for shard in checked:
        path = core.shard_path(shard)
        shard_faults, columns = core.verify(shard)
        faults += [Fault(path, code, message) for code, message in shard_faults]
        if shard_faults:
            whole = False
        else:
            for name, stats in zip(found, columns, strict=True):
                found[name] = found[name].merge(ColumnStats(*stats))
        done += sizes[shard]
        if progress is not None:
            progress(done, total)
    if whole:
        faults += _statistics_faults(index, found)
    return faults


def _statistics_faults(index: DatasetIndex, found: Mapping[str, ColumnStats]) -> list[Fault]:
    return [
        Fault(
            "index.json",
            "statistics",
            f"index.json: the statistics of column {name!r} are {index.columns.get(name)}, "
            f"those of its values {stats}",
        )
        for name, stats in found.items()
        if index.columns.get(name) != stats
    ]


def _table_faults(root: str, index: DatasetIndex) -> list[Fault]:
    name = index.block_table.path
    try:
        found = _core.xxh3_128_file(os.path.join(root, name)).hex()
    except Error as error:
        return [Fault(name, error.code or "table_missing", str(error))]
    if found != index.block_table.hash:
        return [
            Fault(
                name,
                "table_hash",
                f"{name} (the block table): its xxh3-128 is {found}, index.json says {index.block_table.hash}",
            )
        ]
    return []


def _total_faults(index: DatasetIndex, core: Any) -> list[Fault]:
    faults = []
    for member, found in (
        ("bytes", int(core.shard_bytes().sum())),
        ("blocks", int(core.shard_blocks().sum())),
    ):
        said = getattr(index, member)
        if found != said:
            faults.append(
                Fault(
                    "index.json",
                    "totals",
                    f'index.json: member "{member}" is {said}, the shard table says {found}',
                )
            )
    return faults
