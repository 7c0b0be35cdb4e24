"""The shuffles are as even as numpy's: the same tests, which unmistakably reject weaker ones."""

import chi_square
import numpy as np
import pytest
import reference

from fastshard import _core

LIMIT = 4.0  # standard deviations; one even shuffle in 16,000 would be further out in one test
SMALL = [5, 10, 24, 100]
DRAWS = {5: 60_000, 10: 50_000, 24: 30_000, 100: 10_000}
LARGE = 10**6


def order_of(kind: str, size: int, seed: int, epoch: int) -> np.ndarray:
    if kind == "numpy":
        return np.random.default_rng([seed, epoch]).permutation(size)
    order = _core.EpochOrder(kind="global", size=size, seed=seed, epoch=epoch)
    return order.ids(np.arange(size, dtype=np.uint64))


def epochs(kind: str, size: int, seed: int, first: int, count: int) -> np.ndarray:
    return np.stack([order_of(kind, size, seed, epoch) for epoch in range(first, first + count)])


def seeds(kind: str, size: int, first: int, count: int) -> np.ndarray:
    return np.stack([order_of(kind, size, seed, 0) for seed in range(first, first + count)])


def small_tests(many: np.ndarray) -> dict[str, float]:
    """`many`: permutations that follow each other, by epoch or by seed."""
    n = many.shape[1]
    result = {
        "position against id": chi_square.position_against_id(many),
        "each after the one before": chi_square.one_after_another(many[:-1:2], many[1::2]),
        "each after the one two before": chi_square.one_after_another(many[:-2:3], many[2::3]),
        "fixed points": chi_square.fixed_points(many),
    }
    for p, q in [(0, 1), (0, n - 1), (n // 2, n // 2 + 1)]:
        result[f"pairs {p} {q}"] = chi_square.pairs(many, p, q)
    for step in (1, 2):
        result[f"distances {step}"] = chi_square.distances(many, step)
    if n == 5:
        result["whole permutations"] = chi_square.whole_permutations(many)
    return result


def large_tests(ids: np.ndarray, following: np.ndarray) -> dict[str, float]:
    n = len(ids)
    place = np.empty(n, dtype=np.int64)
    place[ids.astype(np.int64)] = np.arange(n)
    result = {
        "position against id": chi_square.binned_position_against_id(ids, 100),
        "position against id, fine": chi_square.binned_position_against_id(ids, 400),
        "one after the other": chi_square.binned_position_against_id(place[following.astype(np.int64)], 200),
    }
    for step in (1, 2, 999, 1000, 1001):
        result[f"pairs {step}"] = chi_square.binned_pairs(ids, step, 100)
        result[f"distances {step}"] = chi_square.binned_distances(ids, step, 1000)
    result["rectangles"] = chi_square.binned_rectangles(ids, 1000, 500)
    return result


def far_out(results: dict[str, float]) -> dict[str, float]:
    return {name: round(z, 1) for name, z in results.items() if not abs(z) < LIMIT}


@pytest.mark.parametrize("kind", ["global", "numpy"])
@pytest.mark.parametrize("size", SMALL)
def test_small_shuffles_of_epoch_after_epoch_are_even(kind, size):
    assert far_out(small_tests(epochs(kind, size, 1, 0, DRAWS[size]))) == {}


@pytest.mark.parametrize("kind", ["global", "numpy"])
@pytest.mark.parametrize("size", SMALL)
def test_small_shuffles_of_seed_after_seed_are_even(kind, size):
    assert far_out(small_tests(seeds(kind, size, 0, DRAWS[size] // 2))) == {}


@pytest.mark.parametrize("size", SMALL)
def test_the_next_seed_and_the_next_epoch_have_nothing_in_common(size):
    count = DRAWS[size] // 2
    next_seed = np.stack([order_of("global", size, seed + 1, 0) for seed in range(count)])
    next_epoch = np.stack([order_of("global", size, seed, 1) for seed in range(count)])
    assert abs(chi_square.one_after_another(next_seed, next_epoch)) < LIMIT


@pytest.mark.parametrize("kind", ["global", "numpy"])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_large_shuffles_are_even(kind, seed):
    results = {}
    for epoch in range(4):
        ids = order_of(kind, LARGE, seed, epoch)
        following = order_of(kind, LARGE, seed, epoch + 1)
        results |= {f"epoch {epoch}, {name}": z for name, z in large_tests(ids, following).items()}
    assert far_out(results) == {}


@pytest.mark.parametrize("size", [1024, 1025, 1057, 2000])
def test_the_smallest_networks_are_even(size):
    many = np.stack(
        [_core.Permutation(size, _core.order_key("split", 7, i)).fill(0, size) for i in range(8000)]
    )
    side = reference.P(size, 0).b
    results = {
        "position against id": chi_square.position_against_id(many),
        "fixed points": chi_square.fixed_points(many),
        "each after the one before": chi_square.one_after_another(many[:-1:2], many[1::2]),
    }
    for step in (1, 2, side - 1, side, side + 1):
        results[f"distances {step}"] = chi_square.distances(many, step)
    assert far_out(results) == {}


def weak_network(size: int, rounds: int, draws: int) -> np.ndarray:
    """Networks as in docs/order.md, but of fewer rounds."""
    side = reference.P(size, 0).b
    assert side * side == size
    x = np.arange(size)
    result = []
    for i in range(draws):
        perm = reference.P(size, reference.key_of(reference.SPLIT, 7, i))
        digits = [x // side, x % side]
        for r in range(rounds):
            shifts = np.array([perm.f(r, value, side) for value in range(side)])
            digits[r % 2] = (digits[r % 2] + shifts[digits[1 - r % 2]]) % side
        result.append(digits[0] * side + digits[1])
    return np.stack(result)


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_the_tests_reject_networks_of_few_rounds(rounds):
    many = weak_network(1024, rounds, 1000)
    assert max(abs(chi_square.distances(many, step)) for step in (1, 32)) > 2 * LIMIT


def test_the_tests_reject_affine_shuffles_and_added_seeds():
    rng = np.random.default_rng(3)
    x = np.arange(LARGE)
    affine = (x * 777_777 + int(rng.integers(LARGE))) % LARGE
    assert "distances 1" in far_out(large_tests(affine, affine))
    assert abs(chi_square.binned_pairs(affine, 1, 100)) > LIMIT
    added = np.stack([np.random.default_rng(i // 2).permutation(24) for i in range(2000)])
    assert "each after the one before" in far_out(small_tests(added))
