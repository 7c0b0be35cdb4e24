"""The command `fastshard`: its subcommands, found when they are called, and what becomes of their errors."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import click

import fastshard
from fastshard.errors import Error

__all__ = ["cli", "main"]

# Exit codes beside these and 0: 2 for a wrong call, as click has it.
_FAILED = 1  # also where a check found faults, and where whoever read the output left
_INTERRUPTED = 128 + signal.SIGINT

# Subcommand -> the module whose `command` it is, in the order of the help.
_COMMANDS = {
    "convert": "fastshard.cli.convert",
    "info": "fastshard.cli.info",
    "head": "fastshard.cli.head",
    "verify": "fastshard.cli.verify",
    "plan": "fastshard.cli.plan",
    "bench": "fastshard.cli.bench",
    "index": "fastshard.cli.index",
    "vacuum": "fastshard.cli.vacuum",
}

_HELP = """Turn tables into shards that train PyTorch models fast, and look at such data sets.

\b
Examples:
  fastshard convert export/ train/          Parquet files to a data set
  fastshard info train/                     what is in it
  fastshard head -n 3 train/                its first samples
  fastshard verify train/                   check every byte against the index
  fastshard plan train/ --world 8 -b 256    what each rank of a run gets and reads
  fastshard bench train/                    how fast batches are delivered here

Each command explains itself: fastshard COMMAND --help
"""


@dataclass(slots=True)
class _Call:
    """What the options before the subcommand say; kept outside click, for `main` to look at after a failure."""

    traceback: bool = False


class _LazyGroup(click.Group):
    """A group that imports a subcommand's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = import_module(module).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fastshard.__version__, "--version", "-V", prog_name="fastshard")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="FASTSHARD_TRACEBACK",
    show_envvar=True,
    help="Show where in the code an error arose, not only what it says.",
)
@click.pass_obj
def cli(call: _Call | None, traceback: bool) -> None:
    if call is not None:
        call.traceback = traceback


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    An `Error` or an `OSError` becomes one line on stderr, unless --traceback is given; any other exception is a
    fault of fastshard and passes through.

    Args:
        arguments: The words after `fastshard`; those of this process if None.
    """
    call = _Call()
    try:
        code = cli.main(arguments, prog_name="fastshard", standalone_mode=False, obj=call)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("fastshard: interrupted", err=True)
        return _INTERRUPTED
    except (Error, OSError) as error:
        if call.traceback:
            raise
        click.echo(f"fastshard: {_one_line(error)}", err=True)
        return _FAILED
    return code if isinstance(code, int) else 0


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
