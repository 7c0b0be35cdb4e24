"""Which files a source names: files, directories, globs and lists of them, in an order that never changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote

from pyarrow import fs as pafs

from fastshard.converters._paths import Place, absent, has_magic, locate, source_error
from fastshard.errors import SourceError

__all__ = ["SourceFile", "discover", "is_delta", "natural_key"]

# How Hive and Spark write a null in the name of a partition's directory.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_TABLES = re.compile(r"^(index|blocks)-[0-9a-f]{16}\.arrow$")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to convert.

    Attributes:
        place: Where it is.
        size: Bytes; -1 where the file system does not tell.
        stamp: What changes when the file is written again: its time of modification or its tag; may be empty.
        partition: Hive keys and values from the directories between the root that was named and the file.
        digest: The xxh3-128 that the file must have, as 32 hexadecimal digits; empty where none is known.
    """

    place: Place
    size: int
    stamp: str
    partition: tuple[tuple[str, str | None], ...] = ()
    digest: str = ""

    @property
    def name(self) -> str:
        return self.place.name


def natural_key(text: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts `part-2` before `part-10`; a total order, so that the order of files is always the same."""
    parts = _DIGITS.split(text)
    key: list[tuple[int, int | str]] = []
    for i, part in enumerate(parts):
        key.append((0, int(part)) if i % 2 else (1, part))
    return (*key, (2, text))


def is_delta(source: str | os.PathLike[str]) -> bool:
    """Whether a path or URL is the directory of a Delta table."""
    text = os.fspath(source)
    if has_magic(text) and not os.path.lexists(text):
        return False
    place = locate(source)
    try:
        return bool(
            place.filesystem.get_file_info(place.child("_delta_log").path).type == pafs.FileType.Directory
        )
    except Exception:  # listing it as files will meet the error and name it
        return False


def discover(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[SourceFile]:
    """List the files that a path, URL, glob, directory or a list of them names.

    A directory is walked whole; names that begin with `_` or `.` are passed over. Files of a directory or a glob are
    in natural order of their paths; the items of a list stay in the order given.

    Raises:
        NotFoundError: Nothing is there.
        SourceError: A directory or glob holds no file, or is no plain directory of files (a Delta table, say).
    """
    if isinstance(source, str | os.PathLike):
        return _expand(source)
    files = [file for item in source for file in _expand(item)]
    if not files:
        raise SourceError("the list of source files is empty")
    return files


def _expand(source: str | os.PathLike[str]) -> list[SourceFile]:
    place = locate(source)
    text = os.fspath(source)
    if has_magic(text) and not (place.local and os.path.lexists(place.path)):
        return _expand_glob(place)
    try:
        info = place.filesystem.get_file_info(place.path)
    except Exception as error:
        raise source_error(place.name, error) from error
    if info.type == pafs.FileType.Directory or (info.type != pafs.FileType.NotFound and text.endswith("/")):
        return _expand_directory(place)
    if info.type == pafs.FileType.NotFound:
        raise absent(place)
    _refuse_delta_parents(place)
    return [_source_file(place, info)]


def _source_file(
    place: Place, info: pafs.FileInfo, partition: tuple[tuple[str, str | None], ...] = ()
) -> SourceFile:
    name = info.base_name
    if _TABLES.match(name):
        raise SourceError(
            f"{place.name}: this is a table of a fastshard data set, not data; give the data set's "
            "directory as the source"
        )
    size = -1 if info.size is None else int(info.size)
    return SourceFile(place, size, _stamp(place, info), partition)


def _stamp(place: Place, info: pafs.FileInfo) -> str:
    if info.mtime_ns is not None:
        return str(info.mtime_ns)
    handler = getattr(place.filesystem, "handler", None)
    filesystem = getattr(handler, "fs", None)
    if filesystem is None:
        return ""
    try:
        details = filesystem.info(place.path)
    except Exception:  # the tag is a help for caches only; reading will meet the error and name it
        return ""
    for key in ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created"):
        if details.get(key):
            return str(details[key])
    return ""


# Directories


def _expand_directory(place: Place) -> list[SourceFile]:
    _refuse_delta_parents(place, ask_remote=True)
    infos = _list(place, recursive=True)
    relative = {_relative(place, info.path): info for info in infos}
    top = {name for name in relative if "/" not in name}
    if "state.json" in top and "dataset_info.json" in top:
        return _hugging_face_files(place, relative)
    if "dataset_dict.json" in top:
        splits = sorted(name for name in top if relative[name].type == pafs.FileType.Directory)
        raise SourceError(
            f"{place.name}: this is a Hugging Face DatasetDict with the splits {splits}; "
            "convert each by its own directory"
        )
    _refuse_tables(place, relative)
    names = [
        name
        for name, info in relative.items()
        if info.type == pafs.FileType.File and not _is_hidden(name.split("/"))
    ]
    if not names:
        raise SourceError(_nothing_found(place, relative))
    names.sort(key=natural_key)
    return [_source_file(place.child(name), relative[name], _partition(name)) for name in names]


def _list(place: Place, *, recursive: bool) -> list[pafs.FileInfo]:
    try:
        return list(place.filesystem.get_file_info(pafs.FileSelector(place.path, recursive=recursive)))
    except Exception as error:
        raise source_error(place.name, error) from error


def _relative(place: Place, path: str) -> str:
    base = place.path.rstrip("/") + "/"
    if path.startswith(base):
        return path[len(base) :].rstrip("/")
    # fsspec file systems may list paths without the root's leading slash.
    base = base.lstrip("/")
    return path.lstrip("/").removeprefix(base).rstrip("/")


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(("_", ".")) for part in parts)


def _partition(relative: str) -> tuple[tuple[str, str | None], ...]:
    """Keys and values of the `key=value` directories above a file."""
    found: dict[str, str | None] = {}
    for part in relative.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            value = unquote(value)
            found[unquote(key)] = None if value == _HIVE_NULL else value
    return tuple(found.items())


def _nothing_found(place: Place, relative: Iterable[str]) -> str:
    skipped = sorted(name for name in relative if _is_hidden(name.split("/")))
    if not skipped:
        return f"{place.name}: the directory holds no files; there is nothing to convert"
    shown = ", ".join(skipped[:3]) + (", ..." if len(skipped) > 3 else "")
    return (
        f'{place.name}: the directory holds no files but some whose names begin with "_" or "." ({shown}); '
        "name such files one by one if they are the data"
    )


def _hugging_face_files(place: Place, relative: dict[str, pafs.FileInfo]) -> list[SourceFile]:
    """The files of a folder that `datasets.Dataset.save_to_disk` wrote, in the order of its state."""
    try:
        with place.filesystem.open_input_stream(place.child("state.json").path) as stream:
            names = [entry["filename"] for entry in json.loads(stream.read())["_data_files"]]
    except Exception as error:
        raise SourceError(
            f"{place.name}/state.json: not the state of a saved Hugging Face data set ({error}); "
            "save it again, or name its .arrow files"
        ) from error
    missing = [name for name in names if name not in relative]
    if missing:
        raise SourceError(
            f"{place.name}: state.json names {missing[0]!r}, which is not there; save the data set again"
        )
    return [_source_file(place.child(name), relative[name]) for name in names]


# What is no plain directory of files


def _refuse_tables(place: Place, relative: Iterable[str]) -> None:
    """Delta tables and fastshard data sets hold files that are not (all) data: taking every file would be wrong."""
    for name in relative:
        parts = name.split("/")
        if "_delta_log" in parts:
            table = "/".join(parts[: parts.index("_delta_log")])
            raise _is_delta(place.child(table).name if table else place.name)
        if _TABLES.match(parts[-1]):
            inner = "/".join(parts[:-1])
            where = place.child(inner).name if inner else place.name
            raise SourceError(
                f"{where}: this is a fastshard data set; convert it by its own path, one at a time"
            )


def _refuse_delta_parents(place: Place, *, ask_remote: bool = False) -> None:
    """Refuse what lies inside a Delta table: its Parquet files include deleted and overwritten rows.

    Another machine is asked only if so said: once for a directory or a glob, not for each file.
    """
    path, name = place.path.rstrip("/"), place.name.rstrip("/")
    above: list[tuple[str, str]] = []
    while path not in ("", "/") and (place.local or name.partition("://")[2]):
        above.append((path, path if place.local else name))
        path, name = path.rpartition("/")[0], name.rpartition("/")[0]
    if place.local:
        tables = [name for path, name in above if os.path.isdir(os.path.join(path, "_delta_log"))]
    elif ask_remote and above:
        try:
            infos = place.filesystem.get_file_info([f"{path}/_delta_log" for path, _ in above])
        except Exception:  # reading will meet the error and name it
            return
        found = zip(above, infos, strict=True)
        tables = [name for (_, name), info in found if info.type == pafs.FileType.Directory]
    else:
        return
    if tables:
        raise _is_delta(tables[0])


def _is_delta(name: str) -> SourceError:
    return SourceError(
        f"{name}: this is a Delta table, and some of its Parquet files may hold deleted rows; "
        f'convert the table: fs.convert(fs.Delta("{name}"), ...)'
    )


# Globs


def _expand_glob(place: Place) -> list[SourceFile]:
    parts = place.path.split("/")
    fixed = next(i for i, part in enumerate(parts) if has_magic(part))
    root_name = place.name
    for _ in parts[fixed:]:
        root_name = root_name.rpartition("/")[0]
    root = Place(place.filesystem, "/".join(parts[:fixed]) or "/", root_name, place.local, place.portable)
    _refuse_delta_parents(root, ask_remote=True)
    matches = sorted(_match(root, "", parts[fixed:]), key=lambda match: natural_key(match[0]))
    if "**" in parts:  # it reaches what is in the directories by itself
        matches = [(relative, info) for relative, info in matches if info.type != pafs.FileType.Directory]
    files: list[SourceFile] = []
    asked = {""}
    for relative, info in matches:
        found = root.child(relative)
        if info.type != pafs.FileType.Directory:
            folder = relative.rpartition("/")[0]
            if folder not in asked:
                asked.add(folder)
                _refuse_delta_parents(root.child(folder), ask_remote=True)
            files.append(_source_file(found, info, _partition(relative)))
            continue
        outer = _partition(relative + "/")
        for file in _expand_directory(found):
            keys = dict(outer) | dict(file.partition)
            files.append(SourceFile(file.place, file.size, file.stamp, tuple(keys.items())))
    if not files:
        raise SourceError(f"{place.name}: no file matches this pattern")
    return files


def _match(root: Place, prefix: str, pattern: Sequence[str]) -> Iterator[tuple[str, pafs.FileInfo]]:
    """What matches the parts of a pattern below `prefix`, with its path relative to `root`."""
    if pattern[0] == "**":
        rest = pattern[1:] or ["*"]
        yield from _match(root, prefix, rest)
        for name, info in _children(root, prefix):
            if info.type == pafs.FileType.Directory and not _is_hidden([name.rpartition("/")[2]]):
                yield from _match(root, name, pattern)
        return
    head, rest = pattern[0], pattern[1:]
    if not has_magic(head):
        name = f"{prefix}/{head}" if prefix else head
        if rest:
            yield from _match(root, name, rest)
            return
        info = root.filesystem.get_file_info(root.child(name).path)
        if info.type != pafs.FileType.NotFound:
            yield name, info
        return
    for name, info in _children(root, prefix):
        base = name.rpartition("/")[2]
        if not fnmatchcase(base, head) or (_is_hidden([base]) and base[0] != head[0]):
            continue
        if not rest:
            yield name, info
        elif info.type == pafs.FileType.Directory:
            yield from _match(root, name, rest)


def _children(root: Place, prefix: str) -> list[tuple[str, pafs.FileInfo]]:
    place = root.child(prefix) if prefix else root
    info = place.filesystem.get_file_info(place.path)
    if info.type == pafs.FileType.NotFound:
        return []
    return [(_relative(root, info.path), info) for info in _list(place, recursive=False)]
