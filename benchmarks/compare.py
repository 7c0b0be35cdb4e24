"""Compare two commits: the same measurement of both, alternately, in one run.

    git worktree add ../before COMMIT && (cd ../before && cmake --preset dev && cmake --build --preset dev &&
        cmake --install build/dev --prefix .)
    python -m benchmarks.compare ../before [--workloads w1 ...] [--subjects fastshard ...] [--rounds 5]

Prints, for each measurement, the median of the ratios (this checkout / the other), and the least and greatest of them:
where 1 lies well inside, nothing has changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import alternate, median, paired_ratio, warm_cache
from benchmarks.run import OURS, ROOT, run_subject
from benchmarks.workloads import WORKLOADS, Workload


def measure(
    workload: Workload, name: str, package: Path, folder: Path, workers: int, rows: int, seconds: float
) -> float:
    """Samples/s of one loader of one checkout.

    Raises:
        RuntimeError: The measured process failed.
    """
    arguments = ["run", "--workload", workload.name, "--folder", str(folder), "--rows", str(rows)]
    arguments += ["--workers", str(workers), "--seconds", str(seconds), "--package", str(package)]
    warm_cache(folder)
    process = run_subject(Path(sys.executable), name, arguments, 120 + 5 * seconds)
    if process.error is not None:
        raise RuntimeError(f"{name} of {package}: {process.error}")
    return float(process.result["samples_per_s"])


def convert(workload: Workload, package: Path, parquet: Path, folder: Path) -> None:
    """Make the data set as one checkout does.

    Raises:
        RuntimeError: The conversion failed.
    """
    arguments = ["convert", "--workload", workload.name, "--parquet", str(parquet), "--folder", str(folder)]
    process = run_subject(Path(sys.executable), "fastshard", [*arguments, "--package", str(package)], 600)
    if process.error is not None:
        raise RuntimeError(f"converting {workload.name} with {package}: {process.error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="a built checkout of the other commit")
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=tuple(WORKLOADS))
    parser.add_argument(
        "--subjects", nargs="+", choices=OURS, default=("fastshard", "fastshard-take"), metavar="NAME"
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the workloads' rows")
    parser.add_argument("--data", type=Path, help="folder of the sources (default: a temporary one)")
    arguments = parser.parse_args()
    packages = (ROOT, arguments.other.resolve())
    with tempfile.TemporaryDirectory(prefix="fastshard-compare-") as scratch:
        for name in arguments.workloads:
            workload = WORKLOADS[name]
            rows = max(1, int(workload.rows * arguments.scale))
            parquet = workload.parquet(arguments.data or Path(scratch), rows)
            folders = {package: Path(scratch) / f"{name}-{i}" for i, package in enumerate(packages)}
            for package, folder in folders.items():  # each reads what it wrote
                convert(workload, package, parquet, folder)
            for subject in arguments.subjects:
                for workers in arguments.workers:
                    both = {
                        str(package): partial(
                            measure, workload, subject, package, folder, workers, rows, arguments.seconds
                        )
                        for package, folder in folders.items()
                    }
                    print(
                        f"{name} {subject:18} workers {workers}  {_compared(alternate(both, arguments.rounds))}"
                    )


def _compared(figures: dict[str, list[float]]) -> str:
    here, other = figures.values()
    ratios = [a / b for a, b in zip(here, other, strict=True)]
    spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
    return f"{paired_ratio(here, other):6.3f}  {spread}  {median(here):14,.0f}/s, {median(other):14,.0f}/s"


if __name__ == "__main__":
    main()
