"""What the journals of examples/trainers show, read back."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
from launching import EXAMPLES, call, ended_well

TRAINERS = EXAMPLES / "trainers"
ROWS = 120
BATCH = 12
EPOCHS = 2
STEPS = EPOCHS * ROWS // BATCH


def curve(folder: Path) -> list[float]:
    """The loss of each step over all processes; the last word of each on a step counts.

    Asserts that each epoch's steps hold every id once.
    """
    losses: dict[int, list[float]] = {}
    ids: dict[int, list[int]] = {}
    for journal in sorted(folder.glob("journal-*.jsonl")):
        last = {line["step"]: line for line in map(json.loads, journal.read_text().splitlines())}
        for step, line in last.items():
            losses.setdefault(step, []).append(line["loss"])
            ids.setdefault(step, []).extend(line["ids"])
    assert sorted(losses) == list(range(1, STEPS + 1))
    in_epoch = STEPS // EPOCHS
    for epoch in range(EPOCHS):
        seen = [id for step in range(epoch * in_epoch, (epoch + 1) * in_epoch) for id in ids[step + 1]]
        assert sorted(seen) == list(range(ROWS))
    return [float(np.mean(losses[step])) for step in sorted(losses)]


def make_data(folder: Path) -> Path:
    """The examples' data set, in `folder`; returns the folder."""
    folder.mkdir(exist_ok=True)
    runpy.run_path(str(TRAINERS / "common.py"))["make_data"](folder / "train", rows=ROWS)
    return folder


def check_curves(
    tmp_path: Path,
    command: dict[int, list[str]],
    script: str,
    *,
    own_processes: bool = False,
    timeout: float = 180,
    **environ: str,
) -> None:
    """Runs an example with one and with two processes; then kills it and runs it again: the losses are the same.

    Args:
        command: by the number of processes, what starts a script with so many.
        script: name of the example.
        own_processes: the example starts its processes itself, as many as it is told.
        timeout: seconds that one run may take.
        environ: more variables of the environment.
    """
    call_it = [str(TRAINERS / script)]
    one, two, killed = (tmp_path / name for name in ("one", "two", "killed"))
    for folder in (one, two, killed):
        make_data(folder)

    def run(folder: Path, processes: int, *arguments: str, well: bool = True) -> None:
        more = ["--processes", str(processes)] if own_processes else []
        done = call(
            [*command[processes], *call_it, str(folder), *more, *arguments],
            folder,
            timeout=timeout,
            **environ,
        )
        assert ended_well(done) == well, done.stdout

    run(two, 2)
    expected = curve(two)
    assert expected[-1] < expected[0] / 2
    run(one, 1)
    np.testing.assert_allclose(curve(one), expected, rtol=1e-4)
    run(killed, 2, "--kill-at", "14", well=False)
    run(killed, 2)
    np.testing.assert_allclose(curve(killed), expected, rtol=1e-4)
