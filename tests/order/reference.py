"""The order of docs/order.md, written from that page alone: slow, plain, and independent of the C++.

Names follow the page. Everything is Python integers; whole epochs are lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
GLOBAL, DEAL, UNITS, WINDOW, SOURCE, SPLIT, WEIGHTED = 1, 2, 3, 4, 5, 6, 7


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# 2. Words from words


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % WORD
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % WORD
    return x ^ (x >> 31)


def key_of(purpose: int, *words: int) -> int:
    """H(purpose; words)."""
    h = mix(purpose * GOLDEN % WORD)
    for w in words:
        h = mix((mix(h ^ w) + GOLDEN) % WORD)
    return h


def word(key: int, i: int) -> int:
    return mix((key + (i + 1) * GOLDEN) % WORD)


def hi(a: int, b: int) -> int:
    return (a * b) >> 64


# 3. The permutation


class P:
    """P(n, key)."""

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self.table: list[int] | None = None
        if n < 1024:
            t = list(range(n))
            for i in range(n - 1, 0, -1):
                j = hi(word(key, i), i + 1)
                t[i], t[j] = t[j], t[i]
            self.table = t
            return
        root = isqrt(n)
        self.a = root if root * root == n else root + 1
        self.b = ceil_div(n, self.a)
        self.k1 = [word(key, i) % 2**32 for i in range(8)]
        self.k2 = [word(key, i) >> 32 for i in range(8)]

    def f(self, i: int, x: int, m: int) -> int:
        h = (x ^ self.k1[i]) * 0x21F0AAAD % 2**32
        h ^= h >> 15
        h = (h ^ self.k2[i]) * 0xD35A2D97 % 2**32
        h ^= h >> 16
        return (h * m) >> 32

    def network(self, x: int) -> int:
        left, right = divmod(x, self.b)
        for i in (0, 2, 4, 6):
            left = (left + self.f(i, right, self.a)) % self.a
            right = (right + self.f(i + 1, left, self.b)) % self.b
        return left * self.b + right

    def __call__(self, x: int) -> int:
        if self.table is not None:
            return self.table[x]
        x = self.network(x)
        while x >= self.n:
            x = self.network(x)
        return x


# 4. Lanes


def lane_length(size: int, lanes: int, lane: int) -> int:
    return size // lanes + (1 if lane < size % lanes else 0)


def lane_first(size: int, lanes: int, lane: int) -> int:
    return lane * (size // lanes) + min(lane, size % lanes)


# 5. The kinds of order


@dataclass(frozen=True)
class Shard:
    """One row of the shard table, as far as the order needs it."""

    rows: int
    blocks: int
    block_rows: int  # 0: irregular


def unit_rows(shard: Shard, unit_blocks: int) -> int:
    return unit_blocks * (shard.block_rows or ceil_div(shard.rows, shard.blocks))


def default_lanes(shards: Sequence[Shard], unit_blocks: int) -> int:
    """The lanes of kind `block` where none are asked for."""
    units = sum(ceil_div(shard.rows, unit_rows(shard, unit_blocks)) for shard in shards if shard.rows)
    lanes = 1
    while lanes * 2 <= 64 and lanes * 2 * 8 <= units:
        lanes *= 2
    return lanes


def dealt_rows(
    shards: Sequence[Shard], unit_rows_of: Sequence[int], lanes: int, seed: int
) -> list[tuple[int, int]]:
    """(shard, row in it) of each dealt row."""
    if not shards:
        return []
    z = ceil_div(8 * lanes, len(shards))
    deal = P(len(shards) * z, key_of(DEAL, seed))
    result = []
    for i in range(len(shards) * z):
        s, j = divmod(deal(i), z)
        rows, unit = shards[s].rows, unit_rows_of[s]
        n = ceil_div(rows, unit)
        first, end = j * n // z * unit, (j + 1) * n // z * unit
        result += [(s, row) for row in range(first, min(end, rows))]
    return result


def first_ids(shards: Sequence[Shard]) -> list[int]:
    return [sum(shard.rows for shard in shards[:s]) for s in range(len(shards))]


def none_order(size: int) -> list[int]:
    return list(range(size))


def deal_out(size: int, lanes: int, lane_order: Sequence[Sequence[int]]) -> list[int]:
    """Position p is place p div C of lane p mod C."""
    return [lane_order[p % lanes][p // lanes] for p in range(size)]


def global_order(size: int, seed: int, epoch: int, lanes: int = 1, shards: Sequence[Shard] = ()) -> list[int]:
    if lanes == 1:
        perm = P(size, key_of(GLOBAL, seed, epoch, 0))
        return [perm(p) for p in range(size)]
    starts = first_ids(shards)
    ids = [starts[s] + row for s, row in dealt_rows(shards, [1] * len(shards), lanes, seed)]
    lane_order = []
    for lane in range(lanes):
        length = lane_length(size, lanes, lane)
        first = lane_first(size, lanes, lane)
        perm = P(length, key_of(GLOBAL, seed, epoch, lane))
        lane_order.append([ids[first + perm(q)] for q in range(length)])
    return deal_out(size, lanes, lane_order)


def block_lane(
    rows: Sequence[tuple[int, int, int]], seed: int, epoch: int, lane: int, lanes: int, window: int
) -> list[int]:
    """The ids of one lane in epoch order; `rows` are its dealt rows as (id, shard, unit of the shard)."""
    units: list[list[int]] = []
    previous = None
    for sample, s, u in rows:
        if (s, u) != previous:
            units.append([])
            previous = (s, u)
        units[-1].append(sample)
    perm = P(len(units), key_of(UNITS, seed, epoch, lane))
    in_order = [units[perm(i)] for i in range(len(units))]
    length = len(rows)
    most = ceil_div(window, lanes)
    number_of_windows = ceil_div(length, most)
    width = ceil_div(length, number_of_windows) if length else 1
    phase = 0 if number_of_windows == 1 else lane * width // lanes
    windows: dict[int, list[int]] = {}
    before = 0
    for unit in in_order:
        windows.setdefault((before + phase) // width, []).extend(unit)
        before += len(unit)
    result = []
    for k, samples in sorted(windows.items()):
        inside = P(len(samples), key_of(WINDOW, seed, epoch, lane, k))
        result.extend(samples[inside(x)] for x in range(len(samples)))
    return result


def block_order(
    shards: Sequence[Shard], seed: int, epoch: int, *, window: int, unit_blocks: int, lanes: int | None = None
) -> list[int]:
    size = sum(shard.rows for shard in shards)
    count = default_lanes(shards, unit_blocks) if lanes is None else lanes
    starts = first_ids(shards)
    units = [unit_rows(shard, unit_blocks) if shard.rows else 1 for shard in shards]
    rows = [(starts[s] + row, s, row // units[s]) for s, row in dealt_rows(shards, units, count, seed)]
    lane_order = []
    for lane in range(count):
        first = lane_first(size, count, lane)
        mine = rows[first : first + lane_length(size, count, lane)]
        lane_order.append(block_lane(mine, seed, epoch, lane, count, window))
    return deal_out(size, count, lane_order)


# 6. Batches


@dataclass(frozen=True)
class RankBatch:
    positions: tuple[int, ...]
    is_repeat: tuple[bool, ...]


def global_batches(end: int, start: int, batch: int, tail: str) -> list[range]:
    """The positions of each delivered global batch; `batch` is G."""
    full = (end - start) // batch
    batches = [range(start + k * batch, start + (k + 1) * batch) for k in range(full)]
    if start + full * batch < end and tail != "drop":
        batches.append(range(start + full * batch, end))
    return batches


def groups_batches(
    end: int, start: int, lanes: int, batch_size: int, groups: int, tail: str
) -> list[list[RankBatch]]:
    """For each data-parallel group, its batches."""
    if end == 0 or (tail == "drop" and end < groups * batch_size):
        raise ValueError("nothing to yield")
    result: list[list[RankBatch]] = [[] for _ in range(groups)]
    for positions in global_batches(end, start, groups * batch_size, tail):
        in_order = sorted(positions, key=lambda p: (p % lanes, p))
        m = len(in_order)
        parts = []
        taken = 0
        for g in range(groups):
            count = m // groups + (1 if g < m % groups else 0)
            parts.append(in_order[taken : taken + count])
            taken += count
        repeats_of_lane: dict[int, int] = {}
        for g, part in enumerate(parts):
            repeats: list[int] = []
            if tail == "pad" and m % groups > 0 and g >= m % groups:
                lane = (part[-1] if part else in_order[g % m]) % lanes
                h = repeats_of_lane.get(lane, 0)
                repeats_of_lane[lane] = h + 1
                repeats.append(lane + lanes * (h % len(range(lane, end, lanes))))
            if part or repeats:
                marks = (False,) * len(part) + (True,) * len(repeats)
                result[g].append(RankBatch(tuple(part + repeats), marks))
    return result


# 9. Mixing


def schedule(weights: Sequence[int]) -> list[int]:
    """The source of each slot of one period."""
    total = sum(weights)
    taken = [0] * len(weights)
    slots = []
    for t in range(total):
        ready = [j for j, w in enumerate(weights) if taken[j] < w and taken[j] * total // w <= t]
        source = min(ready, key=lambda j: (ceil_div((taken[j] + 1) * total, weights[j]), j))
        slots.append(source)
        taken[source] += 1
    return slots


def mixed_positions(weights: Sequence[int], lanes: int, end: int) -> list[tuple[int, int]]:
    """(source, position among those of its source) of positions 0 to end - 1."""
    slots = schedule(weights)
    seen = [0] * len(weights)
    result = []
    for p in range(end):
        source = slots[(p // lanes) % len(slots)]
        if p > 0 and p % lanes == 0:
            seen[slots[(p // lanes - 1) % len(slots)]] += lanes
        result.append((source, seen[source] + p % lanes))
    return result
