"""A batch together with where it comes from, so that errors name rows and a shuffle is the same for any division."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from fastshard.converters._source import Source, Task

__all__ = ["LocatedSource", "LocatedTask", "Part", "located"]

# Where a source does not number its rows, those of task t get numbers from t times this.
_FOREIGN_ROWS = 1 << 40


@dataclass(frozen=True, slots=True)
class Part:
    """A batch of consecutive rows.

    Attributes:
        batch: The rows.
        name: What to call their origin: a file, as a rule.
        row: Place of the first of them in that origin.
        number: Number of the first of them in the whole source; ascending, and the same whatever the tasks are.
    """

    batch: pa.RecordBatch
    name: str
    row: int
    number: int

    def where(self, row: int, column: str | None = None) -> str:
        """Names a row of the batch, and a column of it, in a message."""
        place = f"{self.name}: row {self.row + row}"
        return place if column is None else f"{place}, column {column!r}"


class LocatedTask(Task, Protocol):
    """A task that says where its batches come from."""

    def parts(self) -> Iterator[Part]:
        """The batches of `batches()`, each with its origin."""


class LocatedSource(Source, Protocol):
    """A source whose tasks are located.

    Attributes:
        portable: Other processes can run its tasks.

    One may also have `refused`: columns that are not in its schema, since they cannot be stored, each with the
    `SchemaError` that says why; it is raised where the column is asked for.
    """

    portable: bool

    def tasks(self, shard_bytes: int) -> Sequence[LocatedTask]: ...

    def peek(self) -> Iterator[Part]:
        """The rows from the first one on, without using them up."""

    def identity(self) -> object:
        """JSON values that change when the source does; cheap where the source is files. None: it cannot be known."""


@dataclass(frozen=True, slots=True)
class _ForeignTask:
    task: Task
    index: int
    name: str

    @property
    def rows(self) -> int | None:
        return self.task.rows

    @property
    def bytes(self) -> int:
        return self.task.bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.task.batches()

    def parts(self) -> Iterator[Part]:
        row = 0
        for batch in self.task.batches():
            yield Part(batch, self.name, row, self.index * _FOREIGN_ROWS + row)
            row += batch.num_rows


class _ForeignSource:
    """A source of someone else's, its rows numbered task by task."""

    portable = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self.schema = source.schema
        self.provenance = source.provenance

    def tasks(self, shard_bytes: int) -> list[_ForeignTask]:
        name = str(self.provenance.get("source", "source"))
        return [
            _ForeignTask(task, i, f"{name}, part {i}")
            for i, task in enumerate(self._source.tasks(shard_bytes))
        ]

    def peek(self) -> Iterator[Part]:
        for task in self.tasks(1):
            yield from task.parts()

    def identity(self) -> object:
        return None


def located(source: Source) -> LocatedSource:
    """The source itself if its tasks are located, else with rows numbered task by task."""
    return source if getattr(source, "portable", None) is not None else _ForeignSource(source)  # type: ignore[return-value]
