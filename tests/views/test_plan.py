"""`fastshard plan`: what it says is what a run does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastshard as fs
from fastshard.cli import main
from fastshard.errors import InvalidError
from fastshard.plan import EpochOverview, overview


def blocks_of(reader: fs.ShardReader, ids: list[int]) -> set[tuple[int, int]]:
    """(shard, block) of samples."""
    rows = reader.core.shard_block_rows().tolist()
    ends = np.cumsum(reader.core.shard_rows())
    found = set()
    for id in ids:
        shard, _ = reader.core.locate(id)
        first = int(ends[shard - 1]) if shard else 0
        found.add((shard, (id - first) // rows[shard]))
    return found


def ranks_of(samples: Any, world_size: int, epoch: int, **options: Any) -> list[list[Any]]:
    """The batches of each rank of a run."""
    batches = []
    for rank in range(world_size):
        dataset = fs.ShardDataset(
            samples, batched=True, rank=rank, world_size=world_size, columns=["id"], **options
        )
        dataset.set_epoch(epoch)
        batches.append(list(dataset))
    return batches


@pytest.mark.parametrize("shuffle", ["none", "global", "block"])
@pytest.mark.parametrize("tail", ["pad", "drop", "exact"])
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_it_says_what_a_run_does(path: str, shuffle: str, tail: str, world_size: int) -> None:
    options: dict[str, Any] = {"batch_size": 7, "shuffle": shuffle, "tail": tail, "seed": 3}
    plan = overview(path, world_size=world_size, epoch=2, **options)
    reader = fs.open(path)
    sizes = reader.core.shard_bytes() / reader.core.shard_blocks()
    together: set[tuple[int, int]] = set()
    readings = repeats = 0
    for rank, batches in zip(plan.ranks, ranks_of(path, world_size, 2, **options), strict=True):
        ids = [int(id) for batch in batches for id in batch.ids]
        marks = sum(int(batch.is_repeat.sum()) for batch in batches if batch.is_repeat is not None)
        assert rank.batches == len(batches)
        assert (rank.samples, rank.repeats) == (len(ids) - marks, marks)
        assert list(rank.first_ids) == ids[: len(rank.first_ids)]
        assert len(rank.first_ids) == 7
        read = blocks_of(reader, ids)
        assert rank.blocks == len(read)
        assert rank.shards == len({shard for shard, _ in read})
        assert rank.bytes == pytest.approx(sum(sizes[shard] for shard, _ in read), abs=1)
        together |= read
        readings += len(read)
        repeats += marks
    assert plan.blocks == len(together)
    assert plan.reads == pytest.approx(readings / len(together))
    assert plan.repeats == repeats
    delivered = sum(rank.samples for rank in plan.ranks)
    assert delivered + plan.dropped == 500
    assert plan.full_steps * plan.global_batch + plan.last_step == delivered
    assert plan.counted == 1
    assert reader.stats()["shards_opened"] == 0


@pytest.mark.parametrize(
    ("tail", "batches", "samples", "repeats", "dropped"),
    [
        ("pad", [5] * 7, [15, 15, 14, 14, 14, 14, 14], [0, 0, 1, 1, 1, 1, 1], 0),
        ("drop", [4] * 7, [12] * 7, [0] * 7, 16),
        ("exact", [5] * 7, [15, 15, 14, 14, 14, 14, 14], [0] * 7, 0),
    ],
)
def test_the_end_of_an_epoch(
    make: Callable[..., str],
    tail: str,
    batches: list[int],
    samples: list[int],
    repeats: list[int],
    dropped: int,
) -> None:
    plan = overview(make([100]), world_size=7, batch_size=3, tail=tail)
    assert [rank.batches for rank in plan.ranks] == batches
    assert [rank.samples for rank in plan.ranks] == samples
    assert [rank.repeats for rank in plan.ranks] == repeats
    assert (plan.full_steps, plan.dropped) == (4, dropped)
    assert plan.last_step == (0 if tail == "drop" else 16)


def test_parts_of_data_sets(path: str, make: Callable[..., str]) -> None:
    plan = overview(f"{path}?select=200:250", world_size=2, batch_size=5)
    assert (plan.rows, plan.shards, plan.data_shards) == (50, 1, 4)
    assert [rank.first_ids for rank in plan.ranks] == [(200, 201, 202, 203, 204), (205, 206, 207, 208, 209)]
    other = make([300], first=500)
    together = fs.concat([fs.open(path).filter("id >= 495"), other])
    plan = overview(together, batch_size=8, shuffle=True, tail="exact")
    assert (plan.rows, plan.shards, plan.data_shards) == (305, 2, 5)
    assert plan.ranks[0].samples == 305
    reader = fs.open(other)
    assert plan.blocks == int(reader.core.shard_blocks()[0]) + len(
        blocks_of(fs.open(path), [495, 496, 497, 498, 499])
    )


def test_mixes(path: str) -> None:
    samples = fs.mix({"some": f"{path}?select=0:20", "rest": f"{path}?select=20:"}, weights=[1, 3])
    plan = overview(samples, batch_size=8, shuffle="global", epoch_size=40, world_size=2)
    assert plan.sources == (("some", 0.25), ("rest", 0.75))
    assert plan.size == 40
    (first, *_) = ranks_of(samples, 2, 0, batch_size=8, shuffle="global", epoch_size=40)
    assert plan.ranks[0].first_ids == tuple(first[0].ids.tolist())
    assert plan.ranks[0].first_sources == tuple(samples.sources[j] for j in first[0].source.tolist())


def test_a_run_that_goes_on(path: str) -> None:
    plan = overview(path, batch_size=10, position=470, shuffle=True, seed=1)
    assert (plan.full_steps, plan.ranks[0].samples) == (3, 30)
    assert overview(path, batch_size=10, position=500).ranks[0].batches == 0
    with pytest.raises(InvalidError, match="position=501: the epoch has 500 samples"):
        overview(path, batch_size=10, position=501)


def test_replicas_and_many_ranks(path: str) -> None:
    plan = overview(path, world_size=8, replication=4, batch_size=10)
    assert plan.global_batch == 20
    assert plan.ranks[0].first_ids == plan.ranks[3].first_ids != plan.ranks[4].first_ids
    assert [rank.rank for rank in plan.ranks] == list(range(8))


def test_large_epochs_are_counted_in_part(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = overview(path, batch_size=5, shuffle="global")
    monkeypatch.setattr("fastshard.plan._MOST_SAMPLES", 100)
    part = overview(path, batch_size=5, shuffle="global")
    assert part.counted == 1 / 5
    assert 0 < part.blocks <= exact.blocks
    assert part.ranks[0].samples == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 0}, "world_size=0"),
        ({"world_size": 3, "replication": 2}, "replication=2"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"epoch": -1}, "epoch=-1"),
        ({"position": -1}, "position=-1"),
        ({"tail": "most"}, "tail='most'"),
        ({"tail": "drop", "batch_size": 501}, "501"),
        ({"epoch_size": 501}, "epoch_size=501"),
    ],
)
def test_what_makes_no_plan(path: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        overview(path, **{"batch_size": 5, **options})


# The command.


def test_the_command_prints_a_table(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", path, "--world", "3", "-b", "16", "--shuffle", "none"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "samples 500" in lines
    assert "order no shuffle" in lines
    assert "a step 48 samples: 16 on each of 3 ranks" in lines
    assert (
        'an epoch 10 full steps and one of 20 samples; 1 sample repeated to make ranks equal (tail "pad")'
        in lines
    )
    assert lines[-4].split()[:3] == ["rank", "batches", "samples"]
    assert lines[-1].split()[:4] == ["2", "11", "166", "1"]
    assert lines[-1].endswith("32 33 34 35 ...")


def test_the_command_shortens_what_many_ranks_get(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", path, "--world", "100", "-b", "1", "--tail", "drop"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.lstrip().split(" ")[0].isdigit()]) == 16
    assert lines[-1].split()[0] == "99"
    assert lines[-3].split()[0] == "..."


def test_the_command_as_json(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--world",
        "2",
        "-b",
        "4",
        "--epoch",
        "3",
        "--seed",
        "5",
        "--lanes",
        "2",
        "--epoch-size",
        "100",
    ]
    assert main(["plan", f"{path}?split=train", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    plan = overview(
        f"{path}?split=train",
        world_size=2,
        batch_size=4,
        epoch=3,
        seed=5,
        lanes=2,
        epoch_size=100,
        shuffle=True,
    )
    assert document == json.loads(json.dumps({name: as_json(plan, name) for name in EpochOverview.__slots__}))


def as_json(plan: EpochOverview, name: str) -> Any:
    value = getattr(plan, name)
    if name == "ranks":
        return [{field: getattr(rank, field) for field in rank.__slots__} for rank in value]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        ["--shuffle", "none"],
        ["--shuffle", "global", "--world", "4"],
        ["--shuffle", "block", "--world", "2", "--position", "90", "--epoch-size", "100"],
    ],
)
def test_the_picture(
    path: str, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "epoch.png"
    assert main(["plan", path, "-b", "8", *arguments, "--plot", str(where)]) == 0
    assert where.read_bytes().startswith(b"\x89PNG")
    assert where.stat().st_size > 10_000
    assert f"drawn in {where}" in capsys.readouterr().out


def test_pictures_of_many_samples_and_of_mixes(make: Callable[..., str], tmp_path: Path) -> None:
    from fastshard._plot import draw
    from fastshard.plan import Run

    path = make([7000], block_bytes=4096)
    options = {
        "shuffle": "global",
        "seed": 0,
        "epoch": 0,
        "tail": "pad",
        "lanes": None,
        "replication": 1,
        "epoch_size": None,
        "position": 0,
    }
    for samples in (path, fs.mix([path, f"{path}?select=0:100"]), f"{path}?select=0:1"):
        draw(Run(samples, world_size=2, batch_size=16, **options), tmp_path / "plot.svg")
        assert (tmp_path / "plot.svg").read_text().startswith("<?xml")


def test_what_cannot_be_drawn(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", path, "-b", "8", "--plot", str(tmp_path / "epoch.xyz")]) == 1
    assert "Format 'xyz' is not supported" in capsys.readouterr().err
    assert main(["plan", path, "-b", "8", "--plot", str(tmp_path / "no" / "epoch.png")]) == 1
    assert "cannot write the picture" in capsys.readouterr().err
