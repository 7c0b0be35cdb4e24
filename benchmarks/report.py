"""Tables and plots of what the other modules measured: docs/benchmarks.md and its pictures.

python -m benchmarks.report [--results FILE] [--checks FILE] [--limits FILE] [--basics FILE] [--engines FILE]
                            [--beside FILE] [--machine TEXT] [--docs FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bars import Beside, bars, bars_table
from benchmarks.figures import OURS, TITLES, Figures, Measured, number_text, rate_text, ratio_text, table
from benchmarks.measure import median
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
REASONS = ROOT / "benchmarks" / "why.md"  # written by hand
MIB = 1 << 20

# The package whose version stands in the table, and its environment.
PACKAGES = {
    "mosaicml": ("general", "mosaicml-streaming"),
    "litdata": ("general", "litdata"),
    "webdataset": ("general", "webdataset"),
    "huggingface": ("general", "datasets"),
    "ffcv": ("ffcv", "ffcv"),
    "lance": ("general", "pylance"),
    "grain": ("general", "grain"),
    "petastorm": ("petastorm", "petastorm"),
    "spdl": ("general", "spdl"),
    "memmap": ("general", "torch"),
}


def rows_text(figures: Sequence[Figures], smaller: Sequence[Figures] = ()) -> str:
    """Whether every row came once; of a smaller data set, where no epoch of the full one came to its end."""
    checked = [one for one in figures if one.get("checked_rows")]
    if not checked:
        return "-"
    repeated = max(one["repeated_rows"] for one in checked)
    complete = [one for one in checked if one["missing_rows"] is not None]
    missing = max((one["missing_rows"] for one in complete), default=0)
    short = sum(one.get("short_epochs") or 0 for one in figures)
    if missing or repeated or short:
        parts = [f"{missing:,} lost" if missing else "", f"{repeated:,} twice" if repeated else ""]
        parts.append(f"{short} epochs cut short" if short else "")
        return ", ".join(part for part in parts if part)
    if complete:
        return "all, once"
    if smaller:
        return f"{rows_text(smaller)} (of {smaller[0]['rows']:,})"
    return "none twice (epoch not finished)"


def throughput(measured: Measured, workload: str, kind: str, checks: Measured | None = None) -> str:
    """Samples/s by workers, and how many times as many ours delivers."""
    ours = measured.best(kind, workload, OURS)
    workers = measured.workers(kind)
    rows = []
    for subject in measured.subjects(workload):
        rates = [measured.value(kind, workload, subject, count, "samples_per_s") for count in workers]
        best = measured.best(kind, workload, subject)
        if best is None:
            continue
        ratio = None if ours is None else ours / best
        first = [measured.value(kind, workload, subject, count, "first_batch_s") for count in workers]
        anonymous = [measured.value(kind, workload, subject, count, "anonymous") for count in workers]
        row = [TITLES[subject], *map(rate_text, rates), ratio_text(ratio)]
        cpu = [measured.value(kind, workload, subject, count, "cpu_us_per_sample") for count in workers]
        row.append(" / ".join("-" if value is None else f"{value:.3g}" for value in cpu))
        row.append(" / ".join(number_text(value, 1e-3) for value in first))
        row.append(" / ".join(number_text(value, MIB) for value in anonymous))
        if kind == "warm":
            peak = [measured.value(kind, workload, subject, count, "peak") for count in workers]
            row.append(" / ".join(number_text(value, MIB) for value in peak))
            every = [one for count in workers for one in measured.all(kind, workload, subject, count)]
            smaller = [
                one
                for count in workers
                for one in (checks.all(kind, workload, subject, count) if checks is not None else [])
            ]
            row.append(rows_text(every, smaller))
        rows.append(row)
    counts = " / ".join(map(str, workers))
    head = [
        "",
        *(f"{count} workers" for count in workers),
        "ours is x",
        "CPU, us a sample",
        f"first batch, ms ({counts})",
        "anonymous, MiB",
    ]
    return table(head + (["peak, MiB", "rows"] if kind == "warm" else []), rows)


def conversions(measured: Measured) -> str:
    """Seconds (and how many times ours) and sizes of the conversions, by workload."""
    names = measured.workloads()
    subjects = [s for s in TITLES if any(measured.all("convert", name, s) for name in names)]
    rows = []
    for subject in subjects:
        row = [TITLES[subject].replace(" ShardLoader", "")]
        for name in names:
            seconds = measured.value("convert", name, subject, None, "convert_s")
            size = measured.value("convert", name, subject, None, "bytes")
            ours = measured.value("convert", name, OURS, None, "convert_s")
            times = (
                ""
                if ours is None or seconds is None or subject == OURS
                else f" ({ratio_text(seconds / ours)} x)"
            )
            row.append("-" if seconds is None else f"{seconds:.1f} s{times}, {number_text(size, 1e6)} MB")
        rows.append(row)
    return table(["", *names], rows)


def limits_table(limits: dict[str, dict[str, float]]) -> str:
    rows = []
    for part, rates in limits.items():
        for name, rate in rates.items():
            text = f"{rate_text(rate)} samples/s" if part in WORKLOADS else f"{rate:.2f} GB/s"
            rows.append([f"{part}: {name}", text])
    return table(["", "at best"], rows)


def basics_table(bars: Sequence[Figures]) -> str:
    rows = []
    for bar in bars:
        sign = "at least" if bar["at_least"] else "at most"
        rows.append([bar["name"], f"{bar['value']:.2f}", f"{sign} {bar['limit']:g}", bar["detail"]])
    return table(["", "measured", "wanted", ""], rows)


def plot(measured: Measured, workload: str, path: Path) -> None:
    """Bars of samples/s on a logarithmic axis, the best number of workers of each loader."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pairs = [(subject, measured.best("warm", workload, subject)) for subject in measured.subjects(workload)]
    known = sorted(((subject, rate) for subject, rate in pairs if rate), key=lambda pair: pair[1])
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.34 * len(known)))
    names = [TITLES[subject].replace("**", "") for subject, _ in known]
    colours = ["#c0392b" if subject.startswith("fastshard") else "#7f8c8d" for subject, _ in known]
    bars = axes.barh(names, [rate for _, rate in known], color=colours)
    axes.bar_label(bars, [rate_text(rate) for _, rate in known], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=known[-1][1] * 6 if known else None)
    axes.set_xlabel("samples/s (logarithmic), shuffled, page cache warm")
    axes.set_title(f"{workload}: {WORKLOADS[workload].title}", fontsize=10)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def versions_text(content: dict[str, Any]) -> str:
    found = content.get("versions", {})
    parts = []
    for subject, (group, package) in PACKAGES.items():
        version = found.get(group, {}).get(package)
        if version and subject != "memmap":
            parts.append(f"{TITLES[subject]} {version}")
    torch = found.get("general", {}).get("torch") or found.get("own", {}).get("torch")
    return ", ".join([*parts, *([f"torch {torch}"] if torch else [])])


