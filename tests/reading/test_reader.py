"""`fs.open`: samples, batches, columns, and how they are delivered."""

from __future__ import annotations

import datetime
import multiprocessing
import pickle
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import fastshard as fs
from fastshard.errors import InvalidError, NullError, OutOfRangeError

ROWS = 300
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 3, dtype=np.float32)), 3),
        "s": [None if i % 7 == 0 else f"é{i}" for i in range(ROWS)],
        "r": pa.array([list(range(i % 4)) for i in range(ROWS)], pa.list_(pa.int16())),
        "c": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.int32())),
        "n": pa.array([None if i % 5 == 0 else i for i in range(ROWS)], pa.int32()),
        "f": pa.array([None if i % 5 == 0 else i / 2 for i in range(ROWS)]),
        "d": [{"a": i, "b": str(i)} for i in range(ROWS)],
    }
)
PLAIN = ["id", "x", "s", "r", "c", "f", "d"]


@pytest.fixture(scope="module", params=["none", "lz4", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reading") / request.param
    fs.write(TABLE, out, compression=request.param, block_bytes=1024, shard_bytes=4096)
    return out


def test_indices_as_a_list_has_them(path: Path) -> None:
    reader = fs.open(path)
    assert len(reader) == ROWS
    assert reader.index.shards > 1
    for i in (0, 7, ROWS - 1, -1, -ROWS, np.int64(12), np.uint8(3)):
        sample = reader[i]  # type: ignore[call-overload]
        assert sample["id"] == range(ROWS)[int(i)]
        assert type(sample["id"]) is np.int64
    for i in (ROWS, -ROWS - 1, 1 << 70, -(1 << 70)):
        with pytest.raises(IndexError, match="no sample"):
            reader[i]
    reader = fs.open(path, columns=PLAIN)
    assert reader[3:1].num_samples == 0
    assert reader[10:2:-3]["id"].tolist() == [10, 7, 4]
    assert reader[[5, -1, 5]]["id"].tolist() == [5, ROWS - 1, 5]
    mask = np.arange(ROWS) % 100 == 1
    assert reader[mask]["id"].tolist() == [1, 101, 201]
    with pytest.raises(InvalidError, match="one value for each"):
        reader.take(mask[:-1])
    with pytest.raises(InvalidError, match="integers"):
        reader.take([1.5])
    with pytest.raises(OutOfRangeError, match=f"{ROWS}"):
        reader.take([0, ROWS])


def test_a_sample_holds_numpy_values_and_none(path: Path) -> None:
    sample = fs.open(path)[35]
    assert sample["x"].dtype == np.float32
    assert sample["x"].tolist() == [105, 106, 107]
    assert sample["s"] is None
    assert sample["n"] is None
    assert np.isnan(sample["f"])
    assert sample["r"].tolist() == [0, 1, 2]
    assert sample["c"].tolist() == [35, 36]
    assert sample["d"] == {"a": 35, "b": "35"}


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.integers(0, ROWS - 1), max_size=80),
    cache=st.sampled_from([0, 2048, 1 << 20]),
    shards=st.integers(1, 3),
)
def test_take_gives_the_rows_that_arrow_gives(path: Path, ids: list[int], cache: int, shards: int) -> None:
    reader = fs.open(path, columns=PLAIN, cache_bytes=cache, max_open=shards)
    batch = reader.take(ids)
    expected = TABLE.select(PLAIN).take(pa.array(ids, pa.int64())).to_pylist()
    assert batch.num_samples == len(ids)
    assert batch["id"].tolist() == [row["id"] for row in expected]
    assert batch["x"].tolist() == [row["x"] for row in expected]
    assert batch["s"] == [row["s"] for row in expected]
    assert batch["r"].to_list() == [row["r"] for row in expected]
    assert batch["c"].tolist() == [row["c"] for row in expected]
    assert batch["d"]["b"] == [row["d"]["b"] for row in expected]
    assert [None if np.isnan(f) else f for f in batch["f"].tolist()] == [row["f"] for row in expected]
    assert reader.stats()["shards_open"] <= shards


