"""Writing what is in memory: sample by sample, batch by batch, or all at once."""

from __future__ import annotations

import os
import warnings
from collections.abc import KeysView, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastshard._commit import Mode, Transaction
from fastshard.converters._options import WriteOptions
from fastshard.converters._write import DatasetWrite, WriteResult, check_metadata
from fastshard.errors import InvalidError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from fastshard._intake import Batches
    from fastshard.converters._shards import ShardFinisher, ShardSeries
    from fastshard.schema import Normaliser

__all__ = ["ShardWriter", "WriteResult", "write"]

# Samples are Python objects many times the size of what they hold: no more than these are kept at a time.
_SAMPLES_MAX = 1 << 14


class ShardWriter:
    """Writes a data set sample by sample, or batch by batch, and commits it when closed.

        with fs.ShardWriter("train", compression="zstd") as writer:
            for image, label in images:
                writer.write({"image": image, "label": label})

    Nothing is visible before `close`, which commits all of it at once. A `with` block that raises commits nothing
    and leaves nothing behind; so does a writer that is forgotten. Not thread-safe, and of the process that made it.

    Attributes:
        path: The data set's directory, absolute.
        rows: Samples taken so far, without those that are there already.
        schema: What the data set stores; None until it is known.
        result: What was committed; None before.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        compression: str | tuple[str, int] | None = None,
        block_bytes: int | None = None,
        shard_bytes: int | None = None,
        mode: Mode = "error",
        metadata: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin a data set, or the next generation of one. Lock it against other writers.

        Args:
            dest: The directory; made where it does not exist.
            schema: The columns. None: of the data set that is appended to, else of the first block of samples, or
                the first batch.
            compression: `"none"`, `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`. None: as the data set that
                is appended to, else `"none"`, which is what is read without a copy.
            block_bytes: Size that a block aims at, before compression; None: likewise, else 1 MiB.
            shard_bytes: Size that a shard's file aims at; None: likewise, else 256 MiB.
            mode: What to do where a data set exists: refuse (`"error"`), replace it (`"overwrite"`), or add to it
                (`"append"`).
            metadata: JSON values, kept in `index.json`; when appending, added to what is there.
            provenance: JSON values that say where the data come from, for people.

        Raises:
            InvalidError: An argument cannot be used, or `mode` refuses the directory.
            SchemaError: The schema cannot be stored, or is not that of the data set appended to.
            LockedError: Another writer is at work on the data set.
            StorageError: The system refuses.
        """
        self._chosen: dict[str, Any] = {
            name: value
            for name, value in (
                ("compression", compression),
                ("block_bytes", block_bytes),
                ("shard_bytes", shard_bytes),
            )
            if value is not None
        }
        WriteOptions(**self._chosen)  # refused before anything is written
        self._metadata = check_metadata(metadata)
        self._provenance = dict(provenance or {"source": "ShardWriter"})
        self._pid = os.getpid()
        self._samples: list[Mapping[str, Any]] = []
        self._samples_bytes = 0
        self._flushed = 0
        self._block_bytes: int = self._chosen.get("block_bytes", WriteOptions().block_bytes)
        self._failure: BaseException | None = None
        self._open = False
        self._dataset: DatasetWrite | None = None
        self._finisher: ShardFinisher | None = None
        self._series: ShardSeries | None = None
        self._normaliser: Normaliser | None = None
        self._rounds = False
        self._names: KeysView[str] | None = None
        self.result: WriteResult | None = None
        self._transaction = Transaction(dest, mode)
        self.path = self._transaction.path
        try:
            if schema is not None:
                self._start(schema)
                self._rounds = True
            elif self._transaction.appending:
                self._start(None)
                self._rounds = True
        except BaseException:
            self._transaction.abort()
            raise
        self._open = True

    def _start(self, schema: pa.Schema | None) -> None:
        """Settle the schema: the user's, the first block's or batch's, or (None) that of the data set."""
        from fastshard.converters._shards import ShardFinisher, ShardSeries
        from fastshard.schema import read_schema

        transaction = (
            self._transaction
        )  # the function below must not hold this object: that would keep it alive
        base = transaction.base
        if schema is None:
            assert base is not None
            schema = read_schema(base.schema_ipc)
        defaults = WriteOptions()
        if base is not None and transaction.appending:
            defaults = WriteOptions.of_settings(base.settings)
        self._dataset = DatasetWrite(
            transaction,
            schema,
            options=replace(defaults, **self._chosen),
            metadata=self._metadata,
            provenance=self._provenance,
        )
        self._names = dict.fromkeys(self._dataset.schema.names).keys()
        self._finisher = ShardFinisher()
        self._series = ShardSeries(
            self._dataset.schema,
            self._dataset.options,
            self._finisher,
            lambda number: transaction.temporary(f"{number:06d}.arrow"),
        )

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._dataset is None else self._dataset.schema

    @property
    def rows(self) -> int:
        return self._flushed + len(self._samples)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Take the next sample: a dict from column to value (`fastshard.samples` lists the types).

        Samples are collected to blocks: a value that does not fit may be found only when its block is full.

        Raises:
            SchemaError: The sample is no dict, has not the columns of the others, or (of its block) a value that does
                not fit; the message names row and column.
            InvalidError: The writer is closed, or an earlier block failed.
            StorageError: The system refuses.
        """
        from fastshard.samples import capture, check_sample, size_hint

        self._check_open()
        if type(sample) is not dict or sample.keys() != self._names:
            check_sample(sample, self.rows, list(self._names) if self._names else None)
            self._names = self._names or dict.fromkeys(sample).keys()
        # Taken now: the caller may fill the same array with the next sample.
        taken = {name: capture(value) for name, value in sample.items()}
        self._samples.append(taken)
        self._samples_bytes += sum(map(size_hint, taken.values()))
        if self._samples_bytes >= self._block_bytes or len(self._samples) >= _SAMPLES_MAX:
            self._flush_samples()

    def write_batch(self, data: Any) -> None:
        """Take rows as columns, after those taken before.

        Args:
            data: Anything with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, DuckDB), a pandas frame,
                a Hugging Face data set, or a dict of columns. Columns are matched by name.

        Raises:
            SchemaError: The columns are not those of the data set, or a value does not fit.
            InvalidError: `data` is none of these, or the writer is closed.
            StorageError: The system refuses.
        """
        from fastshard._intake import Samples, take_in

        self._check_open()
        taken = take_in(data)
        if isinstance(taken, Samples):
            raise InvalidError(
                f"write_batch takes columns, and {taken.kind} gives samples; use write for each"
            )
        self._take(taken)

    def _take(self, taken: Batches) -> None:
        from fastshard.schema import Normaliser

        self._flush_samples()
        if self._dataset is None:
            self._start(taken.schema)
        assert self._dataset is not None
        if self._normaliser is None or not self._normaliser.source.equals(taken.schema):
            self._normaliser = Normaliser(taken.schema, self._dataset.schema)
        normaliser = self._normaliser
        try:
            # No name may keep a batch alive while the next one is made: that would double the memory.
            for batch in taken.batches:
                rows = batch.num_rows
                if not batch.schema.equals(normaliser.source):  # as of tables one after another
                    normaliser = Normaliser(batch.schema, self._dataset.schema)
                for normal in normaliser.batches(batch, self._flushed):
                    self._push(normal)
                    del normal
                del batch
                self._flushed += rows
        except BaseException as error:
            self._failure = error
            raise

    def _flush_samples(self) -> None:
        from fastshard.samples import infer_schema, samples_to_batch

        if not self._samples:
            return
        samples, self._samples, self._samples_bytes = self._samples, [], 0
        try:
            if self._dataset is None:
                self._start(infer_schema(samples, self._flushed))
            assert self._dataset is not None
            batch = samples_to_batch(
                samples, self._dataset.schema, rounds=self._rounds, first_row=self._flushed
            )
            self._push(batch)
            self._flushed += len(samples)
        except BaseException as error:
            self._failure = error
            raise

    def _push(self, batch: pa.RecordBatch) -> None:
        if os.getpid() != self._pid:
            raise InvalidError(f"{self.path}: this writer belongs to the process that made it")
        assert self._series is not None
        self._series.push(batch)
        self._collect(wait=False)

    def _collect(self, *, wait: bool) -> None:
        assert self._finisher is not None
        assert self._dataset is not None
        for shard in self._finisher.done(wait=wait):
            self._dataset.add(shard)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise InvalidError(
                f"{self.path}: this writer failed before ({self._failure}) and will commit nothing; begin a new one"
            ) from self._failure
        if not self._open:
            raise InvalidError(
                f'{self.path}: this writer is closed; begin a new one, to add with mode="append"'
            )

    def close(self) -> WriteResult | None:
        """Commit everything. A second call does nothing.

        Returns:
            What was committed; None after `abort`.

        Raises:
            SchemaError: As `write`; or there are no samples and no schema either.
            InvalidError: An earlier block failed.
            StorageError: The system refuses. After any error nothing is committed, and nothing is left behind.
        """
        if not self._open:
            return self.result
        try:
            self._check_open()
            self._flush_samples()
            if self._dataset is None:
                raise SchemaError(
                    f"{self.path}: no samples and no schema: pass schema= to write an empty data set"
                )
            assert self._series is not None
            self._series.finish()
            self._collect(wait=True)
            self.result = self._dataset.commit()
        finally:
            self.abort()
        return self.result

    def abort(self) -> None:
        """Commit nothing and leave nothing behind. After `close` it does nothing."""
        self._open = False
        self._samples = []
        if self._series is not None:
            self._series.close()
        if self._finisher is not None:
            self._finisher.close()
        self._transaction.abort()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_open", False) and os.getpid() == self._pid:
            warnings.warn(
                f"a ShardWriter of {self.path} was not closed: nothing was committed",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            self.abort()

    def __repr__(self) -> str:
        state = "open" if self._open else "committed" if self.result is not None else "given up"
        return f"ShardWriter({self.path!r}, {self.rows} rows, {state})"


def write(
    data: Any,
    dest: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    compression: str | tuple[str, int] | None = None,
    block_bytes: int | None = None,
    shard_bytes: int | None = None,
    mode: Mode = "error",
    metadata: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Write data in memory, or as it comes, as a data set.

        fs.write({"image": images, "label": labels}, "train")      # arrays of shape [rows, ...]
        fs.write(frame, "train")                                   # pandas, polars, pyarrow, DuckDB, Hugging Face
        fs.write(({"text": line} for line in file), "train")       # samples

    Args:
        data: Anything with `__arrow_c_stream__` or `__arrow_c_array__` (pyarrow, polars, DuckDB), a pandas frame
            (an index without a name is left out), a Hugging Face data set, a dict of columns, a structured NumPy
            array, a map-style data set of dicts, or an iterable of dicts, of Arrow batches or of frames.
        dest: The data set's directory.
        schema, compression, block_bytes, shard_bytes, mode, metadata: As of `ShardWriter`.

    Returns:
        The totals of the data set, and its path.

    Raises:
        InvalidError: An argument cannot be used, or `mode` refuses the directory.
        SchemaError: The data have no schema that can be stored, or do not fit it.
        LockedError: Another writer is at work on the data set.
        StorageError: The system refuses. After any error the data set is what it was before.
    """
    from fastshard._intake import Samples, take_in

    taken = take_in(data)
    with ShardWriter(
        dest,
        schema,
        compression=compression,
        block_bytes=block_bytes,
        shard_bytes=shard_bytes,
        mode=mode,
        metadata=metadata,
        provenance={"source": taken.kind},
    ) as writer:
        if isinstance(taken, Samples):
            for sample in taken.samples:
                writer.write(sample)
        else:
            writer._take(taken)
    assert writer.result is not None
    return writer.result
