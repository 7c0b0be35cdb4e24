"""Environments with pinned versions, made when they are needed.

    python -m benchmarks.envs [--envs FOLDER] [GROUP ...]

A group NAME is requirements/NAME.txt and, where it is there, NAME-no-deps.txt, installed without dependencies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["GROUPS", "default_folder", "interpreter", "versions"]

REQUIREMENTS = Path(__file__).with_name("requirements")
GROUPS = ("general", "ffcv", "petastorm")


def default_folder() -> Path:
    """Where environments lie unless one says otherwise."""
    return Path.home() / ".cache" / "fastshard-benchmarks" / "envs"


def _steps(group: str) -> list[list[str]]:
    steps = [["-r", str(REQUIREMENTS / "torch.txt")], ["-r", str(REQUIREMENTS / f"{group}.txt")]]
    bare = REQUIREMENTS / f"{group}-no-deps.txt"
    if bare.exists():
        steps.append(["--no-build-isolation", "--no-deps", "-r", str(bare)])
    return steps


def interpreter(group: str, folder: Path) -> Path:
    """The Python of a group's environment; makes it where it is not there, or its requirements changed.

    "own" is this interpreter.

    Raises:
        RuntimeError: An installation failed.
    """
    if group == "own":
        return Path(sys.executable)
    environment = folder / group
    files = [Path(argument) for step in _steps(group) for argument in step if argument.endswith(".txt")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files) + sys.version.encode()).hexdigest()
    stamp = environment / "requirements.sha256"
    python = environment / "bin" / "python"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"making the environment {environment}", file=sys.stderr, flush=True)
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=True)
    for step in _steps(group):
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr.strip()[-3000:]}")
    stamp.write_text(digest)
    return python


def versions(python: Path) -> dict[str, str]:
    """Installed packages of an environment and their versions."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    run = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)

    found: dict[str, str] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--envs", type=Path, default=default_folder(), help="folder of the environments")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"there is no group {min(unknown)!r}; there are {', '.join(GROUPS)}")
    for group in arguments.groups or GROUPS:
        print(interpreter(group, arguments.envs))


if __name__ == "__main__":
    main()
