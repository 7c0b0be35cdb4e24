"""Tables and plots of what run.py, limits.py and basics.py measured: docs/benchmarks.md and its pictures.

python -m benchmarks.report [--results FILE] [--limits FILE] [--basics FILE] [--docs FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import median
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MIB = 1 << 20

TITLES = {
    "fastshard": "**fastshard** ShardLoader",
    "fastshard-views": "**fastshard** ShardLoader, views",
    "fastshard-unverified": '**fastshard** ShardLoader, verify="never"',
    "fastshard-dataset": "**fastshard** ShardDataset in DataLoader",
    "fastshard-take": "**fastshard** take in a loop",
    "memmap": "memory map in DataLoader",
    "mosaicml": "MosaicML Streaming",
    "litdata": "LitData",
    "webdataset": "WebDataset",
    "huggingface": "Hugging Face datasets",
    "ffcv": "FFCV",
    "lance": "Lance",
    "grain": "Grain + ArrayRecord",
    "petastorm": "Petastorm",
    "spdl": "SPDL over a memory map",
}
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
OURS = "fastshard"

Figures = dict[str, Any]


class Measured:
    """The figures of a results file, by what was measured."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self._by_key: dict[tuple[Any, ...], list[Figures]] = defaultdict(list)
        for figures in content["figures"]:
            key = (figures["kind"], figures["workload"], figures["subject"], figures.get("workers"))
            self._by_key[key].append(figures)

    def subjects(self, workload: str) -> list[str]:
        """Those measured on a workload, in the order of TITLES."""
        there = {subject for _, name, subject, _ in self._by_key if name == workload}
        return [subject for subject in TITLES if subject in there]

    def workloads(self) -> list[str]:
        there = {name for _, name, _, _ in self._by_key}
        return [name for name in WORKLOADS if name in there]

    def all(self, kind: str, workload: str, subject: str, workers: int | None = None) -> list[Figures]:
        found = self._by_key.get((kind, workload, subject, workers), [])
        return [figures for figures in found if "error" not in figures]

    def errors(self, workload: str, subject: str) -> list[str]:
        return [
            figures["error"]
            for (_, name, who, _), found in self._by_key.items()
            if (name, who) == (workload, subject)
            for figures in found
            if "error" in figures
        ]

    def value(self, kind: str, workload: str, subject: str, workers: int | None, field: str) -> float | None:
        """Median of a field, or None where there is none."""
        values = [
            figures[field]
            for figures in self.all(kind, workload, subject, workers)
            if figures.get(field) is not None
        ]
        return median(values) if values else None

    def workers(self, kind: str) -> list[int]:
        return sorted({workers for k, _, _, workers in self._by_key if k == kind and workers is not None})

    def best(self, kind: str, workload: str, subject: str) -> float | None:
        """Samples/s with the number of workers that serves a loader best."""
        rates = [
            rate
            for workers in self.workers(kind)
            if (rate := self.value(kind, workload, subject, workers, "samples_per_s")) is not None
        ]
        return max(rates, default=None)


def rate_text(rate: float | None) -> str:
    if rate is None:
        return "-"
    if rate >= 1e6:
        return f"{rate / 1e6:.3g} M" if rate < 1e8 else f"{rate / 1e6:.0f} M"
    if rate >= 1e3:
        return f"{rate / 1e3:.3g} k" if rate < 1e5 else f"{rate / 1e3:.0f} k"
    return f"{rate:.0f}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def number_text(value: float | None, scale: float = 1.0, digits: int = 0) -> str:
    return "-" if value is None else f"{value / scale:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def rows_text(figures: Sequence[Figures]) -> str:
    """Whether every row came once."""
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
    return "all, once" if complete else "none twice (epoch not finished)"


def throughput(measured: Measured, workload: str, kind: str) -> str:
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
        row.append(" / ".join(number_text(value, 1e-3) for value in first))
        row.append(" / ".join(number_text(value, MIB) for value in anonymous))
        if kind == "warm":
            peak = [measured.value(kind, workload, subject, count, "peak") for count in workers]
            row.append(" / ".join(number_text(value, MIB) for value in peak))
            every = [one for count in workers for one in measured.all(kind, workload, subject, count)]
            row.append(rows_text(every))
        rows.append(row)
    counts = " / ".join(map(str, workers))
    head = [
        "",
        *(f"{count} workers" for count in workers),
        "ours is x",
        f"first batch, ms ({counts})",
        "anonymous, MiB",
    ]
    return table(head + (["peak, MiB", "rows"] if kind == "warm" else []), rows)


def conversions(measured: Measured) -> str:
    """Seconds and sizes of the conversions, by workload."""
    names = measured.workloads()
    subjects = [s for s in TITLES if any(measured.all("convert", name, s) for name in names)]
    rows = []
    for subject in subjects:
        row = [TITLES[subject].replace(" ShardLoader", "")]
        for name in names:
            seconds = measured.value("convert", name, subject, None, "convert_s")
            size = measured.value("convert", name, subject, None, "bytes")
            row.append("-" if seconds is None else f"{seconds:.1f} s, {number_text(size, 1e6)} MB")
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


