"""How numbers, values and tables look to people: units, aligned columns, no line longer than asked for."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any

__all__ = ["count", "fields", "rate", "seconds", "shorten", "size", "table", "width"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def count(number: int, singular: str = "", plural: str = "") -> str:
    """`1,797`, or with a noun `1,797 samples`; `plural` is the noun plus "s" unless given."""
    if not singular:
        return f"{number:,}"
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def size(number: float) -> str:
    """A number of bytes with three digits or more, in units of 1024: `512 B`, `1.00 MiB`, `25.3 GiB`."""
    power = 0
    while number >= 1000 and power < len(_UNITS) - 1:
        number /= 1024
        power += 1
    if power == 0:
        return f"{number:.0f} B"
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {_UNITS[power]}"


def seconds(number: float) -> str:
    """A duration: `12 ms`, `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if number < 1:
        return f"{number * 1000:.0f} ms"
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def rate(number: float, elapsed: float) -> str:
    """Bytes over seconds: `1.20 GiB/s`."""
    return f"{size(number / max(elapsed, 1e-9))}/s"


def width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def shorten(text: str, limit: int) -> str:
    """The text in one line of at most `limit` columns, ending in "..." where it was cut."""
    text = "".join(char if char.isprintable() else _escape(char) for char in text)
    if width(text) <= limit:
        return text
    kept, used = [], 0
    for char in text:
        used += width(char)
        if used > limit - 3:
            break
        kept.append(char)
    return "".join(kept) + "..."


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) < 0xD800 else f"\\u{ord(char):04x}"


def table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = (), indent: str = ""
) -> str:
    """Rows under a header, in columns as wide as they must be.

    Args:
        header: A title for each column.
        rows: The cells, shown by `str`.
        right: The columns that are aligned to the right, by number.
        indent: What each line begins with.
    """
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(width(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        padded = []
        for i, cell in enumerate(row):
            space = " " * (widths[i] - width(cell))
            padded.append(space + cell if i in right else cell + space)
        lines.append((indent + "  ".join(padded)).rstrip())
    return "\n".join(lines)


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line, the values aligned."""
    widest = max((width(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name}{' ' * (widest - width(name))}  {value}".rstrip() for name, value in pairs)
