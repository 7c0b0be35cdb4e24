"""Every error that fastshard raises on purpose: a subclass of `Error` and of the built-in that fits."""

from __future__ import annotations

__all__ = [
    "CorruptError",
    "Error",
    "InvalidError",
    "LockedError",
    "MissingDependencyError",
    "NotFoundError",
    "NullError",
    "OutOfRangeError",
    "ReadTimeoutError",
    "SchemaError",
    "SourceError",
    "StateError",
    "StorageError",
    "UnsupportedError",
]


class Error(Exception):
    """Base of all. `code` names the violated rule of the format where there is one, else it is empty."""

    code: str = ""


class CorruptError(Error, ValueError):
    """Bytes contradict the format, the index or their checksum."""


class UnsupportedError(Error, NotImplementedError):
    """Valid data of a kind that fastshard does not read; the message names the way out."""


class StorageError(Error, OSError):
    """The operating system refused or failed: no space, no permission, an I/O error."""


class ReadTimeoutError(Error, TimeoutError):
    """Storage did not answer in time."""


class NotFoundError(Error, FileNotFoundError):
    """A data set or a file of it is not there."""


class InvalidError(Error, ValueError):
    """An argument has a value that cannot be used."""


class OutOfRangeError(Error, IndexError):
    """A sample id or position outside the data set."""


class SchemaError(Error, TypeError):
    """Data do not fit the schema, or a schema cannot be stored."""


class NullError(Error, ValueError):
    """A column with nulls was asked for in a form that has none."""


class SourceError(Error, ValueError):
    """A source to convert cannot be read, or is not what it was taken for."""


class LockedError(Error, BlockingIOError):
    """Another writer is at work on the same data set."""


class StateError(Error, ValueError):
    """A state belongs to other data or another order."""


class MissingDependencyError(Error, ImportError):
    """An optional package is not installed; the message names the extra."""
