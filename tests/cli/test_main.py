"""What holds for every subcommand: help, versions, and how failures end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

import fastshard
from fastshard import cli
from fastshard.errors import CorruptError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastshard", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Makes a function the subcommand `probe`."""

    def add(function):
        probe = click.command("probe")(function)
        monkeypatch.setattr(cli.cli, "get_command", lambda ctx, name: probe if name == "probe" else None)

    return add


def test_help_names_every_subcommand_with_its_purpose() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert not result.stderr
    listed = result.stdout.split("Commands:")[1].splitlines()
    lines = {line.split()[0]: line.split()[1:] for line in listed if line.strip()}
    assert list(lines) == list(cli._COMMANDS)
    assert all(lines.values())


@pytest.mark.parametrize("name", cli._COMMANDS)
def test_help_of_a_subcommand_has_examples_and_fits_a_terminal(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text
    assert f"fastshard {name}" in text.split("Examples:")[1]
    assert max(map(len, text.splitlines())) <= 80


def test_version() -> None:
    assert run("--version").stdout == f"fastshard, version {fastshard.__version__}\n"


def test_listing_commands_imports_no_heavy_package() -> None:
    code = (
        "import sys; from fastshard.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"torch", "pandas", "pyarrow"} & set(result.stderr.split())


def test_wrong_calls_exit_with_2() -> None:
    for arguments in (["nonsense"], ["info"], ["info", "--nonsense", "x"]):
        result = run(*arguments)
        assert result.returncode == 2
        assert "Usage: fastshard" in result.stderr
        assert not result.stdout


def test_an_error_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    result = run("info", str(tmp_path / "nowhere"))
    assert result.returncode == 1
    assert result.stderr.startswith("fastshard: ")
    assert "nowhere" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


def test_the_traceback_shows_when_it_is_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere")
    for result in (run("--traceback", "info", path), run("info", path, FASTSHARD_TRACEBACK="1")):
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert "NotFoundError" in result.stderr


def test_an_error_of_several_lines_becomes_one(command, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise CorruptError("shard-00000: bad\n  because\n\tof this")

    command(fail)
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "fastshard: shard-00000: bad because of this\n"


def test_an_operating_system_error_is_one_line_too(command, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied", "/data/train")

    command(fail)
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "fastshard: [Errno 13] Permission denied: '/data/train'\n"


def test_a_fault_of_ours_is_not_hidden(command) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug")

    command(fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_a_subcommand_chooses_its_exit_code(command) -> None:
    command(lambda: click.get_current_context().exit(1))
    assert cli.main(["probe"]) == 1


@contextmanager
def started(body: str) -> Iterator[subprocess.Popen[str]]:
    """A process of the command line whose only subcommand runs these statements."""
    code = (
        "import signal, sys, time, click; from fastshard import cli\n"
        f"def probe():\n{textwrap.indent(body, '    ')}\n"
        "cli.cli.get_command = lambda ctx, name: click.command('probe')(probe)\n"
        "sys.exit(cli.main(['probe']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_interrupt_exits_with_130() -> None:
    # A signal that comes just before a sleep begins does not end it: short ones.
    body = "print('ready', flush=True)\nfor _ in range(6000): time.sleep(0.01)"
    with started(body) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == "fastshard: interrupted"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    with started("while True: click.echo('x' * 1000)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=30)
    assert process.returncode == 1
    assert errors == ""
