"""Which epoch an iteration is, agreed upon by processes that never talk to each other.

A torch DataLoader copies a data set into its workers and tells them nothing: not that a new iteration began, nor
which one. Here a counter, shared by the copies, hands out *starts*: (epoch, position). Each iteration of the main
process takes the next start. The workers of one DataLoader iterator take one start together: the first of them takes
the next, the others join it.

1.  Every taking happens under the lock of the shared cell.
2.  A counter serves several *families*: a family is one process with its DataLoader workers. Ranks that were forked
    or spawned from one launcher share the cell, and each is a family. A family begins where its launcher stood.
3.  The workers of one iterator share torch's base seed. It may come again (a training loop that seeds torch for each
    epoch), and with persistent workers it stays, so the number of the iteration within the worker, the worker's own
    number (none joins twice) and the numbers of their processes (near each other) count too.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastshard._shared import SharedCell

__all__ = ["EpochCounter", "Member", "Start", "Taken"]

_KEEP_TAKES = 8  # iterators of one data set that may be starting up at the same time
_KEEP_FAMILIES = 256


@dataclass(frozen=True, slots=True)
class Start:
    """Where an iteration begins.

    Attributes:
        epoch: number of the epoch, from 0.
        position: first position of its order.
        explicit: `set_epoch` asked for this epoch, so it is begun even where nothing of it is left.
        past: the order that the epoch began under, as JSON-able fields, if the data set has grown since; else None.
    """

    epoch: int = 0
    position: int = 0
    explicit: bool = False
    past: dict[str, Any] | None = None

    def following(self) -> Start:
        """The start of the next epoch."""
        return Start(self.epoch + 1)


@dataclass(frozen=True, slots=True)
class Member:
    """A DataLoader worker that takes a start.

    Attributes:
        worker: its number.
        num_workers: how many workers the iterator has.
        base_seed: what torch drew for the iterator.
        iteration: how often this worker has begun to iterate the data set, from 1.
    """

    worker: int
    num_workers: int
    base_seed: int
    iteration: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The newest start that was taken, and whether DataLoader workers took it."""

    start: Start
    by_workers: bool


@dataclass(slots=True)
class _Take:
    start: Start
    base_seed: int | None = None
    iteration: int = 0
    joined: dict[str, int] = field(default_factory=dict)  # worker -> number of its process - worker

    def admits(self, member: Member, process: int) -> bool:
        """Whether `member`, running as process number `process`, belongs to the iterator of this take.

        An iterator starts its W processes one after the other, so that process - worker is one number for all of them,
        or grows by less than W where another thread started processes meanwhile. For a later iterator it is at least
        W more.
        """
        if (self.base_seed, self.iteration) != (member.base_seed, member.iteration):
            return False
        if str(member.worker) in self.joined:
            return False
        base = process - member.worker
        return all(abs(base - other) < member.num_workers for other in self.joined.values())


