"""Sources of batches for tests; importable by worker processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard.errors import SourceError

# The names and the metadata of nested fields are what pickling a pyarrow type forgets.
ELEMENT = pa.field("element", pa.float32(), nullable=False, metadata={"unit": "m"})
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.list_(ELEMENT, 4)),
        ("word", pa.dictionary(pa.int32(), pa.utf8())),
    ],
    metadata={"made": "by a test"},
)


def rows_of(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    floats = pa.array(np.repeat(ids, 4).astype(np.float32))
    words = pa.DictionaryArray.from_arrays(pa.array((ids % 3).astype(np.int32)), ["foo", None, "bar"])
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.FixedSizeListArray.from_arrays(floats, type=SCHEMA.field("v").type), words],
        schema=SCHEMA,
    )


def expected(count: int) -> pa.Table:
    table = pa.Table.from_batches([rows_of(0, count)])
    index = SCHEMA.get_field_index("word")
    return table.set_column(index, pa.field("word", pa.utf8()), table["word"].cast(pa.utf8()))


@dataclass(frozen=True)
class NumberTask:
    """Rows first to first + count, in batches of `chunk`; `trouble` happens before the last batch."""

    first: int
    count: int
    chunk: int = 100
    trouble: str = ""
    folder: str = ""

    @property
    def rows(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        return self.count * 10

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(self.first, self.first + self.count, self.chunk):
            if start + self.chunk >= self.first + self.count:
                self._make_trouble()
            yield rows_of(start, min(self.chunk, self.first + self.count - start))

    def _make_trouble(self) -> None:
        if self.folder:
            Path(self.folder, f"{self.first}-{os.getpid()}").touch()
        if self.trouble == "source error":
            raise SourceError(f"rows from {self.first} are nowhere")
        if self.trouble == "unpicklable":
            raise Unpicklable(self.first, 7)
        if self.trouble == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "hang":
            time.sleep(600)


class Unpicklable(Exception):
    """An error that cannot be sent home: it needs two arguments and hands on one."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"trouble at {first}")


@dataclass
class NumberSource:
    """Rows 0 to `count`, in tasks of `per_task`; the task that holds row `trouble_at` makes trouble."""

    count: int
    per_task: int = 1000
    chunk: int = 100
    trouble: str = ""
    trouble_at: int = -1
    folder: str = ""
    schema: pa.Schema = SCHEMA
    provenance: dict[str, Any] = field(default_factory=lambda: {"source": "numbers"})

    def tasks(self, shard_bytes: int) -> list[NumberTask]:
        return [
            NumberTask(
                first,
                min(self.per_task, self.count - first),
                self.chunk,
                self.trouble if first <= self.trouble_at < first + self.per_task else "",
                self.folder,
            )
            for first in range(0, self.count, self.per_task)
        ]
