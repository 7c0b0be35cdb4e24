"""The options of an order: which samples, in which order, divided how. Checked when made, frozen afterwards."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from fastshard.distributed import check_rank
from fastshard.errors import InvalidError

__all__ = ["OrderOptions", "Shuffle", "Tail"]

Shuffle = Literal["none", "global", "block"]
Tail = Literal["pad", "drop", "exact"]
_TAILS = ("pad", "drop", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOptions:
    """How an epoch is ordered and divided. `docs/order.md` defines each word.

    Attributes:
        shuffle: "none", "global" or "block".
        seed: of the shuffle, 0 to 2^64 - 1.
        lanes: C of the order; None for the default of the kind.
        epoch_size: samples of an epoch, the first of the order; None for all.
        batch_size: samples of one rank at one step; None to deal samples one by one.
        tail: "pad", "drop" or "exact".
        rank, world_size: this process among the ranks; None to find out when iteration starts.
        replication: so many consecutive ranks get identical batches.
    """

    shuffle: Shuffle = "none"
    seed: int = 0
    lanes: int | None = None
    epoch_size: int | None = None
    batch_size: int | None = None
    tail: Tail = "pad"
    rank: int | None = None
    world_size: int | None = None
    replication: int = 1

    @staticmethod
    def of_arguments(*, shuffle: bool | str, tail: str, drop_last: bool, **others: Any) -> OrderOptions:
        """From the arguments as users give them.

        Args:
            shuffle: False for "none", True for "block", or a name.
            tail: a name.
            drop_last: True says `tail="drop"`.
            **others: the attributes of this class.

        Raises:
            InvalidError: a value that cannot be used, named with its argument.
        """
        if not isinstance(drop_last, bool):
            raise InvalidError(f"drop_last={drop_last!r}: must be True or False")
        if drop_last and tail == "exact":
            raise InvalidError(
                'drop_last=True and tail="exact" contradict each other: drop_last=True is tail="drop"; give one of them'
            )
        if drop_last:
            tail = "drop"
        names = {False: "none", True: "block", "none": "none", "global": "global", "block": "block"}
        if not isinstance(shuffle, bool | str) or shuffle not in names:
            raise InvalidError(
                f'shuffle={shuffle!r}: must be False ("none"), True ("block"), "none", "global" or "block"'
            )
        # NumPy's integers, say, become Python's: they end up in states.
        plain = {
            name: operator.index(value)
            if isinstance(value, SupportsIndex) and not isinstance(value, bool)
            else value
            for name, value in others.items()
        }
        return OrderOptions(shuffle=names[shuffle], tail=tail, **plain)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.tail not in _TAILS:
            raise InvalidError(f'tail={self.tail!r}: must be "pad", "drop" or "exact"')
        _integer("seed", self.seed, 0, 2**64 - 1)
        for name, most in (("lanes", 1 << 16), ("epoch_size", 1 << 62), ("batch_size", 1 << 62)):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), 1, most)
        _integer("replication", self.replication, 1, 1 << 62)
        if self.shuffle == "none" and self.lanes not in (None, 1):
            raise InvalidError(
                f"lanes={self.lanes}: the order without a shuffle has one lane; leave it out, or shuffle"
            )
        check_rank(self.rank, self.world_size)
        if self.world_size is not None:
            self.check_world(self.world_size)

    def check_world(self, world_size: int) -> None:
        """Raises InvalidError unless the ranks can be divided into groups of `replication`."""
        if world_size % self.replication:
            raise InvalidError(
                f"replication={self.replication}: {world_size} ranks cannot be divided into groups of "
                f"{self.replication}; it must divide the world size"
            )

    @property
    def step_size(self) -> int:
        """Samples of one rank at one step, where the batch size is not known one."""
        return self.batch_size or 1


def _integer(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidError(f"{name}={value!r}: must be an integer")
    if not least <= value <= most:
        limit = f"at least {least}" if value < least else f"at most {most}"
        raise InvalidError(f"{name}={value!r}: must be {limit}")
