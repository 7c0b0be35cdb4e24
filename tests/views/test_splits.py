"""Splits: exact, disjoint, the same for ever, and groups stay together."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard import _core
from fastshard._selecting import SplitStep, bounds_of, split_all
from fastshard.errors import InvalidError
from fastshard.views import open_spec


class Numbers:
    """Samples of which there is only the number."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def parts_of(rows: int, fractions: dict[str, object], seed: int = 0) -> dict[str, np.ndarray]:
    steps = [SplitStep(low, high, seed, None, name) for name, (low, high) in bounds_of(fractions).items()]
    parts = split_all(Numbers(rows), steps)
    return {step.name: part.fill(0, part.size) for step, part in zip(steps, parts, strict=True)}


@given(
    st.integers(0, 5000),
    st.lists(st.integers(1, 400), min_size=1, max_size=6).filter(lambda shares: sum(shares) <= 1000),
    st.integers(0, 2**64 - 1),
)
@settings(max_examples=80, deadline=None)
def test_parts_are_disjoint_and_as_large_as_they_were_asked_for(
    rows: int, shares: list[int], seed: int
) -> None:
    fractions = {f"part {j}": Fraction(share, 1000) for j, share in enumerate(shares)}
    parts = parts_of(rows, fractions, seed)
    cuts = [(2 * rows * sum(shares[:j]) + 1000) // 2000 for j in range(len(shares) + 1)]
    assert [len(part) for part in parts.values()] == np.diff(cuts).tolist()
    together = np.concatenate(list(parts.values()))
    assert len(np.unique(together)) == len(together)
    assert all(np.all(np.diff(part) > 0) for part in parts.values())


def test_fractions_are_taken_as_they_are_written() -> None:
    parts = parts_of(10, {"a": 0.1, "b": 0.2, "c": 0.7})  # whose sum in binary is not 1
    assert [len(part) for part in parts.values()] == [1, 2, 7]
    assert sum(map(len, parts_of(1000, dict.fromkeys("abcdefghij", 0.1)).values())) == 1000
    for same in ("10%", "0.1", "1/10", decimal.Decimal("0.1"), Fraction(1, 10), np.float64(0.1)):
        assert len(parts_of(50, {"a": same})["a"]) == 5


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ({}, "fractions is a dict"),
        ([0.9, 0.1], "fractions is a dict"),
        ({"a": 0.7, "b": 0.4}, "sum of 1.1"),
        ({"a": 0}, "above 0"),
        ({"a": -0.1}, "above 0"),
        ({"a": 1.5}, "at most 1"),
        ({"a": float("nan")}, "a number"),
        ({"a": float("inf")}, "a number"),
        ({"a": True}, "a number"),
        ({"a": "most"}, "a number"),
        ({"a": "1/0"}, "a number"),
        ({"a": None}, "a number"),
        ({1: 0.5}, "parts have names"),
    ],
)
def test_what_are_no_fractions(path: str, fractions: object, message: str) -> None:
    with fs.open(path) as reader, pytest.raises(InvalidError, match=message):
        reader.split(fractions)


def test_other_arguments_are_checked(path: str) -> None:
    with fs.open(path) as reader:
        for seed in (-1, 2**64, 0.5, True, None):
            with pytest.raises(InvalidError, match="seed is an integer"):
                reader.split(seed=seed)
        with pytest.raises(InvalidError, match="by='nobody': there is no such column; there are 'id', 'x'"):
            reader.split(by="nobody")
        with pytest.raises(
            InvalidError, match="by='tags': samples cannot be divided by a column of type list"
        ):
            reader.split(by="tags")
        with pytest.raises(InvalidError, match="by is the name of a column"):
            reader.split(by=3)


def test_splits_are_what_the_specification_says(reference: ModuleType) -> None:
    for rows in (1, 17, 500, 3000):
        for seed in (0, 5, 2**64 - 1):
            permutation = reference.P(rows, reference.key_of(reference.SPLIT, seed))
            places = np.array([permutation(i) for i in range(rows)])
            cut = (rows * 8 + 5) // 10
            parts = parts_of(rows, {"train": 0.8, "val": 0.2}, seed)
            assert np.array_equal(parts["train"], np.flatnonzero(places < cut))
            assert np.array_equal(parts["val"], np.flatnonzero(places >= cut))


