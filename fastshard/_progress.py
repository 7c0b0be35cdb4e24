"""How far a conversion has come, shown in a terminal, a notebook, or to a function of the user's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from fastshard.errors import InvalidError

if TYPE_CHECKING:
    from fastshard.converters._write import Progress

__all__ = ["ProgressOption", "shown_progress"]

# What users give as progress=: True, False, None (where someone is watching), or a function.
ProgressOption: TypeAlias = "bool | Callable[[Progress], Any] | None"


@contextmanager
def shown_progress(option: ProgressOption, title: str) -> Iterator[Callable[[Progress], Any] | None]:
    """The callback that `progress=` stands for, for the time of the block.

    Args:
        option: True shows a bar, False nothing, None a bar where a person is watching; a function is called with each
            `Progress`.
        title: What is being done.

    Raises:
        InvalidError: The option is none of these.
    """
    if option is None:
        option = _is_watched()
    if callable(option):
        yield option
    elif option is False:
        yield None
    elif option is True:
        bar = _Bar(title)
        try:
            yield bar
        finally:
            bar.close()
    else:
        raise InvalidError(f"progress={option!r}: expected True, False, None or a function of a Progress")


def _is_watched() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and type(shell).__name__ == "ZMQInteractiveShell":
        return True
    return sys.stderr is not None and sys.stderr.isatty()


class _Bar:
    """Bytes of the source as a bar, with the time left; rows and their rate beside it."""

    def __init__(self, title: str) -> None:
        from tqdm.auto import tqdm

        self._tqdm: Any = tqdm(desc=title, unit="B", unit_scale=True, unit_divisor=1024, dynamic_ncols=True)

    def __call__(self, progress: Progress) -> None:
        bar = self._tqdm
        if bar.total != progress.total_bytes:
            bar.total = progress.total_bytes or None
        bar.update(progress.bytes - bar.n)
        bar.set_postfix_str(self._rows(progress), refresh=False)

    def _rows(self, progress: Progress) -> str:
        elapsed = self._tqdm.format_dict["elapsed"]
        rate = f", {_short(progress.rows / elapsed)} rows/s" if elapsed > 0 and progress.rows else ""
        of = "" if progress.total_rows is None else f" of {_short(progress.total_rows)}"
        return f"{_short(progress.rows)}{of} rows{rate}"

    def close(self) -> None:
        self._tqdm.close()


def _short(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000 or unit == "G":
            break
        number /= 1000
    return f"{number:.0f}{unit}" if unit == "" or number >= 100 else f"{number:.1f}{unit}"
