"""What is measured: one loader under the common protocol, in a process and an environment of its own.

    python -m benchmarks.subject NAME convert --workload w1 --parquet FILE --folder FOLDER
    python -m benchmarks.subject NAME run --workload w1 --folder FOLDER --rows 1000000 --workers 0 --seconds 20 [--cold]

The last line printed is `RESULT ` and a JSON object. run.py starts these processes, alternately, and watches their
memory from outside.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import cpu_seconds, own_memory, reset_peak, waited_for_cpu
from benchmarks.workloads import WORKLOADS, Workload

__all__ = ["SUBJECTS", "Subject"]

ALL = tuple(WORKLOADS)


@dataclass(frozen=True)
class Entry:
    """Where a loader's code is.

    Attributes:
        module: It has a function `subject(name)`.
        group: The environment that it needs; "own" is the interpreter that runs run.py.
        workloads: Those that it can do.
    """

    module: str
    group: str
    workloads: tuple[str, ...] = ALL


SUBJECTS = {
    "fastshard": Entry("benchmarks.ours", "own"),
    "fastshard-views": Entry("benchmarks.ours", "own", ("w3",)),
    "fastshard-unverified": Entry("benchmarks.ours", "own"),
    "fastshard-dataset": Entry("benchmarks.ours", "own"),
    "fastshard-take": Entry("benchmarks.ours", "own"),
    "memmap": Entry("benchmarks.peers.memmap", "general"),
    "mosaicml": Entry("benchmarks.peers.mosaicml", "general"),
    "litdata": Entry("benchmarks.peers.litdata", "general"),
    "webdataset": Entry("benchmarks.peers.webdataset", "general"),
    "huggingface": Entry("benchmarks.peers.huggingface", "general"),
    "ffcv": Entry("benchmarks.peers.ffcv", "ffcv", ("w1", "w2", "w3")),  # no text, no lists of varying length
    "lance": Entry("benchmarks.peers.lance", "general"),
    "grain": Entry("benchmarks.peers.grain", "general"),
    "petastorm": Entry(
        "benchmarks.peers.petastorm", "petastorm", ("w1", "w2")
    ),  # its torch loaders take numbers alone
    "spdl": Entry("benchmarks.peers.spdl", "general"),
}


class Subject:
    """A loader. Subclasses say how it converts and how it iterates.

    Attributes:
        note: What is not like the others: how it shuffles, what form it delivers.
    """

    note: str = ""

    def set_options(self, options: dict[str, Any]) -> None:
        """Take arguments for the loader; those that have none refuse."""
        raise ValueError(f"{type(self).__name__} takes no options, not {sorted(options)}")

    def convert(self, workload: Workload, parquet: Path, folder: Path) -> None:
        """Make the loader's own data set of a Parquet file, with the settings that its documentation recommends."""
        raise NotImplementedError

    def load(
        self, workload: Workload, folder: Path, batch_size: int, workers: int
    ) -> Callable[[int], Iterable[Any]]:
        """Open it for shuffled batches: a function from the number of an epoch to its batches.

        `workers` are processes, or threads where that is what the loader has (0: none beside the caller's, or one).
        """
        raise NotImplementedError

    def columns(self, workload: Workload, batch: Any) -> dict[str, Any]:
        """A batch as `Workload.check` wants it."""
        raise NotImplementedError

    def size(self, workload: Workload, batch: Any) -> int:
        """Rows of a batch."""
        value = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        return len(value)


Epochs = Callable[[int], Iterable[Any]]

# Attempts to get a first batch: Petastorm's threads now and then lose all rows of a small data set.
EMPTY_EPOCHS = 5


class Clock:
    """CPU time of this process and its workers, and how long this thread waited for a CPU, since it was made."""

    def __init__(self) -> None:
        self._began = self._now()

    def read(self) -> tuple[float, float, float]:
        """CPU time, waiting and wall time, in seconds."""
        cpu, waited, wall = (now - then for now, then in zip(self._now(), self._began, strict=True))
        return cpu, waited, wall

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return cpu_seconds(os.getpid()), waited_for_cpu(), time.perf_counter()


