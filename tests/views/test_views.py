"""A view reads like a data set of its samples."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard.errors import InvalidError, NotFoundError, OutOfRangeError, StateError
from fastshard.views import View


@pytest.fixture
def reader(path: str) -> fs.ShardReader:
    return fs.open(path)


def same(view: View, reader: fs.ShardReader, ids: list[int]) -> None:
    """The view holds exactly these samples, however it is read."""
    table = reader.to_arrow().take(pa.array(ids, pa.int64()))
    assert len(view) == view.rows == len(ids)
    assert view.ids().tolist() == ids
    assert view.schema == reader.schema
    assert view.to_arrow().equals(table)
    assert pa.table(view).equals(table)
    batch = view.to_numpy()
    expected = reader.take(pa.array(ids, pa.int64()))
    assert batch.ids.tolist() == ids
    for name in view.columns:
        np.testing.assert_equal(plain(batch[name]), plain(expected[name]))
        np.testing.assert_equal(plain(view[name]), plain(expected[name]))
    assert [sample["id"] for sample in view] == ids
    for place in {0, len(ids) // 2, len(ids) - 1} if ids else ():
        np.testing.assert_equal(view[place], reader[ids[place]])
        np.testing.assert_equal(view[place - len(ids)], reader[ids[place]])


def plain(column: object) -> object:
    return column.to_list() if isinstance(column, fs.Ragged) else column


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.003, 0.2, 0.9, 1.0]))
@settings(max_examples=25, deadline=None)
def test_any_selection_reads_like_the_samples(path: str, seed: int, share: float) -> None:
    with fs.open(path, fill_null={"label": -1}) as reader:
        mask = np.random.default_rng(seed).random(len(reader)) < share
        ids = np.flatnonzero(mask).tolist()
        same(reader.select(mask), reader, ids)
        same(reader.select(np.random.default_rng(seed).permutation(ids)), reader, ids)


def test_what_can_be_selected_by(reader: fs.ShardReader, tmp_path: Path) -> None:
    assert reader.select([5, 3, -1]).ids().tolist() == [3, 5, 499]
    assert reader.select([]).ids().tolist() == []
    assert reader.select(np.array([7], np.uint8)).ids().tolist() == [7]
    assert reader.select(slice(490, None)).ids().tolist() == list(range(490, 500))
    assert reader.select(slice(None, 10, 3)).ids().tolist() == [0, 3, 6, 9]
    assert reader.select(slice(None, None, -100)).ids().tolist() == [99, 199, 299, 399, 499]
    assert reader.select(slice(np.int64(2), np.int32(4))).ids().tolist() == [2, 3]
    assert reader.select(range(5, 0, -2)).ids().tolist() == [1, 3, 5]
    assert reader.select(range(-2, 0)).ids().tolist() == [498, 499]
    assert reader.select(range(0)).ids().tolist() == []
    np.save(tmp_path / "ids.npy", np.array([9, 2]))
    assert reader.select(tmp_path / "ids.npy").ids().tolist() == [2, 9]
    np.save(tmp_path / "mask.npy", np.arange(500) == 77)
    assert reader.select(str(tmp_path / "mask.npy")).ids().tolist() == [77]


@pytest.mark.parametrize(
    ("which", "error", "message"),
    [
        ([1, 2, 1], InvalidError, "sample 1 is selected twice"),
        ([499, -1], InvalidError, "sample 499 is selected twice"),
        ([500], OutOfRangeError, "there is no sample 500: the data set has 500"),
        ([-501], OutOfRangeError, "there is no sample -501"),
        (range(499, 501), OutOfRangeError, "there is no sample 500"),
        (np.ones(3, bool), InvalidError, "one value for each of the 500"),
        ([[1]], InvalidError, "one dimension"),
        ([0.5], InvalidError, "ids are integers"),
        (slice(0, "a"), InvalidError, "of integers"),
        (slice(0, 3, 0), InvalidError, "not 0"),
        ("nowhere.npy", NotFoundError, "nowhere.npy: there is no such file"),
    ],
)
def test_what_cannot_be_selected_by(
    reader: fs.ShardReader, which: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        reader.select(which)


def test_files_that_are_no_ids(reader: fs.ShardReader, tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("1 2 3")
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=[1])
    np.save(tmp_path / "floats.npy", [0.5])
    for name in ("text.npy", "objects.npy", "several.npz", "floats.npy"):
        with pytest.raises(InvalidError, match=name):
            reader.select(tmp_path / name)


def test_views_of_views_are_views_of_the_data_set(reader: fs.ShardReader) -> None:
    odd = reader.filter(pc.field("id") >= 100)
    part = odd.select(slice(0, 10)).select([1, 3, 5])
    assert part.root is reader
    assert part.ids().tolist() == [101, 103, 105]
    assert part.take([2, 0, 2]).ids.tolist() == [105, 101, 105]
    assert part[np.array([False, True, False])].ids.tolist() == [103]
    assert [str(step) for step in part.steps] == ["where=(id >= 100)", "select=0:10", "select=1,3,5"]
    with pytest.raises(OutOfRangeError, match="there is no sample 3: the view has 3"):
        part[3]
    with pytest.raises(OutOfRangeError, match="there is no sample -4: the view has 3"):
        part.take([-4])


def test_other_libraries_read_a_view(reader: fs.ShardReader) -> None:
    view = reader.select([3, 4, 300])
    assert pl.DataFrame(view)["id"].to_list() == [3, 4, 300]
    frame = view.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["user"].tolist() == [reader[i]["user"] for i in (3, 4, 300)]
    assert view.to_torch()["x"].shape == (3, 3)
    assert [sample["id"] for sample in view.__getitems__([2, 0])] == [300, 3]


def test_a_view_reads_the_columns_of_its_reader(path: str) -> None:
    with fs.open(path, columns=["x"], cast={"x": "float64"}) as reader:
        view = reader.filter(pc.field("label") == 3)  # a column that is not read
        assert view.columns == ("x",)
        assert view[0]["x"].dtype == np.float64
        again = pickle.loads(pickle.dumps(view))
        assert again.columns == ("x",)
        assert again.take([0])["x"].dtype == np.float64


def test_shards_without_samples_are_not_opened(path: str) -> None:
    with fs.open(path, fill_null={"label": -1}) as reader:
        view = reader.select([210, 220])
        view.to_arrow()
        view.to_numpy()
        assert reader.stats()["shards_opened"] == 1
        assert view.stats() == reader.stats()


def test_description_and_repr(reader: fs.ShardReader) -> None:
    view = reader.select(slice(190, 210))
    assert repr(view) == (
        f"View('{reader.path}?select=190:210', 20 of 500 samples, columns id, x, label, user, tags)"
    )
    assert str(view.describe()).startswith("20 samples, in 2 shards, of 500 samples in 4 shards")
    assert "20 samples" in view._repr_html_()


# Names and pickles.


def test_the_fingerprint_names_the_samples(reader: fs.ShardReader) -> None:
    by_ids = reader.select([1, 2, 3])
    by_slice = reader.select(slice(1, 4))
    assert by_ids.fingerprint == by_slice.fingerprint
    assert by_ids.fingerprint != reader.select([1, 2, 4]).fingerprint
    assert by_ids.fingerprint != reader.fingerprint
    assert len(by_ids.fingerprint) == 32
    assert by_ids.identity()["digest"] == by_ids.digest


def views_of(reader: fs.ShardReader, tmp_path: Path) -> dict[str, View]:
    np.save(tmp_path / "ids.npy", np.array([9, 2]))
    rng = np.random.default_rng(0)
    return {
        "ids": reader.select([4, 77, 301]),
        "mask": reader.select(rng.random(500) < 0.5),
        "slice": reader.select(slice(3, 400, 7)),
        "file": reader.select(tmp_path / "ids.npy"),
        "filter": reader.filter((pc.field("label") == 3) & pc.field("user").isin(["user 0", "user 3"])),
        "text": reader.filter("label == 3"),
        "split": reader.split(seed=3)["train"],
        "by": reader.split({"a": 0.5}, by="user")["a"],
        "nested": reader.filter("id > 50").split(seed=1)["val"].select(slice(0, 20)),
    }


def test_pickles_carry_the_recipe(reader: fs.ShardReader, tmp_path: Path) -> None:
    for name, view in views_of(reader, tmp_path).items():
        pickled = pickle.dumps(view)
        assert len(pickled) < 4096, name
        again = pickle.loads(pickled)
        assert again.ids().tolist() == view.ids().tolist(), name
        assert again.fingerprint == view.fingerprint
        assert repr(again) == repr(view)
        assert again[0]["id"] == view[0]["id"]
        assert pickle.loads(pickle.dumps(again)).digest == view.digest  # without having been used


def test_pickles_open_in_another_process(reader: fs.ShardReader, tmp_path: Path) -> None:
    for name, view in views_of(reader, tmp_path).items():
        (tmp_path / name).write_bytes(pickle.dumps(view))
        code = "import pickle, sys; view = pickle.loads(open(sys.argv[1], 'rb').read()); print(*view.ids().tolist())"
        if name in ("filter", "by", "nested"):
            result = subprocess.run(
                [sys.executable, "-c", code, str(tmp_path / name)],
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            )
            assert list(map(int, result.stdout.split())) == view.ids().tolist()


def test_a_pickled_recipe_does_not_grow_with_the_data(make: Callable[..., str]) -> None:
    with fs.open(make([20_000], block_bytes=1 << 20)) as reader:
        for view in (reader.split()["train"], reader.filter("label == 3"), reader.split(by="user")["val"]):
            assert len(pickle.dumps(view)) < 2048


def test_explicit_ids_travel_compressed_up_to_a_limit(
    reader: fs.ShardReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastshard._selecting._MOST_CARRIED", 60)
    view = reader.select(np.random.default_rng(0).random(500) < 0.5)
    with pytest.raises(InvalidError, match=r"at most 60 are carried: save the ids with numpy\.save"):
        pickle.dumps(view)


def test_a_recipe_that_gives_other_samples_is_refused(make: Callable[..., str], tmp_path: Path) -> None:
    path = Path(make([100], path=tmp_path / "data"))
    np.save(tmp_path / "ids.npy", np.array([1, 2, 3]))
    with fs.open(path) as reader:
        pickled = pickle.dumps(reader.select(tmp_path / "ids.npy"))
    np.save(tmp_path / "ids.npy", np.array([1, 2, 4]))
    with pytest.raises(StateError, match=r"selects other samples than when it was pickled: 3 of 100"):
        pickle.loads(pickled)
    np.save(tmp_path / "ids.npy", np.array([1, 2, 3]))
    assert len(pickle.loads(pickled)) == 3
    make([10], first=100, path=path)
    with pytest.raises(StateError, match="was replaced since this reader was pickled"):
        pickle.loads(pickled)


def test_damaged_pickles_are_refused(reader: fs.ShardReader) -> None:
    step = reader.select(np.random.default_rng(0).random(500) < 0.5).steps[0]
    restore, (form, packed, universe) = step.__reduce__()
    for arguments in ((form, packed[:-3], universe), (form, packed, universe + 64), (form, b"", universe)):
        with pytest.raises(StateError, match="damaged"):
            restore(*arguments)
    other = restore(form, packed, universe)
    assert other.selection.digest() == step.selection.digest()
    with pytest.raises(StateError, match="ids were selected from 500 samples, and there are 3 now"):
        other.apply(reader.select([1, 2, 3]))
