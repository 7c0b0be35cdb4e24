"""`fastshard bench`: how fast this machine delivers a data set."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from fastshard._text import count, fields, seconds, size
from fastshard.cli._options import echo_json, json_option, path_argument, shuffle_option
from fastshard.errors import NullError

if TYPE_CHECKING:
    from fastshard._measure import Measured

__all__ = ["command"]


@click.command("bench", short_help="Measure how fast batches are delivered here.")
@path_argument
@click.option(
    "--batch-size", "-b", type=click.IntRange(1), default=256, show_default=True, help="Samples of a batch."
)
@shuffle_option
@click.option("--columns", help="Names of the columns to read, with commas between.  [default: all]")
@click.option("--threads", type=click.IntRange(1), help="Threads that gather.  [default: by the CPUs]")
@click.option(
    "--engine",
    type=click.Choice(["auto", "mmap", "uring", "threads"]),
    default="auto",
    show_default=True,
    help="How bytes are read.",
)
@click.option(
    "--verify",
    type=click.Choice(["auto", "always", "once", "never"]),
    default="auto",
    show_default=True,
    help="When columns are compared with their hashes.",
)
@click.option(
    "--seconds", "time", type=click.FloatRange(0.1), default=10.0, show_default=True, help="How long."
)
@click.option(
    "--cold", is_flag=True, help="Take the files out of the page cache first, and read one epoch at most."
)
@click.option("--plot", "plot", metavar="FILE.png", help="Draw throughput and waiting along the time.")
@json_option
def command(
    path: str,
    batch_size: int,
    shuffle: str,
    columns: str | None,
    threads: int | None,
    engine: str,
    verify: str,
    time: float,
    cold: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Deliver batches as fast as they come, and say how fast that was and what limited it.

    The first epoch of a warm run still reads files that are not in the page cache; --cold makes that certain, as far as
    the kernel forgets pages when it is asked to. A training loop cannot be faster than this, and is as fast where its
    own work takes longer. Columns whose nulls a batch has no form for come with masks (null_masks=True).

    \b
    Examples:
      fastshard bench train/
      fastshard bench train/ -b 1024 --shuffle global --threads 4
      fastshard bench train/ --cold --engine uring --plot bench.png
      fastshard bench train/ --json | jq .samples_per_second
    """
    from tqdm.auto import tqdm

    from fastshard._measure import check_picture, draw, forget, measure
    from fastshard._optional import require

    require("torch", "torch", "fastshard bench")
    if plot is not None:
        check_picture(plot)
    from fastshard.loader import ShardLoader

    options: dict[str, Any] = {
        "batch_size": batch_size,
        "shuffle": shuffle,
        "columns": None if columns is None else columns.split(","),
        "threads": threads,
        "engine": engine,
        "verify": verify,
    }
    try:
        made = ShardLoader(path, **options)
    except NullError:
        made = ShardLoader(path, null_masks=True, **options)
    with made as loader:
        if cold:
            if loader._data.native is None:
                raise click.UsageError("--cold is for one data set, not for several together")
            forget(os.path.abspath(loader._data.native[0].path))
        hidden = as_json or not sys.stderr.isatty()
        with tqdm(total=time, unit="s", desc="bench", disable=hidden, file=sys.stderr, leave=False) as bar:
            measured = measure(
                loader,
                time,
                most_epochs=1 if cold else None,
                progress=lambda gone: bar.update(min(gone, time) - bar.n),
            )
    if plot is not None:
        draw(measured, f"{path}: batches of {batch_size}, shuffle {shuffle}, {measured.engine}", plot)
    if as_json:
        echo_json(
            {"path": path, "batch_size": batch_size, "shuffle": shuffle, "cold": cold, **asdict(measured)}
        )
        return
    click.echo(_summary(measured))


def _summary(measured: Measured) -> str:
    per_second = measured.samples_per_second
    pairs = [
        ("samples/s", f"{per_second:,.0f}"),
        ("bytes/s", f"{size(measured.bytes_per_second)}/s uncompressed"),
        (
            "delivered",
            f"{count(measured.samples, 'sample')} in {count(measured.batches, 'batch', 'batches')}",
        ),
        ("in", f"{seconds(measured.seconds)}, {count(measured.epochs, 'whole epoch')}"),
        ("first batch", f"after {seconds(measured.first_batch_seconds)}"),
        ("waited", f"{measured.wait_seconds / measured.seconds:.0%} of the time for batches"),
        ("engine", f"{measured.engine}: {measured.engine_reason}"),
        ("limit", measured.limit),
    ]
    if measured.bytes_read:
        pairs.insert(6, ("read", f"{size(measured.bytes_read)} by the engine"))
    if measured.blocks_decompressed:
        pairs.insert(6, ("decompressed", f"{count(measured.blocks_decompressed, 'column')} of blocks"))
    return fields(pairs)
