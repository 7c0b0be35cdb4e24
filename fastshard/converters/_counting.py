"""How far a write has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fastshard.converters._source import Task

__all__ = ["Progress", "ProgressCallback", "ProgressCounter"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a write has come. `bytes` and `total_bytes` are the source's, as its tasks estimate them."""

    rows: int
    bytes: int
    total_rows: int | None
    total_bytes: int


ProgressCallback: TypeAlias = Callable[[Progress], None]


class ProgressCounter:
    """Sums up what is done, and tells the user's callback."""

    def __init__(self, tasks: Sequence[Task], callback: ProgressCallback | None) -> None:
        self._callback = callback
        rows = [task.rows for task in tasks]
        known = [n for n in rows if n is not None]
        self._total_rows = sum(known) if len(known) == len(rows) else None
        self._total_bytes = sum(task.bytes for task in tasks)
        self._rows = 0
        self._bytes = 0
        self._task_rows = 0

    def add_rows(self, task: Task, rows: int) -> None:
        """Count some rows of the task at hand; its bytes in proportion, where its number of rows is known."""
        self._task_rows += rows
        part = min(1.0, self._task_rows / task.rows) if task.rows else 0.0
        self._tell(self._rows + self._task_rows, self._bytes + int(task.bytes * part))

    def end_task(self, task: Task, rows: int) -> None:
        """Count a task that is done, with all its rows."""
        self._rows += rows
        self._bytes += task.bytes
        self._task_rows = 0
        self._tell(self._rows, self._bytes)

    def _tell(self, rows: int, size: int) -> None:
        if self._callback is not None:
            self._callback(Progress(rows, size, self._total_rows, self._total_bytes))