@dataclass
class Measurement:
    """One run of a loader and its figures."""

    subject: Subject
    workload: Workload
    rows: int
    figures: dict[str, Any] = field(default_factory=dict)

    def first_batch(self, load: Callable[[], Epochs]) -> tuple[Epochs, Iterator[Any], Any]:
        """Construct the loader and wait for its first batch."""
        start = time.perf_counter()
        epochs = load()
        for number in range(EMPTY_EPOCHS):
            iterator = iter(epochs(number))
            batch = next(iterator, None)
            if batch is not None:
                break
        else:
            raise RuntimeError(f"{EMPTY_EPOCHS} epochs of {self.rows} rows ended without a batch")
        self.figures["first_batch_s"] = time.perf_counter() - start
        self.figures["empty_epochs"] = number
        return epochs, iterator, batch

    def checked_epoch(self, iterator: Iterator[Any], batch: Any, seconds: float, limit: float) -> None:
        """The rest of the first epoch, every batch compared with the workload; the time for that is not counted.

        The rate is that of the first `seconds`; then it goes on to the epoch's end, for up to `limit` seconds in all.
        """
        clock = Clock()
        start = time.perf_counter()
        ids = [self._checked(batch)]
        checking = time.perf_counter() - start
        rows, rate, measured = 0, 0.0, 0.0
        complete = False
        while not complete:
            batch = next(iterator, None)
            now = time.perf_counter()
            complete = batch is None
            if not complete:
                rows += self._size(batch)
                ids.append(self._checked(batch))
            if measured < seconds:
                measured = now - start - checking
                rate = rows / max(measured, 1e-9)
                if complete or measured >= seconds:
                    self._cpu(clock, rows, checking)
            if now - start >= max(seconds, limit):
                break
            checking += time.perf_counter() - now
        self._rate(rate, rate, measured, len(np.concatenate(ids)))
        self._count(np.concatenate(ids), complete)

    def later_epochs(self, epochs: Epochs, seconds: float, first: int = 1) -> None:
        """Epochs from number `first` on, until `seconds` are measured.

        The rate is that between the first and the last batch of each epoch; the other one includes their starts. Epochs
        that end without having delivered as many rows as there are count as short.
        """
        rows = steady_rows = short = 0
        steady = 0.0
        number = first
        clock = Clock()
        begin = time.perf_counter()
        while steady < seconds and (number == first or time.perf_counter() - begin < 3 * seconds):
            iterator = iter(epochs(number))
            epoch_rows = first_rows = 0
            start = now = time.perf_counter()
            for batch in iterator:
                epoch_rows += self._size(batch)
                now = time.perf_counter()
                if first_rows == 0:
                    first_rows, start = epoch_rows, now
                elif steady + now - start >= seconds:
                    break
            else:
                short += epoch_rows != self.rows
            rows += epoch_rows
            steady_rows += epoch_rows - first_rows
            steady += now - start
            number += 1
        whole = time.perf_counter() - begin
        self._cpu(clock, rows)
        self.figures["short_epochs"] = short
        self._rate(steady_rows / max(steady, 1e-9), rows / whole, steady, rows)

    def cold_epoch(self, iterator: Iterator[Any], batch: Any, seconds: float) -> None:
        """The rest of the first epoch, at most `seconds` of it, nothing checked."""
        del batch
        clock = Clock()
        start = now = time.perf_counter()
        rows = 0
        for batch in iterator:
            rows += self._size(batch)
            now = time.perf_counter()
            if now - start >= seconds:
                break
        rate = rows / max(now - start, 1e-9)
        self._cpu(clock, rows)
        self._rate(rate, rate, now - start, rows)

    def _size(self, batch: Any) -> int:
        return self.subject.size(self.workload, batch)

    def _checked(self, batch: Any) -> np.ndarray:
        return np.array(self.workload.check(self.subject.columns(self.workload, batch)), dtype=np.int64)

    def _rate(self, rate: float, with_starts: float, seconds: float, rows: int) -> None:
        self.figures["samples_per_s"] = rate
        self.figures["samples_per_s_with_starts"] = with_starts
        self.figures["measured_s"] = seconds
        self.figures["measured_epochs"] = round(rows / self.rows, 3)

    def _cpu(self, clock: Clock, rows: int, besides: float = 0.0) -> None:
        """What `rows` cost; `besides` are seconds of the consumer that do not count."""
        cpu, waited, wall = clock.read()
        self.figures["cpu_us_per_sample"] = 1e6 * max(0.0, cpu - besides) / max(1, rows)
        self.figures["waited_for_cpu"] = round(waited / max(wall, 1e-9), 3)

    def _count(self, ids: np.ndarray, complete: bool) -> None:
        if ids.min() < 0 or ids.max() >= self.rows:
            raise ValueError(f"ids from {ids.min()} to {ids.max()} were delivered, of {self.rows} rows")
        distinct = len(np.unique(ids))
        self.figures["checked_rows"] = len(ids)
        self.figures["repeated_rows"] = len(ids) - distinct
        self.figures["missing_rows"] = self.rows - distinct if complete else None
        # 1 for rows in order, about 0.5 for a shuffle of them all.
        self.figures["ascending"] = round(float((np.diff(ids) > 0).mean()), 3) if len(ids) > 1 else 1.0


