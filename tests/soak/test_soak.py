"""Runs that are killed again and again, and resumed by other loaders: every sample once an epoch, and nothing piles up.

`FASTSHARD_SOAK_SECONDS` says for how long (`make soak SECONDS=600`). What is chosen at random follows from
`FASTSHARD_SOAK_SEED`, which a failure names.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from life import COURSES, text_of

import fastshard as fs

SECONDS = float(os.environ.get("FASTSHARD_SOAK_SECONDS", "120"))
SEED = int(os.environ.get("FASTSHARD_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
HERE = Path(__file__).parent
ROWS = 4000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.unsanitized,
    pytest.mark.timeout(SECONDS * 2 + 300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that leads a group; the group is gone afterwards."""
    made = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield made
    finally:
        if made.poll() is None:
            os.killpg(made.pid, signal.SIGKILL)
        made.communicate()


def settings(choice: random.Random, course: str) -> dict[str, object]:
    kind = choice.choice(["loader", "loader", "torch"])
    return {
        "course": course,
        "kind": kind,
        "engine": choice.choice(["auto", "mmap", "threads"]),
        "threads": choice.choice([1, 3]) if kind == "loader" else choice.choice([0, 0, 2]),
        "ranks": choice.choice([1, 1, 2, 3]),
        "batch_size": choice.choice([16, 50, 64]),
        "epochs": choice.choice([3, 20]),
    }


@pytest.mark.parametrize("course", COURSES)
def test_lives(course: str, tmp_path: Path) -> None:
    choice = random.Random(f"{SEED} {course}")
    ids = np.arange(ROWS)
    columns = {
        "id": ids,
        "third": ids % 3,
        "x": (ids[:, None] * np.arange(1.0, 5.0)).astype(np.float32),
        "text": [text_of(id) for id in range(ROWS)],
    }
    fs.write(columns, tmp_path / "train", compression="lz4", block_bytes=2048, shard_bytes=1 << 15)
    wanted = ids[ids % 3 == 1] if course == "view" else ids
    end = time.monotonic() + SECONDS / len(COURSES)
    lives = []
    while time.monotonic() < end:
        chosen = settings(choice, course)
        outcome = live(tmp_path, chosen, choice)
        lives.append({**chosen, "outcome": outcome})
        story = f"FASTSHARD_SOAK_SEED={SEED}: {json.dumps(lives[-3:], indent=1)}"
        assert outcome in ("ended", "killed", "interrupted"), story
        check_journal(tmp_path, wanted, story)
    outcomes = [life["outcome"] for life in lives]
    trained = (tmp_path / "journal").stat().st_size // 8 / len(wanted)
    print(
        f"{course}: {len(lives)} lives, {trained:.1f} epochs: {[(o, outcomes.count(o)) for o in set(outcomes)]}"
    )


def live(folder: Path, chosen: dict[str, object], choice: random.Random) -> str:
    """Lives once; says how it ended, or what went wrong."""
    fate = choice.choice(["ended", "killed", "killed", "interrupted"])
    with process(str(HERE / "life.py"), str(folder), json.dumps(chosen)) as life:
        assert life.stdout is not None
        if life.stdout.readline() != "begun\n":
            return f"did not begin: {life.communicate(timeout=60)[1]}"
        if fate != "ended":
            time.sleep(choice.random() * 3)
            if fate == "killed":
                os.killpg(life.pid, signal.SIGKILL)
            else:
                life.send_signal(signal.SIGINT)
        output, errors = life.communicate(timeout=120)
    if life.returncode == 0:  # it may have come to its end before
        return grown(json.loads(output)) or "ended"
    if fate == "killed" and life.returncode == -signal.SIGKILL:
        return fate
    if fate == "interrupted" and ("KeyboardInterrupt" in errors or life.returncode == -signal.SIGINT):
        return fate  # without a word where the interpreter was on its way out
    return f"{fate}, with {life.returncode}: {errors}"


def grown(held: list[dict[str, int]]) -> str:
    """What a life held more of after its last epoch than after its second one; empty if it did not grow."""
    if len(held) < 3:
        return ""
    early, late = held[1], held[-1]
    more = [name for name in ("descriptors", "threads") if late[name] > early[name]]
    if late["memory"] > early["memory"] + (16 << 20):
        more.append("memory")
    return f"grew in {', '.join(more)}: {held}" if more else ""


def check_journal(folder: Path, wanted: np.ndarray, story: str) -> None:
    """Every epoch holds every wanted id once, and no two the same order; of the last one, no id twice."""
    state = json.loads((folder / "state.json").read_text())
    # What a life trained on after its last checkpoint is not part of the run.
    seen = np.fromfile(folder / "journal", "<i8", count=state["journal"] // 8)
    whole = len(seen) // len(wanted)
    epochs = seen[: whole * len(wanted)].reshape(whole, len(wanted))
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(wanted, (whole, 1)), story)
    assert len({epoch.tobytes() for epoch in epochs}) == whole, story
    rest = seen[whole * len(wanted) :]
    assert len(np.unique(rest)) == len(rest), story
    assert np.isin(rest, wanted).all(), story


WRITER = """
import sys
import numpy as np
import fastshard as fs

for _ in range(1000):
    rows = len(fs.open(sys.argv[1]))
    fs.write({"id": np.arange(rows, rows + 500)}, sys.argv[1], mode="append", shard_bytes=1 << 10)
    print(rows + 500, flush=True)
"""


def test_writers_that_are_killed(tmp_path: Path) -> None:
    """Each append is there whole or not at all, and what dead writers left is swept."""
    choice = random.Random(SEED)
    path = tmp_path / "data"
    fs.write({"id": np.arange(500)}, path)
    said, end, deaths = 500, time.monotonic() + SECONDS / 4, 0
    while time.monotonic() < end:
        with process("-c", WRITER, str(path)) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline()]
            assert lines[0], (SEED, writer.communicate(timeout=60))
            time.sleep(choice.random() * 0.3)
            os.killpg(writer.pid, signal.SIGKILL)
            lines += writer.communicate(timeout=60)[0].splitlines()
        deaths += 1
        said = max([said, *(int(line) for line in lines if line.strip())])
        with fs.open(path) as data:
            assert len(data) in (said, said + 500), SEED
            said = len(data)
            np.testing.assert_array_equal(data.to_numpy()["id"], np.arange(said))
    with fs.open(path) as data:
        assert data.verify() == [], SEED
    fs.write({"id": np.arange(1)}, path, mode="append")  # sweeps
    fs.vacuum(path)
    index = fs.open(path).index
    left = {file.name for file in path.iterdir()}
    assert len([name for name in left if name.startswith("shard-")]) == index.shards
    assert len(left) <= index.shards + 4, sorted(left)
    assert deaths > SECONDS / 60
