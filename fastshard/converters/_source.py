"""What a converter is: a source of Arrow batches, divided into tasks that any process can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Source", "SpoolingSource", "Task"]


class Task(Protocol):
    """A run of consecutive rows of a source. Picklable: it carries names and numbers, not data or open files.

    Each task becomes whole shards of its own, so that tasks can run in any order and in any process.
    """

    @property
    def rows(self) -> int | None:
        """Rows, where the source's metadata tell; for progress only."""

    @property
    def bytes(self) -> int:
        """Size in the source, in bytes, or an estimate of it; for progress only."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in order, as batches of the source's schema. May be called once in each process.

        Raises:
            SourceError: The source cannot be read, or is not what its metadata said.
        """


class Source(Protocol):
    """Anything that `write_source` turns into a data set."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch, before normalisation (`fastshard.schema`)."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """For people, kept in `index.json`: JSON values without times, so that equal input gives equal bytes."""

    def tasks(self, shard_bytes: int) -> Sequence[Task]:
        """The whole source as tasks in row order.

        Boundaries depend on the source's metadata and `shard_bytes` alone, never on the number of workers.
        """


@runtime_checkable
class SpoolingSource(Protocol):
    """A source that has to write temporary files before it can tell its tasks: one that sorts, say."""

    def spool(self, prefix: str, shard_bytes: int, workers: int) -> None:
        """Do so; called once, before `tasks`, when the data set is locked.

        Args:
            prefix: Begins the paths of temporary files of this write. What is left of them after an error, or by a
                process that died, is removed as others are; after a success that is the source's matter.
            shard_bytes: As `tasks` will get it.
            workers: Processes that may take part.
        """
