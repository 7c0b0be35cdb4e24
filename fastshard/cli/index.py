"""`fastshard index`: a data set of Arrow files that are there already."""

from __future__ import annotations

from dataclasses import asdict

import click

from fastshard._text import count, size
from fastshard.cli._options import echo_json, json_option

__all__ = ["command"]


@click.command("index", short_help="Index Arrow files where they lie.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--dest",
    metavar="DIR",
    help="Where to put the index: a folder that holds all the files, at any depth.  [default: where they are]",
)
@click.option("--overwrite", is_flag=True, help="Replace an index that is there.")
@json_option
def command(sources: tuple[str, ...], dest: str | None, overwrite: bool, as_json: bool) -> None:
    """Make a data set of Arrow files that others wrote, without copying them: Feather V2 files, Arrow IPC files and
    streams, or a folder that Hugging Face's save_to_disk wrote.

    SOURCE is a file, a folder or a glob. The files are read once, to check them, and must not change afterwards.
    What cannot be read where it lies (dictionaries, big-endian values) is refused: "fastshard convert" takes it.

    \b
    Examples:
      fastshard index features/
      fastshard index 'features/*.arrow'
      fastshard index --overwrite --json hf_dataset/
    """
    import fastshard

    source = sources[0] if len(sources) == 1 else sources
    written = fastshard.index(source, dest, mode="overwrite" if overwrite else "error")
    if as_json:
        echo_json(asdict(written))
    else:
        click.echo(
            f"{written.path}: {count(written.rows, 'sample')} in {count(written.shards, 'file')}, {size(written.bytes)}"
        )
