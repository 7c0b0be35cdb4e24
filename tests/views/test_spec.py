"""Views as text: a path, and behind a "?" what selects from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs
from fastshard.errors import InvalidError, NotFoundError, OutOfRangeError
from fastshard.source import PathRecipe, recipe_of
from fastshard.views import View, open_spec


def test_texts_say_what_methods_do(path: str, tmp_path: Path) -> None:
    reader = fs.open(path)
    np.save(tmp_path / "ids.npy", np.array([5, 3]))
    parts = reader.split()
    same = {
        "split=train": parts["train"],
        "split=val": parts["val"],
        "split=val&seed=4": reader.split(seed=4)["val"],
        "split=train&by=user&seed=4": reader.split(seed=4, by="user")["train"],
        "split=0:0.9": parts["train"],
        "split=90%:": parts["val"],
        "split=:90%": parts["train"],
        "split=9/10:1": parts["val"],
        "split=0.25:0.5": reader.split({"a": 0.25, "b": 0.25})["b"],
        "where=label = 3": reader.filter("label = 3"),
        "where=label = 3 and id > 100&split=train": reader.filter("label = 3 and id > 100").split()["train"],
        "where=user = 'a&b'": reader.filter("user = 'a&b'"),
        "select=0:10": reader.select(slice(0, 10)),
        "select=::50": reader.select(slice(None, None, 50)),
        "select=-10:": reader.select(slice(-10, None)),
        "select=3,17,-1": reader.select([3, 17, -1]),
        "select=7": reader.select([7]),
        f"select=@{tmp_path}/ids.npy": reader.select([3, 5]),
        "select=0:100&where=label = 3&select=1:": reader.select(slice(0, 100))
        .filter("label = 3")
        .select(slice(1, None)),
    }
    for text, view in same.items():
        found = open_spec(f"{path}?{text}")
        assert isinstance(found, View)
        assert found.ids().tolist() == view.ids().tolist(), text


def test_what_a_view_shows_reads_back(path: str) -> None:
    reader = fs.open(path)
    for view in (
        reader.split({"a": 0.3, "b": 0.2}, seed=3, by="user")["b"],
        reader.filter("label in (3, 4)").select(slice(3, 40, 2)),
        reader.select([4, 5, 9]),
    ):
        assert open_spec(view.recipe.where).ids().tolist() == view.ids().tolist()
        assert view.recipe.where in repr(view)


def test_options_reach_the_reader(path: str) -> None:
    assert open_spec(f"{path}?split=val", columns=["id"]).columns == ("id",)
    assert isinstance(open_spec(path), fs.ShardReader)
    assert isinstance(open_spec(Path(path)), fs.ShardReader)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("split=", "there is no such part; there are train, val"),
        ("split=test", "split=test: there is no such part; there are train, val"),
        ("split=0.9:0.1", "0.9:0.1 are none"),
        ("split=0:2", "0:2 are none"),
        ("split=-0.1:0.5", "-0.1:0.5 are none"),
        ("split=a:b", "wants the name of a part, or two shares such as 0:0.9 or 90%:, not 'a'"),
        ("split=0.1:0.2:0.3", "not '0.2:0.3'"),
        ("seed=3", "seed= belongs behind split="),
        ("select=1,2&by=user", "by= belongs behind split="),
        ("split=train&seed=x", "seed= wants a number, not 'x'"),
        ("split=train&seed=-1", "seed is an integer"),
        ("split=train&by=nobody", "by='nobody': there is no such column"),
        ("where=", "the condition is empty"),
        ("where=nobody > 3", "there is no column 'nobody'"),
        ("select=a", "select= wants ids such as"),
        ("select=", "select= wants ids such as"),
        ("select=1:2:3:4", "select= wants ids such as"),
        ("select=1:2:0", "not 0"),
        ("select=3,3", "selected twice"),
        ("splt=train", r"behind the \? stands split=, where= or select=, not splt="),
    ],
)
def test_what_cannot_be_read(path: str, text: str, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        open_spec(f"{path}?{text}")


def test_what_is_not_there(path: str) -> None:
    with pytest.raises(OutOfRangeError, match="no sample 500"):
        open_spec(f"{path}?select=500")
    with pytest.raises(NotFoundError):
        open_spec(f"{path}?select=@nowhere.npy")
    with pytest.raises(NotFoundError):
        open_spec(f"{path}-nowhere?split=train")


def test_open_points_to_what_opens_texts(path: str) -> None:
    with pytest.raises(NotFoundError, match=r"or open the text with fastshard\.views\.open_spec"):
        fs.open(f"{path}?split=train")


def test_names_with_question_marks(make: Callable[..., str], tmp_path: Path) -> None:
    odd = make([10], path=tmp_path / "why?split=train")
    assert len(open_spec(odd)) == 10
    assert len(open_spec(f"{odd}?select=0:3")) == 3
    assert recipe_of("s3://bucket/data?region=eu-1") == PathRecipe("s3://bucket/data?region=eu-1")
    assert recipe_of("s3://bucket/data?region=eu-1&split=val").where == (
        "s3://bucket/data?region=eu-1?split=val&seed=0"
    )