def test_the_whole_in_other_forms(path: Path) -> None:
    reader = fs.open(path)
    assert reader.to_arrow().equals(TABLE.cast(reader.schema))
    assert pa.table(reader).equals(reader.to_arrow())
    assert reader.to_pandas()["id"].tolist() == list(range(ROWS))
    plain = fs.open(path, columns=PLAIN)
    assert [sample["id"] for sample in plain] == list(range(ROWS))
    assert plain["c"].tolist() == TABLE["c"].to_pylist()
    assert plain.to_torch()["x"].shape == (ROWS, 3)
    assert [sample["id"] for sample in plain.__getitems__([3, 1])] == [3, 1]
    with pytest.raises(InvalidError, match="no column 'z'"):
        reader["z"]


def test_nulls_raise_where_there_is_no_form_for_them(path: Path) -> None:
    reader = fs.open(path)
    with pytest.raises(NullError, match=r"'n' of type int32 has 1 nulls.*fill_null.*null_masks"):
        reader.take([5, 6])
    filled = fs.open(path, fill_null={"n": -1, "s": "none"}).take([5, 6, 7])
    assert filled["n"].tolist() == [-1, 6, 7]
    assert filled["s"] == ["é5", "é6", "none"]
    masked = fs.open(path, null_masks=True).take([5, 6])
    assert masked["n__valid"].tolist() == [False, True]
    with pytest.raises(NullError, match="60 nulls"):
        reader.plan.check_nulls()
    with pytest.raises(InvalidError, match="not a value of int32"):
        fs.open(path, fill_null={"n": 1.5}).take([5])


def test_casts_lose_precision_but_never_the_number(path: Path) -> None:
    batch = fs.open(path, columns=["id", "x"], cast={"id": "int16", "float32": "float64"}).take([1, 2])
    assert batch["id"].dtype == np.int16
    assert batch["x"].dtype == np.float64
    with pytest.raises(InvalidError, match="would lose"):
        fs.open(path, columns=["id"], cast={"id": "int8"}).take([200])
    half = fs.open(path, columns=["x"], cast={"x": "bfloat16"}).take([1]).to_torch()["x"]
    assert half.dtype == torch.bfloat16
    assert half.tolist() == [[3, 4, 5]]
    with pytest.raises(InvalidError, match="not a dtype"):
        fs.open(path, cast={"x": "float31"})


def test_lists_of_one_length_are_arrays_unless_told(path: Path) -> None:
    assert fs.open(path, columns=["c"]).take([4, 5])["c"].shape == (2, 2)
    assert fs.open(path, columns=["c"], lists="ragged").take([4, 5])["c"].to_list() == [[4, 5], [5, 6]]
    pinned = fs.open(path, columns=["c"], tensors={"c": ("float32", (2, 1))}).take([4])["c"]
    assert (pinned.shape, pinned.dtype) == ((1, 2, 1), np.float32)
    with pytest.raises(InvalidError, match="wants one shape"):
        fs.open(path, columns=["r"], tensors={"r": ("int16", (2,))})


def test_ragged_pads_and_nests(path: Path) -> None:
    ragged = fs.open(path, columns=["r"]).take([3, 0, 2])["r"]
    padded, lengths = ragged.to_padded(-1, 4)
    assert padded.tolist() == [[0, 1, 2, -1], [-1] * 4, [0, 1, -1, -1]]
    assert lengths.tolist() == [3, 0, 2]
    assert [item.tolist() for item in ragged] == [[0, 1, 2], [], [0, 1]]
    with pytest.raises(InvalidError, match="more than the length 2"):
        ragged.to_padded(0, 2)
    assert ragged.to_torch().to_nested().size(0) == 3


def test_a_batch_is_a_dict_whose_tensors_share_memory(path: Path) -> None:
    batch = fs.open(path, columns=["id", "x"]).take([1, 2])
    tensors = batch.to_torch()
    batch["x"][0, 0] = 99
    assert tensors["x"][0, 0] == 99
    assert list(batch) == ["id", "x"]
    assert pickle.loads(pickle.dumps(batch)).ids.tolist() == [1, 2]
    assert "float32[2, 3]" in repr(batch)
    assert "<table>" in batch._repr_html_()
    assert tensors.to(torch.float64)["x"].dtype == torch.float64
    assert fs.Batch({"a": [1]})["a"] == [1]
    with pytest.raises(InvalidError, match="batch_size=None"):
        torch.utils.data.default_collate([tensors, tensors])


