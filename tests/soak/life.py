"""One life of a run that is killed again and again: loads the state that stands, trains on, saves after each step.

    python life.py FOLDER SETTINGS

`FOLDER` holds train/, the data set; journal, to which the ids of each step are appended; state.json, replaced after
each step: what the loader's state is, and how much of the journal it covers. Says "begun" after the first step.
SETTINGS is JSON: see `Settings`.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastshard as fs
import fastshard.torch


@dataclass(frozen=True)
class Settings:
    """What differs between lives; what is trained on does not depend on it.

    Attributes:
        course: which samples, in which order: a name in `COURSES`.
        kind: "loader" for `ShardLoader`, "torch" for `fastshard.torch.DataLoader`.
        engine: of a `ShardLoader`.
        threads: of a `ShardLoader`, or workers of a DataLoader.
        ranks: loaders that divide the samples, in lock step in this one process.
        batch_size: of a rank.
        epochs: that this life ends after.
    """

    course: str
    kind: str
    engine: str
    threads: int
    ranks: int
    batch_size: int
    epochs: int


COURSES: dict[str, dict[str, Any]] = {
    "block": {"path": "train", "shuffle": True},
    "global": {"path": "train", "shuffle": "global"},
    "view": {"path": "train/?where=third = 1", "shuffle": True},
}


def text_of(id: int) -> str:
    """What stands in the column `text` of a sample."""
    return f"sample {id} " * (id % 5)


def check(batch: Any) -> None:
    """Asserts that every column of a batch is that of its ids."""
    ids = batch["id"].numpy()
    np.testing.assert_array_equal(batch["x"].numpy(), ids[:, None] * np.arange(1.0, 5.0, dtype=np.float32))
    assert list(batch["text"]) == [text_of(id) for id in ids.tolist()]


def loaders(folder: Path, settings: Settings) -> list[Any]:
    """One for each rank."""
    course = dict(COURSES[settings.course])
    course["path"] = f"{folder}/{course['path']}"
    made: list[Any] = []
    for rank in range(settings.ranks):
        order = {**course, "seed": 7, "tail": "exact", "rank": rank, "world_size": settings.ranks}
        if settings.kind == "loader":
            options = {"engine": settings.engine, "threads": settings.threads, "memory": 1 << 20}
            made.append(fs.ShardLoader(batch_size=settings.batch_size, **order, **options))
        else:
            dataset = fs.ShardDataset(**order)
            made.append(
                fastshard.torch.DataLoader(
                    dataset, batch_size=settings.batch_size, num_workers=settings.threads
                )
            )
    return made


def in_step(made: list[Any]) -> Iterator[list[Any]]:
    """The batches of each step of one epoch; the first rank may have a step more than the last."""
    for batches in itertools.zip_longest(*made):
        yield [batch for batch in batches if batch is not None]


def footprint() -> dict[str, int]:
    """What this process holds."""
    gc.collect()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "memory": int(fields["RssAnon"].split()[0]) * 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def main() -> None:
    folder, settings = Path(sys.argv[1]), Settings(**json.loads(sys.argv[2]))
    made = loaders(folder, settings)
    state_file = folder / "state.json"
    with (folder / "journal").open("ab") as journal:
        if state_file.exists():
            saved = json.loads(state_file.read_text())
            journal.truncate(saved["journal"])
            for loader in made:
                loader.load_state_dict(saved["data"])
        held = []
        for epoch in range(settings.epochs):
            for step, batches in enumerate(in_step(made)):
                ids = np.concatenate([batch["id"].numpy() for batch in batches])
                for batch in batches:
                    check(batch)
                journal.write(ids.astype("<i8").tobytes())
                journal.flush()
                # A rank may have no batch in the last step; never the first one.
                save(state_file, {"data": made[0].state_dict(), "journal": journal.tell()})
                if epoch == step == 0:
                    print("begun", flush=True)
            held.append(footprint())
    print(json.dumps(held), flush=True)


def save(path: Path, value: object) -> None:
    """There is a whole one at every instant."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value))
    os.replace(new, path)


if __name__ == "__main__":
    main()
