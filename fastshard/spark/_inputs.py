"""Whether a frame is what it was: a key of its plan and its input files, or None where that cannot be shown.

Only frames that read nothing but files, literals and ranges, with expressions of Spark's own, have a key. A frame that
reads a database, a table of another kind or an RDD, or that runs Python, is written anew each time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastshard

__all__ = ["cache_key", "reads_only_files"]

_LEAVES = re.compile(
    r"Relation \[.*\] (parquet|orc|csv|json|text|avro)|LocalRelation|Range \(|OneRowRelation"
)
# What may give other rows for the same plan and files.
_UNSURE = re.compile(
    r"UDF|MapIn|FlatMap|MapPartitions|MapElements|ScriptTransformation|DeserializeToObject|\brand\(|\brandn\(|uuid\(|shuffle\(|"
    r"current_|\bnow\(|monotonically_increasing_id|spark_partition_id|input_file",
    re.IGNORECASE,
)
_NODE = re.compile(r"[\s:|+\-!*]*")


def cache_key(df: Any, settings: Mapping[str, Any]) -> str | None:
    """32 hexadecimal digits that change when the frame's rows may; None where nothing shows that they have not."""
    if isinstance(df, (str, Path)):
        plan: Any = [os.fspath(df)]
        files = _listed(os.fspath(df))
    else:
        text = _explained(df)
        if text is None or not reads_only_files(text):
            return None
        plan = [df.semanticHash(), df.schema.json(), _without_numbers(text)]
        files = sorted(df.inputFiles())
    states = [_state(file) for file in files]
    if None in states:
        return None
    document = [fastshard.__version__, plan, states, dict(settings)]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def _explained(df: Any) -> str | None:
    """The frame's optimised plan as text, on classic Spark and on Connect; None where it is cut short."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        df.explain("extended")
    match = re.search(
        r"== Optimized Logical Plan ==\n(.*?)\n\s*== Physical Plan ==", printed.getvalue(), re.DOTALL
    )
    return None if match is None or "more fields" in match[1] else match[1]


def reads_only_files(plan: str) -> bool:
    """Whether a plan, as `explain` prints it, gives the same rows whenever its files are the same."""
    if _UNSURE.search(plan):
        return False
    lines = [line for line in plan.splitlines() if line.strip()]
    depths = [_NODE.match(line).end() for line in lines]  # type: ignore[union-attr]  # it matches the empty text
    for place, line in enumerate(lines):
        is_leaf = place + 1 == len(lines) or depths[place + 1] <= depths[place]
        if is_leaf and not _LEAVES.match(line[depths[place] :]):
            return False
    return True


def _without_numbers(plan: str) -> str:
    """The plan without the numbers that Spark gives to expressions, other ones each time."""
    return re.sub(r"#\d+L?", "", plan)


def _listed(path: str) -> Sequence[str]:
    from fastshard.converters.files import FilesSource

    return [json.dumps(FilesSource(path).identity(), default=str, sort_keys=True)]


def _state(file: str) -> Any:
    """Size and time of change of an input file; None where they cannot be had."""
    if file.startswith(("[", "{", '"')):  # already told by what listed it
        return file
    parts = urlsplit(file)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path)
        try:
            found = os.stat(path)
        except OSError:
            return None
        return [file, found.st_size, found.st_mtime_ns]
    return _remote_state(file)


def _remote_state(file: str) -> Any:
    from pyarrow import fs as pafs

    try:
        filesystem, path = pafs.FileSystem.from_uri(re.sub(r"^s3a?n?:", "s3:", file))
        info = filesystem.get_file_info(path)
    except (OSError, ValueError):
        return None
    return None if info.size is None or info.mtime_ns is None else [file, info.size, info.mtime_ns]
