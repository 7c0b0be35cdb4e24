"""The native list of ids: three forms, one behaviour."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastshard import _core
from fastshard.errors import InvalidError, OutOfRangeError

Selection = _core.Selection


@st.composite
def id_lists(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Ascending ids and a universe: sparse, dense, in runs, all or none."""
    universe = draw(st.sampled_from([0, 1, 2, 63, 64, 65, 511, 512, 513, 1024, 4097, 20_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["random", "runs", "all", "none"]))
    if kind == "random":
        mask = rng.random(universe) < draw(st.sampled_from([0.0005, 0.01, 0.1, 0.5, 0.9, 0.999]))
    else:
        mask = np.full(universe, kind == "all")
    if kind == "runs":
        for _ in range(draw(st.integers(1, 5))):
            first, end = np.sort(rng.integers(0, universe + 1, 2))
            mask[first:end] = True
    return np.flatnonzero(mask), universe


@given(id_lists(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_form_gives_the_same_ids(listed: tuple[np.ndarray, int], seed: int) -> None:
    ids, universe = listed
    rng = np.random.default_rng(seed)
    builder = _core.SelectionBuilder(universe)
    for part in np.array_split(rng.permutation(ids), 3):
        builder.add(part)
    built = builder.finish()
    bits = np.zeros(-(-universe // 64) * 64, np.uint8)
    bits[ids] = 1
    words = np.packbits(bits, bitorder="little").view(np.uint64)
    others = [
        Selection.restore("ids", ids, universe),
        Selection.restore("bits", words, universe),
        Selection.restore("runs", np.stack([ids, ids + 1], axis=1).reshape(-1), universe),
        Selection.restore(*built.parts(), universe),
    ]
    for selection in [built, *others]:
        assert (selection.size, selection.universe) == (len(ids), universe)
        assert np.array_equal(selection.fill(0, len(ids)), ids)
        assert selection.parts()[0] == built.parts()[0]
        assert selection.digest() == _core.xxh3_128(ids.astype("<i8").tobytes())
        bounds = rng.integers(0, universe + 1, 20)
        assert np.array_equal(selection.ranks(bounds), np.searchsorted(ids, bounds))
        places = rng.integers(0, len(ids), 100) if len(ids) else np.zeros(0, np.int64)
        assert np.array_equal(selection.ids(places), ids[places])
        assert [selection.at(int(place)) for place in places[:5]] == ids[places[:5]].tolist()
        first, end = np.sort(rng.integers(0, len(ids) + 1, 2))
        assert np.array_equal(selection.fill(first, end - first), ids[first:end])
        low, high = np.sort(rng.integers(0, universe + 1, 2))
        clipped = selection.clip(low, high)
        assert clipped.universe == high - low
        assert np.array_equal(clipped.fill(0, clipped.size), ids[(ids >= low) & (ids < high)] - low)


@given(id_lists(), st.floats(0, 1), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_composition_is_indexing(listed: tuple[np.ndarray, int], share: float, seed: int) -> None:
    ids, universe = listed
    inner = np.flatnonzero(np.random.default_rng(seed).random(len(ids)) < share)
    outer = Selection.restore("ids", ids, universe)
    composed = outer.compose(Selection.restore("ids", inner, len(ids)))
    assert composed.universe == universe
    assert np.array_equal(composed.fill(0, composed.size), ids[inner])


def test_the_smallest_form_is_kept() -> None:
    size = 1_000_000
    assert Selection.restore("runs", np.array([10, size]), size).memory < 300
    one_in_a_thousand = np.arange(0, size, 1000)
    assert Selection.restore("ids", one_in_a_thousand, size).memory < 8_300
    nine_tenths = np.flatnonzero(np.arange(size) % 10)
    assert Selection.restore("ids", nine_tenths, size).memory < size / 8 * 1.3


def test_parts_of_a_permutation(reference) -> None:
    for size in (0, 1, 5, 1000, 5000):
        key = reference.key_of(reference.SPLIT, 7)
        cuts = [0, size // 3, size // 3, size]
        values = np.array([reference.P(size, key)(i) for i in range(size)], np.int64)
        for part, first, end in zip(Selection.split(size, key, cuts), cuts, cuts[1:], strict=False):
            assert np.array_equal(part.fill(0, part.size), np.flatnonzero((values >= first) & (values < end)))


@pytest.mark.parametrize(
    ("form", "values", "universe"),
    [
        ("ids", [3, 3], 10),
        ("ids", [4, 3], 10),
        ("ids", [10], 10),
        ("ids", [-1], 10),
        ("ids", [0], 2**62 + 1),
        ("runs", [0, 5, 4, 6], 10),
        ("runs", [5, 5], 10),
        ("runs", [5, 4], 10),
        ("runs", [5, 11], 10),
        ("runs", [5], 10),
        ("bits", [1, 0], 10),
        ("bits", [], 10),
        ("bits", [1 << 10], 10),
        ("other", [1], 10),
    ],
)
def test_what_is_no_selection_is_refused(form: str, values: list[int], universe: int) -> None:
    with pytest.raises(InvalidError):
        Selection.restore(form, np.array(values, np.int64), universe)


def test_places_and_ids_outside_are_refused() -> None:
    selection = Selection.restore("ids", np.array([1, 5, 9]), 10)
    for call in (
        lambda: selection.ids(np.array([3])),
        lambda: selection.ids(np.array([-1])),
        lambda: selection.at(3),
        lambda: selection.fill(1, 3),
        lambda: selection.fill(2**63, 2**63),
        lambda: selection.ranks(np.array([11])),
    ):
        with pytest.raises(OutOfRangeError):
            call()
    builder = _core.SelectionBuilder(10)
    builder.add(np.array([1, 2]))
    with pytest.raises(InvalidError, match="id 2 comes twice"):
        builder.add(np.array([3, 2]))
    with pytest.raises(InvalidError, match="id 10 is outside"):
        builder.add(np.array([10]))
    with pytest.raises(InvalidError):
        selection.compose(Selection.restore("ids", np.array([0]), 4))
    with pytest.raises(InvalidError):
        selection.clip(5, 11)


def test_hashes_of_pieces() -> None:
    data = b"abcdefgh"
    bounds = np.array([0, 0, 3, 8])
    expected = [_core.xxh3_64(piece) for piece in (b"", b"abc", b"defgh")]
    assert _core.xxh3_64_each(data, bounds).tolist() == expected
    assert _core.xxh3_64_each(b"", np.zeros(0, np.int64)).tolist() == []
    for wrong in ([0, 9], [3, 2], [-1, 2]):
        with pytest.raises(InvalidError):
            _core.xxh3_64_each(data, np.array(wrong))


def test_a_builder_that_has_finished_is_empty() -> None:
    builder = _core.SelectionBuilder(200)
    builder.add([150])
    assert builder.finish().size == 1
    with pytest.raises(InvalidError, match="outside a data set of 0 samples"):
        builder.add([150])
    assert builder.finish().size == 0
