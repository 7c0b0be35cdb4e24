"""One open Parquet file, read row group by row group as batches of bounded size.

A row group may be far larger than memory: its column chunks are read through small buffers, and decoded a batch of
about `READ_BYTES` at a time. How many rows that is follows from the metadata. Those do not tell how large values in
dictionaries are: the dictionaries are looked at first. A batch that turns out much too large all the same, or that
Arrow cannot build because its offsets would pass 2^31, makes the rest be read in smaller ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastshard.converters._discover import SourceFile
from fastshard.converters._format import READ_BYTES, decoded_bytes, rows_for
from fastshard.converters._parquet_sizes import bytes_per_row, dictionary_leaves, largest_values
from fastshard.converters._paths import first_line, source_error
from fastshard.errors import Error, SourceError

__all__ = ["ParquetReader"]

# A batch of more than this many times its target makes the next ones smaller.
_TOLERANCE = 4
# What a batch may take if all of its values are the longest ones of their dictionaries.
_WORST_BYTES = 8 * READ_BYTES
_PROBE_ROWS = 64
# Row groups are read in one go as long as their batches would be of like sizes.
_ALIKE = 4
# Small row groups of remote files are fetched with few requests, large ones through buffers.
_PREFETCH_BYTES = 64 << 20
_BUFFERS_BYTES = 64 << 20
_BUFFER_MIN = 64 << 10
_BUFFER_LOCAL = 1 << 20
_BUFFER_REMOTE = 8 << 20


class ParquetReader:
    """An open file, what it holds, and what its errors are called.

    Attributes:
        metadata: The footer.
        schema: Of its batches.
    """

    def __init__(self, file: SourceFile) -> None:
        """Open a file.

        Raises:
            SourceError, NotFoundError, StorageError: It cannot be read, or is no Parquet file.
        """
        self._file = file
        try:
            with self._open() as footer:
                self.metadata = footer.metadata
                self.schema: pa.Schema = footer.schema_arrow
            self._parquet = self._open(buffer_size=self._buffer_size())
        except Error:
            raise
        except Exception as error:
            raise source_error(file.name, error) from error

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *details: object) -> None:
        self._parquet.close(force=True)

    def _open(self, **options: Any) -> pq.ParquetFile:
        place = self._file.place
        source = place.path if place.local else place.filesystem.open_input_file(place.path)
        options = {"pre_buffer": False, "metadata": getattr(self, "metadata", None), **options}
        return pq.ParquetFile(source, page_checksum_verification=True, **options)

    def _buffer_size(self) -> int:
        """Each column chunk being read has a buffer of its own."""
        most = _BUFFER_LOCAL if self._file.place.local else _BUFFER_REMOTE
        columns: int = max(1, self.metadata.num_columns)
        return max(_BUFFER_MIN, min(most, _BUFFERS_BYTES // columns))

    def runs(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[list[int], int]]:
        """Adjacent row groups to read in one go, and how many rows a batch of them has."""
        run: list[int] = []
        least = most = 0
        for group in groups:
            rows = self._rows_per_batch(group, columns)
            if run and self._goes_on(run, group) and max(most, rows) <= _ALIKE * min(least, rows):
                run.append(group)
                least, most = min(least, rows), max(most, rows)
                continue
            if run:
                yield run, least
            run, least, most = [group], rows, rows
        if run:
            yield run, least

    def _goes_on(self, run: list[int], group: int) -> bool:
        # What is fetched in advance is kept until all groups of a run are read.
        return group == run[-1] + 1 and self._file.place.local

    def _rows_per_batch(self, group: int, columns: Sequence[str]) -> int:
        metadata = self.metadata.row_group(group)
        rows = rows_for(bytes_per_row(self.schema, metadata, columns))
        leaves = dictionary_leaves(metadata, set(columns))
        if not leaves or min(rows, metadata.num_rows) <= _PROBE_ROWS:
            return rows
        usual, largest = self._dictionary_sizes(group, leaves)
        return max(1, min(rows, rows_for(usual), int(_WORST_BYTES / max(1.0, largest))))

    def _dictionary_sizes(self, group: int, leaves: dict[str, float]) -> tuple[float, float]:
        """What dictionaries add to a row: to one of the first rows, and to one of their longest values only."""
        usual = largest = 0.0
        try:
            with self._open(read_dictionary=list(leaves), buffer_size=self._buffer_size()) as parquet:
                for path, values_per_row in leaves.items():
                    batches = parquet.iter_batches(_PROBE_ROWS, row_groups=[group], columns=[path])
                    for column in next(batches).columns:
                        sizes = decoded_bytes(column)
                        usual += 0 if sizes is None else float(sizes.mean())
                        largest += largest_values(column) * max(1.0, values_per_row)
        except Exception:  # reading will meet the error and name it
            return 1.0, 1.0
        return usual, largest

    def batches(self, run: list[int], columns: list[str], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        """The rows of adjacent row groups.

        Raises:
            SourceError: They cannot be read; the message names the row group and the column.
        """
        parquet = self._for_run(run)
        try:
            done = 0
            while rows_per_batch:
                rows, rows_per_batch = rows_per_batch, 0
                try:
                    for batch in _skip(_iterate(parquet, run, columns, rows), done):
                        done += batch.num_rows
                        size = batch.nbytes
                        yield batch
                        if size > _TOLERANCE * READ_BYTES and batch.num_rows > 1:
                            rows_per_batch = min(rows - 1, rows_for(size / batch.num_rows))
                            break
                except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                    # Arrow could not build so large a batch: nested values past 2 GiB, say.
                    rows_per_batch = rows // 2
                    if not rows_per_batch:
                        raise
        except Error:
            raise
        except Exception as error:
            raise self._blame(run, columns, error) from error
        finally:
            if parquet is not self._parquet:
                parquet.close(force=True)

    def _for_run(self, run: list[int]) -> pq.ParquetFile:
        size = sum(self.metadata.row_group(group).total_byte_size for group in run)
        if self._file.place.local or size > _PREFETCH_BYTES:
            return self._parquet
        return self._open(pre_buffer=True)

    def _blame(self, run: list[int], columns: list[str], error: Exception) -> Exception:
        """Find the column and the row group that cannot be read."""
        for group in run:
            for column in columns:
                try:
                    rows = self._rows_per_batch(group, [column])
                    for _ in _iterate(self._parquet, [group], [column], rows):
                        pass
                except Exception as found:
                    return SourceError(
                        f"{self._file.name}: row group {group}, column {column!r}: cannot be read: "
                        f"{first_line(found)}; write the file again, or leave the column out with columns="
                    )
        return source_error(self._file.name, error)


def _iterate(
    parquet: pq.ParquetFile, groups: list[int], columns: list[str], rows_per_batch: int
) -> Iterator[pa.RecordBatch]:
    names = set(columns)
    for batch in parquet.iter_batches(batch_size=rows_per_batch, row_groups=groups, columns=columns):
        # A name with dots also selects the column of a struct that is spelled alike.
        if batch.num_columns != len(names):
            yield batch.select([name for name in batch.schema.names if name in names])
        else:
            yield batch


def _skip(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows >= batch.num_rows > 0:
            rows -= batch.num_rows
            continue
        yield batch.slice(rows) if rows else batch
        rows = 0