@dataclass(slots=True)
class _Family:
    next: Start = Start()
    changed: bool = False  # `next` was set since the newest take
    takes: list[_Take] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class EpochCounter:
    """Hands out the starts of iterations to a process and its DataLoader workers.

    Shared as `SharedCell` is. All methods may be called in any of the processes; they act on the family of the
    caller.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell = SharedCell()
        with self._cell.locked():
            self._cell.write(_dump({_family_of_this_process(): _Family()}))

    def take(self, settle: Callable[[Start], Start], member: Member | None = None) -> Start:
        """Takes the next start, or joins the one that the other workers of this iterator took.

        Args:
            settle: given the next start, returns the one to use: the same, or that of the following epoch where
                nothing is left of this one.
            member: who takes, if a DataLoader worker.
        """
        with self._cell.locked():
            families = self._load()
            family = self._family(families, member is not None)
            take = _find(family, member)
            if take is None:
                start = settle(family.next)
                take = _begin(family, start, member)
            self._cell.write(_dump(families))
            return take.start

    def take_given(self, start: Start, member: Member) -> None:
        """Notes that a worker begins at a start which it knows from a state of its own."""
        with self._cell.locked():
            families = self._load()
            family = self._family(families, member is not None)
            take = _find(family, member)
            if take is None or take.start.epoch != start.epoch:
                _begin(family, start, member)
            self._cell.write(_dump(families))

    def set_next(self, change: Callable[[Start], Start]) -> None:
        """Replaces the start that the next iteration will take."""
        with self._cell.locked():
            families = self._load()
            family = self._family(families, False)
            family.next = change(family.next)
            family.changed = True
            self._cell.write(_dump(families))

    def look(self, *, of_parent: bool = False) -> tuple[Start, Taken | None]:
        """The start that comes next, and the newest one taken; None if none was since the last `set_next`.

        Args:
            of_parent: ask for the family of a DataLoader worker, not that of a main process.
        """
        with self._cell.locked():
            family = self._family(self._load(), of_parent)
        if family.changed or not family.takes:
            return family.next, None
        newest = family.takes[-1]
        return family.next, Taken(newest.start, newest.base_seed is not None)

    def first(self, what: str) -> bool:
        """Whether no process that shares the counter asked this about `what` before."""
        with self._cell.locked():
            families = self._load()
            said = next(iter(families.values())).said
            if what in said:
                return False
            said.append(what)
            self._cell.write(_dump(families))
            return True

    def _load(self) -> dict[str, _Family]:
        return _parse(self._cell.read())

    def _family(self, families: dict[str, _Family], of_parent: bool) -> _Family:
        key = _family_of_the_parent() if of_parent else _family_of_this_process()
        if key not in families:
            maker = next(iter(families.values()))
            if len(families) >= _KEEP_FAMILIES:
                for other in [name for name in list(families)[1:] if not _alive(int(name.split("/")[0]))]:
                    del families[other]
            families[key] = _Family(maker.next)
        return families[key]

    def __getstate__(self) -> SharedCell:
        return self._cell

    def __setstate__(self, cell: SharedCell) -> None:
        self._cell = cell
        with cell.locked():
            if not cell.read():  # not our parent's: a counter of our own
                cell.write(_dump({_family_of_this_process(): _Family()}))


def _find(family: _Family, member: Member | None) -> _Take | None:
    """The take that `member` belongs to, which it joins by this; None if it is the first of its iterator."""
    if member is None:
        return None
    process = _process_number()
    for take in reversed(family.takes):
        if take.admits(member, process):
            take.joined[str(member.worker)] = process - member.worker
            return take
    return None


def _begin(family: _Family, start: Start, member: Member | None) -> _Take:
    family.next, family.changed = start.following(), False
    if member is None:
        take = _Take(start)
    else:
        joined = {str(member.worker): _process_number() - member.worker}
        take = _Take(start, member.base_seed, member.iteration, joined)
    family.takes.append(take)
    del family.takes[:-_KEEP_TAKES]
    return take


def _dump(families: dict[str, _Family]) -> bytes:
    return json.dumps(
        {
            key: {
                "next": asdict(family.next),
                "changed": family.changed,
                "takes": [[asdict(t.start), t.base_seed, t.iteration, t.joined] for t in family.takes],
                "said": family.said,
            }
            for key, family in families.items()
        }
    ).encode()


def _parse(content: bytes) -> dict[str, _Family]:
    families = {}
    for key, value in json.loads(content).items():
        takes = [_Take(Start(**start), *rest) for start, *rest in value["takes"]]
        families[key] = _Family(Start(**value["next"]), value["changed"], takes, value["said"])
    return families


def _process_identity() -> tuple[int, ...]:
    """How multiprocessing numbers processes: the parent's identity and a count; () in a main process. It has no public
    name; without it, processes are told apart by their pids alone."""
    return tuple(getattr(multiprocessing.current_process(), "_identity", ()))


def _process_number() -> int:
    return (_process_identity() or (0,))[-1]


def _family_of_this_process() -> str:
    return _key(os.getpid(), _process_identity())


def _family_of_the_parent() -> str:
    """The process whose DataLoader this worker serves. Not getppid(): that may be the fork server."""
    parent = multiprocessing.parent_process()
    pid = parent.pid if parent is not None and parent.pid is not None else os.getppid()
    return _key(pid, _process_identity()[:-1])


def _key(pid: int, identity: tuple[int, ...]) -> str:
    """A pid may be used again, an identity is not."""
    return "/".join(str(number) for number in (pid, *identity))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def set_epoch(epoch: int) -> Callable[[Start], Start]:
    """What `set_epoch` does to the next start: a loaded position in that epoch stays, any other is dropped."""

    def change(start: Start) -> Start:
        return replace(start, explicit=True) if start.epoch == epoch else Start(epoch, explicit=True)

    return change
