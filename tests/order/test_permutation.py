"""The keyed permutation: a bijection for every size, the same by every kernel, as docs/order.md says."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from fastshard import _core
from fastshard.errors import InvalidError, OutOfRangeError

KERNELS = _core.permutation_kernels()
WORDS = st.integers(0, 2**64 - 1)
# The sizes at which the algorithm changes course, and large ones.
CORNERS = [0, 1, 2, 3, 1022, 1023, 1024, 1025, 1056, 1057, 1089, 1090, 65_535, 65_536, 65_537]
LARGE = [
    10**6,
    10**8 + 7,
    2**27 + 1,
    10**12,
    2**40 - 1,
    2**40,
    2**40 + 1,
    2**53 + 1,
    2**61 + 3,
    2**62 - 1,
    2**62,
]


def is_bijection(values: np.ndarray, size: int) -> bool:
    seen = np.zeros(size, dtype=bool)
    seen[values] = True
    return len(values) == size and bool(seen.all())


def test_portable_kernel_is_always_there():
    assert KERNELS[0] == "portable"


@pytest.mark.parametrize("kernel", KERNELS)
def test_is_a_bijection_for_every_small_size(kernel):
    for size in range(4098):
        values = _core.Permutation(size, size * 7919).fill(0, size, kernel=kernel)
        assert is_bijection(values, size), size


@pytest.mark.parametrize("power", range(12, 25))
def test_is_a_bijection_around_powers_of_two(power):
    for size in (2**power - 1, 2**power, 2**power + 1):
        for kernel in KERNELS if power <= 18 else ["auto"]:
            values = _core.Permutation(size, power).fill(0, size, kernel=kernel)
            assert is_bijection(values, size), (size, kernel)


@pytest.mark.parametrize("size", CORNERS)
@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_whole_permutation_equals_the_reference(size, key):
    expected = reference.P(size, key)
    count = min(size, 3000)
    for first in {0, size - count}:
        values = _core.Permutation(size, key).fill(first, count)
        assert values.tolist() == [expected(x) for x in range(first, first + count)]


@given(
    size=st.one_of(st.integers(1, 5000), st.integers(1, 2**62), st.sampled_from(LARGE)),
    key=WORDS,
    fractions=st.lists(st.floats(0, 1, exclude_max=True), max_size=100),
)
def test_single_positions_equal_the_reference(size, key, fractions):
    positions = [min(int(f * size), size - 1) for f in fractions] + [0, size - 1, size // 2]
    expected = reference.P(size, key)
    for kernel in KERNELS:
        values = _core.Permutation(size, key).at(np.array(positions, dtype=np.uint64), kernel=kernel)
        assert values.tolist() == [expected(x) for x in positions]


@pytest.mark.parametrize("size", LARGE)
def test_division_is_exact_where_a_digit_turns_over(size):
    a = reference.P(size, 1).a
    b = reference.P(size, 1).b
    quotients = [q for q in (0, 1, 2, 3, a // 3, a // 2, a - 3, a - 2, a - 1) if 0 <= q < a]
    positions = [q * b + d for q in quotients for d in (0, 1, b // 2, b - 2, b - 1) if q * b + d < size]
    expected = reference.P(size, 1)
    values = _core.Permutation(size, 1).at(np.array(positions, dtype=np.uint64))
    assert values.tolist() == [expected(x) for x in positions]


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("kernel", KERNELS)
def test_large_permutations_keep_their_range_and_repeat_nothing(size, kernel):
    permutation = _core.Permutation(size, 5)
    for first in (0, size // 2, size - 100_000):
        values = permutation.fill(first, 100_000, kernel=kernel)
        assert int(values.max()) < size
        assert len(np.unique(values)) == len(values)


@given(size=st.integers(1, 3000), key=WORDS, data=st.data())
def test_any_stretch_and_any_positions_agree(size, key, data):
    first = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - first))
    permutation = _core.Permutation(size, key)
    whole = permutation.fill(0, size)
    for kernel in KERNELS:
        assert (permutation.fill(first, count, kernel=kernel) == whole[first : first + count]).all()
        positions = np.arange(first, first + count, dtype=np.uint64)[::-1]
        assert (permutation.at(positions, kernel=kernel) == whole[positions]).all()


def test_cycle_walking_is_exercised():
    # 33 * 33 digit pairs for 1,057 values: 3 in 100 passes land outside.
    size = 1057
    expected = reference.P(size, 3)
    assert sum(expected.network(x) >= size for x in range(size)) > 10
    assert _core.Permutation(size, 3).fill(0, size).tolist() == [expected(x) for x in range(size)]


@given(words=st.lists(WORDS, max_size=4))
def test_keys_equal_the_reference(words):
    purposes = {"source": reference.SOURCE, "split": reference.SPLIT, "weighted": reference.WEIGHTED}
    for name, number in purposes.items():
        assert _core.order_key(name, *words) == reference.key_of(number, *words)


def test_signed_positions_and_strided_arrays_are_taken():
    permutation = _core.Permutation(2000, 1)
    positions = np.arange(2000, dtype=np.int64)
    assert (permutation.at(positions) == permutation.fill(0, 2000)).all()
    assert (permutation.at(positions[::3]) == permutation.fill(0, 2000)[::3]).all()
    assert permutation.at(positions[:0]).dtype == np.uint64


def test_keys_and_sizes_outside_their_range_are_refused():
    with pytest.raises(InvalidError, match=r"size must be at most 2\^62, got 4611686018427387905"):
        _core.Permutation(2**62 + 1, 0)
    with pytest.raises(InvalidError, match=r"key must be from 0 to 2\^64 - 1, got -1"):
        _core.Permutation(10, -1)
    with pytest.raises(InvalidError, match=r"key must be from 0 to 2\^64 - 1"):
        _core.Permutation(10, 2**64)
    with pytest.raises(TypeError, match=r"size must be an integer, got 1\.5"):
        _core.Permutation(1.5, 0)
    assert _core.Permutation(np.int64(7), np.uint64(3)).size == 7


def test_positions_outside_are_refused():
    permutation = _core.Permutation(10, 0)
    with pytest.raises(OutOfRangeError, match="position 10 is outside an order of 10 samples"):
        permutation.at(np.array([3, 10], dtype=np.uint64))
    with pytest.raises(OutOfRangeError, match="position -1 is outside"):
        permutation.at(np.array([3, -1]))
    with pytest.raises(OutOfRangeError, match="3 positions from 8 on are outside a permutation of 10"):
        permutation.fill(8, 3)
    with pytest.raises(OutOfRangeError):
        permutation.fill(11, 0)
    with pytest.raises(TypeError, match="must be an array of integers"):
        permutation.at(np.array([0.5]))
    with pytest.raises(InvalidError, match="one dimension"):
        permutation.at(np.zeros((2, 2), dtype=np.uint64))


def test_an_unknown_kernel_is_refused_by_name():
    with pytest.raises(InvalidError, match='kernel must be one of "auto", "portable"'):
        _core.Permutation(10, 0).fill(0, 10, kernel="mmx")
