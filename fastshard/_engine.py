"""How a loader gets bytes: through mappings, or read by an engine into memory of its own. Chosen by what is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fastshard import _core
from fastshard._checking import memory_limit
from fastshard.errors import InvalidError

__all__ = ["Engine", "EngineName", "choose_engine"]

EngineName = Literal["auto", "mmap", "uring", "threads"]
_DEPTH = 16  # blocks in flight
_IO_THREADS = 8
_ROW_DEPTH = 64  # rows in flight: small reads want more of them
_ROW_THREADS = 32
_NETWORK = frozenset({"nfs", "cifs", "fuse", "ceph", "lustre"})
_MEMORY_FILES = frozenset({"tmpfs", "ramfs"})
_ROWS_AHEAD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Engine:
    """The choice.

    Attributes:
        name: "mmap", "uring" or "threads".
        reason: Why that.
        direct: Whether reads go past the page cache.
    """

    name: Literal["mmap", "uring", "threads"]
    reason: str
    direct: bool = False

    def reading(
        self, *, verify: str, memory: int, visits: float, read_timeout: float | None
    ) -> dict[str, Any] | None:
        """What the native stream wants to know, None for mappings.

        Args:
            verify: "always", "once" or "never".
            memory: Bytes of blocks that are kept, and of what is read ahead.
            visits: How many batches a block serves, about, before it is read again; 0 where rows are never read by
                themselves.
            read_timeout: Seconds of one read, or None.
        """
        if self.name == "mmap":
            return None
        ahead = max(1 << 20, memory // 2)  # of two windows the next one, while this one is used
        return {
            "engine": self.name,
            "depth": _ROW_DEPTH if visits else _DEPTH,
            "io_threads": _ROW_THREADS if visits else _IO_THREADS,
            "direct": self.direct,
            "verify": verify,
            "budget": memory,
            "ahead": min(ahead, _ROWS_AHEAD_BYTES) if visits else ahead,
            "visits": float(visits),
            "read_timeout_ns": 0 if read_timeout is None else int(read_timeout * 1e9),
        }


def choose_engine(
    asked: str, root: str, data_bytes: int, *, largest_batch: int, read_timeout: float | None
) -> Engine:
    """The engine for a data set of `data_bytes` in the directory `root`.

    Args:
        asked: The `engine=` of the user.
        largest_batch: Bytes of the largest block, as far as it is known; above 16 MiB only mappings serve.
        read_timeout: Where it is given, a way that can keep it is preferred to mappings, which cannot.

    Raises:
        InvalidError: An engine that is not known, or that this system does not allow.
    """
    if asked not in ("auto", "mmap", "uring", "threads"):
        raise InvalidError(f"engine={asked!r}: must be 'auto', 'mmap', 'uring' or 'threads'")
    kind = _core.file_system(root)
    direct = kind not in _MEMORY_FILES and kind not in _NETWORK
    if asked == "mmap":
        return Engine("mmap", "asked for")
    if asked == "uring":
        refusal = _core.uring_refusal()
        if kind == "fuse":  # seen to outlast read_timeout=, and Ctrl-C
            refusal = "on a FUSE file system a submission can wait for the reads themselves"
        if refusal is not None:
            raise InvalidError(f"engine='uring': {refusal}; use engine='threads' or 'auto'")
        return Engine("uring", "asked for", direct)
    if asked == "threads":
        return Engine("threads", "asked for", direct)
    if largest_batch > 16 << 20:
        return Engine("mmap", "blocks are larger than 16 MiB")
    if kind in _MEMORY_FILES:
        return Engine("mmap", f"the files lie in memory ({kind})")
    memory = memory_limit()
    if kind in _NETWORK:
        return Engine(
            "threads", f"the files lie on a network file system ({kind}), where a mapping waits for each page"
        )
    if data_bytes <= memory // 2 and read_timeout is None:
        return Engine(
            "mmap",
            f"the data ({_mib(data_bytes)}) fit into half of the memory ({_mib(memory)}): the page cache keeps them",
        )
    why = (
        "read_timeout= is given, which mappings cannot keep"
        if data_bytes <= memory // 2
        else f"the data ({_mib(data_bytes)}) are larger than half of the memory ({_mib(memory)})"
    )
    refusal = _core.uring_refusal()
    if refusal is None:
        return Engine("uring", why, direct)
    return Engine("threads", f"{why}; {refusal}", direct)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
