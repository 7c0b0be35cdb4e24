"""`fastshard convert`: from Parquet or Arrow files to a data set."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

import click

from fastshard._text import count, rate, seconds, size
from fastshard.cli._options import echo_json, json_option

__all__ = ["command"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_WORKERS_MAX = 8


def _size(value: str) -> int:
    """Bytes: 1048576, 64MiB, 1g."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", value.strip().lower())
    if match is None or float(match[1]) == 0:
        raise click.BadParameter(f"{value!r} is no size in bytes; write one as 1048576, 64MiB or 1GB")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def _pair(value: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, _, rest = value.partition("=")
    if not name or not rest:
        raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE")
    return name, rest


def _tensor(value: str) -> tuple[str, tuple[str, tuple[int, ...]]]:
    """NAME=TYPE:SHAPE, the shape as 3x224x224."""
    match = re.fullmatch(r"(.+?)=(\w+):(\d+(?:[x,]\d+)*)", value)
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not of the form NAME=TYPE:SHAPE, such as image=uint8:3x224x224"
        )
    return match[1], (match[2], tuple(int(length) for length in re.split("[x,]", match[3])))


@click.command("convert", short_help="Convert Parquet or Arrow files to a data set.")
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("dest", metavar="DST")
@click.option("--columns", metavar="A,B,...", help="Take these columns only, in this order.")
@click.option("--where", metavar="CONDITION", help="Take only rows for which this is true; see above.")
@click.option(
    "--cast",
    type=_pair,
    metavar="NAME=VALUE",
    multiple=True,
    help="New type of a column or of a type: x=float32, float64=float32.",
)
@click.option(
    "--tensor",
    "tensors",
    type=_tensor,
    metavar="NAME=TYPE:SHAPE",
    multiple=True,
    help="Bytes or lists become tensors: image=uint8:3x224x224.",
)
@click.option(
    "--transform",
    metavar="MODULE:FUNCTION",
    help="A Python function from Arrow batch to Arrow batch, called last.",
)
@click.option("--shuffle-seed", type=int, metavar="N", help="Write the rows in a random order.")
@click.option("--compression", metavar="NAME", help="none, lz4, zstd or zstd:LEVEL.  [default: none]")
@click.option("--overwrite", is_flag=True, help="Replace a data set that is there.")
@click.option("--append", is_flag=True, help="Add to a data set that is there.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes.  [default: one for each CPU, at most 8]"
)
@click.option(
    "--metadata",
    type=_pair,
    metavar="NAME=VALUE",
    multiple=True,
    help="Keep this with the data set; the value may be JSON.",
)
@click.option("--block-bytes", type=_size, metavar="SIZE", help="Size that a block aims at.  [default: 1MiB]")
@click.option(
    "--shard-bytes", type=_size, metavar="SIZE", help="Size that a shard aims at.  [default: 256MiB]"
)
@click.option("--progress/--no-progress", default=None, help="Show a bar.  [default: in a terminal]")
@json_option
def command(
    sources: tuple[str, ...],
    dest: str,
    columns: str | None,
    where: str | None,
    cast: tuple[tuple[str, str], ...],
    tensors: tuple[tuple[str, tuple[str, tuple[int, ...]]], ...],
    transform: str | None,
    shuffle_seed: int | None,
    compression: str | None,
    overwrite: bool,
    append: bool,
    workers: int | None,
    metadata: tuple[tuple[str, str], ...],
    block_bytes: int | None,
    shard_bytes: int | None,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Convert files to a data set.

    SRC is a Parquet or Arrow file (IPC file or stream, Feather), a directory of them, also Hive-partitioned, a glob,
    a URL, or a fastshard data set; several are taken one after the other. DST is a directory. It gets a data set only
    when all is written; an interrupted conversion leaves none.

    A condition compares columns with values: =, !=, <, <=, >, >=, in (...), between, like, is null, joined by and, or,
    not. Texts and dates stand in quotes, names with odd characters in backquotes.

    \b
    Examples:
      fastshard convert export/ train/
      fastshard convert 's3://bucket/year=*/*.parquet' train/ --columns x,y
      fastshard convert images.parquet train/ --tensor image=uint8:3x224x224
      fastshard convert export/ train/ --cast float64=float32 --shuffle-seed 1
      fastshard convert export/ train/ --where "label in (1, 2) and x > 0.5"
      fastshard convert export/ train/ --overwrite --compression zstd:3
    """
    from fastshard.conversion import Changes, convert_source, open_source, write_options

    if overwrite and append:
        raise click.UsageError("--overwrite and --append contradict each other: give one of them")
    options = write_options(compression, block_bytes, shard_bytes)
    source = open_source(sources[0] if len(sources) == 1 else sources)
    changes = Changes(
        columns=_split(columns, source.schema.names),
        filter=where,
        tensors=dict(tensors),
        cast=dict(cast),
        transform=None if transform is None else _function(transform),
        shuffle_seed=shuffle_seed,
    )
    start = time.perf_counter()
    result = convert_source(
        source,
        dest,
        changes,
        options=options,
        workers=workers or _default_workers(),
        mode="overwrite" if overwrite else "append" if append else "error",
        metadata={name: _json_or_text(value) for name, value in metadata},
        progress=progress,
    )
    took = time.perf_counter() - start
    if as_json:
        echo_json({**asdict(result), "seconds": round(took, 3)})
        return
    click.echo(
        f"{result.path}: {count(result.rows, 'sample')} in {count(result.shards, 'shard')}, "
        f"{size(result.bytes)}{_ratio(result)}, in {seconds(took)} ({rate(result.raw_bytes, took)})"
    )


def _ratio(result: Any) -> str:
    small = result.bytes and result.raw_bytes > 1.05 * result.bytes
    return f" ({result.raw_bytes / result.bytes:.2f} times smaller than in memory)" if small else ""


def _split(columns: str | None, names: list[str]) -> list[str] | None:
    """Column names by commas; a name that has commas itself stands alone."""
    if columns is None:
        return None
    if columns in names:
        return [columns]
    return [name.strip() for name in columns.split(",") if name.strip()]


def _default_workers() -> int:
    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        usable = os.cpu_count() or 1
    return min(usable, _WORKERS_MAX)


def _function(text: str) -> Callable[..., Any]:
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise click.BadParameter(f"{text!r} is not of the form MODULE:FUNCTION", param_hint="--transform")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as python -m does
    try:
        found = import_module(module)
    except ImportError as error:
        raise click.BadParameter(f"cannot import {module!r}: {error}", param_hint="--transform") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise click.BadParameter(f"module {module!r} has no function {name!r}", param_hint="--transform")
    return function  # type: ignore[no-any-return]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
