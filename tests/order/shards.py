"""Shard tables for the tests, as the reference and as the native core take them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import reference
from hypothesis import strategies as st
from reference import Shard


def regular(rows: int, block_rows: int) -> Shard:
    """A shard as the writer makes them."""
    return Shard(rows, reference.ceil_div(rows, block_rows), block_rows)


def columns(shards: Sequence[Shard]) -> dict[str, np.ndarray]:
    """The keyword arguments of the native core."""
    return {
        "shard_rows": np.array([shard.rows for shard in shards], dtype=np.int64),
        "shard_blocks": np.array([shard.blocks for shard in shards], dtype=np.int64),
        "shard_block_rows": np.array([shard.block_rows for shard in shards], dtype=np.int64),
    }


def total(shards: Sequence[Shard]) -> int:
    return sum(shard.rows for shard in shards)


@st.composite
def shard_tables(draw: st.DrawFn, max_shards: int = 8, max_rows: int = 120) -> list[Shard]:
    """Equal and unequal, empty, regular and irregular shards."""
    shards = []
    for _ in range(draw(st.integers(0, max_shards))):
        rows = draw(st.integers(0, max_rows))
        if rows > 0 and draw(st.booleans()):
            shards.append(Shard(rows, draw(st.integers(1, rows)), 0))
        else:
            shards.append(regular(rows, draw(st.integers(1, 40))))
    return shards
