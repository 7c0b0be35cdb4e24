"""When columns are compared with their hashes: what the user asked for, or what fits the way the data are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from fastshard.errors import InvalidError

__all__ = ["Checking", "Verify", "check_verify", "choose_checking", "memory_limit"]

Verify = Literal["auto", "always", "once", "never"]
VERIFY = ("auto", "always", "once", "never")


@dataclass(frozen=True, slots=True)
class Checking:
    """The choice.

    Attributes:
        mode: "always" compares a column of a block whenever its bytes are read, decompressed, or gathered from a
            mapping; "once" when they are used for the first time since the data set was opened; "never" does not.
            "auto" stands for several data sets, each of which has its own.
        reason: Why that.
    """

    mode: Verify
    reason: str


def choose_checking(asked: Verify, data_bytes: int, *, whole_blocks: bool) -> Checking:
    """The choice for a data set of `data_bytes`.

    Args:
        asked: The `verify=` of the user.
        data_bytes: Size of the files.
        whole_blocks: Blocks are read whole anyway, so that comparing them reads nothing more.

    Raises:
        InvalidError: `asked` is no mode.
    """
    check_verify(asked)
    if asked != "auto":
        return Checking(asked, "asked for")
    if whole_blocks:
        return Checking("once", "blocks are read whole")
    memory = memory_limit()
    shown = f"the data ({data_bytes / 2**20:,.0f} MiB)"
    if data_bytes <= memory // 2:
        return Checking(
            "once",
            f"{shown} fit into half of the memory ({memory / 2**20:,.0f} MiB): each block is read once",
        )
    return Checking(
        "never",
        f"{shown} are larger than half of the memory ({memory / 2**20:,.0f} MiB): comparing would read whole blocks "
        'for single samples; verify="once" does it all the same',
    )


def check_verify(asked: str) -> None:
    """Raise `InvalidError` unless `asked` is a mode."""
    if asked not in VERIFY:
        raise InvalidError(f"verify is 'auto', 'always', 'once' or 'never', not {asked!r}")


def memory_limit() -> int:
    """Bytes of memory of this machine, or of the control groups of this process where one of them allows less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _limit_files():
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def _limit_files() -> list[str]:
    """Files that may hold a limit: of the control group of this process and of those around it, version 1 or 2."""
    files = []
    groups = ["0::/", "0:memory:/"]
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups += file.read().splitlines()
    except OSError:
        pass
    for line in groups:
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = ("", "memory.max") if controllers == "" else ("/memory", "memory.limit_in_bytes")
        parts = [part for part in group.split("/") if part]
        files += [
            "/".join([f"/sys/fs/cgroup{root}", *parts[:depth], name]) for depth in range(len(parts) + 1)
        ]
    return files
