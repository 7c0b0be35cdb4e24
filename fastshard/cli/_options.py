"""Options and output that several subcommands share."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["echo_json", "json_option", "path_argument", "shuffle_option"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
# For commands that read samples: a data set or, as `fastshard.views.open_spec` reads it, a view.
path_argument = click.argument("path", type=click.Path(file_okay=True, path_type=str), metavar="PATH")
shuffle_option = click.option(
    "--shuffle",
    type=click.Choice(["none", "block", "global"]),
    default="block",
    show_default=True,
    help="Order of the samples.",
)


def echo_json(document: Any) -> None:
    """Print one JSON document, readable, in UTF-8 whatever the terminal's encoding."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    click.echo(text.encode() + b"\n", nl=False)
