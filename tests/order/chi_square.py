"""Statistics of many permutations, each as a z value that is standard normal for permutations drawn evenly.

The tests that use them have fixed seeds, so that they pass or fail for good. A permutation is an array whose place p
holds the id at position p; `many` arrays have shape [permutations, n].
"""

from __future__ import annotations

from math import factorial, sqrt

import numpy as np


def z_of(statistic: float, freedom: int) -> float:
    """A chi-square value as a standard normal one (Wilson and Hilferty)."""
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / sqrt(spread)


def z_of_counts(counts: np.ndarray) -> float:
    """Counts that should be equal."""
    expected = counts.sum() / counts.size
    return z_of(float(((counts - expected) ** 2).sum() / expected), counts.size - 1)


def z_of_table(counts: np.ndarray, draws: int) -> float:
    """n x n counts filled by `draws` permutations of n: the sums are given, so (n - 1)^2 are free."""
    n = len(counts)
    expected = draws / n
    statistic = float(((counts - expected) ** 2).sum() / expected) * (n - 1) / n
    return z_of(statistic, (n - 1) ** 2)


def position_against_id(many: np.ndarray) -> float:
    draws, n = many.shape
    cells = many.astype(np.int64) + np.arange(n) * n
    return z_of_table(np.bincount(cells.ravel(), minlength=n * n).reshape(n, n), draws)


def one_after_another(first: np.ndarray, second: np.ndarray) -> float:
    """The position of a sample in one permutation against that in the next."""
    draws, n = first.shape
    place = np.empty((draws, n), dtype=np.int64)
    np.put_along_axis(place, first.astype(np.int64), np.arange(n)[None, :], axis=1)
    return position_against_id(np.take_along_axis(place, second.astype(np.int64), axis=1))


def pairs(many: np.ndarray, p: int, q: int) -> float:
    """The ids at two positions: all ordered pairs are equally likely."""
    _, n = many.shape
    counts = np.bincount(many[:, p].astype(np.int64) * n + many[:, q].astype(np.int64), minlength=n * n)
    return z_of_counts(np.delete(counts, np.arange(n) * (n + 1)))


def distances(many: np.ndarray, step: int) -> float:
    """The difference mod n of the ids of positions `step` apart, each position in at most one pair."""
    _, n = many.shape
    signed = many.astype(np.int64)
    first = [p for p in range(n - step) if (p // step) % 2 == 0]
    gaps = (signed[:, np.array(first) + step] - signed[:, first]) % n
    return z_of_counts(np.bincount(gaps.ravel(), minlength=n)[1:])


def whole_permutations(many: np.ndarray) -> float:
    """How often each of the n! permutations came; for small n."""
    draws, n = many.shape
    code = np.zeros(draws, dtype=np.int64)
    for p in range(n):
        code = code * n + many[:, p].astype(np.int64)
    _, counts = np.unique(code, return_counts=True)
    missing = np.zeros(factorial(n) - len(counts), dtype=counts.dtype)
    return z_of_counts(np.concatenate([counts, missing]))


def fixed_points(many: np.ndarray) -> float:
    """Their number has mean 1 and variance 1."""
    draws, n = many.shape
    return float(((many == np.arange(n, dtype=many.dtype)).sum() - draws) / sqrt(draws))


# Statistics of one large permutation.


def binned_position_against_id(ids: np.ndarray, bins: int) -> float:
    """Positions and ids in equal bins; the number of ids is a multiple of `bins`."""
    n = len(ids)
    cells = np.arange(n) * bins // n * bins + ids.astype(np.int64) * bins // n
    counts = np.bincount(cells, minlength=bins * bins)
    expected = n / bins**2
    return z_of(float(((counts - expected) ** 2).sum() / expected) * (n - 1) / n, (bins - 1) ** 2)


def binned_pairs(ids: np.ndarray, step: int, bins: int) -> float:
    """The bins of two ids `step` positions apart, each position in one pair at most.

    Drawn without putting back, the ids of one side spread more evenly than chance would have it, so only what depends
    on both sides counts.
    """
    n = len(ids)
    first = np.arange(n - step)
    first = first[first // step % 2 == 0]
    binned = ids.astype(np.int64) * bins // n
    counts = np.bincount(binned[first] * bins + binned[first + step], minlength=bins * bins).reshape(
        bins, bins
    )
    sides = counts.sum(axis=0) / bins + counts.sum(axis=1)[:, None] / bins
    expected = counts.sum() / bins**2
    return z_of(float(((counts - sides + expected) ** 2).sum() / expected), (bins - 1) ** 2)


def binned_distances(ids: np.ndarray, step: int, bins: int) -> float:
    n = len(ids)
    signed = ids.astype(np.int64)
    first = np.arange(n - step)
    first = first[first // step % 2 == 0]
    return z_of_counts(np.bincount((signed[first + step] - signed[first]) % n * bins // n, minlength=bins))


def binned_rectangles(ids: np.ndarray, side: int, bins: int) -> float:
    """ids[p] - ids[p + 1] - ids[p + side] + ids[p + side + 1] mod n: what a network with few rounds gives away."""
    n = len(ids)
    signed = ids.astype(np.int64)
    p = np.arange(0, n - side - 1)
    p = p[(p // side % 2 == 0) & (p % 2 == 0)]
    corners = signed[p] - signed[p + 1] - signed[p + side] + signed[p + side + 1]
    return z_of_counts(np.bincount(corners % n * bins // n, minlength=bins))
