"""Measure ours and the peers in one run: round after round, each in turn.

    python -m benchmarks.run [--workloads w1 ...] [--subjects fastshard memmap ...] [--workers 0 2] [--rounds 3]
                             [--seconds 5] [--slow-seconds 20] [--scale 1.0] [--cold] [--results FILE]

Each measurement is a process of its own in the environment of its loader. Figures are added to the results file, in the
place of those of the same workload, loader and workers; report.py makes tables and plots of it.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastshard as fs
from benchmarks.envs import default_folder, interpreter, versions
from benchmarks.measure import TreeMemory, drop_cache, folder_bytes, warm_cache
from benchmarks.subject import SUBJECTS
from benchmarks.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parents[1]
OURS = tuple(name for name, entry in SUBJECTS.items() if entry.group == "own")
# Those that deliver hundreds of thousands of small rows a second, or more: short windows do.
FAST = (*OURS, "memmap", "spdl", "ffcv")
# Subjects that need the same data set.
SHARED_FORMAT = dict.fromkeys(OURS, "fastshard") | {"spdl": "memmap"}
CONVERT_SECONDS = 1800


@dataclass(frozen=True)
class Options:
    """How a run is done; see the command line."""

    data: Path
    sets: Path
    envs: Path
    workers: Sequence[int]
    rounds: int
    slow_rounds: int
    seconds: float
    slow_seconds: float
    check_seconds: float
    scale: float
    cold: bool
    keep: bool
    nice: int

    def rows(self, workload: Workload) -> int:
        return max(1, int(workload.rows * self.scale))


@dataclass(frozen=True)
class Process:
    """What a measured process said, or why it failed."""

    result: dict[str, Any]
    anonymous: int
    peak: int
    error: str | None


def run_subject(
    python: Path,
    name: str,
    arguments: Sequence[str],
    timeout: float,
    nice: int = 0,
    group: Path | None = None,
) -> Process:
    """Start `benchmarks.subject`, in a memory cgroup if one is given, and watch the memory of its processes."""
    command = [str(python), "-m", "benchmarks.subject", name, *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=errors, start_new_session=True
        )
        if group is not None:
            (group / "cgroup.procs").write_text(str(process.pid))
        if nice:
            give_precedence(process.pid, nice)
        failure = None
        with TreeMemory(process.pid) as memory:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                failure = f"did not end within {timeout:.0f} s"
        _end(process)
        output.seek(0)
        lines = [line for line in output.read().splitlines() if line.startswith("RESULT ")]
        if failure is None and (process.returncode != 0 or not lines):
            errors.seek(0)
            tail = [line for line in errors.read().splitlines() if line.strip()][-1:]
            failure = f"exit code {process.returncode}: {' '.join(tail)[:300]}"
    result = json.loads(lines[-1].removeprefix("RESULT ")) if lines else {}
    return Process(result, memory.anonymous, memory.peak, None if lines and result else failure)


def give_precedence(pid: int, nice: int) -> None:
    """Nice value of a process just started and of its session, where the system groups processes by session."""
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let no worker of a measured process outlive it: all are in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Run:
    """One run: conversions, then rounds of measurements, workload by workload."""

    def __init__(self, options: Options, subjects: Sequence[str]) -> None:
        self._options = options
        self._pythons = {name: interpreter(SUBJECTS[name].group, options.envs) for name in subjects}

    def workload(self, workload: Workload, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Figures of one workload as they come."""
        options = self._options
        rows = options.rows(workload)
        parquet = workload.parquet(options.data, rows)
        ready = []
        for name in subjects:
            figures = self._convert(workload, name, parquet)
            if figures is not None:
                yield figures
            if self._folder(workload, name).exists():
                ready.append(name)
        for number in range(options.rounds):
            taking_part = [name for name in ready if name in FAST or number < options.slow_rounds]
            for workers in options.workers:
                # Turned a little each round, so that nobody always follows the same neighbour.
                turned = taking_part[number:] + taking_part[:number]
                for name in turned:
                    yield self._measure(workload, name, workers, number, cold=False)
                    if options.cold:
                        yield self._measure(workload, name, workers, number, cold=True)
        if not options.keep:
            for name in ready:
                shutil.rmtree(self._folder(workload, name), ignore_errors=True)

    def _folder(self, workload: Workload, name: str) -> Path:
        shared = SHARED_FORMAT.get(name, name)
        return self._options.sets / f"{workload.name}-{self._options.rows(workload)}-{shared}"

    def _convert(self, workload: Workload, name: str, parquet: Path) -> dict[str, Any] | None:
        folder = self._folder(workload, name)
        if folder.exists():
            return None
        folder.parent.mkdir(parents=True, exist_ok=True)
        warm_cache(parquet)
        unfinished = folder.with_name(folder.name + "-unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        process = run_subject(
            self._pythons[name],
            name,
            ["convert", "--workload", workload.name, "--parquet", str(parquet), "--folder", str(unfinished)],
            CONVERT_SECONDS,
            self._options.nice,
        )
        figures = {
            "kind": "convert",
            "workload": workload.name,
            "subject": name,
            "rows": self._options.rows(workload),
        }
        if process.error is not None:
            shutil.rmtree(unfinished, ignore_errors=True)
            return {**figures, "error": process.error}
        unfinished.rename(folder)
        return {
            **figures,
            **process.result,
            "bytes": folder_bytes(folder),
            "source_bytes": folder_bytes(parquet),
            "anonymous": process.anonymous,
        }

    def _measure(
        self, workload: Workload, name: str, workers: int, number: int, *, cold: bool
    ) -> dict[str, Any]:
        options = self._options
        folder = self._folder(workload, name)
        seconds = options.seconds if name in FAST else options.slow_seconds
        check = options.check_seconds if number == 0 and not cold else 0
        arguments = ["run", "--workload", workload.name, "--folder", str(folder)]
        arguments += ["--rows", str(options.rows(workload)), "--workers", str(workers)]
        arguments += ["--seconds", str(seconds), "--check-seconds", str(check)]
        cache = "warm"
        if cold:
            arguments.append("--cold")
            cache = drop_cache(folder)
        else:
            warm_cache(folder)
        load = round(os.getloadavg()[0], 2)
        process = run_subject(self._pythons[name], name, arguments, 120 + 5 * seconds + check, options.nice)
        figures = {
            "kind": "cold" if cold else "warm",
            "workload": workload.name,
            "subject": name,
            "workers": workers,
            "round": number,
            "rows": options.rows(workload),
            "cache": cache,
            "load": load,
            "nice": options.nice,
        }
        if process.error is not None:
            return {**figures, "error": process.error}
        result = dict(process.result)
        imported, imported_peak = result.pop("imported_anonymous"), result.pop("imported_peak")
        return {
            **figures,
            **result,
            "anonymous": max(0, process.anonymous - imported),
            "peak": process.peak,
            "imported_peak": imported_peak,
        }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit that is measured, with a mark where files differ from it."""
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.strip()


class Results:
    """The results file; written after each measurement, so that a run that is stopped leaves what it has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"figures": []}
        self._fresh: set[tuple[Any, ...]] = set()

    def add(self, figures: dict[str, Any]) -> None:
        """Takes the place of what an earlier run found for the same thing."""
        key = tuple(figures.get(name) for name in ("kind", "workload", "subject", "workers"))
        if key not in self._fresh:
            self._fresh.add(key)
            self.content["figures"] = [
                old
                for old in self.content["figures"]
                if tuple(old.get(name) for name in ("kind", "workload", "subject", "workers")) != key
            ]
        self.content["figures"].append(figures)
        self.save()

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(json.dumps(self.content, indent=1) + "\n")
        os.replace(temporary, self._path)


