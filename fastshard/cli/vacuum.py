"""`fastshard vacuum`: remove what the current generation of a data set does not use."""

from __future__ import annotations

import os

import click

from fastshard._text import count, size
from fastshard.cli._options import echo_json, json_option, path_argument

__all__ = ["command"]


@click.command("vacuum", short_help="Remove what older generations left.")
@path_argument
@json_option
def command(path: str, as_json: bool) -> None:
    """Remove the files of a data set that its current generation does not use.

    Those are the files of the generation before, kept so that a reader that opened it goes on reading, and what
    writers that died left. Do this when no such reader is at work; the next commit does it too. PATH is
    a whole data set, not a part of one.

    \b
    Examples:
      fastshard vacuum train/
      fastshard vacuum train/ --json
    """
    import fastshard

    removed = fastshard.vacuum(path)
    if as_json:
        echo_json({"path": os.path.abspath(path), "files": removed.files, "bytes": removed.bytes})
    elif removed.files:
        click.echo(f"{path}: removed {count(removed.files, 'file')}, {size(removed.bytes)}")
    else:
        click.echo(f"{path}: nothing to remove")
