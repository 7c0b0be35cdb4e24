"""`fs.Delta`: a version of a Delta table, as a source of `fs.convert` and `fs.cached`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from fastshard.errors import InvalidError, NotFoundError, SourceError

if TYPE_CHECKING:
    import deltalake

__all__ = ["Delta"]


class Delta:
    """One version of a Delta table; neither Spark nor a JVM takes part.

        fs.convert(fs.Delta("sales", version=12), "train", columns=["amount", "day"])

    The version is settled when the object is made, so that all that is read belongs together however the table
    changes meanwhile. `fs.convert("sales", ...)` of a directory that is a Delta table takes its newest version.

    Attributes:
        table: the `deltalake.DeltaTable` at that version.
        version: its number.
    """

    def __init__(
        self,
        table: str | os.PathLike[str] | deltalake.DeltaTable,
        version: int | None = None,
        timestamp: str | datetime | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Reads the table's log.

        Args:
            table: a path, a URL that deltalake opens, or a `deltalake.DeltaTable`.
            version: which version; the newest by default, or the one that a DeltaTable stands at.
            timestamp: instead of a version: the one that was the newest at that time. A datetime, or a text such as
                "2024-06-30 12:00:00"; UTC where it has no time zone.
            storage_options: what deltalake needs to open the URL, credentials for example.

        Raises:
            NotFoundError: There is no Delta table.
            InvalidError: There is no such version, or none as old as the timestamp, or both are given.
            SourceError: The log cannot be read.
            MissingDependencyError: deltalake is not installed.
        """
        from fastshard._optional import require

        deltalake = require("deltalake", "delta", "fs.Delta")
        if version is not None and timestamp is not None:
            raise InvalidError(f"version={version!r} and timestamp={timestamp!r}: give one of the two")
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
            raise InvalidError(f"version={version!r}: must be a number of at least 0")
        at = None if timestamp is None else _moment(timestamp)
        if isinstance(table, deltalake.DeltaTable):
            options = storage_options or table._storage_options
            if version is None and at is None:
                version = table.version()
            uri = table.table_uri
        else:
            options = storage_options
            path: Any = table
            uri = os.path.expanduser(os.fspath(path))
        self.storage_options: dict[str, str] | None = None if options is None else dict(options)
        self.table: Any = _opened(deltalake, uri, version, at, self.storage_options)
        self.version: int = self.table.version()

    @property
    def uri(self) -> str:
        """Where the table lies, as a URL."""
        uri: str = self.table.table_uri
        return uri

    def __repr__(self) -> str:
        from fastshard.converters._paths import public_name

        return f"Delta({public_name(self.uri)!r}, version={self.version})"


def _opened(
    deltalake: Any, uri: str, version: int | None, at: datetime | None, options: dict[str, str] | None
) -> Any:
    from fastshard.converters._paths import first_line, public_name

    name = public_name(uri)
    try:
        table = deltalake.DeltaTable(uri, storage_options=options)
        newest = table.version()
        if version is not None and version > newest:
            raise InvalidError(f"{name}: there is no version {version}: the newest is {newest}")
        if version is not None:
            table.load_as_version(version)
        elif at is not None:
            table.load_as_version(at)
            _check_age(table, at, name, options)
    except deltalake.exceptions.TableNotFoundError as error:
        raise NotFoundError(f"{name}: no Delta table: {first_line(error)}") from error
    except InvalidError:
        raise
    except Exception as error:
        wanted = f" at version {version}" if version is not None else f" as of {at}" if at is not None else ""
        raise SourceError(
            f"{name}: the Delta table cannot be read{wanted}: {first_line(error)}; if its log was cleaned up or "
            "vacuumed, only newer versions are left"
        ) from error
    return table


def _check_age(table: Any, at: datetime, name: str, options: dict[str, str] | None) -> None:
    """Raises if the table was not there at that time: deltalake then takes the oldest version that is left."""
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    version = table.version()
    place = f"_delta_log/{version:020}.json"
    files = pafs.PyFileSystem(DeltaStorageHandler.from_table(table._table, options))
    found = files.get_file_info(place)
    if found.type != pafs.FileType.File:
        return  # only a checkpoint is left of it
    with files.open_input_file(place) as file:
        first = json.loads(file.read().split(b"\n", 1)[0])
    # The time of a version is that of its file, unless the table keeps times in its commits.
    in_commit = first.get("commitInfo", {}).get("inCommitTimestamp")
    written = found.mtime if in_commit is None else datetime.fromtimestamp(in_commit / 1000, tz=timezone.utc)
    if written is not None and written > at:
        raise InvalidError(
            f"{name}: there is no version as old as {at}: version {version}, the oldest that is left, is of {written}; "
            "a table whose files were copied has the times of the copies, so take version= there"
        )


def _moment(timestamp: str | datetime) -> datetime:
    if isinstance(timestamp, str):
        try:
            timestamp = datetime.fromisoformat(timestamp.strip().replace("Z", "+00:00"))
        except ValueError as error:
            raise InvalidError(
                f'timestamp={timestamp!r}: not a time such as "2024-06-30 12:00:00" ({error})'
            ) from error
    if not isinstance(timestamp, datetime):
        raise InvalidError(f"timestamp={timestamp!r}: must be a datetime or a text")
    return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=timezone.utc)
