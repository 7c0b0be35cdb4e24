"""The benchmarks find out what a loader did to the rows, and report what was measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastshard as fs

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import report, subject  # noqa: E402
from benchmarks.figures import TITLES, Measured  # noqa: E402
from benchmarks.measure import alternate, paired_ratio  # noqa: E402
from benchmarks.workloads import WORKLOADS, Workload  # noqa: E402

pytestmark = pytest.mark.unsanitized

ROWS = {"w1": 500, "w2": 40, "w3": 12, "w4": 300}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_converts_and_each_row_is_recognised(name: str, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    fs.convert(workload.parquet(tmp_path, ROWS[name]), tmp_path / "set", progress=False)
    order = np.random.default_rng(1).permutation(ROWS[name])

    batch = fs.open(tmp_path / "set").take(order)

    columns = {k: (v.values, v.offsets) if isinstance(v, fs.Ragged) else v for k, v in batch.items()}
    assert workload.check(columns).tolist() == order.tolist()


@pytest.mark.parametrize(
    ("name", "column"), [("w1", "x"), ("w2", "tokens"), ("w4", "text"), ("w4", "vector")]
)
def test_values_of_another_row_are_found_out(name: str, column: str) -> None:
    workload = WORKLOADS[name]
    columns = _columns(workload, 100)
    if column == "tokens":
        columns[column][:, -1] = np.roll(columns[column][:, -1], 1)
    elif isinstance(columns[column], list):
        columns[column] = columns[column][1:] + columns[column][:1]
    else:
        columns[column] = np.roll(columns[column], 1, axis=0)
    with pytest.raises(ValueError, match=column):
        workload.check(columns)


def test_rows_do_not_depend_on_how_many_are_made() -> None:
    workload = WORKLOADS["w4"]
    assert workload.table(200).equals(workload.table(300).slice(0, 200))


def _columns(workload: Workload, rows: int) -> dict[str, Any]:
    table = workload.table(rows).combine_chunks()
    columns: dict[str, Any] = {}
    for name in table.column_names:
        values = table[name].to_pylist()
        columns[name] = np.array(values) if name not in ("text", "vector", "data") else values
    return columns


class Loses(subject.Subject):
    """Delivers W1 in order, the second epoch without its last batch."""

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        columns = _columns(workload, 100)

        def epoch(number: int) -> Iterable[Any]:
            for first in range(0, 100 if number == 0 else 90, batch_size):
                yield {name: values[first : first + batch_size] for name, values in columns.items()}

        return epoch

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        return dict(batch)


def test_the_protocol_counts_rows_and_short_epochs() -> None:
    workload = WORKLOADS["w1"]
    measurement = subject.Measurement(Loses(), workload, 100)
    epochs, iterator, batch = measurement.first_batch(lambda: Loses().load(workload, Path(), 10, 0))
    measurement.checked_epoch(iterator, batch, seconds=5, limit=5)
    assert measurement.figures["checked_rows"] == 100
    assert (measurement.figures["missing_rows"], measurement.figures["repeated_rows"]) == (0, 0)
    assert measurement.figures["ascending"] == 1
    measurement.later_epochs(epochs, seconds=0.01)
    assert measurement.figures["short_epochs"] > 0
    assert measurement.figures["samples_per_s"] > 0


def test_lost_and_repeated_rows_are_counted() -> None:
    measurement = subject.Measurement(Loses(), WORKLOADS["w1"], 100)
    measurement._count(np.array([0, 1, 1, 3]), complete=True)
    assert (measurement.figures["missing_rows"], measurement.figures["repeated_rows"]) == (97, 1)
    measurement._count(np.array([0, 1, 3]), complete=False)
    assert (measurement.figures["missing_rows"], measurement.figures["repeated_rows"]) == (None, 0)
    with pytest.raises(ValueError, match="of 100 rows"):
        measurement._count(np.array([0, 100]), complete=False)


def test_every_loader_has_a_module_and_an_environment() -> None:
    for entry in subject.SUBJECTS.values():
        assert (ROOT / Path(*entry.module.split("."))).with_suffix(".py").exists()
        requirements = ROOT / "benchmarks" / "requirements" / f"{entry.group}.txt"
        assert entry.group == "own" or requirements.exists()
        assert set(entry.workloads) <= set(WORKLOADS)
    assert set(TITLES) == set(subject.SUBJECTS)


def test_series_alternate_and_ratios_are_taken_round_by_round() -> None:
    calls: list[str] = []

    def subject_of(name: str) -> Callable[[], float]:
        return lambda: calls.append(name) or float(len(calls))

    figures = alternate({"a": subject_of("a"), "b": subject_of("b")}, 3)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}
    assert paired_ratio([2, 9, 8], [1, 3, 2]) == 3


def test_a_report_shows_rates_ratios_and_what_was_lost() -> None:
    def figures(name: str, rate: float, lost: int) -> dict[str, Any]:
        warm = {"kind": "warm", "workload": "w1", "subject": name, "workers": 0, "samples_per_s": rate}
        return warm | {"first_batch_s": 0.02, "checked_rows": 10, "missing_rows": lost, "repeated_rows": 0}

    broken = {"kind": "warm", "workload": "w1", "subject": "ffcv", "workers": 0, "error": "exit code 1: no"}
    content = {"figures": [figures("fastshard", 3e7, 0), figures("petastorm", 1e5, 7), broken], "machine": {}}
    inputs = report.Inputs(Measured(content), limits={"w1": {"gather, 2 threads": 5e7}})
    text = report.page(inputs, "benchmarks")
    assert "| 30 M | 1.00 |" in text
    assert "| 100 k | 300 |" in text
    assert "7 lost" in text
    assert "FFCV: a measurement failed with `exit code 1: no`." in text
    assert (
        "| w1: ShardLoader / bare gather on two threads | 0.60 | at least 0.5 | yes | 30 M / 50 M |" in text
    )


@pytest.mark.slow
def test_ours_runs_under_the_protocol(tmp_path: Path) -> None:
    parquet = WORKLOADS["w1"].parquet(tmp_path, 5000)
    command = [sys.executable, "-m", "benchmarks.subject", "fastshard"]
    options = ["--workload", "w1", "--folder", str(tmp_path / "set"), "--rows", "5000"]
    for action in (["convert", "--parquet", str(parquet)], ["run", "--seconds", "0.2"]):
        run = subprocess.run(
            [*command, *action, *options], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert run.returncode == 0, run.stderr
    assert '"missing_rows": 0, "ascending": 0.' in run.stdout
