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
        wait_seconds: Of these the consumer waited for a batch, or made one itself that no thread had begun.
        transform_seconds: Of these it waited for the transforms.
        object_seconds: Of these batches that were ready became Python's objects.
        program_seconds: Of these the program had the last batch and did not ask for the next.
        plan_seconds, read_seconds, decode_seconds, gather_seconds, idle_seconds: Of all threads that make batches
            together: computing ids; waiting for storage (with mappings: for their pages, as far as it is seen);
            checking and decompressing; gathering; nothing to do because the consumer was slower.
        ready: Finished batches not yet delivered.
        blocks_read, bytes_read: By an engine, past the mappings; 0 with "mmap". Bytes of whole pages of the device,
            where O_DIRECT reads them.
        registered_reads: Of an engine's reads, those into memory that was registered with the kernel.
        rows_read: By an engine, without the rest of their blocks.
        partial_blocks: Of `blocks_read`, those of which only the wanted columns were read.
        blocks_read_again: Of `blocks_read`, those read for at least the second time in an iteration: `memory=` had not
            kept them.
        blocks_used_again: Blocks that an engine had read and that were still kept when they were needed again.
        buffered_files: Files that an engine read through the page cache, in each iteration: they lie in memory or on a
            network file system, or refuse O_DIRECT.
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
    transform_seconds: float
    object_seconds: float
    program_seconds: float
    plan_seconds: float
    read_seconds: float
    decode_seconds: float
    gather_seconds: float
    idle_seconds: float
    ready: int
    blocks_read: int
    bytes_read: int
    registered_reads: int
    rows_read: int
    buffered_files: int
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


# Of the blocks that were read: fewer that are read again are not what limits.
_FEW = 0.05


class Totals:
    """Sums over the iterations of one loader."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self.clock = time.perf_counter  # kept: an iterator may end when the interpreter has let go of modules
        self._began: float | None = None
        self._ran = 0.0
        self.program_seconds = 0.0  # the loader adds to it

    def begin(self) -> None:
        """An iteration begins."""
        self._began = self.clock()

    def add(self, stream: Mapping[str, int]) -> None:
        """An iteration ended with these counters of its stream."""
        for name, value in stream.items():
            self._sums[name] = self._sums.get(name, 0) + value
        if self._began is not None:
            self._ran += self.clock() - self._began
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
        seconds = self._ran + (self.clock() - self._began if self._began is not None else 0.0)
        program = min(self.program_seconds, seconds)
        wait = sums.get("wait_ns", 0) / 1e9
        objects = sums.get("objects_ns", 0) / 1e9
        rest = max(0.0, seconds - program - wait - objects)
        transform = rest if transforms else 0.0
        if not transforms:
            objects += rest
        return LoaderStats(
            batches=sums.get("batches", 0),
            samples=sums.get("samples", 0),
            bytes=sums.get("samples", 0) * row_bytes,
            seconds=seconds,
            wait_seconds=wait,
            transform_seconds=transform,
            object_seconds=objects,
            program_seconds=program,
            plan_seconds=sums.get("plan_ns", 0) / 1e9,
            read_seconds=sums.get("read_ns", 0) / 1e9,
            decode_seconds=sums.get("decode_ns", 0) / 1e9,
            gather_seconds=sums.get("gather_ns", 0) / 1e9,
            idle_seconds=sums.get("idle_ns", 0) / 1e9,
            ready=sum(stream["ready"] for stream in running),
            blocks_read=sums.get("blocks_read", 0),
            bytes_read=sums.get("bytes_read", 0),
            registered_reads=sums.get("registered_reads", 0),
            rows_read=sums.get("rows_read", 0),
            buffered_files=sums.get("buffered_files", 0),
            partial_blocks=sums.get("partial_blocks", 0),
            blocks_read_again=sums.get("blocks_read_again", 0),
            blocks_used_again=sums.get("blocks_used_again", 0),
            reads=dict(reads),
            engine=engine,
            engine_reason=engine_reason,
            verify=verify,
            verify_reason=verify_reason,
            bad_samples=bad_samples,
            limit=_limit(seconds, sums, program=program, wait=wait, transform=transform, objects=objects),
        )


def _limit(
    seconds: float,
    sums: Mapping[str, int],
    *,
    program: float,
    wait: float,
    transform: float,
    objects: float,
) -> str:
    """What most of the time of the consumer goes into, and, where it waits, most of that of the threads."""
    if seconds == 0:
        return "Nothing was delivered yet."
    again = sums.get("blocks_read_again", 0)
    if again > _FEW * sums.get("blocks_read", 0):
        return f"Memory limits: {again:,} blocks were read again because memory= does not hold a window; raise it."
    most = max(program, wait, transform, objects)
    share = f"{most / seconds:.0%} of the time"
    if most == program:
        return f"The consumer limits: what the program does between batches takes {share}, and batches are ready."
    if most == transform:
        return f"The transforms limit: waiting for them takes {share}; more threads= or processes may help."
    if most == objects:
        return f"The consumer limits: making Python's objects of batches that are ready takes {share}."
    stages = {
        "The disk limits": sums.get("read_ns", 0),
        "Decompression limits": sums.get("decode_ns", 0),
        "The gather limits": sums.get("gather_ns", 0),
        "Planning limits": sums.get("plan_ns", 0),
    }
    stage = max(stages, key=lambda name: stages[name])
    part = stages[stage] / max(1, sum(stages.values()))
    advice = "" if stage == "The disk limits" else "; more threads= may help"
    return f"{stage}: the consumer waits {share}, and {part:.0%} of making batches goes into this{advice}."