def test_splits_stay_as_they_are() -> None:
    """Golden values: a change here is a new version of docs/order.md."""
    parts = parts_of(20, {"train": 0.8, "val": 0.1, "test": 0.1}, seed=0)
    assert {name: part.tolist() for name, part in parts.items() if name != "train"} == GOLDEN_SMALL
    large = parts_of(100_000, {"train": 0.9, "val": 0.1}, seed=42)
    assert _core.xxh3_128(large["val"].astype("<i8").tobytes()).hex() == GOLDEN_LARGE
    words = [_core.xxh3_64(value) for value in (b"", b"ann", (7).to_bytes(8, "little"))]
    assert _core.split_words(3, np.array(words, np.uint64)).tolist() == GOLDEN_WORDS


GOLDEN_SMALL = {"val": [7, 19], "test": [5, 9]}
GOLDEN_LARGE = "2ea1965a253035bc30590a02bf416d03"
GOLDEN_WORDS = [7679634329744982029, 402160286875086203, 7075667751044824256]


def test_a_part_is_the_same_alone_and_in_another_process(path: str) -> None:
    with fs.open(path) as reader:
        parts = reader.split({"train": 0.7, "val": 0.2, "test": 0.1}, seed=9, by="user")
        alone = open_spec(f"{path}?split=0.7:0.9&seed=9&by=user")
        assert alone.ids().tolist() == parts["val"].ids().tolist()
        code = (
            "import sys, fastshard as fs\n"
            "parts = fs.open(sys.argv[1]).split({'train': .7, 'val': .2, 'test': .1}, seed=9, by='user')\n"
            "print(*parts['test'].ids().tolist())"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=120
        )
        assert list(map(int, result.stdout.split())) == parts["test"].ids().tolist()


