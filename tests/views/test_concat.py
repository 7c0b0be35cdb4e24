"""Several data sets read as one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard._merge import interleaved
from fastshard.errors import InvalidError, NullError, OutOfRangeError, SchemaError, StateError

FILL = {"fill_null": {"label": -1}}


@pytest.fixture(scope="session")
def paths(make: Callable[..., str]) -> list[str]:
    """Three data sets whose ids go on: 0 to 129, 130 to 149, 150 to 399."""
    return [make([100, 30]), make([20], first=130), make([250], first=150)]


def plain(column: object) -> object:
    return column.to_list() if isinstance(column, fs.Ragged) else column


def test_it_reads_as_one_data_set(paths: list[str], make: Callable[..., str]) -> None:
    together = fs.concat([fs.open(path, **FILL) for path in paths])
    one = fs.open(make([400]), **FILL)
    assert len(together) == len(one) == 400
    assert together.schema == one.schema
    assert together.to_arrow().equals(one.to_arrow())
    assert pl.DataFrame(together).equals(pl.DataFrame(one))
    ids = np.random.default_rng(0).integers(0, 400, 300)
    batch, expected = together.take(ids), one.take(ids)
    assert batch.ids.tolist() == ids.tolist()
    for name in one.columns:
        np.testing.assert_equal(plain(batch[name]), plain(expected[name]))
        np.testing.assert_equal(plain(together[name]), plain(one[name]))
    for id in (0, 129, 130, 149, 150, -1):
        np.testing.assert_equal(together[id], one[id])
    assert [int(sample["id"]) for sample in together] == list(range(400))
    assert together[395:].ids.tolist() == [395, 396, 397, 398, 399]
    assert str(together.describe()).startswith("400 samples in 4 shards")
    for outside in (400, -401):
        with pytest.raises(OutOfRangeError, match=f"no sample {outside}: the concatenation has 400"):
            together[outside]
        with pytest.raises(OutOfRangeError):
            together.take([0, outside])
    assert together.stats()["shards_open"] == 4
    together.close()
    assert together.stats()["shards_open"] == 0


def test_parts_may_be_views_and_concatenations(paths: list[str]) -> None:
    first, second, third = (fs.open(path, columns=["id"]) for path in paths)
    together = fs.concat([fs.concat([second, first.filter("id < 10")]), third.select([0, -1])])
    assert together["id"].tolist() == [*range(130, 150), *range(10), 150, 399]
    assert len(together.parts) == 3
    assert "32 samples, in 3 shards, of 400 samples" in str(together.describe())
    view = together.filter("id < 140").select(slice(8, 13))
    assert view["id"].tolist() == [138, 139, 0, 1, 2]
    assert view.ids().tolist() == [8, 9, 20, 21, 22]  # places in the concatenation
    assert view.to_arrow()["id"].to_pylist() == [138, 139, 0, 1, 2]
    parts = together.split({"a": 0.5, "b": 0.5}, seed=1)
    assert sorted([*parts["a"]["id"], *parts["b"]["id"]]) == sorted(together["id"])


def test_forms_follow_from_all_parts(tmp_path: Path) -> None:
    """A list column of one length in each part, but not in both, is ragged in both; nulls anywhere count."""
    for name, length, label in (("a", 2, 1), ("b", 3, None)):
        fs.write(pa.table({"x": [[1] * length] * 4, "y": pa.array([label] * 4, pa.int8())}), tmp_path / name)
    together = fs.concat([tmp_path / "a", tmp_path / "b"], columns=["x"])
    assert together[3:5]["x"].to_list() == [[1, 1], [1, 1, 1]]
    assert fs.open(tmp_path / "a")["x"].shape == (4, 2)
    whole = fs.concat([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(NullError, match=r"'y'.*4 nulls"):
        whole.check_nulls()
    masked = fs.concat([fs.open(tmp_path / name, null_masks=True) for name in "ab"])
    assert masked.to_numpy()["y__valid"].tolist() == [True] * 4 + [False] * 4


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    fs.write(pa.table({"x": [1, 2], "y": ["a", "b"]}), tmp_path / "a")
    fs.write(pa.table({"y": ["c"], "x": [3]}), tmp_path / "b")
    fs.write(pa.table({"x": [4], "z": [1.5]}), tmp_path / "c")
    together = fs.concat([tmp_path / "a", tmp_path / "b"])
    assert together.to_arrow().to_pydict() == {"x": [1, 2, 3], "y": ["a", "b", "c"]}
    assert fs.concat([tmp_path / "a", tmp_path / "c"], columns=["x"])["x"].tolist() == [1, 2, 4]
    with pytest.raises(SchemaError, match="c has no column 'y'"):
        fs.concat([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(SchemaError, match="a has a column 'y' that"):
        fs.concat([fs.open(tmp_path / "c", columns=["x"]), tmp_path / "a"])
    with pytest.raises(InvalidError, match="there is no column 'w'; there are x, y"):
        fs.concat([tmp_path / "a", tmp_path / "b"], columns=["w"])


def test_what_does_not_fit_is_refused(paths: list[str], tmp_path: Path) -> None:
    fs.write(pa.table({"id": pa.array([1], pa.int32())}), tmp_path / "narrow")
    with pytest.raises(SchemaError, match="column 'id' is of type int32, and of type int64 in"):
        fs.concat([paths[0], tmp_path / "narrow"], columns=["id"])
    with pytest.raises(InvalidError, match="opened with other options"):
        fs.concat([fs.open(paths[0]), fs.open(paths[1], cast={"id": "int32"})])
    with pytest.raises(InvalidError, match="at least one"):
        fs.concat([])
    with pytest.raises(InvalidError, match="takes a list of data sets"):
        fs.concat(paths[0])
    with pytest.raises(InvalidError, match="not the string"):
        fs.concat(paths, columns="id")
    with pytest.raises(InvalidError, match="is no data set"):
        fs.concat([3])
    with pytest.raises(InvalidError, match="concat takes data sets"):
        fs.concat([fs.mix([paths[0]])])


def test_pickles_and_fingerprints(paths: list[str]) -> None:
    together = fs.concat([paths[0], fs.open(paths[1]).select([1, 2])], columns=["id"])
    pickled = pickle.dumps(together)
    assert len(pickled) < 4096
    again = pickle.loads(pickled)
    assert again.fingerprint == together.fingerprint
    assert again["id"].tolist() == together["id"].tolist()
    assert again.columns == ("id",)
    assert fs.concat([paths[1], paths[0]]).fingerprint != fs.concat(paths[:2]).fingerprint
    view = pickle.loads(pickle.dumps(together.filter("id > 120")))
    assert view["id"].tolist() == [*range(121, 130), 131, 132]


@given(st.integers(0, 2**32), st.sampled_from([1, 4, 64]), st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_the_block_order_is_that_of_all_shards(
    paths: list[str], reference: ModuleType, seed: int, lanes: int, epoch: int
) -> None:
    readers = [fs.open(path, columns=["id"]) for path in paths]
    shards = [
        reference.Shard(*numbers)
        for reader in readers
        for numbers in zip(
            reader.core.shard_rows().tolist(),
            reader.core.shard_blocks().tolist(),
            reader.core.shard_block_rows().tolist(),
            strict=True,
        )
    ]
    window = sum(reader.index.window for reader in readers)
    expected = reference.block_order(shards, seed, epoch, window=window, unit_blocks=1, lanes=lanes)
    dataset = fs.ShardDataset(
        fs.concat(readers), batch_size=400, batched=True, shuffle=True, seed=seed, lanes=lanes, tail="exact"
    )
    dataset.set_epoch(epoch)
    (batch,) = dataset
    by_position = np.argsort(batch.positions.numpy())
    assert batch["id"].numpy()[by_position].tolist() == expected
    assert batch.ids.numpy()[by_position].tolist() == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_loaders_read_it_like_the_data_set_for_torch(paths: list[str], threads: int) -> None:
    together = fs.concat(paths, columns=["id", "tags"])
    options = {"batch_size": 7, "shuffle": True, "seed": 4}
    expected = [batch["id"].tolist() for batch in fs.ShardDataset(together, batched=True, **options)]
    loader = fs.ShardLoader(together, threads=threads, prefetch=3, **options)
    got = []
    for batch in loader:
        got.append(batch["id"].tolist())
        state = loader.state_dict()
        if len(got) == 20:
            kept = state
    assert got == expected
    assert sorted(id for batch in got for id in batch) == list(range(400))
    assert loader.stats().engine == "mmap"
    assert loader.stats().batches == len(got)
    again = fs.ShardLoader(together, **options)
    again.load_state_dict(kept)
    assert [batch["id"].tolist() for batch in again] == expected[20:]
    with pytest.raises(StateError, match=r'belongs to other data: .*"concat"'):
        fs.ShardLoader(fs.concat(paths[:2], columns=["id"]), **options).load_state_dict(kept)
    iterator = iter(fs.ShardLoader(together, **options))
    next(iterator)
    iterator.close()
    with pytest.raises(InvalidError, match="through mappings"):
        fs.ShardLoader(together, engine="uring", **options)


def test_a_bad_sample_of_a_part_is_named_with_its_data_set(make: Callable[..., str], tmp_path: Path) -> None:
    where = [Path(make([60], first=first, path=tmp_path / f"{first}", block_bytes=200)) for first in (0, 60)]
    (shard,) = where[1].glob("shard-*")
    data = bytearray(shard.read_bytes())
    data[data.index(np.float32(90.25).tobytes())] ^= 1
    shard.write_bytes(data)
    together = fs.concat(where, columns=["x"])
    with pytest.raises(fs.errors.CorruptError, match="shard-00000"):
        list(fs.ShardLoader(together, batch_size=8))
    loader = fs.ShardLoader(together, batch_size=8, on_bad_sample="replace")
    assert sum(len(batch["x"]) for batch in loader) == 120
    assert 90 in {sample.id for sample in loader.bad_samples}
    assert all(sample.shard == str(where[1] / shard.name) for sample in loader.bad_samples)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_batches_are_interleaved_column_by_column(seed: int, parts: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    which = rng.integers(0, parts, count)
    rows = [np.flatnonzero(which == part) for part in range(parts)]

    def batch(places: np.ndarray) -> fs.Batch:
        lengths = places % 3
        shift = int(rng.integers(0, 3))  # a first offset that is not 0
        values = np.concatenate([np.zeros(shift), *[np.full(place % 3, place) for place in places]])
        return fs.Batch(
            {
                "array": places[:, None] * np.array([1.0, 2.0]),
                "ragged": fs.Ragged(
                    values.astype(np.int32), shift + np.concatenate([[0], np.cumsum(lengths)])
                ),
                "text": [f"row {place}" for place in places],
                "struct": {"inner": places.astype(np.int8), "names": [None] * len(places)},
            },
            ids=places + 100,
        )

    merged = interleaved([batch(places) for places in rows], rows)
    assert merged.ids.tolist() == list(range(100, 100 + count))
    assert merged["array"].tolist() == [[place, 2 * place] for place in range(count)]
    assert merged["ragged"].to_list() == [[place] * (place % 3) for place in range(count)]
    assert merged["ragged"].values.dtype == np.int32
    assert merged["text"] == [f"row {place}" for place in range(count)]
    assert merged["struct"]["inner"].tolist() == list(range(count))
