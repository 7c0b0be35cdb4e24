"""Which process an iterator belongs to: threads that make its batches are not in the child of a fork."""

from __future__ import annotations

import os

from fastshard.errors import InvalidError

__all__ = ["Owner"]


class Owner:
    """The process that made this object."""

    __slots__ = ("_getpid", "_pid")

    def __init__(self) -> None:
        self._getpid = os.getpid  # kept: at the end of the process the module's names go before iterators do
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether that is this one."""
        return self._pid == self._getpid()

    def check(self) -> None:
        """Raises `InvalidError` in the child of a fork, as the native stream does."""
        if not self.is_here():
            raise InvalidError(
                "this iterator was made before the process was forked; iterate the loader anew in the child"
            )
