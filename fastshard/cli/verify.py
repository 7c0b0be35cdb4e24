"""`fastshard verify`: every byte of a data set against its index."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from fastshard._text import count, rate, seconds, size
from fastshard.cli._options import echo_json, json_option, path_argument
from fastshard.errors import CorruptError, NotFoundError

if TYPE_CHECKING:
    from fastshard.verification import Fault

__all__ = ["command"]


@click.command("verify", short_help="Check every byte against the index.")
@path_argument
@click.option("--quiet", "-q", is_flag=True, help="No progress; only faults.")
@json_option
@click.pass_context
def command(context: click.Context, path: str, quiet: bool, as_json: bool) -> None:
    """Check that a data set is whole: each file's size and checksum, the structure of each shard, each block.

    Every shard is checked, also after a fault was found, and also where PATH names a part of a data set. The exit code
    is 0 if all is well and 1 if not.

    \b
    Examples:
      fastshard verify train/
      fastshard verify train/ --json | jq .faults
    """
    from fastshard.views import parse_spec, path_of

    parse_spec(path)  # says what is wrong with the part that it names
    path = path_of(path)
    rows, checked, elapsed, faults = _verify(path, show_progress=not (quiet or as_json))
    if as_json:
        echo_json(
            {
                "path": os.path.abspath(path),
                "ok": not faults,
                "rows": rows,
                "bytes": checked,
                "seconds": round(elapsed, 3),
                "faults": [{"file": f.file, "code": f.code, "message": f.message} for f in faults],
            }
        )
    elif faults:
        for fault in faults:
            click.echo(" ".join(fault.message.split()))
        click.echo(f"{path}: {count(len(faults), 'fault')}")
    elif not quiet:
        done = f"{count(rows, 'sample')}, {size(checked)} in {seconds(elapsed)} ({rate(checked, elapsed)})"
        click.echo(f"{path}: all is well: {done}")
    if faults:
        context.exit(1)


def _verify(path: str, *, show_progress: bool) -> tuple[int, int, float, list[Fault]]:
    """Samples, bytes, seconds and faults; an index that cannot be read is a fault, a missing one an error."""
    import fastshard
    from fastshard._index import read_index
    from fastshard.verification import Fault

    try:
        index = read_index(path)
        reader = fastshard.open(path)
    except CorruptError as error:
        return 0, 0, 0.0, [Fault("index.json", error.code, str(error))]
    except NotFoundError as error:
        if not os.path.exists(os.path.join(path, "index.json")):
            raise
        return 0, 0, 0.0, [Fault("index.json", error.code, str(error))]
    started = time.perf_counter()
    with (
        reader,
        tqdm(
            total=index.bytes, unit="B", unit_scale=True, unit_divisor=1024, desc="verify", leave=False,
            disable=None if show_progress else True,
        ) as bar,
    ):  # fmt: skip
        faults = reader.verify(progress=lambda done, total: bar.update(done - bar.n))
    return index.rows, index.bytes, time.perf_counter() - started, faults
