"""`fs.cached`: a conversion that is made once and found again.

    key         what the source is (names, sizes, times of its files), what is done to it, the version of fastshard
    directory   CACHE/NAME-KEY: a data set as any other, or what a process that died has left of one
    lock        CACHE/NAME-KEY.lock: whoever holds it converts; the others wait, then find the data set

A lock is the system's and goes with the process that held it, so the next one takes over what is half done.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fastshard
from fastshard._fingerprint import describe_function
from fastshard._index import FORMAT_VERSION, read_index
from fastshard._progress import ProgressOption
from fastshard._storage import storage_errors
from fastshard.conversion import Changes, convert_source, open_source, write_options
from fastshard.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from fastshard.converters._part import LocatedSource
    from fastshard.converters._steps import Transform

try:
    import fcntl
except (
    ImportError
):  # no advisory locks on this platform: two processes may convert, and one then finds the other's
    fcntl = None  # type: ignore[assignment]

__all__ = ["cache_root", "cached"]

_log = logging.getLogger("fastshard")
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def cached(
    source: Any,
    cache: str | os.PathLike[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | str | None = None,
    tensors: Mapping[str, tuple[Any, Sequence[int]]] | None = None,
    cast: Mapping[str, Any] | None = None,
    transform: Transform | None = None,
    shuffle_seed: int | None = None,
    compression: str | tuple[str, int] | None = None,
    workers: int = 1,
    metadata: Mapping[str, Any] | None = None,
    progress: ProgressOption = None,
    block_bytes: int | None = None,
    shard_bytes: int | None = None,
) -> str:
    """Convert a source unless that was done before, and return the path of the data set.

    Converted anew is what has changed: a file's name, size or time of modification (in object stores, its tag), the
    values of data in memory, an argument that changes the result, the code of `transform`, the version of fastshard.
    Processes that ask at once wait for the one that converts. Older results stay until they are removed.

    Args:
        source: As for `fs.convert`; not a stream, since one cannot tell whether it has changed.
        cache: The directory to keep data sets in. By default that which FASTSHARD_CACHE names, else `fastshard` in
            the user's cache directory (XDG_CACHE_HOME, else `~/.cache`).
        columns, filter, tensors, cast, transform, shuffle_seed, compression, workers, metadata, progress, block_bytes,
            shard_bytes: See `fs.convert`.

    Returns:
        The directory of the data set.

    Raises:
        InvalidError: It cannot be told whether the source is the same as before.
        The errors of `fs.convert`.
    """
    from fastshard.converters._write import WriteOptions

    options = write_options(compression, block_bytes, shard_bytes)
    changes = Changes(
        columns=columns,
        filter=filter,
        tensors=tensors,
        cast=cast,
        transform=transform,
        shuffle_seed=shuffle_seed,
    )
    opened = open_source(source)
    description = {
        "fastshard": [fastshard.__version__, FORMAT_VERSION],
        "source": _identity(opened, source),
        "changes": _describe(changes),
        "layout": (options or WriteOptions()).settings(),
        "metadata": metadata,
    }
    key = _digest(description)
    name = f"{_name_of(source)}-{key}"
    root = cache_root(cache)
    path = os.path.join(root, name)
    if _is_complete(path):
        return path
    with storage_errors("make the cache directory", root):
        os.makedirs(root, exist_ok=True)
    with _locked(f"{path}.lock"):
        if not _is_complete(path):
            convert_source(
                opened,
                path,
                changes,
                options=options,
                workers=workers,
                mode="overwrite",  # what a process that died has left of it goes
                metadata=metadata,
                progress=progress,
            )
    return path


def cache_root(cache: str | os.PathLike[str] | None = None) -> str:
    """The directory that `cached` keeps data sets in, absolute: the argument, or by the environment."""
    if cache is not None:
        return os.path.abspath(os.path.expanduser(os.fspath(cache)))
    own = os.environ.get("FASTSHARD_CACHE")
    if own:
        return os.path.abspath(os.path.expanduser(own))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.path.abspath(base), "fastshard")


def _is_complete(path: str) -> bool:
    try:
        index = read_index(path)
    except NotFoundError:
        return False
    except CorruptError:
        return False  # converted anew
    return all(os.path.exists(os.path.join(path, ref.path)) for ref in (index.shard_table, index.block_table))


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock of the system, waiting for it as long as it takes."""
    with storage_errors("lock the cache", path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if fcntl is not None:
            with storage_errors("lock the cache", path):
                _wait_for(file, path)
        yield
    finally:
        os.close(file)


def _wait_for(file: int, path: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("%s: another process is converting; waiting for it", path)
        fcntl.flock(file, fcntl.LOCK_EX)


def _identity(source: LocatedSource, given: Any) -> object:
    identity = source.identity()
    if identity is None:
        raise InvalidError(
            f"cached: a {type(given).__module__}.{type(given).__qualname__} cannot tell whether it is the same as "
            "before; use fs.convert or fs.write, or give files or a table"
        )
    return identity


def _name_of(source: Any) -> str:
    """A name that a person recognises: that of the file or directory."""
    first = source[0] if isinstance(source, list | tuple) and source else source
    text = os.fspath(first) if isinstance(first, str | os.PathLike) else type(first).__name__
    base = str(text).partition("?")[0].rstrip("/").rpartition("/")[2].partition(".")[0]
    return _NAME.sub("_", base)[:40].strip("_") or "data"


def _digest(description: object) -> str:
    text = json.dumps(description, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _describe(changes: Changes) -> dict[str, object]:
    return {
        "columns": None if changes.columns is None else list(changes.columns),
        # As text, a condition on many values shows only some of them.
        "filter": None
        if changes.filter is None
        else hashlib.sha256(pickle.dumps(changes.filter)).hexdigest(),
        "tensors": sorted((name, str(value)) for name, value in (changes.tensors or {}).items()),
        "cast": sorted((name, str(value)) for name, value in (changes.cast or {}).items()),
        "transform": None if changes.transform is None else describe_function(changes.transform),
        "shuffle_seed": changes.shuffle_seed,
    }
