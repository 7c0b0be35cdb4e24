"""What was measured, by what was measured, and how figures are written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.measure import median
from benchmarks.workloads import WORKLOADS

__all__ = ["OURS", "TITLES", "Figures", "Measured", "number_text", "rate_text", "ratio_text", "table"]

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
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:,.0f}"


def number_text(value: float | None, scale: float = 1.0, digits: int = 0) -> str:
    return "-" if value is None else f"{value / scale:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
