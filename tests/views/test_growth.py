"""States of views and concatenations whose data were appended to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fastshard as fs
from fastshard.errors import StateError

Make = Callable[..., str]
ORDERS = [
    {"shuffle": False},
    {"shuffle": "global", "seed": 5},
    {"shuffle": "block", "seed": 5, "lanes": 4},
]


def loader(samples: Any, **options: Any) -> fs.ShardLoader:
    return fs.ShardLoader(samples, batch_size=4, columns=["id", "x"], **options)


def delivered(batches: Any) -> list[int]:
    return [id for batch in batches for id in batch["id"].tolist()]


def interrupted(samples: Any, **options: Any) -> tuple[dict[str, Any], list[int]]:
    """A state after three steps, and what an uninterrupted epoch delivers from there."""
    whole = delivered(loader(samples, **options))
    running = loader(samples, **options)
    iterator = iter(running)
    for _ in range(3):
        next(iterator)
    state = running.state_dict()
    iterator.close()
    return state, whole[12:]


def check(samples: Any, state: dict[str, Any], rest: list[int], everything: list[int], order: Any) -> None:
    """The epoch ends on the old samples, and the next takes all."""
    with pytest.raises(StateError, match="allow_growth=True"):
        loader(samples, **order).load_state_dict(state)
    resumed = loader(samples, **order)
    resumed.load_state_dict(state, allow_growth=True)
    assert delivered(resumed) == rest
    assert sorted(delivered(resumed)) == everything


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(order["shuffle"]))
@pytest.mark.parametrize(
    "step", ["where=label = 3", "split=train&by=user", "select=::3", "where=id < 90&select=2:80"]
)
def test_views_that_keep_their_samples_grow(
    make: Make, tmp_path: Path, step: str, order: dict[str, Any]
) -> None:
    where = make([70, 130], path=tmp_path / "grows")
    state, rest = interrupted(f"{where}?{step}", **order)
    make([50], first=200, path=Path(where))
    everything = fs.views.open_spec(f"{where}?{step}").ids().tolist()
    assert (max(everything) >= 200) == ("id < 90" not in step)
    check(f"{where}?{step}", state, rest, everything, order)


def test_ids_of_new_samples_join_those_of_old_ones(make: Make, tmp_path: Path) -> None:
    where = make([70, 130], path=tmp_path / "grows")
    state, rest = interrupted(fs.open(where).select(list(range(0, 200, 3))), shuffle="global")
    make([50], first=200, path=Path(where))
    ids = [*range(0, 200, 3), 201, 249]
    check(fs.open(where).select(ids), state, rest, ids, {"shuffle": "global"})
    with pytest.raises(StateError, match="belongs to other data"):
        loader(fs.open(where).select([1, *ids]), shuffle="global").load_state_dict(state, allow_growth=True)


def test_a_view_of_the_first_samples_has_not_grown(make: Make, tmp_path: Path) -> None:
    """It has the same samples still, but the data set's fingerprint is in its own."""
    where = make([30], path=tmp_path / "grows")
    state, rest = interrupted(f"{where}?select=:20")
    make([10], first=30, path=Path(where))
    resumed = loader(f"{where}?select=:20")
    resumed.load_state_dict(state, allow_growth=True)
    assert delivered(resumed) == rest


def test_a_split_without_by_does_not_grow(make: Make, tmp_path: Path) -> None:
    """Its parts are other samples where there are more: some of "val" would be trained on."""
    where = make([100], path=tmp_path / "grows")
    state, _ = interrupted(f"{where}?split=train")
    make([20], first=100, path=Path(where))
    with pytest.raises(StateError, match=r"(?s)belongs to other data.*a split without by= does not"):
        loader(f"{where}?split=train").load_state_dict(state, allow_growth=True)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: str(order["shuffle"]))
@pytest.mark.parametrize("filtered", [False, True])
def test_concatenations_grow_at_their_end(
    make: Make, tmp_path: Path, filtered: bool, order: dict[str, Any]
) -> None:
    first, last = make([60, 20], path=tmp_path / "first"), make([30, 40], first=80, path=tmp_path / "last")

    def open() -> Any:
        both = fs.concat([first, last])
        return both.filter("label < 7") if filtered else both

    state, rest = interrupted(open(), **order)
    make([50], first=150, path=Path(last))
    grown = open()
    check(grown, state, rest, sorted(grown["id"].tolist()), order)
    make([10], first=500, path=tmp_path / "third")
    more = fs.concat([first, last, tmp_path / "third"])
    more = more.filter("label < 7") if filtered else more
    resumed = loader(more, **order)
    resumed.load_state_dict(state, allow_growth=True)
    assert delivered(resumed) == rest


def test_a_concatenation_that_grows_in_the_middle_is_another(make: Make, tmp_path: Path) -> None:
    first, last = make([60], path=tmp_path / "first"), make([30], first=60, path=tmp_path / "last")
    state, _ = interrupted(fs.concat([first, last]))
    make([5], first=90, path=Path(first))
    with pytest.raises(StateError, match="belongs to other data"):
        loader(fs.concat([first, last])).load_state_dict(state, allow_growth=True)


def test_a_mix_of_grown_data_is_another(make: Make, tmp_path: Path) -> None:
    """Where its sources stand depends on how many samples they have."""
    where = make([60], path=tmp_path / "grows")
    state, _ = interrupted(fs.mix([where]))
    make([5], first=60, path=Path(where))
    with pytest.raises(StateError, match="belongs to other data"):
        loader(fs.mix([where])).load_state_dict(state, allow_growth=True)
