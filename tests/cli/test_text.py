"""Numbers, values and tables as people see them."""

from __future__ import annotations

import numpy as np
import pytest

from fastshard._text import count, fields, seconds, shorten, size, table, width
from fastshard.cli._values import to_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1024, "1.00 KiB"), (10_240, "10.0 KiB"),
        (1 << 20, "1.00 MiB"), (256 << 20, "256 MiB"), (1000 << 20, "0.98 GiB"),
        (3 << 60, "3.00 EiB"), (3 << 70, "3072 EiB"),
    ],
)  # fmt: skip
def test_size(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0123, "12 ms"), (4.24, "4.2 s"), (59.99, "60.0 s"), (200.4, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_seconds(number: float, text: str) -> None:
    assert seconds(number) == text


def test_count() -> None:
    assert count(1797) == "1,797"
    assert count(1, "shard") == "1 shard"
    assert count(0, "shard") == "0 shards"
    assert count(2, "entry", "entries") == "2 entries"


def test_shorten_keeps_one_line_within_the_limit() -> None:
    assert shorten("plain", 10) == "plain"
    assert shorten("a" * 11, 10) == "aaaaaaa..."
    assert shorten("a\nb\x1b[31m\0", 40) == "a\\nb\\u001b[31m\\u0000"
    assert width(shorten("漢字" * 10, 11)) <= 11
    assert shorten("\ud800", 10) == "\\ud800"


def test_table_aligns_wide_and_combining_characters() -> None:
    lines = table(("name", "n"), [("漢字", 1), ("e\u0301", 22)], right=(1,)).splitlines()
    assert lines == ["name   n", "漢字   1", "e\u0301     22"]


def test_fields_align_values() -> None:
    assert fields([("a", "1"), ("long", "2"), ("b", "")]) == "a     1\nlong  2\nb"
    assert fields([]) == ""


def test_text_of_values() -> None:
    assert to_text(np.float32("nan"), None) == "null"
    assert to_text(np.arange(20, dtype=np.uint8).reshape(4, 5), []) == (
        "uint8[4, 5] 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 ..."
    )
    assert to_text(np.zeros((0, 3), np.float32), []) == "float32[0, 3]"
    assert to_text(b"\x01\x02", "AQI=") == "2 bytes: 01 02"
    assert to_text(bytes(1024), "").startswith("1,024 bytes: 00 00")
    assert to_text(np.float32(0.1), float(np.float32(0.1))) == "0.1"
    assert to_text(np.int32(18262), "2020-01-01") == "2020-01-01"
    assert to_text(None, {"a": [1, None]}) == '{"a": [1, null]}'
