"""Data sets one after the other as one: `fs.concat`; and what a mix shares with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._index import ColumnStats
from fastshard._merge import interleaved
from fastshard._sequence import SampleSequence
from fastshard.batch import Batch
from fastshard.describe import Description
from fastshard.errors import InvalidError, OutOfRangeError, SchemaError
from fastshard.forms import FormOptions
from fastshard.source import Data, Geometry, Reading, Recipe, recipe_of

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Concat", "Parts", "aligned", "concat", "nullable_as_any", "total_stats"]


def concat(
    sources: Sequence[str | os.PathLike[str] | Data | Recipe], *, columns: Sequence[str] | None = None
) -> Concat:
    """Several data sets (or views) as one, their samples one after the other. Nothing is copied.

    Args:
        sources: Paths, also with a selection as in `train/?split=val`; readers, views, concatenations.
        columns: Names of the columns to read; None for those of the first. All must have them, with the same types.

    Raises:
        InvalidError: There are none, one of them is a mix, or they were opened with different options.
        SchemaError: They have other columns, or columns of other types.
        Error: As `fastshard.open` says.
    """
    if isinstance(sources, (str, bytes, os.PathLike, Data, Recipe, Mapping)):
        raise InvalidError(f"concat takes a list of data sets, not {sources!r}")
    opened = [recipe_of(source).open() if not isinstance(source, Data) else source for source in sources]
    return Concat(aligned(opened, columns, "concat"))


def aligned(
    parts: Sequence[Data],
    columns: Sequence[str] | None,
    what: str,
    forms: FormOptions | None = None,
) -> list[SampleSequence]:
    """The parts, made to deliver the same columns in the same forms, which follow from the statistics of all.

    Raises:
        InvalidError, SchemaError: As `concat` says.
    """
    if not parts:
        raise InvalidError(f"{what} needs at least one data set")
    sequences: list[SampleSequence] = []
    for part in parts:
        if not isinstance(part, SampleSequence):
            raise InvalidError(f"{what} takes data sets, views and concatenations, not {part!r}")
        sequences.append(part)
    first = sequences[0]
    if isinstance(columns, str):
        raise InvalidError(f"columns is a list of names, not the string {columns!r}")
    names = first.columns if columns is None else tuple(columns)
    known = first.full_schema.names
    for name in names:
        if name not in known:
            raise InvalidError(f"{what}: there is no column {name!r}; there are {', '.join(known)}")
    for part in sequences:
        _check_schema(first, part, names, columns is None, what)
        if forms is None and part._forms != first._forms:
            raise InvalidError(
                f"{what}: {part.recipe.where} was opened with other options for its columns than "
                f"{first.recipe.where}; open both alike"
            )
    merged = {
        name: reduce(ColumnStats.merge, (part.statistics[name] for part in sequences)) for name in names
    }
    return [part._delivering(names, forms or first._forms, merged) for part in sequences]


def _check_schema(
    first: SampleSequence, part: SampleSequence, names: Sequence[str], same_columns: bool, what: str
) -> None:
    """Raise `SchemaError` unless `part` has the columns `names` as `first` has them."""
    there = part.columns if same_columns else part.full_schema.names
    where = f"{what}: {part.recipe.where}"
    missing = [name for name in names if name not in there]
    if missing:
        raise SchemaError(
            f"{where} has no column {missing[0]!r}, as {first.recipe.where} has; name the common ones (columns=)"
        )
    more = [name for name in there if name not in names]
    if same_columns and more:
        raise SchemaError(
            f"{where} has a column {more[0]!r} that {first.recipe.where} has not; name the common ones (columns=)"
        )
    for name in names:
        one, other = first.full_schema.field(name), part.full_schema.field(name)
        if _kind(one) != _kind(other):
            raise SchemaError(
                f"{where}: column {name!r} is of type {other.type}, and of type {one.type} in "
                f"{first.recipe.where}; convert one of them (cast=), or leave the column out (columns=)"
            )


def _kind(field: pyarrow.Field) -> tuple[Any, bytes | None]:
    """The type with what an extension that pyarrow does not know adds to it."""
    return field.type, (field.metadata or {}).get(b"ARROW:extension:name")


def nullable_as_any(schema: pyarrow.Schema, parts: Sequence[SampleSequence]) -> pyarrow.Schema:
    """The schema with a field nullable where that of any part is."""
    for place, field in enumerate(schema):
        if any(part.full_schema.field(field.name).nullable for part in parts):
            schema = schema.set(place, field.with_nullable(True))
    return schema


class Parts:
    """Where each of several data sets begins among the places of all."""

    def __init__(self, parts: Sequence[Data]) -> None:
        self.parts: tuple[Data, ...] = tuple(parts)
        self.ends = np.cumsum([part.rows for part in parts], dtype=np.int64)

    @property
    def rows(self) -> int:
        return int(self.ends[-1])

    def first(self, part: int) -> int:
        """The place of its first sample."""
        return int(self.ends[part - 1]) if part else 0

    def at(self, place: int) -> tuple[int, int]:
        """(part, place in it) of a sample. Raises `OutOfRangeError`."""
        if not 0 <= place < self.rows:
            raise OutOfRangeError(f"there is no sample {place}: there are {self.rows}")
        part = int(np.searchsorted(self.ends, place, side="right"))
        return part, place - self.first(part)

    def gather(self, places: npt.NDArray[np.int64]) -> tuple[Batch, npt.NDArray[np.int64]]:
        """The samples at `places`, with the ids that the parts give them, and the part of each: int64 [n]."""
        if len(places) and not (places.min() >= 0 and places.max() < self.rows):
            outside = int(places.max() if places.min() >= 0 else places.min())
            raise OutOfRangeError(f"there is no sample {outside}: there are {self.rows}")
        which = np.searchsorted(self.ends, places, side="right")
        used = np.unique(which).tolist() or [0]
        rows = [np.flatnonzero(which == part) for part in used]
        batches = [
            self.parts[part].gather(places[mine] - self.first(part))
            for part, mine in zip(used, rows, strict=True)
        ]
        return interleaved(batches, rows), which.astype(np.int64, copy=False)


class Concat(SampleSequence):
    """Several data sets as one. Made by `fastshard.concat`.

    Its samples are numbered through: those of the first, then those of the second, and so on. Their ids are these
    numbers.

    Attributes:
        parts: The data sets and views.
    """

    _kind = "the concatenation"

    def __init__(self, parts: Sequence[SampleSequence]) -> None:
        """Use `concat`, which checks that the parts fit."""
        flat: list[SampleSequence] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Concat) else [part])
        self.parts: tuple[SampleSequence, ...] = tuple(flat)
        self._places = Parts(flat)
        self._forms = flat[0]._forms

    @property
    def rows(self) -> int:
        """How many samples there are; the same as `len`."""
        return self._places.rows

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the samples, from the fingerprints of the parts."""
        return _fingerprint([part.fingerprint for part in self.parts])

    def fingerprint_of(self, shards: int) -> str | None:
        """The fingerprint of the first `shards` shards: of some parts, and of the beginning of one."""
        names: list[str] = []
        for part in self.parts:
            if part.shards > shards:
                begun = part.fingerprint_of(shards) if shards else ""
                if begun is None:
                    return None
                names += [begun] if begun else []
                break
            names.append(part.fingerprint)
            shards -= part.shards
        return _fingerprint(names)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return self.parts[0].columns

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the columns that are read: the first part's, with nulls where any has them."""
        return nullable_as_any(self.parts[0].schema, self.parts)

    @cached_property
    def full_schema(self) -> pyarrow.Schema:
        """The Arrow schema of all columns that the parts have in common."""
        import pyarrow as pa

        schemas = [part.full_schema for part in self.parts]
        fields = [
            field
            for field in schemas[0]
            if all(field.name in schema.names for schema in schemas)
            and all(_kind(schema.field(field.name)) == _kind(field) for schema in schemas)
        ]
        return nullable_as_any(pa.schema(fields, metadata=schemas[0].metadata), self.parts)

    @property
    def statistics(self) -> Mapping[str, ColumnStats]:
        """By column its nulls and lengths, over all parts."""
        return {
            name: reduce(ColumnStats.merge, (part.statistics[name] for part in self.parts))
            for name in self.full_schema.names
        }

    @property
    def metadata(self) -> Mapping[str, Any]:
        """None: each part has its own."""
        return {}

    @property
    def row_bytes(self) -> int:
        """Mean size of a sample in memory, in bytes."""
        return max(1, sum(part.row_bytes * part.rows for part in self.parts) // max(1, self.rows))

    @cached_property
    def geometry(self) -> Geometry:
        """Where the samples lie, for orders."""
        return Geometry.join([part.geometry for part in self.parts])

    @property
    def recipe(self) -> ConcatRecipe:
        """How to open the same again."""
        return ConcatRecipe(tuple(part.recipe for part in self.parts))

    def identity(self) -> dict[str, Any]:
        """What a saved state says of it: what each part is."""
        return {"concat": [{"fingerprint": part.fingerprint, **part.identity()} for part in self.parts]}

    def gather(self, places: npt.NDArray[np.int64]) -> Batch:
        """The samples `places`, each at least 0, as a batch of NumPy arrays."""
        batch, _ = self._places.gather(places)
        batch.ids = places
        return batch

    def _samples(self, places: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        samples: list[dict[str, Any]] = [{}] * len(places)
        which = np.searchsorted(self._places.ends, places, side="right")
        for part in np.unique(which).tolist():
            mine = np.flatnonzero(which == part)
            own = self.parts[part]._samples(places[mine] - self._places.first(part))
            for row, sample in zip(mine.tolist(), own, strict=True):
                samples[row] = sample
        return iter(samples)

    def _get(self, key: int) -> dict[str, Any]:
        part, place = self._places.at(self._sample_of(key))
        return self.parts[part]._get(place)

    def locate(self, place: int) -> tuple[int, str]:
        """The id of a sample (its place) and the path of its shard."""
        part, own = self._places.at(place)
        return place, os.path.join(self.parts[part].recipe.where, self.parts[part].locate(own)[1])

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form."""
        self.parts[0].check_nulls()  # forms and statistics are those of all

    def _delivering(
        self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> Concat:
        if statistics is None:
            return Concat(aligned(self.parts, columns or self.full_schema.names, "concat", forms))
        return Concat([part._delivering(columns, forms, statistics) for part in self.parts])

    def record_batches(
        self, columns: Sequence[str] | None = None, selection: _core.Selection | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Samples in order as Arrow.

        Args:
            columns: Names of columns that the parts have in common; None for those that are read.
            selection: Their places; None for all.
        """
        import pyarrow as pa

        names = list(self.columns if columns is None else columns)
        full = self.full_schema
        schema = pa.schema([full.field(name) for name in names], metadata=full.metadata)
        for j, part in enumerate(self.parts):
            wanted = (
                None
                if selection is None
                else selection.clip(self._places.first(j), int(self._places.ends[j]))
            )
            for batch in part.record_batches(names, wanted):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def describe(self) -> Description:
        """Rows, sizes, and for each column its type, form and statistics; prints as a table."""
        each = [part.describe() for part in self.parts]
        views = any(description.of is not None for description in each)
        statistics = self.statistics
        columns = [
            replace(
                column,
                null_count=statistics[column.name].null_count,
                min_length=statistics[column.name].min_length,
                max_length=statistics[column.name].max_length,
            )
            for column in each[0].columns
        ]
        return Description(
            rows=self.rows,
            shards=sum(description.shards for description in each),
            blocks=sum(description.blocks for description in each),
            bytes=sum(description.bytes for description in each),
            raw_bytes=sum(description.raw_bytes for description in each),
            fingerprint=self.fingerprint,
            generation=0,
            columns=tuple(columns),
            of=sum(d.rows if d.of is None else d.of for d in each) if views else None,
            touched=int(np.count_nonzero(self.geometry.shard_rows)) if views else None,
        )

    def stats(self) -> dict[str, int]:
        """The sums of the parts' counters."""
        return total_stats(self.parts)

    def close(self) -> None:
        """Close all parts. They open again when they are used."""
        for part in self.parts:
            part.close()

    def __repr__(self) -> str:
        return f"Concat({self.recipe.where}, {self.rows} samples, columns {', '.join(self.columns)})"


def _fingerprint(parts: Sequence[str]) -> str:
    return _core.xxh3_128(b"concat" + bytes.fromhex("".join(parts))).hex()


def total_stats(parts: Sequence[Data]) -> dict[str, int]:
    """The sums of counters."""
    totals: dict[str, int] = {}
    for part in parts:
        for name, value in part.stats().items():
            totals[name] = totals.get(name, 0) + value
    return totals


@dataclass(frozen=True, slots=True)
class ConcatRecipe(Recipe):
    """A concatenation by its parts."""

    parts: tuple[Recipe, ...]

    @property
    def where(self) -> str:
        return f"concat({', '.join(part.where for part in self.parts)})"

    def _open(self, reading: Reading) -> Data:
        # Each part is opened as it is, since some forms follow from the statistics of all.
        parts = [part._open(replace(reading, columns=None, forms=None)) for part in self.parts]
        return Concat(aligned(parts, reading.columns, "concat", reading.forms))
