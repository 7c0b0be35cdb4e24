"""How fast a loader delivers a data set, measured: rates, waits, and what limits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastshard._optional import require
from fastshard.errors import InvalidError, StorageError

if TYPE_CHECKING:
    from fastshard.loader import ShardLoader

__all__ = ["Interval", "Measured", "draw", "forget", "measure"]

_INTERVALS = 60  # that the time is divided into


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the measured time.

    Attributes:
        at: When it ended, in seconds after the first batch.
        samples_per_second: Delivered in it.
        waited: Share of it that the consumer waited, 0 to 1.
    """

    at: float
    samples_per_second: float
    waited: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured. Times in seconds.

    Attributes:
        samples, batches, epochs: Delivered after the first batch; epochs that were completed.
        seconds: That took.
        first_batch_seconds: From the beginning of the iteration to the first batch.
        samples_per_second, bytes_per_second: Means; bytes as they are in batches, uncompressed.
        wait_seconds: Of `seconds`, those that the consumer waited, having nothing else to do.
        bytes_read: By a read engine, past the mappings.
        blocks_decompressed: Columns of blocks that were decompressed.
        engine, engine_reason, limit: As `LoaderStats` says.
        timeline: Rates and waits along the way.
    """

    samples: int
    batches: int
    epochs: int
    seconds: float
    first_batch_seconds: float
    samples_per_second: float
    bytes_per_second: float
    wait_seconds: float
    bytes_read: int
    blocks_decompressed: int
    engine: str
    engine_reason: str
    limit: str
    timeline: tuple[Interval, ...]


def measure(
    loader: ShardLoader,
    seconds: float,
    *,
    most_epochs: int | None = None,
    progress: Callable[[float], Any] | None = None,
) -> Measured:
    """Iterates a fresh loader, dropping its batches.

    Args:
        loader: It has delivered nothing yet.
        seconds: So long; it ends early after `most_epochs`.
        most_epochs: None for as many as fit.
        progress: Is called now and then with the seconds that went by.
    """
    clock = time.perf_counter
    row_bytes = loader._data.row_bytes
    epochs = batches = samples = 0
    first: float | None = None
    timeline: list[Interval] = []
    began = mark = clock()
    marked_samples, marked_wait, first_wait = 0, 0.0, 0.0
    step, over = seconds / _INTERVALS, False
    while not over and (most_epochs is None or epochs < most_epochs):
        for batch in loader:
            now = clock()
            if first is None:
                first_wait = marked_wait = loader.stats().wait_seconds
                first = mark = clock()
                continue
            batches += 1
            samples += len(batch.ids)
            if now - mark >= step:
                waited = loader.stats().wait_seconds
                timeline.append(
                    Interval(
                        now - first,
                        (samples - marked_samples) / (now - mark),
                        min(1.0, (waited - marked_wait) / (now - mark)),
                    )
                )
                mark, marked_samples, marked_wait = now, samples, waited
                if progress is not None:
                    progress(now - first)
            if now - first >= seconds:
                over = True
                break
        else:
            epochs += 1
    first = clock() if first is None else first
    took = max(clock() - first, 1e-9)
    stats = loader.stats()
    return Measured(
        samples=samples,
        batches=batches,
        epochs=epochs,
        seconds=took,
        first_batch_seconds=first - began,
        samples_per_second=samples / took,
        bytes_per_second=samples * row_bytes / took,
        wait_seconds=min(took, stats.wait_seconds - first_wait),
        bytes_read=stats.bytes_read,
        blocks_decompressed=stats.reads.get("columns_decompressed", 0),
        engine=stats.engine,
        engine_reason=stats.engine_reason,
        limit=stats.limit,
        timeline=tuple(timeline),
    )


def forget(folder: str) -> None:
    """Asks the kernel to drop the pages of a folder's files from its cache; those that are mapped or dirty stay.

    Raises:
        StorageError: A file cannot be opened.
    """
    try:
        for entry in os.scandir(folder):
            if not entry.is_file():
                continue
            descriptor = os.open(entry.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise StorageError(f"{folder}: cannot take its files out of the page cache: {error}") from error


def check_picture(file: str) -> None:
    """Whether `draw` can write there, as far as can be told before.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        InvalidError: A picture of no known kind.
        StorageError: Its directory is not there.
    """
    if not file.lower().endswith((".png", ".pdf", ".svg")):
        raise InvalidError(f"--plot {file}: must end in .png, .pdf or .svg")
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise StorageError(f"--plot {file}: there is no directory {folder}")
    require("matplotlib", "matplotlib", "--plot")


def draw(measured: Measured, title: str, file: str) -> None:
    """Draws rates and waits along the time, where `check_picture` said nothing.

    Raises:
        StorageError: The file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    rates, waits = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    times = [interval.at for interval in measured.timeline]
    rates.plot(times, [interval.samples_per_second for interval in measured.timeline], color="#1f3a5f")
    rates.axhline(measured.samples_per_second, color="#8a8f98", linestyle="--", linewidth=1)
    rates.set_ylim(bottom=0)
    rates.set_ylabel("samples/s")
    rates.set_title(title)
    waits.plot(times, [100 * interval.waited for interval in measured.timeline], color="#c2571a")
    waits.set_ylim(0, 100)
    waits.set_ylabel("consumer waited, %")
    waits.set_xlabel("seconds after the first batch")
    try:
        figure.savefig(file)
    except OSError as error:
        raise StorageError(f"--plot {file}: the picture cannot be written: {error.strerror}") from error
