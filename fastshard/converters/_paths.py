"""Where a path or URL leads: a pyarrow file system and a path in it, for everything that pyarrow.fs or fsspec opens."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from fastshard.errors import InvalidError, MissingDependencyError, NotFoundError, SourceError, StorageError

__all__ = ["Place", "absent", "first_line", "has_magic", "is_url", "locate", "public_name", "source_error"]

# Schemes that pyarrow opens itself; where this pyarrow was built without one of them, fsspec is asked.
_ARROW_SCHEMES = frozenset({"file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*(://|::)")
_LOCAL_MAGIC = re.compile(r"[*?\[]")
_URL_MAGIC = re.compile(r"[*\[]")  # in a URL, "?" begins the query


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file system.

    Attributes:
        filesystem: A pyarrow file system; picklable.
        path: The path in it.
        name: What to call the place in messages: as the user wrote it, less passwords and queries.
        local: The path is one of this machine's, that `os` can open.
        portable: Another process of this machine can open it too (`memory://` it cannot).
    """

    filesystem: pafs.FileSystem
    path: str
    name: str
    local: bool
    portable: bool

    def child(self, relative: str) -> Place:
        """The place of a path relative to this one, with `/` between its parts."""
        name = f"{self.name.rstrip('/')}/{relative}" if self.name not in ("", ".") else relative
        path = f"{self.path.rstrip('/')}/{relative}" if self.path else relative
        return Place(self.filesystem, path, name, self.local, self.portable)


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def public_name(text: str) -> str:
    """A path as it is, a URL without its user, password and query, which may be secrets."""
    if not is_url(text):
        return text
    url = _split_query(text)[0]
    return re.sub(r"://[^/@]*@", "://", url)


def has_magic(text: str) -> bool:
    """Whether a path or URL is a glob pattern."""
    if not is_url(text):
        return _LOCAL_MAGIC.search(text) is not None
    return _URL_MAGIC.search(_split_query(text)[0].partition("://")[2].partition("/")[2]) is not None


def locate(source: str | os.PathLike[str]) -> Place:
    """Resolve a path or URL; nothing is opened yet, and nothing needs to be there.

    Raises:
        InvalidError: The URL is malformed, or nothing opens its scheme.
        MissingDependencyError: Its scheme needs a package that is not installed.
    """
    text: Any = os.fspath(source)
    if not isinstance(text, str):
        raise InvalidError(f"a source path must be text, not {type(text).__name__}: {text!r}")
    if not text:
        raise InvalidError("the source path is empty")
    if not is_url(text):
        path = os.path.abspath(os.path.expanduser(text))
        return Place(pafs.LocalFileSystem(), path, text, local=True, portable=True)
    scheme = text.partition(":")[0].lower()
    if scheme in _ARROW_SCHEMES and "::" not in text:
        return _locate_by_arrow(text, scheme)
    return _locate_by_fsspec(text, scheme)


def _locate_by_arrow(text: str, scheme: str) -> Place:
    # Globs go around the URL parser, which refuses some of their characters.
    url, query = _split_query(text)
    parts = url.split("/")
    fixed = next((i for i, part in enumerate(parts) if i > 2 and _URL_MAGIC.search(part)), len(parts))
    try:
        filesystem, path = pafs.FileSystem.from_uri("/".join(parts[:fixed]) + query)
    except pa.ArrowNotImplementedError:
        return _locate_by_fsspec(text, scheme)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidError(f"{text}: pyarrow.fs cannot open this URL: {first_line(error)}") from error
    if fixed < len(parts):
        path = "/".join([path.rstrip("/"), *parts[fixed:]])
    return Place(filesystem, path, public_name(text), local=scheme == "file", portable=True)


def _locate_by_fsspec(text: str, scheme: str) -> Place:
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependencyError(
            f'{text}: "{scheme}" URLs are opened by fsspec, which is not installed; '
            'run pip install "fastshard[remote]"'
        ) from error

    try:
        filesystem, path = fsspec.core.url_to_fs(text)
    except ImportError as error:
        raise MissingDependencyError(f'{text}: "{scheme}" URLs need one more package: {error}') from error
    except ValueError as error:
        raise InvalidError(f"{text}: neither pyarrow.fs nor fsspec opens this URL ({error})") from error
    handler: Any = pafs.FSSpecHandler(filesystem)
    return Place(
        pafs.PyFileSystem(handler), path, public_name(text), local=False, portable=scheme != "memory"
    )


def _split_query(url: str) -> tuple[str, str]:
    head, mark, tail = url.partition("?")
    return head, mark + tail


def absent(place: Place) -> NotFoundError:
    """The error for a source that is not there."""
    where = f" (looked in {os.getcwd()})" if place.local and not os.path.isabs(place.name) else ""
    unless = "" if place.local else ", or its server cannot be reached"
    return NotFoundError(f"{place.name}: no such file or directory to convert{where}{unless}")


def first_line(error: BaseException) -> str:
    """One line of what an exception of pyarrow or fsspec says, without the stack that some of them append."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def source_error(name: str, error: BaseException) -> Exception:
    """What to raise where reading `name` failed with `error`: an error of ours that names it."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(f"{name}: the file is not there (any more): {first_line(error)}")
    if isinstance(error, PermissionError):
        return StorageError(f"{name}: no permission to read: {first_line(error)}")
    return SourceError(f"{name}: cannot be read: {first_line(error)}")
