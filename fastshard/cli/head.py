"""`fastshard head`: the first samples of a data set."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import click

from fastshard._text import fields, shorten, table, width
from fastshard.cli._options import json_option, path_argument

__all__ = ["command"]

_PIPE_WIDTH = 160  # columns where the output is no terminal
_TABLE_COLUMNS = 24  # of a value in a table; longer ones are shown one below the other


@click.command("head", short_help="Print the first samples.")
@path_argument
@click.option(
    "-n", "number", type=click.IntRange(min=0), default=10, show_default=True, help="How many samples."
)
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Begin after this many samples.")
@click.option("--columns", metavar="A,B", help="Only these columns, separated by commas.")
@json_option
def command(path: str, number: int, skip: int, columns: str | None, as_json: bool) -> None:
    """Print the first samples of a data set, in the order of their ids; or of a part of it.

    With --json one object a line, with null where a value is null. What JSON lacks is text there: NaN and infinities
    are "NaN", "Infinity" and "-Infinity", binary values base64, decimals their digits, dates and times such as
    "2020-01-01 12:00:00Z".

    \b
    Examples:
      fastshard head train/
      fastshard head -n 3 --skip 1000 --columns label,text train/
      fastshard head -n 1 --json train/ | jq
      fastshard head "train/?where=label = 3"
      fastshard head "train/?split=val&seed=1"
    """
    from fastshard.cli._values import JsonRows
    from fastshard.forms import FormOptions
    from fastshard.views import View, open_spec

    names = None if columns is None else [name for name in columns.split(",") if name]
    forms = FormOptions(cast={"bfloat16": "float32"})
    with open_spec(path, columns=names, forms=forms) as reader:
        places = range(len(reader))[skip : skip + number]
        ids = (
            reader.selection.fill(places.start, len(places)).tolist() if isinstance(reader, View) else places
        )
        assert reader.native is not None
        rows = JsonRows(reader.native[0])
        if as_json:
            _print_json(rows[id] for id in ids)
        else:
            _print_text(((id, reader[i], rows[id]) for i, id in zip(places, ids, strict=True)), len(reader))


def _print_json(rows: Iterator[dict[str, Any]]) -> None:
    for row in rows:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
        click.echo(line.encode("utf-8", "surrogateescape") + b"\n", nl=False)


def _print_text(samples: Iterator[tuple[int, dict[str, Any], dict[str, Any]]], total: int) -> None:
    """Samples by their ids, as they are and as JSON has them: as a table, or if they are long one below the other."""
    from fastshard.cli._values import to_text

    first = list(itertools.islice(samples, 1))
    if not first:
        click.echo(f"no samples ({total:,} in the data set)")
        return
    limit = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else _PIPE_WIDTH
    rows = [
        (id, {name: to_text(value, plain[name]) for name, value in sample.items()})
        for id, sample, plain in [*first, *samples]
    ]
    names = list(rows[0][1])
    header = ("id", *(shorten(name, _TABLE_COLUMNS) for name in names))
    cells = [(f"{i:,}", *(shorten(text, _TABLE_COLUMNS) for text in sample.values())) for i, sample in rows]
    text = table(header, cells, right=(0,))
    cut = any(width(value) > _TABLE_COLUMNS for _, sample in rows for value in sample.values())
    if not cut and max(map(width, text.splitlines())) <= limit:
        click.echo(text)
        return
    for i, sample in rows:
        click.echo(f"sample {i:,}")
        pairs = [(f"  {shorten(name, 40)}", value) for name, value in sample.items()]
        room = max(20, limit - 2 - max(width(name) for name, _ in pairs))
        click.echo(fields([(name, shorten(value, room)) for name, value in pairs]))