def describe(figures: dict[str, Any]) -> str:
    """One line about a measurement."""
    head = f"{figures['workload']:3} {figures['subject']:18} {figures['kind']:8}"
    if "error" in figures:
        return f"{head} {figures['error']}"
    if figures["kind"] == "convert":
        return f"{head} {figures['convert_s']:8.1f} s  {figures['bytes'] / 1e6:10.0f} MB"
    rows = ""
    if figures["kind"] == "warm":
        missing, repeated = figures["missing_rows"], figures["repeated_rows"]
        complete = "first part of an epoch" if missing is None else f"{missing} missing"
        rows = f"  {complete}, {repeated} repeated"
        if figures.get("short_epochs"):
            rows += f", {figures['short_epochs']} SHORT EPOCHS"
    return (
        f"{head} workers {figures['workers']}  {figures['samples_per_s']:14,.0f}/s  first batch "
        f"{figures['first_batch_s'] * 1000:7.0f} ms  {figures['anonymous'] / (1 << 20):6.0f} MiB{rows}"
    )


def available(names: Sequence[str]) -> list[str]:
    """Those of the subjects that this version of fastshard has."""
    loader = inspect.signature(fs.ShardLoader).parameters
    return [name for name in names if name != "fastshard-views" or "binary" in loader]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=tuple(WORKLOADS))
    parser.add_argument(
        "--subjects", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS), metavar="NAME"
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=1, help="rounds in which slow peers take part")
    parser.add_argument("--seconds", type=float, default=5, help="window of fast loaders")
    parser.add_argument("--slow-seconds", type=float, default=20, help="window of slow peers")
    parser.add_argument(
        "--check-seconds", type=float, default=120, help="how long to wait for a first epoch's end"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads' rows")
    parser.add_argument("--cold", action="store_true", help="measure with an empty page cache as well")
    parser.add_argument(
        "--nice", type=int, default=0, help="below 0 (as root): before what else the machine does"
    )
    parser.add_argument("--data", type=Path, help="folder of the sources (default: a temporary one)")
    parser.add_argument(
        "--sets", type=Path, help="folder of the converted data sets (default: beside the sources)"
    )
    parser.add_argument("--keep", action="store_true", help="keep converted data sets for the next run")
    parser.add_argument(
        "--envs", type=Path, default=default_folder(), help="folder of the peers' environments"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "results.json")
    arguments = parser.parse_args()

    subjects = available(arguments.subjects)
    results = Results(arguments.results)
    with tempfile.TemporaryDirectory(prefix="fastshard-run-") as scratch:
        data = arguments.data or Path(scratch)
        options = Options(
            data=data,
            sets=arguments.sets or data / "sets",
            envs=arguments.envs,
            workers=arguments.workers,
            rounds=arguments.rounds,
            slow_rounds=min(arguments.slow_rounds, arguments.rounds),
            seconds=arguments.seconds,
            slow_seconds=arguments.slow_seconds,
            check_seconds=arguments.check_seconds,
            scale=arguments.scale,
            cold=arguments.cold,
            keep=arguments.keep,
            nice=arguments.nice,
        )
        run = Run(options, subjects)
        results.content |= {"machine": machine(), "commit": commit(), "date": time.strftime("%Y-%m-%d")}
        results.content["versions"] = {
            group: versions(interpreter(group, options.envs))
            for group in {SUBJECTS[name].group for name in subjects}
        }
        results.content["options"] = {
            "scale": options.scale,
            "nice": options.nice,
            "seconds": options.seconds,
            "slow_seconds": options.slow_seconds,
        }
        failed = False
        for name in arguments.workloads:
            for figures in run.workload(
                WORKLOADS[name], [s for s in subjects if name in SUBJECTS[s].workloads]
            ):
                print(describe(figures), flush=True)
                results.add(figures)
                failed = failed or ("error" in figures and figures["subject"] in OURS)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
