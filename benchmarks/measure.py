"""Measuring: alternating repetitions, medians, memory and CPU time of a process tree, the page cache."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Memory",
    "TreeMemory",
    "alternate",
    "cpu_seconds",
    "drop_cache",
    "folder_bytes",
    "median",
    "own_memory",
    "paired_ratio",
    "waited_for_cpu",
    "warm_cache",
]

MIB = 1 << 20


def alternate(
    subjects: Mapping[str, Callable[[], float]], rounds: int, between: Callable[[], None] | None = None
) -> dict[str, list[float]]:
    """Call each subject once a round, in turn, the order reversed in every other round; what they returned, by name.

    Measurements that are to be compared are made side by side, so that what else the machine does meets all of them.
    """
    figures: dict[str, list[float]] = {name: [] for name in subjects}
    for index in range(rounds):
        names = list(subjects)
        for name in names if index % 2 == 0 else reversed(names):
            if between is not None:
                between()
            figures[name].append(subjects[name]())
    return figures


def median(figures: Sequence[float]) -> float:
    return statistics.median(figures)


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of two alternating series, round by round."""
    return median([a / b for a, b in zip(above, below, strict=True)])


@dataclass
class Memory:
    """Memory of a process, in bytes.

    Attributes:
        anonymous: Anonymous and shared memory now: what it must hold.
        peak: Highest resident size, mapped files included.
    """

    anonymous: int = 0
    peak: int = 0


def own_memory() -> Memory:
    """Anonymous and shared memory of this process now, and its highest resident size so far (or since `reset_peak`)."""
    return _status(os.getpid()) or Memory()


def reset_peak() -> None:
    """Let the highest resident size start anew from the present one (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(pid: int) -> Memory | None:
    """Of one process; pages shared after a fork count fully."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = Memory()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssShmem"):
            found.anonymous += int(value.split()[0]) * 1024
        elif name == "VmHWM":
            found.peak = int(value.split()[0]) * 1024
    return found if found.peak else None


def _proportional(pid: int) -> int | None:
    """Anonymous and shared memory of a process, in bytes, pages that several processes share divided among them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    total = 0
    for line in text.splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            total += int(line.split()[1]) * 1024
    return total


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                children = Path(f"/proc/{parent}/task/{task}/children").read_text()
            except OSError:
                continue
            found.extend(int(child) for child in children.split())
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants so far, of those as well that ended and were waited for."""
    ticks = 0
    for one in _tree(pid):
        try:
            text = Path(f"/proc/{one}/stat").read_text()
        except OSError:
            continue
        ticks += sum(int(field) for field in text.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def waited_for_cpu() -> float:
    """Seconds that the calling thread could have run and did not, since other work had the CPUs; 0 if not known."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


@dataclass
class TreeMemory:
    """Watches a process and its descendants from outside.

    Attributes:
        anonymous: Highest sum of anonymous and shared memory seen, in bytes.
        peak: Sum of the processes' highest resident sizes, mapped files included, in bytes.
    """

    pid: int
    interval: float = 0.25
    anonymous: int = 0
    _peaks: dict[int, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> TreeMemory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak(self) -> int:
        return sum(self._peaks.values())

    def _watch(self) -> None:
        while True:
            total = 0
            for pid in _tree(self.pid):
                total += _proportional(pid) or 0
                status = _status(pid)
                if status is not None:
                    self._peaks[pid] = status.peak
            self.anonymous = max(self.anonymous, total)
            if self._stop.wait(self.interval):
                return


def folder_bytes(path: Path) -> int:
    """Sum of the sizes of the files of a folder, or the size of a file."""
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(entry for entry in path.rglob("*") if entry.is_file())


def warm_cache(path: Path) -> None:
    """Read every file of a folder once."""
    buffer = bytearray(8 * MIB)
    for file in _files(path):
        with open(file, "rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass


def drop_cache(path: Path, everything: bool = True) -> str:
    """Take the files of a folder out of the page cache; says by which means.

    With `everything`, and as root, the whole cache is dropped; else the kernel is asked to forget these files, which it
    does for pages that are written back and not mapped.
    """
    os.sync()
    for file in _files(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    if not everything:
        return "fadvise"
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return "fadvise"
    return "drop_caches"


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def python_output(code: str, *arguments: str, timeout: float = 600) -> str:
    """What a fresh interpreter of this environment prints when it runs `code` in the repository's folder."""
    root = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=root,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"the measured process failed with {run.returncode}:\n{run.stderr.strip()}")
    return run.stdout.strip()
