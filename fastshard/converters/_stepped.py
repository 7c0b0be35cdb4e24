"""A source with the steps of `convert` applied to every batch of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from fastshard._evaluate import empty_batch
from fastshard.converters._part import LocatedSource, LocatedTask, Part
from fastshard.converters._steps import Selected, Steps

__all__ = ["SteppedSource", "SteppedTask"]


@dataclass(frozen=True, slots=True)
class SteppedTask:
    """A task of the source and what happens to its batches."""

    task: LocatedTask
    steps: Steps

    @property
    def rows(self) -> int | None:
        changes = self.steps.condition is not None or self.steps.transform is not None
        return None if changes else self.task.rows

    @property
    def bytes(self) -> int:
        return self.task.bytes

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.steps.only_selects:
            return map(self.steps.select, self.task.batches())
        return (selected.batch for selected in self.selected())

    def selected(self) -> Iterator[Selected]:
        """The batches of `batches()`, with the numbers of their rows."""
        for part in self.task.parts():
            yield from self.steps.apply(part)


class SteppedSource:
    """What `convert` writes: a source, its rows filtered and its columns changed.

    Attributes:
        portable: Other processes can run the tasks.
    """

    def __init__(self, source: LocatedSource, steps: Steps) -> None:
        self._source = source
        self._steps = steps
        self.portable = source.portable

    @property
    def provenance(self) -> Mapping[str, Any]:
        return {**self._source.provenance, **self._steps.provenance}

    @property
    def schema(self) -> pa.Schema:
        assert self._known.schema is not None
        return self._known.schema

    def tasks(self, shard_bytes: int) -> list[SteppedTask]:
        return [SteppedTask(task, self._known) for task in self._source.tasks(shard_bytes)]

    @cached_property
    def _known(self) -> Steps:
        """The steps, with the schema of the transform's first output."""
        steps = self._steps
        if steps.schema is not None:
            return steps
        name = "the source"
        for part in self._source.peek():
            name = part.name
            schema = steps.first_output(part)
            if schema is not None:
                return steps.with_schema(schema)
        schema = steps.converted_schema(self._source.schema)
        empty = empty_batch(schema)
        return steps.with_schema(steps.output_of(empty, Part(empty, name, 0, 0)))
