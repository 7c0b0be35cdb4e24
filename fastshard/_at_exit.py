"""What must end before the interpreter does: iterations left open, whose modules are gone when they end by themselves.

All of it is known weakly: an iteration that Ctrl-C ended at any place leaves nothing behind.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

__all__ = ["closed_at_exit", "stopped_at_exit"]


class _Stops(Protocol):
    def stop(self) -> None: ...


_Generated = TypeVar("_Generated", bound=Generator[Any, None, None])

_generators: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()
_streams: weakref.WeakSet[_Stops] = weakref.WeakSet()


def closed_at_exit(generator: _Generated) -> _Generated:
    """The generator, which is closed at the end of the process if it still lives."""
    _generators.add(generator)
    return generator


def stopped_at_exit(stream: _Stops) -> None:
    """Has threads end with the process, also where a thread of the program waits for them in a generator."""
    _streams.add(stream)


@atexit.register
def _end() -> None:
    for generator in list(_generators):
        with suppress(
            Exception
        ):  # it runs in another thread; or the process ends, and there is nobody to tell
            generator.close()
    for stream in list(_streams):
        stream.stop()