def _run(subject: Subject, workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    measurement = Measurement(subject, workload, arguments.rows)
    reset_peak()
    imported = own_memory()
    epochs, iterator, batch = measurement.first_batch(
        lambda: subject.load(workload, arguments.folder, arguments.batch_size, arguments.workers)
    )
    if arguments.cold:
        measurement.cold_epoch(iterator, batch, arguments.seconds)
    else:
        measurement.checked_epoch(iterator, batch, arguments.seconds, arguments.check_seconds)
        if (
            measurement.figures["missing_rows"] is not None
            and measurement.figures["measured_s"] < arguments.seconds
        ):
            del iterator, batch
            measurement.later_epochs(epochs, arguments.seconds)
    return {**measurement.figures, "imported_anonymous": imported.anonymous, "imported_peak": imported.peak}


def _use_package(checkout: Path) -> None:
    """Let `import fastshard` find that of a checkout, also where another one is installed in editable form."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    sys.path.insert(0, str(checkout.resolve()))
    import fastshard

    if not Path(fastshard.__file__).is_relative_to(checkout.resolve()):
        raise RuntimeError(f"{checkout} has no fastshard package: {fastshard.__file__} was imported")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=tuple(SUBJECTS))
    parser.add_argument("action", choices=("convert", "run"))
    parser.add_argument("--workload", choices=tuple(WORKLOADS), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="the loader's data set")
    parser.add_argument("--parquet", type=Path, help="what to convert")
    parser.add_argument("--rows", type=int, help="rows of the data set")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=20, help="how long to measure")
    parser.add_argument(
        "--check-seconds", type=float, default=0, help="how long to go on for the first epoch's rows"
    )
    parser.add_argument("--cold", action="store_true", help="measure the first epoch and check nothing")
    parser.add_argument("--options", type=json.loads, help="arguments for the loader of fastshard, as JSON")
    parser.add_argument("--package", type=Path, help="a built checkout whose fastshard is measured")
    arguments = parser.parse_args()
    if arguments.package is not None:
        _use_package(arguments.package)
    workload = WORKLOADS[arguments.workload]
    arguments.batch_size = arguments.batch_size or workload.batch_size
    arguments.rows = arguments.rows or workload.rows

    subject: Subject = importlib.import_module(SUBJECTS[arguments.name].module).subject(arguments.name)
    if arguments.options:
        subject.set_options(arguments.options)
    if arguments.action == "convert":
        start = time.perf_counter()
        subject.convert(workload, arguments.parquet, arguments.folder)
        result = {"convert_s": time.perf_counter() - start}
    else:
        result = _run(subject, workload, arguments)
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
