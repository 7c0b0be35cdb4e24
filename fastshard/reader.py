"""Random access to a data set: samples, batches, columns, and the same as Arrow, pandas, NumPy or torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._index import DatasetIndex, read_index
from fastshard.assemble import ColumnPlan
from fastshard.batch import Batch
from fastshard.describe import Description, describe
from fastshard.errors import CorruptError, InvalidError, NotFoundError, OutOfRangeError, StateError
from fastshard.forms import DTYPE_NAMES, FormOptions
from fastshard.verification import Fault, verify

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["ReadOptions", "ShardReader", "open"]

_OPEN_ATTEMPTS = 5
_ITERATION_BYTES = 1 << 20
_ITERATION_ROWS = 1024

Verify = Literal["auto", "once", "never"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How shards are opened.

    Attributes:
        verify: "once" compares each column of a block with its hash when it is first used; "never" does not; "auto" is
            "once" unless the data set is larger than half of the machine's memory, where random access would read
            whole blocks for single rows.
        cache_bytes: Budget for decompressed columns of blocks, in bytes.
        max_open: Shards that are mapped at a time.
    """

    verify: Verify = "auto"
    cache_bytes: int = 256 << 20
    max_open: int = 1024

    def __post_init__(self) -> None:
        if self.verify not in ("auto", "once", "never"):
            raise InvalidError(f"verify is 'auto', 'once' or 'never', not {self.verify!r}")
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
        lists, tensors, cast, fill_null, null_masks: How columns are delivered; see `FormOptions`.
        verify, cache_bytes, max_open: How shards are opened; see `ReadOptions`.

    Raises:
        NotFoundError: There is no data set.
        CorruptError: Its index is damaged.
        UnsupportedError: A newer fastshard wrote it.
        InvalidError: An option does not fit the data set.
    """
    forms = FormOptions(lists, dict(tensors or {}), dict(cast or {}), dict(fill_null or {}), null_masks)
    return ShardReader(path, columns=columns, forms=forms, options=ReadOptions(verify, cache_bytes, max_open))


class ShardReader:
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
        self._path = os.fspath(path)
        self._names = None if columns is None else tuple(columns)
        if isinstance(columns, str):
            raise InvalidError(f"columns is a list of names, not the string {columns!r}")
        self._forms = forms or FormOptions()
        self._options = options or ReadOptions()
        self._index, self._core, self._checks = _open_core(os.path.abspath(self._path), self._options)
        if fingerprint is not None and fingerprint != self._index.fingerprint:
            raise StateError(
                f"{self._path}: the data set was replaced since this reader was pickled: "
                f"its fingerprint was {fingerprint}, now it is {self._index.fingerprint}"
            )
        self._plan = ColumnPlan(self._core, self._index, self._names, self._forms)
        self._length = self._index.rows
        self._sampler: Callable[[int], dict[str, Any]] = self._core.sampler(self._plan.native)
        self._get = self._sampler if self._plan.simple_samples else self._finished_sample

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
    def checks_columns(self) -> bool:
        """Whether columns are compared with their hashes when they are first used."""
        return self._checks

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the columns that are read."""
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(self._index.schema_ipc))
        if self._names is None:
            return schema
        return pa.schema([schema.field(name) for name in self._names], metadata=schema.metadata)

    def describe(self) -> Description:
        """Rows, sizes, and for each column its type, form and statistics; prints as a table."""
        return describe(self._index, self._plan.forms)

    def stats(self) -> dict[str, int]:
        """Counters since it was opened: shards, blocks and columns opened, checked and decompressed, bytes."""
        counters: dict[str, int] = self._core.stats()
        return counters

    # Samples and batches.

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | npt.NDArray[Any]) -> Batch: ...
    def __getitem__(self, key: Any) -> Any:
        """A sample (int), a whole column (str), or a batch (slice, ids, bool mask).

        Raises `OutOfRangeError` for a sample that is not there, `InvalidError` for a column that is not, `CorruptError`
        and `StorageError` naming shard and block.
        """
        if type(key) is int:
            return self._get(key)
        if isinstance(key, str):
            return self._column(key)
        if isinstance(key, slice):
            first, last, step = key.indices(self._length)
            return self._take(np.arange(first, last, step, dtype=np.int64))
        if hasattr(key, "__index__") and np.ndim(key) == 0:
            return self._get(key.__index__())
        return self.take(key)

    def take(self, ids: Any) -> Batch:
        """The samples `ids` as a batch of NumPy arrays, in that order.

        Args:
            ids: Integers [n] in any order, repeats allowed, negative ones counted from the end; or a bool mask [len].

        Raises:
            OutOfRangeError: An id is not there.
            InvalidError: Not a one-dimensional sequence of integers.
        """
        if type(ids) is np.ndarray and ids.dtype == np.int64 and ids.ndim == 1 and ids.flags.c_contiguous:
            try:
                return self._take(ids)
            except OutOfRangeError:
                pass  # counted from the end, or not there
        return self._take(self._as_ids(ids))

    def __getitems__(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """The samples `ids` as a list, read in one go: what torch's DataLoader calls for a batch."""
        return list(self.take(ids).samples())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every sample in order, read in chunks."""
        for first in range(0, self._length, self._chunk):
            yield from self._take(
                np.arange(first, min(first + self._chunk, self._length), dtype=np.int64)
            ).samples()

    @property
    def _chunk(self) -> int:
        row_bytes = max(1, self._index.raw_bytes // max(1, self._length))
        return max(1, min(_ITERATION_ROWS, _ITERATION_BYTES // row_bytes))

    def _take(self, ids: npt.NDArray[np.int64]) -> Batch:
        return self._plan.assemble(self._core.take(ids, self._plan.native), ids=ids)

    def _finished_sample(self, key: int) -> dict[str, Any]:
        i = key + self._length if key < 0 else key
        if not 0 <= i < self._length:
            raise OutOfRangeError(f"there is no sample {key}: the data set has {self._length}")
        return next(self._take(np.array([i], dtype=np.int64)).samples())

    def _column(self, name: str) -> Any:
        if name not in self.columns:
            raise InvalidError(f"there is no column {name!r}; there are {', '.join(map(repr, self.columns))}")
        plan = ColumnPlan(self._core, self._index, (name,), _only(self._forms, name))
        ids = np.arange(self._length, dtype=np.int64)
        return plan.assemble(self._core.take(ids, plan.native), ids=ids)[name]

    def _as_ids(self, ids: Any) -> npt.NDArray[np.int64]:
        array = np.asarray(ids)
        if array.ndim != 1:
            raise InvalidError(f"ids have one dimension, not the shape {array.shape}")
        if array.dtype == np.bool_:
            if len(array) != self._length:
                raise InvalidError(
                    f"a mask has one value for each of the {self._length} samples, not {len(array)}"
                )
            return np.flatnonzero(array).astype(np.int64)
        if array.size == 0:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind not in "iu":
            raise InvalidError(f"ids are integers, not {array.dtype}")
        if array.dtype == np.uint64 and int(array.max()) >= self._length:
            raise OutOfRangeError(f"there is no sample {int(array.max())}: the data set has {self._length}")
        converted = np.ascontiguousarray(array, dtype=np.int64)
        if int(converted.min()) < 0:
            negative = converted < 0
            if int(converted.min()) < -self._length:
                raise OutOfRangeError(
                    f"there is no sample {int(converted.min())}: the data set has {self._length}"
                )
            converted = np.where(negative, converted + self._length, converted)
        return converted

    # The whole, elsewhere.

    def to_arrow(self) -> pyarrow.Table:
        """All samples as a table over the mapped files: no copy where shards are uncompressed.

        Hashes are compared first unless verify="never". The table shows the files themselves: truncating a shard while
        it is in use ends the process, which nothing else here does. Options for forms (cast, fill_null, ...) do not
        apply.
        """
        from fastshard import arrow_export

        return arrow_export.table(self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The samples as a stream of record batches, for pyarrow, polars, DuckDB, pandas."""
        from fastshard import arrow_export

        return arrow_export.stream(self).__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All samples as a pandas frame; options as `pyarrow.Table.to_pandas`."""
        from fastshard._optional import require

        require("pandas", "pandas", "to_pandas()")
        return self.to_arrow().to_pandas(**options)

    def to_numpy(self) -> Batch:
        """All samples as one batch of NumPy arrays."""
        return self._take(np.arange(self._length, dtype=np.int64))

    def to_torch(self) -> Batch:
        """All samples as one batch of tensors."""
        from fastshard._optional import require

        require("torch", "torch", "to_torch()")
        return self.to_numpy().to_torch()

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[Fault]:
        """Check every hash, structure and value of the data set; the list is empty where it is whole.

        Args:
            progress: Called with bytes done and bytes in all.
        """
        return verify(os.path.abspath(self._path), self._index, self._core, progress)

    # Its life.

    def close(self) -> None:
        """Let go of mappings. A reader that is used again opens again."""
        self._core.close()

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _unpickle,
            (os.path.abspath(self._path), self._names, self._forms, self._options, self.fingerprint),
        )

    def __repr__(self) -> str:
        return f"ShardReader({self._path!r}, {self._length} samples, columns {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


def _unpickle(
    path: str, columns: tuple[str, ...] | None, forms: FormOptions, options: ReadOptions, fingerprint: str
) -> ShardReader:
    return ShardReader(path, columns=columns, forms=forms, options=options, fingerprint=fingerprint)


def _only(forms: FormOptions, name: str) -> FormOptions:
    """The options that concern one column."""

    def keep(options: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in options.items() if key == name or key.startswith(f"{name}.")}

    by_dtype = {key: value for key, value in forms.cast.items() if key in DTYPE_NAMES}
    return FormOptions(
        forms.lists, keep(forms.tensors), {**by_dtype, **keep(forms.cast)}, keep(forms.fill_null), False
    )


def _check_columns(options: ReadOptions, index: DatasetIndex) -> bool:
    if options.verify != "auto":
        return options.verify == "once"
    return index.bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _open_core(root: str, options: ReadOptions) -> tuple[DatasetIndex, Any, bool]:
    """The index, the native reader over it, and whether that checks columns.

    Two commits while it opens make it read the index again.
    """
    for attempt in range(_OPEN_ATTEMPTS):
        index = read_index(root)
        checks = _check_columns(options, index)
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
                check_columns=checks,
                cache_bytes=options.cache_bytes,
                max_open=options.max_open,
            )
        except NotFoundError as error:
            if attempt + 1 < _OPEN_ATTEMPTS and read_index(root).generation != index.generation:
                continue
            raise NotFoundError(f"{root}: {error}; restore the file, or convert the source again") from None
        except CorruptError as error:
            raise _located(root, error) from None
        if core.fingerprint().hex() != index.fingerprint:
            raise CorruptError(
                f"{root}: the fingerprint of the shard table is not what index.json says; "
                "restore the files, or convert the source again"
            )
        return index, core, checks
    raise NotFoundError(f"{root}: the data set was replaced {_OPEN_ATTEMPTS} times while it was being opened")


def _located(root: str, error: CorruptError) -> CorruptError:
    located = CorruptError(f"{root}: {error}")
    located.code = error.code
    return located