INTRODUCTION = """# Benchmarks

Made by `python -m benchmarks.report` from the measurements of `benchmarks/`; benchmarks/README.md says how they are
done and repeated. Compare figures of one table with each other, with the differences that stand below it. On another
machine they are others.

{machine}
"""

EXPLANATION = """
Shuffled batches, every loader in a process and an environment of its own, with the settings that its documentation
recommends. A rate is that between the first and the last batch of an epoch; the time from construction to the first
batch stands apart. "Workers" are processes, or threads for fastshard's ShardLoader, FFCV, SPDL and Petastorm (which
have one where the table says 0). "CPU" is the time of all of a loader's processes and threads, the consuming one
included. "Anonymous" is what the processes held at most above the imports, shared memory included and mapped files not;
"peak" is the sum of their highest resident sizes, mapped files included. "Rows" says whether the first epoch delivered
each row exactly once with the values that belong to it. "ours is x" compares the best of each.

FFCV delivers binary as zero-padded arrays and has no text; Petastorm's torch loaders take numbers alone. MosaicML
shuffles within blocks of shards, WebDataset shards and a buffer, Petastorm row groups and a queue; the others shuffle
all rows.
"""


def machine_text(content: dict[str, Any], more: str) -> str:
    machine = content.get("machine", {})
    scale = content.get("options", {}).get("scale", 1.0)
    size = "" if scale == 1.0 else f" Workloads had {scale:g} of their rows."
    return (
        f"Measured on {content.get('date')} at commit {content.get('commit')}: {machine.get('cpus')} CPU cores, "
        f"{machine.get('memory_bytes', 0) / (1 << 30):.0f} GiB of memory, {more}"
        f"Python {machine.get('python')}. {versions_text(content)}.{size}"
    )


def precedence_text(measured: Measured, workload: str) -> str:
    """Which loaders were measured with another precedence over the machine's other work than ours."""
    found: dict[tuple[str, int], list[int]] = {}
    for subject in measured.subjects(workload):
        for workers in measured.workers("warm"):
            for one in measured.all("warm", workload, subject, workers)[:1]:
                if one.get("nice") is not None:
                    found.setdefault((subject, one["nice"]), []).append(workers)
    ours = next((nice for subject, nice in found if subject == OURS), None)
    others: dict[int, list[str]] = {}
    for (subject, nice), counts in found.items():
        some = f" ({counts[0]} workers)" if len(counts) < len(measured.workers("warm")) else ""
        if nice != ours:
            others.setdefault(nice, []).append(TITLES[subject] + some)
    if ours is None or not others:
        return ""
    parts = [f"with nice {nice} {', '.join(names)}" for nice, names in sorted(others.items())]
    return (
        f"Measured in other runs, beside the machine's other work and with less precedence than ours (nice {ours}): "
        f"{'; '.join(parts)}. With nice 0 a loader got a part of the CPUs only: compare CPU time there."
    )