def wanted(measured: Measured, limits: dict[str, dict[str, float]]) -> str:
    """What the pipeline should reach, as ratios of this run."""
    best = measured.best
    rows: list[list[str]] = []

    def bar(what: str, value: float | None, against: float | None, least: float) -> None:
        if value is None or against is None:
            return
        ratio = value / against
        rows.append([what, ratio_text(ratio), f"{least:g}", "yes" if ratio >= least else "no"])

    def limit(workload: str, name: str) -> float | None:
        return limits.get(workload, {}).get(name)

    ours = {name: best("warm", name, OURS) for name in WORKLOADS}
    views = best("warm", "w3", "fastshard-views")
    bar("w1: ShardLoader / FFCV", ours["w1"], best("warm", "w1", "ffcv"), 12)
    bar(
        "w1: ShardLoader / a loop of NumPy fancy indexing", ours["w1"], limit("w1", "numpy fancy indexing"), 2
    )
    bar("w1: ShardLoader / bare gather on two threads", ours["w1"], limit("w1", "gather, 2 threads"), 0.5)
    bar("w2: ShardLoader / FFCV", ours["w2"], best("warm", "w2", "ffcv"), 1.2)
    bar(
        "w2: ShardLoader / a loop of NumPy fancy indexing", ours["w2"], limit("w2", "numpy fancy indexing"), 1
    )
    gather = max((limit("w2", f"gather, {n} threads") or 0 for n in (1, 2)), default=0) or None
    bar("w2: ShardLoader / bare gather", ours["w2"], gather, 0.9)
    bar("w3: ShardLoader, bytes / FFCV", ours["w3"], best("warm", "w3", "ffcv"), 1)
    bar("w3: ShardLoader, views / FFCV", views, best("warm", "w3", "ffcv"), 1.2)
    copies = max((limit("w3", f"copies, {n} threads") or 0 for n in (1, 2)), default=0) or None
    bar("w3: ShardLoader, views / bare copies", views, copies, 0.85)
    bar("w4: ShardLoader / LitData", ours["w4"], best("warm", "w4", "litdata"), 25)
    bar("w4: ShardLoader / bare gather and str", ours["w4"], limit("w4", "gather and str"), 0.5)
    for count, least in ((0, 2.5), (2, 1.0)):
        value = measured.value("warm", "w1", "fastshard-dataset", count, "samples_per_s")
        against = measured.value("warm", "w1", "memmap", count, "samples_per_s")
        bar(f"w1: ShardDataset / memory map in the same DataLoader, {count} workers", value, against, least)
    return table(["", "ratio", "wanted", "reached"], rows)


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
done and repeated. Compare figures of one table with each other: they were measured in one run, in turn. On another
machine they are others.

{machine}
"""

EXPLANATION = """
Shuffled batches, every loader in a process and an environment of its own, with the settings that its documentation
recommends. A rate is that between the first and the last batch of an epoch; what it takes to the first batch stands
apart. "Workers" are processes, or threads for fastshard's ShardLoader, FFCV, SPDL and Petastorm (which have one where
the table says 0). "Anonymous" is what the processes held at most above the imports, shared memory included and mapped
files not; "peak" is the sum of their highest resident sizes, mapped files included. "Rows" says whether the first
epoch delivered each row exactly once with the values that belong to it. "ours is x" compares the best of each.

FFCV delivers binary as zero-padded arrays and has no text; Petastorm's torch loaders take numbers alone. MosaicML
shuffles within blocks of shards, WebDataset shards and a buffer, Petastorm row groups and a queue; the others shuffle
all rows.
"""


def machine_text(content: dict[str, Any]) -> str:
    machine = content.get("machine", {})
    scale = content.get("options", {}).get("scale", 1.0)
    size = "" if scale == 1.0 else f" Workloads had {scale:g} of their rows."
    return (
        f"Measured on {content.get('date')} at commit {content.get('commit')}: {machine.get('cpus')} CPUs "
        f"({machine.get('processor')}), {machine.get('memory_bytes', 0) / (1 << 30):.0f} GiB, {machine.get('system')}, "
        f"Python {machine.get('python')}. {versions_text(content)}.{size}"
    )


def page(
    measured: Measured, limits: dict[str, dict[str, float]], basics: Sequence[Figures], pictures: str
) -> str:
    """The whole of docs/benchmarks.md."""
    parts = [INTRODUCTION.format(machine=machine_text(measured.content))]
    if basics:
        parts += ["## The basics", basics_table(basics)]
    if limits:
        parts += ["## What the pipeline should reach", wanted(measured, limits)]
    parts += ["## Warm: the data set in the page cache", EXPLANATION]
    for name in measured.workloads():
        workload = WORKLOADS[name]
        heading = f"### {name}: {workload.title}, batches of {workload.batch_size}"
        parts += [heading, f"![samples/s]({pictures}/{name}.png)", throughput(measured, name, "warm")]
        failed = {
            TITLES[s]: errors[0] for s in measured.subjects(name) if (errors := measured.errors(name, s))
        }
        parts += [f"{title}: a measurement failed with `{error}`." for title, error in failed.items()]
    if any(measured.workers("cold")):
        parts += ["## Cold: the page cache dropped", "The first epoch, or as much of it as fits the window."]
        for name in measured.workloads():
            parts += [f"### {name}", throughput(measured, name, "cold")]
    parts += ["## Conversion from Parquet: time and size", conversions(measured)]
    if limits:
        parts += ["## What the machine can do at best", limits_table(limits)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _load(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS / "results.json", help="what run.py wrote")
    parser.add_argument("--limits", type=Path, default=RESULTS / "limits.json", help="what limits.py wrote")
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
    text = page(measured, _load(arguments.limits) or {}, _load(arguments.basics) or [], pictures.name)
    (arguments.docs / "benchmarks.md").write_text(text)
    print(arguments.docs / "benchmarks.md")


if __name__ == "__main__":
    main()
