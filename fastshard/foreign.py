"""Arrow files that fastshard did not write become a data set by an index beside them; the files stay as they are."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fastshard._commit import Transaction
from fastshard._directory import is_own_name, local_path
from fastshard.converters._write import DatasetWrite, WriteResult
from fastshard.errors import (
    CorruptError,
    InvalidError,
    NotFoundError,
    SchemaError,
    SourceError,
    StorageError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fastshard import _core

__all__ = ["index"]

_SUFFIXES = (".arrow", ".feather", ".ipc", ".arrows")
_THREADS = 4


@dataclass(frozen=True, slots=True)
class _Files:
    """What is to be indexed: absolute paths in the order of samples, and what kind of source they were found as."""

    paths: list[str]
    root: str
    kind: str


def index(
    src: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    dest: str | os.PathLike[str] | None = None,
    *,
    mode: Literal["error", "overwrite"] = "error",
    metadata: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Make a data set of Arrow files that are there already, by writing an index beside them.

    The files are read once, to check and to hash them, and not changed. They must not change afterwards either:
    the reader would refuse them.

    Args:
        src: An Arrow IPC file, an IPC stream or a Feather V2 file; a directory of such files, taken recursively in the
            order of their names, those that begin with `_` or `.` left out; a folder that Hugging Face's
            `save_to_disk` wrote; a glob pattern; or several files.
        dest: The data set's directory. It must hold all files, at any depth, since the index names them by relative
            paths. None: the directory itself, or the one that the files have in common.
        mode: What to do where there is an index: refuse (`"error"`) or replace it.
        metadata: JSON values, kept in `index.json`.

    Raises:
        NotFoundError: There are no such files.
        InvalidError: An argument cannot be used, or there is an index already.
        SchemaError: The files' columns differ, or have no names, or one name twice.
        UnsupportedError: A file has dictionaries, runs, unions or big-endian values; "fastshard convert" reads those.
        CorruptError: A file is damaged, or is no Arrow file.
        StorageError: The system refuses.
    """
    if mode not in ("error", "overwrite"):
        raise InvalidError(f'mode={mode!r}: expected "error" or "overwrite"')
    files = _find(src)
    root = files.root if dest is None else local_path(dest)
    names = [_relative(path, root) for path in files.paths]
    with Transaction(root, mode, beside=names) as transaction:
        return _index_files(files, names, transaction, metadata)


def _index_files(
    files: _Files, names: list[str], transaction: Transaction, metadata: Mapping[str, Any] | None
) -> WriteResult:
    from fastshard._tables import ShardEntry
    from fastshard.schema import read_schema

    schema: pa.Schema | None = None
    write: DatasetWrite | None = None
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fastshard-index") as threads:
        for path, name, indexed in zip(
            files.paths, names, threads.map(_index_file, files.paths), strict=True
        ):
            found = read_schema(indexed.schema_ipc)
            if schema is None or write is None:
                schema = found
                write = DatasetWrite(
                    transaction, schema, metadata=metadata, provenance={"source": files.kind}, as_is=True
                )
            elif not found.equals(schema):
                raise SchemaError(_difference(path, found, files.paths[0], schema))
            if indexed.rows:
                write.add_file(ShardEntry.of_file(indexed, name))
    assert write is not None
    return write.commit()


def _index_file(path: str) -> _core.IndexedFile:
    from fastshard import _core

    try:
        return _core.index_file(path)
    except (CorruptError, UnsupportedError) as error:
        raise type(error)(f"{path}: {str(error).removeprefix(os.path.basename(path) + ': ')}") from error


def _difference(path: str, found: Any, first_path: str, first: Any) -> str:
    for ours, theirs in zip(found, first, strict=False):
        if not ours.equals(theirs):
            what = f"column {ours.name!r} is {ours.type}, and column {theirs.name!r} is {theirs.type} in"
            break
    else:
        what = f"it has {len(found)} columns, and {len(first)} has"
    return f'{path}: {what} {first_path}; files of one data set have one schema: "fastshard convert" unifies them'


def _find(src: Any) -> _Files:
    from fastshard.views import refuse_part

    if isinstance(src, (str, os.PathLike)):
        path = local_path(src)
        if os.path.isdir(path):
            return _find_in_directory(path)
        if os.path.isfile(path):
            return _Files([path], os.path.dirname(path), "file")
        found = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
        if not found:
            refuse_part(path, "index")
            raise NotFoundError(f"{path}: there is no such file or directory, and as a pattern it finds none")
        return _Files(found, _common(found), "files")
    if isinstance(src, bytes) or not isinstance(src, Iterable):
        raise InvalidError(f"expected a path or several, not {type(src).__name__}")
    paths = [local_path(path) for path in src]
    for path in paths:
        if not os.path.isfile(path):
            raise NotFoundError(f"{path}: there is no such file")
    if not paths:
        raise InvalidError("an empty list of files; name at least one")
    if len(set(paths)) != len(paths):
        raise InvalidError("a file is named twice")
    return _Files(paths, _common(paths), "files")


def _common(paths: list[str]) -> str:
    return os.path.commonpath([os.path.dirname(path) for path in paths])


def _find_in_directory(path: str) -> _Files:
    if os.path.isfile(os.path.join(path, "dataset_dict.json")):
        splits = sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
        raise InvalidError(f"{path}: a folder of several Hugging Face data sets; index one of {splits}")
    if os.path.isfile(os.path.join(path, "state.json")):
        return _Files(_hugging_face_files(path), path, "save_to_disk")
    found = []
    for directory, directories, names in os.walk(path):
        directories[:] = sorted(name for name in directories if name[0] not in "_.")
        found += [
            os.path.join(directory, name)
            for name in names
            if name.lower().endswith(_SUFFIXES) and name[0] not in "_." and not is_own_name(name)
        ]
    if not found:
        raise NotFoundError(
            f"{path}: no Arrow files here but fastshard's own (names that end in {', '.join(_SUFFIXES)}); "
            '"fastshard convert" reads Parquet and other formats'
        )
    return _Files(sorted(found), path, "directory")


def _hugging_face_files(path: str) -> list[str]:
    where = os.path.join(path, "state.json")
    try:
        with open(where, encoding="utf-8") as file:
            state = json.load(file)
        names = [entry["filename"] for entry in state["_data_files"]]
        indices = state.get("_indices_data_files")
    except OSError as error:
        raise StorageError(f"{where}: could not read it: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SourceError(f"{where}: not what Hugging Face's save_to_disk writes") from None
    if indices:
        raise UnsupportedError(
            f"{path}: an old save_to_disk folder that keeps its rows in another order than its files; "
            'run "fastshard convert"'
        )
    paths = []
    for name in names:
        if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split("/"):
            raise SourceError(f"{where}: {name!r} is not a file of this folder")
        paths.append(os.path.join(path, name))
        if not os.path.isfile(paths[-1]):
            raise NotFoundError(f"{paths[-1]}: missing, though {where} names it")
    if not paths:
        raise NotFoundError(f"{where}: it names no files")
    return paths


def _relative(path: str, root: str) -> str:
    name = os.path.relpath(path, root)
    if name.split(os.sep)[0] == os.pardir:
        raise InvalidError(
            f"{path} does not lie in {root}: an index names its files by relative paths, so it must be in their "
            f"directory or above; leave out dest=, or choose {os.path.dirname(path)}"
        )
    if "\\" in name:
        raise InvalidError(f"{path}: a backslash in a name cannot stand in an index; rename the file")
    return name.replace(os.sep, "/")