def load_text(content: dict[str, Any]) -> str:
    """How quiet the machine was, where that is known."""
    figures = content["figures"]
    loads = [one["load"] for one in figures if one.get("load") is not None]
    waits = [one["waited_for_cpu"] for one in figures if one.get("waited_for_cpu") is not None]
    if not loads or not waits:
        return ""
    text = (
        f"The machine's load average was {min(loads):.0f} to {max(loads):.0f} before the measurements. "
        f"The thread that takes the batches waited for a CPU {100 * median(waits):.1f} % of the time in the median "
        f"measurement, {100 * max(waits):.0f} % in the worst."
    )
    return text


@dataclass(frozen=True)
class Inputs:
    """The results of all the measuring modules, as far as they are there.

    Attributes:
        measured: Of run.py.
        checks: Of run.py with fewer rows: whether slow loaders deliver every row.
        limits, basics, engines, beside: Of the modules of these names.
        machine: What to say about the machine beside its cores and memory.
    """

    measured: Measured
    checks: Measured | None = None
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    basics: Sequence[Figures] = ()
    engines: Sequence[Figures] = ()
    beside: Beside | None = None
    machine: str = ""


def page(inputs: Inputs, pictures: str) -> str:
    """The whole of docs/benchmarks.md."""
    measured = inputs.measured
    machine = f"{inputs.machine}, " if inputs.machine else ""
    parts = [
        INTRODUCTION.format(machine=machine_text(measured.content, machine)),
        load_text(measured.content),
    ]
    if inputs.limits:
        found = bars(measured, inputs.limits, inputs.engines, inputs.beside)
        parts += ["## What the pipeline should reach", bars_table(found)]
        if not all(bar.met for bar in found):
            parts.append(REASONS.read_text())
    if inputs.basics:
        parts += ["## What conversion and the reader should reach", basics_table(inputs.basics)]
    parts += ["## Warm: the data set in the page cache", EXPLANATION]
    for name in measured.workloads():
        workload = WORKLOADS[name]
        heading = f"### {name}: {workload.title}, batches of {workload.batch_size}"
        parts += [heading, f"![samples/s]({pictures}/{name}.png)"]
        parts += [throughput(measured, name, "warm", inputs.checks), precedence_text(measured, name)]
        failed = {
            TITLES[s]: errors[0] for s in measured.subjects(name) if (errors := measured.errors(name, s))
        }
        parts += [f"{title}: a measurement failed with `{error}`." for title, error in failed.items()]
    if any(measured.workers("cold")):
        parts += ["## Cold: the page cache dropped", "The first epoch, or as much of it as fits the window."]
        for name in measured.workloads():
            parts += [f"### {name}", throughput(measured, name, "cold")]
    if inputs.engines:
        parts += ["## Compressed, cold, and more than memory", engines_table(inputs.engines)]
    parts += ["## Conversion from Parquet: time and size", conversions(measured)]
    if inputs.limits:
        parts += ["## What the machine can do at best", limits_table(inputs.limits)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def engines_table(rows: Sequence[Figures]) -> str:
    found = []
    for row in rows:
        against = "-" if row["against"] is None else f"{row['against']:.2f} {row['unit']}"
        ratio = ratio_text(row["ratio"])
        found.append([row["name"], f"{row['value']:.3g} {row['unit']}", against, ratio, row["detail"]])
    return table(["ours / compared with", "ours", "the other", "ratio", ""], found)


def _load(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "results.json", help="what run.py wrote")
    parser.add_argument("--checks", type=Path, help="what run.py wrote with --scale below 1: rows delivered")
    parser.add_argument(
        "--engines", type=Path, default=RESULTS / "engines.json", help="what engines.py wrote"
    )
    parser.add_argument("--machine", default="", help="about the machine: its system, its kind of disk")
    parser.add_argument("--limits", type=Path, default=RESULTS / "limits.json", help="what limits.py wrote")
    parser.add_argument("--beside", type=Path, default=RESULTS / "beside.json", help="what beside.py wrote")
    parser.add_argument("--basics", type=Path, default=RESULTS / "basics.json", help="what basics.py wrote")
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs", help="folder for benchmarks.md and its pictures"
    )
    arguments = parser.parse_args()
    measured = Measured(json.loads(arguments.results.read_text()))
    pictures = arguments.docs / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    for name in measured.workloads():
        plot(measured, name, pictures / f"{name}.png")
    inputs = Inputs(
        measured=measured,
        checks=Measured(json.loads(arguments.checks.read_text())) if arguments.checks else None,
        limits=_load(arguments.limits) or {},
        basics=_load(arguments.basics) or [],
        engines=_load(arguments.engines) or [],
        beside=_load(arguments.beside),
        machine=arguments.machine,
    )
    text = page(inputs, pictures.name)
    (arguments.docs / "benchmarks.md").write_text(text)
    print(arguments.docs / "benchmarks.md")


if __name__ == "__main__":
    main()
