"""What fastshard should reach: ratios of one run and absolute bounds, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import OURS, TITLES, Measured, number_text, rate_text, ratio_text, table
from benchmarks.workloads import WORKLOADS

__all__ = ["Bar", "bars", "bars_table"]

MIB = 1 << 20
GROUP = "fastshard"

Limits = dict[str, dict[str, float]]
Beside = dict[str, dict[str, list[float]]]  # of beside.py: by workload and name the rates of all epochs


@dataclass(frozen=True)
class Bar:
    """One thing that should hold.

    Attributes:
        what: In words.
        measured: The figure as text.
        wanted: The bound as text.
        met: Whether it is kept.
        detail: What the figure is made of.
    """

    what: str
    measured: str
    wanted: str
    met: bool
    detail: str = ""


def bars(
    measured: Measured, limits: Limits, engines: Sequence[dict[str, Any]], beside: Beside | None = None
) -> list[Bar]:
    """All whose figures are there. Bare loops are compared with the loader beside them, where that was measured."""
    return [
        *_loader(measured, limits, beside or {}),
        *_data_set(measured),
        *_first_batches(measured),
        *_memory(measured),
        *map(_engine, (row for row in engines if row["limit"] is not None)),
    ]


def bars_table(found: Sequence[Bar]) -> str:
    """As Markdown."""
    rows = [[bar.what, bar.measured, bar.wanted, "yes" if bar.met else "**no**", bar.detail] for bar in found]
    return table(["", "measured", "wanted", "reached", ""], rows)


def _ratio(what: str, value: float | None, against: float | None, least: float) -> Iterator[Bar]:
    if value is not None and against is not None:
        ratio = value / against
        detail = f"{rate_text(value)} / {rate_text(against)}"
        yield Bar(what, ratio_text(ratio), f"at least {least:g}", ratio >= least, detail)


def _loader(measured: Measured, limits: Limits, beside: Beside) -> Iterator[Bar]:
    """ShardLoader, warm, beside its strongest peers and the bare loops."""

    def best(workload: str, subject: str) -> float | None:
        return measured.best("warm", workload, subject)

    def fastest(workload: str, names: Sequence[str]) -> float | None:
        return max(
            (max(beside[workload][name]) for name in names if name in beside.get(workload, {})), default=None
        )

    def bare(
        what: str, workload: str, loops: Sequence[str], least: float, subject: str = OURS
    ) -> Iterator[Bar]:
        names = [f"ShardLoader, {'views, ' * (subject != OURS)}{n} threads" for n in (1, 2)]
        ours, loop = fastest(workload, names), fastest(workload, loops)
        if ours is None or loop is None:
            known = limits.get(workload, {})
            ours = best(workload, subject)
            loop = max((known[name] for name in loops if name in known), default=None)
        yield from _ratio(f"{workload}: ShardLoader{what}", ours, loop, least)

    ours = {name: best(name, OURS) for name in WORKLOADS}
    views = best("w3", "fastshard-views")
    gathers = [f"gather, {n} threads" for n in (1, 2)]
    copies = [f"copies, {n} threads" for n in (1, 2)]
    fancy = ["numpy fancy indexing"]
    yield from _ratio("w1: ShardLoader / FFCV", ours["w1"], best("w1", "ffcv"), 12)
    yield from bare(" / a bare loop of NumPy fancy indexing", "w1", fancy, 2)
    yield from bare(" / bare gather on two threads", "w1", gathers[1:], 0.5)
    yield from _ratio("w2: ShardLoader / FFCV", ours["w2"], best("w2", "ffcv"), 1.2)
    yield from bare(" / a bare loop of NumPy fancy indexing", "w2", fancy, 1)
    yield from bare(" / bare gather", "w2", gathers, 0.9)
    yield from _ratio("w3: ShardLoader, bytes / FFCV", ours["w3"], best("w3", "ffcv"), 1)
    yield from _ratio("w3: ShardLoader, views / FFCV", views, best("w3", "ffcv"), 1.2)
    yield from bare(", views / bare copies", "w3", copies, 0.85, "fastshard-views")
    # One of the two is enough.
    either = [
        *_ratio("w4: ShardLoader / LitData", ours["w4"], best("w4", "litdata"), 25),
        *bare(" / bare gather and str", "w4", ["gather and str"], 0.5),
    ]
    met = any(bar.met for bar in either)
    for bar in either:
        yield Bar(f"{bar.what} (or the other of the two)", bar.measured, bar.wanted, met, bar.detail)


def _data_set(measured: Measured) -> Iterator[Bar]:
    """ShardDataset in a DataLoader."""
    name = "fastshard-dataset"
    for workers, least in ((0, 2.5), (2, 1.0)):
        value = measured.value("warm", "w1", name, workers, "samples_per_s")
        against = measured.value("warm", "w1", "memmap", workers, "samples_per_s")
        what = f"w1: ShardDataset / memory map in the same DataLoader, {workers} workers"
        yield from _ratio(what, value, against, least)
    for workload in ("w2", "w3", "w4"):
        rates = {
            subject: rate
            for subject in measured.subjects(workload)
            if not subject.startswith(GROUP)
            and (rate := measured.best("warm", workload, subject)) is not None
        }
        if rates:
            best = max(rates, key=lambda subject: rates[subject])
            what = f"{workload}: ShardDataset / best peer ({TITLES[best]}), each with its better number of workers"
            yield from _ratio(what, measured.best("warm", workload, name), rates[best], 1)


def _first_batches(measured: Measured) -> Iterator[Bar]:
    for subject, most, what in (
        (OURS, 60, "by default"),
        ("fastshard-unverified", 25, 'with verify="never"'),
    ):
        times = {
            f"{workload}, {workers} workers": seconds
            for workload in measured.workloads()
            for workers in measured.workers("warm")
            if (seconds := measured.value("warm", workload, subject, workers, "first_batch_s")) is not None
        }
        if times:
            slowest = max(times, key=lambda name: times[name])
            value = times[slowest] * 1000
            yield Bar(
                f"construction to first batch {what}, the slowest workload",
                f"{value:.0f} ms",
                f"at most {most} ms",
                value <= most,
                slowest,
            )


def _memory(measured: Measured) -> Iterator[Bar]:
    held = {
        f"{workload}, {workers} workers": value
        for workload in measured.workloads()
        for workers in measured.workers("warm")
        if (value := measured.value("warm", workload, OURS, workers, "anonymous")) is not None
    }
    if held:
        most = max(held, key=lambda name: held[name])
        text = number_text(held[most], MIB)
        what = "anonymous memory beyond the imports, mapped, the largest workload"
        yield Bar(what, f"{text} MiB", "at most 200 MiB", held[most] <= 200 * MIB, most)


def _engine(row: dict[str, Any]) -> Bar:
    bound = f"at {'least' if row['at_least'] else 'most'} {row['limit']:.4g}"
    if row["ratio"] is None:
        return Bar(row["name"], f"{row['value']:.0f}", bound, row["met"], row["detail"])
    figures = f"{row['value']:.2f} / {row['against']:.2f} {row['unit']}"
    detail = f"{figures}; {row['detail']}" if row["detail"] else figures
    return Bar(row["name"], ratio_text(row["ratio"]), bound, row["met"], detail)
