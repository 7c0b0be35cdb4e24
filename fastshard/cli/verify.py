"""`fastshard verify`: every byte of a data set against its index."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from fastshard._text import count, rate, seconds, size
from fastshard.cli._options import echo_json, json_option, path_argument
from fastshard.errors import CorruptError, Error, NotFoundError, StorageError

if TYPE_CHECKING:
    from fastshard.verification import Fault
    from fastshard.views import View

__all__ = ["command"]


@click.command("verify", short_help="Check every byte against the index.")
@path_argument
@click.option("--quiet", "-q", is_flag=True, help="No progress; only faults.")
@json_option
@click.pass_context
def command(context: click.Context, path: str, quiet: bool, as_json: bool) -> None:
    """Check that a data set is whole: each file's size and checksum, the structure of each shard, each block.

    Every shard is checked, also after a fault was found. Where PATH names a part of a data set, the shards are checked
    that hold its samples; all, if damage hides which these are. The exit code is 0 if all is well and 1 if not.

    \b
    Examples:
      fastshard verify train/
      fastshard verify train/ --json | jq .faults
      fastshard verify "train/?split=val"
    """
    from fastshard.views import parse_spec, path_of

    parse_spec(path)  # says what is wrong with the part that it names
    root = path_of(path)
    checked = _verify(root, path, show_progress=not (quiet or as_json))
    faults = checked.faults
    if as_json:
        document = {
            "path": os.path.abspath(root),
            "ok": not faults,
            "rows": checked.rows,
            "bytes": checked.bytes,
            "seconds": round(checked.seconds, 3),
            "faults": [{"file": f.file, "code": f.code, "message": f.message} for f in faults],
        }
        if checked.part is not None:
            document["view"] = checked.part
        echo_json(document)
    elif faults:
        for fault in faults:
            click.echo(" ".join(fault.message.split()))
        click.echo(f"{path}: {count(len(faults), 'fault')}")
    elif not quiet:
        done = f"{size(checked.bytes)} in {seconds(checked.seconds)} ({rate(checked.bytes, checked.seconds)})"
        where = "" if checked.part is None else f" in {count(checked.part['in_shards'], 'shard')}"
        click.echo(f"{path}: all is well: {count(checked.rows, 'sample')}{where}, {done}")
    if faults:
        context.exit(1)


@dataclass(frozen=True, slots=True)
class _Checked:
    """What was checked, and what was found.

    Attributes:
        faults: What is wrong.
        rows: Samples; of a part those that it selects.
        bytes: Of the shards that were checked.
        seconds: How long that took.
        part: What is said of a part: its steps, samples of the whole, and shards.
    """

    faults: list[Fault]
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    part: dict[str, Any] | None = None


def _verify(root: str, path: str, *, show_progress: bool) -> _Checked:
    """Check a data set, or the part of it that `path` names.

    An index that cannot be read is a fault, a missing one an error.
    """
    import fastshard
    from fastshard._index import read_index
    from fastshard.verification import Fault

    try:
        index = read_index(root)
        reader = fastshard.open(root)
    except CorruptError as error:
        return _Checked([Fault("index.json", error.code, str(error))])
    except NotFoundError as error:
        if not os.path.exists(os.path.join(root, "index.json")):
            raise
        return _Checked([Fault("index.json", error.code, str(error))])
    started = time.perf_counter()
    with reader:
        view, unreadable = _part(path)
        sizes = reader.core.shard_bytes()
        shards = None if view is None else view.geometry.shard_rows.nonzero()[0].tolist()
        total = int(sizes.sum() if shards is None else sizes[shards].sum())
        with tqdm(
            total=total, unit="B", unit_scale=True, unit_divisor=1024, desc="verify", leave=False,
            disable=None if show_progress else True,
        ) as bar:  # fmt: skip
            faults = reader.verify(lambda done, _: bar.update(done - bar.n), shards=shards)
    if unreadable is not None and not faults:
        raise unreadable
    elapsed = time.perf_counter() - started
    if view is None or shards is None:
        return _Checked(faults, index.rows, total, elapsed)
    part = {"steps": [str(step) for step in view.steps], "of_rows": index.rows, "in_shards": len(shards)}
    return _Checked(faults, view.rows, total, elapsed, part)


def _part(path: str) -> tuple[View | None, Error | None]:
    """The part of a data set that a path names (None: the whole), or why it cannot be told which samples that are."""
    from fastshard.views import View, open_spec, selects

    if not selects(path):
        return None, None
    try:
        with open_spec(path) as view:
            assert isinstance(view, View)
            return view, None
    except (CorruptError, NotFoundError, StorageError) as error:
        return None, error