def test_nested_lists_come_back_equal_and_distinct(tmp_path: Path) -> None:
    rows = [[[1, 2], [3]], [], [[]]]
    fs.write(pa.table({"l": pa.array(rows, pa.list_(pa.list_(pa.int32())))}), tmp_path / "d")
    reader = fs.open(tmp_path / "d")
    assert [sample["l"] for sample in reader] == rows
    assert reader[:]["l"] == rows


def test_half_precision_keeps_its_bits(tmp_path: Path) -> None:
    brain = torch.tensor([1.5, -2.0, float("inf")], dtype=torch.bfloat16)
    half = torch.tensor([65504, -0.0], dtype=torch.float16)
    with fs.ShardWriter(tmp_path / "d") as writer:
        writer.write({"b": brain, "h": half})
    batch = fs.open(tmp_path / "d").take([0]).to_torch()
    assert batch["b"].dtype == torch.bfloat16
    assert torch.equal(batch["b"][0].view(torch.int16), brain.view(torch.int16))
    assert batch["h"].dtype == torch.float16
    assert torch.equal(batch["h"][0].view(torch.int16), half.view(torch.int16))


def test_dates_times_and_decimals_are_exact_and_collate(tmp_path: Path) -> None:
    moment, day = datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1)
    table = pa.table(
        {
            "t": pa.array([moment] * 2, pa.timestamp("us")),
            "d": pa.array([day] * 2, pa.date32()),
            "m": pa.array([Decimal("12.34"), Decimal("-0.01")], pa.decimal128(10, 2)),
            "w": pa.array([Decimal(-(10**60))] * 2, pa.decimal256(70, 3)),
            "e": pa.array([datetime.timedelta(seconds=1)] * 2, pa.duration("ms")),
        }
    )
    fs.write(table, tmp_path / "d")
    reader = fs.open(tmp_path / "d")
    sample = reader[0]
    assert sample["t"] == 1577836800000000
    assert sample["d"] == 18262
    assert sample["m"] == Decimal("12.34")
    assert sample["w"] == Decimal(-(10**60))
    assert sample["e"] == 1000
    (batch,) = DataLoader(reader, batch_size=2)  # type: ignore[arg-type]
    assert batch["t"].dtype == torch.int64
    assert batch["m"] == [Decimal("12.34"), Decimal("-0.01")]


def _last(reader: fs.ShardReader, queue: Any) -> None:
    queue.put(int(reader[-1]["id"]))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_reader_serves_in_another_process(path: Path, method: str) -> None:
    reader = fs.open(path)
    assert reader[0]["id"] == 0
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_last, args=(reader, queue))  # type: ignore[attr-defined]
    process.start()
    assert queue.get(timeout=60) == ROWS - 1
    process.join(60)
    assert process.exitcode == 0


def test_threads_share_a_reader(path: Path) -> None:
    reader = fs.open(path, max_open=2, cache_bytes=4096, columns=PLAIN)
    wrong: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            ids = rng.integers(0, ROWS, 20)
            if reader.take(ids)["id"].tolist() != ids.tolist() or reader[int(ids[0])]["id"] != ids[0]:
                wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_counters_say_that_nothing_is_done_twice(tmp_path: Path) -> None:
    fs.write(
        TABLE.select(["id", "x"]), tmp_path / "d", compression="none", block_bytes=1024, shard_bytes=4096
    )
    reader = fs.open(tmp_path / "d")
    for _ in range(3):
        for i in range(ROWS):
            reader[i]
    stats = reader.stats()
    assert stats["shards_opened"] == reader.index.shards
    assert stats["blocks_parsed"] == reader.index.blocks
    assert stats["columns_checked"] == 2 * reader.index.blocks
    reader.close()
    assert reader.stats()["shards_open"] == 0
    assert reader[1]["id"] == 1


def test_thousands_of_shards_need_few_mappings_and_no_descriptors(tmp_path: Path) -> None:
    import resource

    count = 1500
    fs.write({"id": np.arange(count)}, tmp_path / "d", compression="none", block_bytes=1, shard_bytes=1)
    reader = fs.open(tmp_path / "d", max_open=16)
    assert reader.index.shards > 60
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, soft), hard))
    try:
        ids = np.random.default_rng(0).permutation(count)
        assert reader.take(ids)["id"].tolist() == ids.tolist()
        mapped = Path("/proc/self/maps").read_text().count(f"{tmp_path}/d/shard-")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert mapped <= 16
    assert reader.stats()["shards_open"] <= 16
