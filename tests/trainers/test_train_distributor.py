"""TorchDistributor on two processes: classic Spark and Spark Connect, on the driver's machine and on executors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from journals import TRAINERS, curve, make_data
from launching import call

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

CONNECT = {"classic": [], "connect": ["--connect"]}
WHERE = {"local": ["--local-mode"], "executors": []}
WAYS = {
    f"{session}-{where}-made-on-{side}": [*CONNECT[session], *WHERE[where], "--make-data-on", side]
    for session in CONNECT
    for where in WHERE
    for side in ("driver", "executor")
}


def run(folder: Path, *arguments: str, well: bool = True) -> None:
    command = [sys.executable, str(TRAINERS / "train_distributor.py"), str(folder), *arguments]
    done = call(command, folder, timeout=240, PYSPARK_PYTHON=sys.executable)
    # Spark prints its own traceback where a process aborts on its way out.
    aborted = "terminate called without an active exception" in done.stdout
    assert (done.returncode == 0 or aborted) == well, done.stdout[-10000:]
    if well and not aborted:
        assert "steps: 20" in done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process."""
    folder = make_data(tmp_path_factory.mktemp("one") / "run")
    run(folder, "--processes", "1", "--local-mode")
    return curve(folder)


@pytest.mark.parametrize("way", WAYS)
def test_each_way(way: str, tmp_path: Path, expected: list[float]) -> None:
    folder = make_data(tmp_path / "run")
    run(folder, *WAYS[way])
    np.testing.assert_allclose(curve(folder), expected, rtol=1e-4)


@pytest.mark.parametrize(
    "way",
    [
        "classic-local-made-on-driver",
        "classic-executors-made-on-executor",
        "connect-executors-made-on-driver",
    ],
)
def test_killed_and_resumed(way: str, tmp_path: Path, expected: list[float]) -> None:
    folder = make_data(tmp_path / "run")
    run(folder, *WAYS[way], "--kill-at", "14", well=False)
    run(folder, *WAYS[way])
    np.testing.assert_allclose(curve(folder), expected, rtol=1e-4)


def test_estimators_of_spark_connect(tmp_path: Path) -> None:
    """pyspark.ml.connect trains on two workers on what Spark reads back through our data source."""
    folder = make_data(tmp_path / "run")
    command = [sys.executable, str(TRAINERS / "train_ml_connect.py"), str(folder)]
    done = call(command, folder, timeout=300, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout[-10000:]
    scored = json.loads((folder / "scored.json").read_text())
    assert scored["ids"] == list(range(120))
    assert scored["right"] > 0.9
