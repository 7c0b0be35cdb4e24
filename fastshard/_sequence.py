"""Samples as a sequence: what readers, views and concatenations share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard.batch import Batch
from fastshard.distributed import worker_info
from fastshard.errors import InvalidError, OutOfRangeError
from fastshard.forms import DTYPE_NAMES, FormOptions
from fastshard.source import Data

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from fastshard._index import ColumnStats
    from fastshard._selecting import Share
    from fastshard.describe import Description
    from fastshard.views import View

__all__ = ["SampleSequence"]

_ITERATION_BYTES = 1 << 20
_ITERATION_ROWS = 1024

_Self = TypeVar("_Self", bound="SampleSequence")


class SampleSequence(Data):
    """Samples 0 to len - 1: one by one, as batches, as columns, and as Arrow, pandas, NumPy or torch."""

    _forms: FormOptions

    def _get(self, key: int) -> dict[str, Any]:
        """One sample; negative numbers count from the end."""
        return next(self._samples(np.array([self._sample_of(key)], dtype=np.int64)))

    @abstractmethod
    def _samples(self, places: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """The samples `places`, each at least 0; None for a null that their batch would have no form for."""

    @abstractmethod
    def record_batches(
        self, columns: Sequence[str] | None = None, selection: _core.Selection | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Samples in order as Arrow.

        Args:
            columns: Names of columns, also of some that are not read; None for those that are.
            selection: Which samples; None for all.
        """

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What the user said of the data set when it was written."""

    @property
    @abstractmethod
    def full_schema(self) -> pyarrow.Schema:
        """The schema of all columns of the data set, read or not."""

    @abstractmethod
    def describe(self) -> Description:
        """Rows, sizes, and for each column its type, form and statistics; prints as a table."""

    @abstractmethod
    def _delivering(
        self: _Self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> _Self: ...

    # Samples and batches.

    def __len__(self) -> int:
        return self.rows

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
            return self.gather(np.arange(*key.indices(self.rows), dtype=np.int64))
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
                return self.gather(ids.copy())  # the caller may change them while they are read
            except OutOfRangeError:
                pass  # counted from the end, or not there
        return self.gather(self._as_ids(ids))

    def __getitems__(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """The samples `ids` as a list, read in one go: what torch's DataLoader calls for a batch."""
        if worker_info() is not None:
            from fastshard._shared_room import watch_room

            watch_room()
        return list(self._samples(self._as_ids(ids)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every sample in order, read in chunks."""
        chunk = max(1, min(_ITERATION_ROWS, _ITERATION_BYTES // self.row_bytes))
        for first in range(0, self.rows, chunk):
            ids = np.arange(first, min(first + chunk, self.rows), dtype=np.int64)
            yield from self._samples(ids)

    def _column(self, name: str) -> Any:
        column = name
        if name not in self.columns:  # one that stands beside a column
            suffixes = (("__valid", self._forms.null_masks), ("__length", bool(self._forms.pad)))
            for suffix, is_there in suffixes:
                column = column.removesuffix(suffix) if is_there else column
        found = None
        if column in self.columns:
            only = self._delivering((column,), _only(self._forms, column))
            found = only.gather(np.arange(self.rows, dtype=np.int64)).get(name)
        if found is None:
            raise InvalidError(f"there is no column {name!r}; there are {', '.join(map(repr, self.columns))}")
        return found

    def _sample_of(self, key: int) -> int:
        """The number of a sample from the start. Raises `OutOfRangeError`."""
        place = key + self.rows if key < 0 else key
        if not 0 <= place < self.rows:
            raise OutOfRangeError(f"there is no sample {key}: {self._kind} has {self.rows}")
        return place

    _kind = "the data set"

    def _as_ids(self, ids: Any) -> npt.NDArray[np.int64]:
        array = np.asarray(ids)
        if array.ndim != 1:
            raise InvalidError(f"ids are integers in one dimension, not {_shown(ids)}")
        if array.dtype == np.bool_:
            if len(array) != self.rows:
                raise InvalidError(
                    f"a mask has one value for each of the {self.rows} samples, not {len(array)}"
                )
            return np.flatnonzero(array).astype(np.int64)
        if array.size == 0:
            return np.zeros(0, dtype=np.int64)
        if array.dtype == object and all(isinstance(id, (int, np.integer)) for id in array):
            for extreme in (min(array), max(array)):  # too large for any dtype
                self._sample_of(int(extreme))
        if array.dtype.kind not in "iu":
            raise InvalidError(f"ids are integers, not {array.dtype} as in {_shown(ids)}")
        low, high = int(array.min()), int(array.max())
        for extreme in (low, high):
            self._sample_of(extreme)
        converted = array.astype(np.int64)
        return np.where(converted < 0, converted + self.rows, converted) if low < 0 else converted

    # Parts of it.

    def select(self, which: Any) -> View:
        """The view of some samples, in the order in which they lie here.

        Args:
            which: Ids in any order, each once, negative ones counted from the end; a bool mask [len]; a slice or a
                range; or the path of a `.npy` file with ids or a mask.

        Raises:
            OutOfRangeError: An id is not there.
            InvalidError: An id comes twice (`take` repeats samples, a view has each once), or it is none of these.
        """
        from fastshard import views

        return views.selected(self, which)

    def filter(self, expression: pyarrow.compute.Expression | str) -> View:
        """The view of the samples for which an expression is true (and not null).

        Args:
            expression: A pyarrow expression, as in `pc.field("label") == 3`, or a condition as text:
                `"label in (3, 4) and day >= '2024-01-31' and name is not null"` (see `fastshard.conditions`). It may
                use every column of the data set, also those that are not read.

        Raises:
            InvalidError: It cannot be evaluated on these samples, or the text cannot be read.
        """
        from fastshard import views

        return views.filtered(self, expression)

    def split(
        self, fractions: Mapping[str, Share] | None = None, *, seed: int = 0, by: str | None = None
    ) -> dict[str, View]:
        """Disjoint random parts. The same samples, fractions and seed give the same parts, on any machine, for ever.

        Args:
            fractions: The share of each part, by name, with a sum of at most 1: `{"train": 0.9, "val": 0.1}`. None for
                those that the data set's metadata give as "splits", or else these.
            seed: Other seeds give other parts.
            by: A column whose equal values stay together, in one part: the parts then are only about as large as the
                fractions say.

        Raises:
            InvalidError: Fractions that are none, or no column of a type that samples can be divided by.
        """
        from fastshard import views

        return views.split(self, fractions, seed=seed, by=by)

    # The whole, elsewhere.

    def to_arrow(self) -> pyarrow.Table:
        """All samples as a table, over the mapped files where they can be used as they are: no copy there.

        Hashes are compared first unless verify="never". The table may show the files themselves: truncating a shard
        while it is in use ends the process, which nothing else here does. Options for forms (cast, fill_null, ...) do
        not apply.
        """
        import pyarrow as pa

        return pa.Table.from_batches(list(self.record_batches()), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The samples as a stream of record batches, for pyarrow, polars, DuckDB, pandas."""
        import pyarrow as pa

        stream = pa.RecordBatchReader.from_batches(self.schema, self.record_batches())
        return stream.__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """All samples as a pandas frame; options as `pyarrow.Table.to_pandas`."""
        from fastshard._optional import require

        require("pandas", "pandas", "to_pandas()")
        return self.to_arrow().to_pandas(**options)

    def to_numpy(self) -> Batch:
        """All samples as one batch of NumPy arrays."""
        return self.gather(np.arange(self.rows, dtype=np.int64))

    def to_torch(self) -> Batch:
        """All samples as one batch of tensors."""
        from fastshard._optional import require

        require("torch", "torch", "to_torch()")
        return self.to_numpy().to_torch()

    # Its life.

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()


def _only(forms: FormOptions, name: str) -> FormOptions:
    """The options that concern one column."""

    def keep(options: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in options.items() if key == name or key.startswith(f"{name}.")}

    by_dtype = {key: value for key, value in forms.cast.items() if key in DTYPE_NAMES}
    return FormOptions(
        forms.lists,
        keep(forms.tensors),
        {**by_dtype, **keep(forms.cast)},
        keep(forms.fill_null),
        forms.null_masks,
        forms.binary,
        keep(forms.pad),
    )


def _shown(ids: Any) -> str:
    text = repr(ids)
    return text if len(text) <= 80 else f"{text[:77]}..."
