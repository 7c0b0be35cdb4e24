"""The names that Databricks and Spark have for one place, as paths that a Python process opens."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from fastshard._directory import is_store, local_path
from fastshard.errors import InvalidError

__all__ = ["is_mount", "is_store", "resolve_place"]

# Object stores that are mounted as if they were file systems: they take one pass of writes and nothing else.
_MOUNTS = re.compile(r"/(Volumes|dbfs)(/|$)")
_SPARK_S3 = re.compile(r"^s3[an]://", re.IGNORECASE)
_WORKSPACE = re.compile(r"/Workspace(/|$)")


def resolve_place(dest: str | os.PathLike[str], *, stores: bool = False) -> str:
    """The absolute path of a destination; with `stores`, the URL of a folder in an object store stays one.

    `dbfs:/x`, `file:///dbfs/x` and `/dbfs/x` are one place, as are `dbfs:/Volumes/...` and `/Volumes/...`; `s3a://`
    and `s3n://` are Spark's names of `s3://`.

    Raises:
        InvalidError: It is no path, or lies in a workspace folder.
        UnsupportedError: It is a URL that data sets are not written to.
    """
    text = os.fsdecode(dest) if isinstance(dest, (str, os.PathLike)) else dest
    if isinstance(text, str):
        scheme, colon, rest = text.partition(":")
        if colon and scheme.lower() == "dbfs":
            path = "/" + unquote(rest).lstrip("/")
            text = path if _MOUNTS.match(path) or _WORKSPACE.match(path) else "/dbfs" + path
        elif colon and scheme.lower() == "file" and rest.startswith("/") and not rest.startswith("//"):
            text = unquote(rest)
    if stores and isinstance(text, str) and is_store(text):
        return _SPARK_S3.sub("s3://", text)
    path = local_path(text)
    if _WORKSPACE.match(path):
        raise InvalidError(
            f"{path}: workspace folders are for notebooks and small files: executors cannot write there, and what "
            "they hold is limited; choose a volume, as /Volumes/CATALOG/SCHEMA/VOLUME/train"
        )
    return path


def is_mount(path: str) -> bool:
    """Whether a path lies on a mounted object store, by its name."""
    return _MOUNTS.match(path) is not None