def test_shares_of_a_split_are_even_over_the_data(path: str) -> None:
    """As many from each tenth of the data as chance allows: chi-square with 9 degrees of freedom, p = 10^-6."""
    train = parts_of(100_000, {"train": 0.1}, seed=1)["train"]
    counts = np.bincount(train // 10_000, minlength=10)
    expected = 1000
    statistic = (((counts - expected) ** 2) / expected / (1 - 0.1)).sum()
    assert statistic < 44


def test_other_seeds_give_other_parts() -> None:
    parts = [parts_of(1000, {"a": 0.5}, seed)["a"] for seed in range(4)]
    for j, part in enumerate(parts):
        for other in parts[:j]:
            assert 150 < len(np.intersect1d(part, other)) < 350


def test_equal_values_stay_together(path: str) -> None:
    with fs.open(path) as reader:
        for seed in range(5):
            parts = reader.split({"a": 0.5, "b": 0.3, "c": 0.2}, seed=seed, by="user")
            users = [set(part["user"]) for part in parts.values()]
            assert sum(map(len, users)) == len(set().union(*users))
            together = np.concatenate([part.ids() for part in parts.values()])
            assert np.array_equal(np.sort(together), np.arange(500))


def test_a_group_stays_in_its_part_when_data_grow(make: Callable[..., str], tmp_path: Path) -> None:
    path = Path(make([100], path=tmp_path / "grows"))
    with fs.open(path) as reader:
        before = set(reader.split(by="user")["val"]["user"])
        train_before = set(reader.split(by="user")["train"]["user"])
    make([300], first=100, path=path)
    with fs.open(path) as reader:
        after = set(reader.split(by="user")["val"]["user"])
    assert before <= after
    assert not after & train_before


VALUES = {
    "text": pa.array(["a", "", None, "é", "a"]),
    "large_text": pa.array(["a", "", None, "é", "a"], pa.large_string()),
    "binary": pa.array([b"a", b"", None, "é".encode(), b"a"], pa.binary()),
    "fixed": pa.array([b"ab", b"cd", None, b"ef", b"ab"], pa.binary(2)),
    "int8": pa.array([1, -1, None, 0, 1], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1, None, 0, 1], pa.uint64()),
    "bool": pa.array([True, False, None, False, True]),
    "float": pa.array([1.5, float("nan"), None, 0.0, 1.5]),
    "decimal": pa.array(
        [decimal.Decimal("1.50"), decimal.Decimal("-1.00"), None, None, decimal.Decimal("1.50")]
    ),
    "date": pa.array(
        [datetime.date(2024, 1, 1), None, None, datetime.date(1969, 1, 1), datetime.date(2024, 1, 1)]
    ),
    "time": pa.array([1, 2, None, 3, 1], pa.timestamp("us", "UTC")),
    "null": pa.nulls(5),
}
BYTES: dict[str, Callable[[object], bytes]] = {
    "text": lambda value: str(value).encode(),
    "large_text": lambda value: str(value).encode(),
    "int8": lambda value: int(value).to_bytes(1, "little", signed=True),
    "uint64": lambda value: int(value).to_bytes(8, "little"),
    "bool": lambda value: bytes([value]),
    "decimal": lambda value: int(value.scaleb(2)).to_bytes(16, "little", signed=True),
    "date": lambda value: (value - datetime.date(1970, 1, 1)).days.to_bytes(4, "little", signed=True),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("offset", [0, 2])
def test_values_are_hashed_as_their_bytes(name: str, offset: int) -> None:
    from fastshard._grouping import value_words

    array = VALUES[name].slice(offset)
    words = value_words(array, name)
    assert words.dtype == np.uint64
    values = array.to_pylist()
    for i, value in enumerate(values):
        if value is None:
            assert words[i] == _core.xxh3_64(b"")
        elif name in BYTES:
            assert words[i] == _core.xxh3_64(BYTES[name](value))
        elif isinstance(value, bytes):
            assert words[i] == _core.xxh3_64(value)
    assert len(value_words(array.slice(0, 0), name)) == 0


def test_groups_are_what_the_specification_says(path: str, reference: ModuleType) -> None:
    with fs.open(path) as reader:
        parts = reader.split({"a": 0.5, "b": 0.25}, seed=4, by="label")
        expected: dict[str, list[int]] = {"a": [], "b": []}
        for i, label in enumerate(reader.to_arrow()["label"].to_pylist()):
            value = b"" if label is None else int(label).to_bytes(4, "little")
            word = reference.key_of(reference.SPLIT, 4, _core.xxh3_64(value))
            if word < 2**64 // 2:
                expected["a"].append(i)
            elif word < 2**64 * 3 // 4:
                expected["b"].append(i)
        assert {name: part.ids().tolist() for name, part in parts.items()} == expected


def test_a_split_of_a_view_divides_the_view(path: str) -> None:
    with fs.open(path) as reader:
        view = reader.filter("id >= 200")
        parts = view.split({"train": 0.75, "val": 0.25}, seed=2)
        whole = parts_of(300, {"train": 0.75}, seed=2)["train"]
        assert parts["train"].ids().tolist() == (whole + 200).tolist()
        assert len(parts["val"]) == 75


def test_the_metadata_may_name_the_parts(make: Callable[..., str], tmp_path: Path) -> None:
    splits = {"learn": "4/5", "check": 0.2}
    path = make([100], path=tmp_path / "named", metadata={"splits": splits})
    with fs.open(path) as reader:
        assert {name: len(part) for name, part in reader.split().items()} == {"learn": 80, "check": 20}
    assert len(open_spec(f"{path}?split=check")) == 20
    with pytest.raises(InvalidError, match="split=val: there is no such part; there are learn, check"):
        open_spec(f"{path}?split=val")
    wrong = make([10], path=tmp_path / "wrong", metadata={"splits": [1, 2]})
    with pytest.raises(InvalidError, match='the metadata "splits"'):
        open_spec(f"{wrong}?split=val")
