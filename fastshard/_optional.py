"""Packages that only some uses need: imported where they are used, with an error that says how to get them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastshard.errors import MissingDependencyError

__all__ = ["require"]


def require(module: str, extra: str, what: str) -> Any:
    """Import `module`, or raise `MissingDependencyError` saying that `what` needs it and which extra installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise
        install = (
            f"pip install 'fastshard[{extra}]'"
            if extra in ("torch", "spark", "delta", "ray", "remote")
            else f"pip install {extra}"
        )
        raise MissingDependencyError(f"{what} needs {module}, which is not installed: {install}") from error
