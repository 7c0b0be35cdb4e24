"""Random access to a data set: samples, batches, columns, and the same as Arrow, pandas, NumPy or torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._checking import Checking, Verify, check_verify, choose_checking
from fastshard._index import ColumnStats, DatasetIndex, read_index
from fastshard._sequence import SampleSequence
from fastshard.assemble import ColumnPlan
from fastshard.batch import Batch
from fastshard.describe import Description, describe
from fastshard.errors import CorruptError, InvalidError, NotFoundError, StateError
from fastshard.forms import Binary, FormOptions
from fastshard.source import Geometry, PathRecipe, absolute
from fastshard.verification import Fault, verify

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ReadOptions", "ShardReader", "Verify", "open"]

_OPEN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How shards are opened.

    Attributes:
        verify: "once" compares each column of a block with its hash when it is first used; "always" whenever its bytes
            are read, decompressed, or gathered from a mapping; "never" does not. "auto" is "once" unless the data set
            is larger than half of the machine's memory and read at random, so that comparing would read whole blocks
            for single samples.
        cache_bytes: Budget for decompressed columns of blocks, in bytes.
        windows: So many windows of the data set (docs/order.md, section 5) are the budget where that is more.
        max_open: Shards that are mapped at a time.
        whole_blocks: They are read in an order that uses whole blocks, by whoever opens them for that.
    """

    verify: Verify = "auto"
    cache_bytes: int = 256 << 20
    max_open: int = 1024
    windows: int = 0
    whole_blocks: bool = False

    def __post_init__(self) -> None:
        check_verify(self.verify)
        for name in ("cache_bytes", "max_open"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < (1 if name == "max_open" else 0):
                raise InvalidError(f"{name} is a positive number, not {value!r}")


def open(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    lists: Literal["auto", "ragged"] = "auto",
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
    binary: Binary = "bytes",
    pad: Mapping[str, tuple[Any, ...]] | None = None,
    cast: Mapping[str, str] | None = None,
    fill_null: Mapping[str, Any] | None = None,
    null_masks: bool = False,
    verify: Verify = "auto",
    cache_bytes: int = 256 << 20,
    max_open: int = 1024,
) -> ShardReader:
    """Open a data set for random access.

    Args:
        path: Directory of the data set.
        columns: Names of the columns to read, in this order; None reads all.
        lists, tensors, binary, pad, cast, fill_null, null_masks: How columns are delivered; see `FormOptions`.
        verify, cache_bytes, max_open: How shards are opened; see `ReadOptions`.

    Raises:
        NotFoundError: There is no data set.
        CorruptError: Its index is damaged.
        UnsupportedError: A newer fastshard wrote it.
        InvalidError: An option does not fit the data set.
    """
    forms = FormOptions.of_arguments(
        lists=lists,
        tensors=tensors,
        cast=cast,
        fill_null=fill_null,
        null_masks=null_masks,
        binary=binary,
        pad=pad,
    )
    options = ReadOptions(verify, cache_bytes, max_open)
    try:
        return ShardReader(path, columns=columns, forms=forms, options=options)
    except NotFoundError as error:
        if "?" not in str(path) or "://" in str(path):
            raise
        raise NotFoundError(
            f"{error}; fs.open opens whole data sets: take a part with .split(), .filter() or .select(), or open "
            "the text with fastshard.views.open_spec"
        ) from None


def column_names(columns: Any) -> tuple[str, ...] | None:
    """What `columns=` says. Raises `InvalidError` for what is no list of names."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidError(f"columns={columns!r}: must be a list of names")
    names = tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise InvalidError(f"columns={columns!r}: must be a list of names, and {name!r} is none")
    return names


def _checked_path(path: Any) -> str:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidError(f"{path!r} is no path: fs.open wants the directory of a data set")
    return os.path.expanduser(text)


class ShardReader(SampleSequence):
    """A data set as a sequence of samples. Made by `fastshard.open`.

    `reader[i]` is a dict of NumPy values, `reader[a:b]` and `reader.take(ids)` are batches, `reader["name"]` is a whole
    column. It serves as a map-style data set for torch, survives fork, and pickles as its path and options. Threads may
    share it. The generation that it opened stays the one it reads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        forms: FormOptions | None = None,
        options: ReadOptions | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self._path = _checked_path(path)
        self._names = column_names(columns)
        self._forms = forms or FormOptions()
        self._options = options or ReadOptions()
        self._index, self._core, self._checking = _open_core(os.path.abspath(self._path), self._options)
        if fingerprint is not None and fingerprint != self._index.fingerprint:
            raise StateError(
                f"{self._path}: the data set was replaced since this reader was pickled: "
                f"its fingerprint was {fingerprint}, now it is {self._index.fingerprint}"
            )
        self._length = self._index.rows
        self._deliver(self._names, self._forms, self._index)

    def _deliver(self, columns: tuple[str, ...] | None, forms: FormOptions, index: DatasetIndex) -> None:
        """Decides how columns are delivered; by the statistics of `index`."""
        self._names = columns
        self._forms = forms
        self._plan = ColumnPlan(self._core, index, columns, forms)
        self._make_sampler()

    def _make_sampler(self) -> None:
        """A native `_get`, where what the core makes of a row is a sample as it is."""
        self.__dict__.pop("_get", None)
        if self._plan.simple_samples:
            self._get = self._core.sampler(self._plan.native)  # type: ignore[method-assign]

    def _delivering(
        self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> ShardReader:
        other: ShardReader = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        index = self._index if statistics is None else replace(self._index, columns=statistics)
        other._deliver(columns, forms, index)
        return other

    # What it is.

    @property
    def path(self) -> str:
        return self._path

    @property
    def index(self) -> DatasetIndex:
        """What index.json says."""
        return self._index

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the samples and their ids."""
        return self._index.fingerprint

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(form.name for form in self._plan.forms)

    @property
    def plan(self) -> ColumnPlan:
        """How each column is delivered."""
        return self._plan

    @property
    def core(self) -> Any:
        """The native reader (`fastshard._core.ShardSet`)."""
        return self._core

    @property
    def checking(self) -> Checking:
        """When columns are compared with their hashes, and why."""
        return self._checking

    def checking_of_blocks(self) -> Checking:
        """The same for whoever reads whole blocks past the mappings."""
        return choose_checking(self._options.verify, self._index.bytes, whole_blocks=True)

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the columns that are read."""
        import pyarrow as pa

        schema = self.full_schema
        if self._names is None:
            return schema
        return pa.schema([schema.field(name) for name in self._names], metadata=schema.metadata)

    @property
    def full_schema(self) -> pyarrow.Schema:
        """The Arrow schema of all columns."""
        from fastshard.schema import read_schema

        return read_schema(self._index.schema_ipc)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the user said of the data set when it was written."""
        return self._index.metadata

    @property
    def statistics(self) -> Mapping[str, ColumnStats]:
        """By column its nulls and lengths, from the index."""
        return self._index.columns

    @property
    def rows(self) -> int:
        """How many samples there are; the same as `len`."""
        return self._length

    @property
    def row_bytes(self) -> int:
        """Mean size of a sample in memory, in bytes; at least 1."""
        return max(1, self._index.raw_bytes // max(1, self._length))

    @cached_property
    def geometry(self) -> Geometry:
        """Where the samples lie, for orders."""
        core = self._core
        return Geometry(
            core.shard_rows(),
            core.shard_blocks(),
            core.shard_block_rows(),
            self._index.window,
            self._index.unit_blocks,
        )

    @property
    def recipe(self) -> PathRecipe:
        """How to open the same again."""
        return PathRecipe(absolute(self._path), self.fingerprint, self._names, self._forms, self._options)

    def fingerprint_of(self, shards: int) -> str:
        """The fingerprint of the first `shards` shards."""
        fingerprint: bytes = self._core.fingerprint(shards)
        return fingerprint.hex()

    def locate(self, place: int) -> tuple[int, str]:
        """The id of a sample (its place) and the path of its shard, as the index has it."""
        return place, self._core.shard_path(self._core.locate(place)[0])

    @property
    def native(self) -> tuple[ShardReader, None]:
        """Itself, and that its samples are all of it."""
        return self, None

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form."""
        self._plan.check_nulls()

    def describe(self) -> Description:
        """Rows, sizes, and for each column its type, form and statistics; prints as a table."""
        return describe(self._index, self._plan.forms)

    def stats(self) -> dict[str, int]:
        """Counters since it was opened: shards, blocks and columns opened, checked and decompressed, bytes.

        `checking` says when columns are compared with their hashes.
        """
        counters: dict[str, int] = self._core.stats()
        return counters

    # Samples and batches; the rest is SampleSequence's.

    def gather(self, places: npt.NDArray[np.int64]) -> Batch:
        """The samples `places`, each at least 0, as a batch of NumPy arrays."""
        return self._plan.assemble(self._core.take(places, self._plan.native), ids=places)

    def _samples(self, places: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        return self._plan.samples(self._core.take(places, self._plan.native), len(places))

    def record_batches(
        self, columns: Sequence[str] | None = None, selection: _core.Selection | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Samples in order as Arrow, over the mapped files where they can be used as they are.

        Hashes are compared first unless verify="never". Shards without a selected sample are not touched.

        Args:
            columns: Names of columns, also of some that are not read; None for those that are.
            selection: Their ids; None for all.
        """
        from fastshard import arrow_export

        return arrow_export.record_batches(self, columns, selection)

    def verify(
        self, progress: Callable[[int, int], None] | None = None, *, shards: Sequence[int] | None = None
    ) -> list[Fault]:
        """Check every hash, structure and value of the data set; the list is empty where it is whole.

        Args:
            progress: Called with bytes done and bytes in all.
            shards: Numbers of the shards to check, in the order of the index; None for all.
        """
        return verify(os.path.abspath(self._path), self._index, self._core, progress, shards)

    # Its life.

    def close(self) -> None:
        """Let go of mappings. A reader that is used again opens again."""
        self._make_sampler()  # the old one holds a shard
        self._core.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _unpickle,
            (os.path.abspath(self._path), self._names, self._forms, self._options, self.fingerprint),
        )

    def __repr__(self) -> str:
        return f"ShardReader({self._path!r}, {self._length} samples, columns {', '.join(self.columns)})"


def _unpickle(
    path: str, columns: tuple[str, ...] | None, forms: FormOptions, options: ReadOptions, fingerprint: str
) -> ShardReader:
    return ShardReader(path, columns=columns, forms=forms, options=options, fingerprint=fingerprint)


def _window_bytes(index: DatasetIndex) -> int:
    return index.window * index.raw_bytes // max(1, index.rows)


def _open_core(root: str, options: ReadOptions) -> tuple[DatasetIndex, Any, Checking]:
    """The index, the native reader over it, and when that checks columns.

    Two commits while it opens make it read the index again.
    """
    for attempt in range(_OPEN_ATTEMPTS):
        index = read_index(root)
        checking = choose_checking(options.verify, index.bytes, whole_blocks=options.whole_blocks)
        try:
            core = _core.ShardSet(
                root=root,
                shard_table=index.shard_table.path,
                block_table=index.block_table.path,
                shard_table_hash=bytes.fromhex(index.shard_table.hash),
                block_table_bytes=index.block_table.bytes,
                rows=index.rows,
                shards=index.shards,
                schema_ipc=index.schema_ipc,
                verify=checking.mode,
                cache_bytes=max(options.cache_bytes, options.windows * _window_bytes(index)),
                max_open=options.max_open,
            )
        except NotFoundError as error:
            if attempt + 1 < _OPEN_ATTEMPTS and read_index(root).generation != index.generation:
                continue
            raise NotFoundError(f"{root}: {error}; restore the file, or convert the source again") from None
        except CorruptError as error:
            raise _located(root, error) from None
        names = [field["name"] for field in core.fields]
        if names != [field.name for field in index.schema]:
            raise CorruptError(
                f'{root}: index.json: members "schema" and "schema_ipc" name different columns, {names} the latter; '
                "restore the file, or convert the source again"
            )
        if core.fingerprint().hex() != index.fingerprint:
            raise CorruptError(
                f"{root}: the fingerprint of the shard table is not what index.json says; "
                "restore the files, or convert the source again"
            )
        return index, core, checking
    raise NotFoundError(f"{root}: the data set was replaced {_OPEN_ATTEMPTS} times while it was being opened")


def _located(root: str, error: CorruptError) -> CorruptError:
    located = CorruptError(f"{root}: {error}")
    located.code = error.code
    return located
