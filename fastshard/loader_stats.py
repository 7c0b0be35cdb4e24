"""What a loader did, and what limits it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LoaderStats", "Totals"]


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """What a loader did since it was made. Times in seconds.

    Attributes:
        batches, samples: Delivered.
        bytes: Of these, uncompressed; samples times the mean of the data set.
        seconds: From the first request to the last.
        wait_seconds: Of these the consumer waited for a batch.
        plan_seconds, gather_seconds, idle_seconds: Of all threads together: computing ids; reading, checking,
            decompressing and gathering; nothing to do because the consumer was slower.
        ready: Finished batches not yet delivered.
        blocks_read, bytes_read: By an engine, past the mappings; 0 with "mmap". Bytes of whole pages of the device,
            where O_DIRECT reads them.
        rows_read: By an engine, without the rest of their blocks.
        partial_blocks: Of these, of which only the wanted columns were read.
        blocks_read_again: Of these, for at least the second time in an iteration: `memory=` had not kept them.
        blocks_used_again: Blocks that an engine had read and that were still kept when they were needed again.
        reads: Counters of the reader: shards, blocks and columns opened, checked and decompressed, bytes.
        engine: Which way bytes come, and `engine_reason`: why that.
        verify: When columns are compared with their hashes, and `verify_reason`: why then.
        bad_samples: That were replaced.
        limit: One sentence that says what limits.
    """

    batches: int
    samples: int
    bytes: int
    seconds: float
    wait_seconds: float
    plan_seconds: float
    gather_seconds: float
    idle_seconds: float
    ready: int
    blocks_read: int
    bytes_read: int
    rows_read: int
    partial_blocks: int
    blocks_read_again: int
    blocks_used_again: int
    reads: Mapping[str, int]
    engine: str
    engine_reason: str
    verify: str
    verify_reason: str
    bad_samples: int
    limit: str

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """The main figures in a few lines; `repr` has all of them."""
        from fastshard._text import count, fields, rate, seconds, size

        lines = [
            (
                "delivered",
                f"{count(self.batches, 'batch', 'batches')}, {count(self.samples, 'sample')}, {size(self.bytes)}",
            ),
            (
                "in",
                f"{seconds(self.seconds)}: {self.samples_per_second:,.0f} samples/s, {rate(self.bytes, self.seconds)}",
            ),
            ("waited", f"{seconds(self.wait_seconds)} for batches"),
        ]
        if self.blocks_read or self.rows_read:
            again = f", {count(self.blocks_read_again)} of them again" if self.blocks_read_again else ""
            lines.append(("read", f"{size(self.bytes_read)} in {count(self.blocks_read, 'block')}{again}"))
        if self.bad_samples:
            lines.append(("replaced", count(self.bad_samples, "bad sample")))
        lines += [
            ("engine", f"{self.engine}: {self.engine_reason}"),
            ("verify", f"{self.verify}: {self.verify_reason}"),
            ("limit", self.limit),
        ]
        return fields(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class Totals:
    """Sums over the iterations of one loader."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self._clock = (
            time.perf_counter
        )  # kept: an iterator may end when the interpreter has let go of modules
        self._began: float | None = None
        self._ran = 0.0

    def begin(self) -> None:
        """An iteration begins."""
        self._began = self._clock()

    def add(self, stream: Mapping[str, int]) -> None:
        """An iteration ended with these counters of its stream."""
        for name, value in stream.items():
            self._sums[name] = self._sums.get(name, 0) + value
        if self._began is not None:
            self._ran += self._clock() - self._began
            self._began = None

    def stats(
        self,
        running: Sequence[Mapping[str, int]],
        reads: Mapping[str, int],
        *,
        engine: str,
        engine_reason: str,
        verify: str,
        verify_reason: str,
        bad_samples: int,
        row_bytes: int,
        transforms: bool,
    ) -> LoaderStats:
        """The sums, with the counters of streams that still run."""
        sums = dict(self._sums)
        for stream in running:
            for name, value in stream.items():
                sums[name] = sums.get(name, 0) + value
        seconds = self._ran + (self._clock() - self._began if self._began is not None else 0.0)
        wait = sums.get("wait_ns", 0) / 1e9
        return LoaderStats(
            batches=sums.get("batches", 0),
            samples=sums.get("samples", 0),
            bytes=sums.get("samples", 0) * row_bytes,
            seconds=seconds,
            wait_seconds=wait,
            plan_seconds=sums.get("plan_ns", 0) / 1e9,
            gather_seconds=sums.get("gather_ns", 0) / 1e9,
            idle_seconds=sums.get("idle_ns", 0) / 1e9,
            ready=sum(stream["ready"] for stream in running),
            blocks_read=sums.get("blocks_read", 0),
            bytes_read=sums.get("bytes_read", 0),
            rows_read=sums.get("rows_read", 0),
            partial_blocks=sums.get("partial_blocks", 0),
            blocks_read_again=sums.get("blocks_read_again", 0),
            blocks_used_again=sums.get("blocks_used_again", 0),
            reads=dict(reads),
            engine=engine,
            engine_reason=engine_reason,
            verify=verify,
            verify_reason=verify_reason,
            bad_samples=bad_samples,
            limit=_limit(seconds, wait, sums, reads, transforms),
        )


def _limit(
    seconds: float, wait: float, sums: Mapping[str, int], reads: Mapping[str, int], transforms: bool
) -> str:
    if seconds == 0:
        return "Nothing was delivered yet."
    again = sums.get("blocks_read_again", 0)
    if again > 0:
        return f"Memory limits: {again:,} blocks were read again because memory= does not hold a window; raise it."
    share = wait / seconds
    if share < 0.1:
        who = "the transforms or what the program does" if transforms else "what the program does"
        return f"The consumer limits: {who} between batches takes {1 - share:.0%} of the time, and batches are ready."
    what = "reading and decompressing" if reads.get("columns_decompressed", 0) else "reading and gathering"
    return (
        f"The loader limits: {share:.0%} of the time the consumer waited for {what}; more threads= may help."
    )
