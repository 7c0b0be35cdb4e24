"""The steps that select samples: each, applied to samples, gives the same selection again, and reads as a short text.

docs/order.md, section 8, says which samples a split takes. A step pickles as its arguments.
"""

from __future__ import annotations

import math
import operator
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from fastshard import _core
from fastshard.errors import InvalidError, NotFoundError, OutOfRangeError, StateError, StorageError

if TYPE_CHECKING:
    import pyarrow

    from fastshard._sequence import SampleSequence

__all__ = [
    "DEFAULT_SPLITS",
    "FileStep",
    "FilterStep",
    "IdsStep",
    "ListStep",
    "NamedSplitStep",
    "RangeStep",
    "SplitStep",
    "Step",
]

Share: TypeAlias = "float | str | Fraction | Decimal"

DEFAULT_SPLITS: Mapping[str, Share] = {"train": 0.9, "val": 0.1}
SPLITS_KEY = "splits"  # of a data set's metadata: name -> share
_MOST_CARRIED = 16 << 20  # bytes of explicit ids that a pickle may carry


class Step(ABC):
    """Selects some of the samples that it is applied to."""

    @abstractmethod
    def apply(self, data: SampleSequence) -> _core.Selection:
        """The places of the selected samples, of those of `data`."""

    def resolve(self, data: SampleSequence) -> Step:
        """The step that says all by itself, where this one depends on what `data` says of themselves."""
        return self

    @abstractmethod
    def __str__(self) -> str:
        """In one line; where possible as a command line takes it."""


def share_of(value: Share, name: str) -> Fraction:
    """A fraction of the samples, exactly as it is written: 0.9 is 9/10.

    Raises:
        InvalidError: It is not above 0 and at most 1.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction, Decimal)):
            raise ValueError
        if isinstance(value, str) and value.strip().endswith("%"):
            share = Fraction(value.strip()[:-1]) / 100
        else:
            share = Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, ZeroDivisionError, InvalidOperation, OverflowError):
        raise InvalidError(f"the fraction of {name!r} is a number such as 0.9, not {value!r}") from None
    if not 0 < share <= 1:
        raise InvalidError(f"the fraction of {name!r} is above 0 and at most 1, not {value!r}")
    return share


def bounds_of(fractions: Mapping[str, Share]) -> dict[str, tuple[Fraction, Fraction]]:
    """Where each part begins and ends, in [0, 1].

    Raises:
        InvalidError: There are none, one is no fraction, or their sum is above 1.
    """
    if not isinstance(fractions, Mapping) or not fractions:
        raise InvalidError(
            f'fractions is a dict such as {{"train": 0.9, "val": 0.1}}, with a name for each part, not {fractions!r}'
        )
    bounds = {}
    low = Fraction(0)
    for name, value in fractions.items():
        if not isinstance(name, str):
            raise InvalidError(f"parts have names, not {name!r}")
        high = low + share_of(value, name)
        bounds[name] = (low, high)
        low = high
    if low > 1:
        raise InvalidError(
            f"the fractions {dict(fractions)!r} have a sum of {_decimal(low)}, which is above 1"
        )
    return bounds


@dataclass(frozen=True, slots=True)
class SplitStep(Step):
    """A part of a random split: what lies between two shares of the samples in an order that the seed decides.

    Attributes:
        low, high: The shares.
        seed: Of the split, 0 to 2^64 - 1.
        by: The column whose equal values stay together, or None.
        name: Of the part, for people.
    """

    low: Fraction
    high: Fraction
    seed: int
    by: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.seed, np.integer):
            object.__setattr__(self, "seed", int(self.seed))  # it ends up in recipes
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 1 << 64:
            raise InvalidError(f"seed is an integer from 0 to 2^64 - 1, not {self.seed!r}")
        if self.by is not None and not isinstance(self.by, str):
            raise InvalidError(f"by is the name of a column, not {self.by!r}")
        if not 0 <= self.low < self.high <= 1:
            raise InvalidError(
                f"a part lies between two shares, as in 0:0.9; {_decimal(self.low)}:{_decimal(self.high)} are none"
            )

    def apply(self, data: SampleSequence) -> _core.Selection:
        return split_all(data, [self])[0]

    def __str__(self) -> str:
        by = "" if self.by is None else f"&by={self.by}"
        return f"split={_decimal(self.low)}:{_decimal(self.high)}&seed={self.seed}{by}"


def split_all(data: SampleSequence, steps: list[SplitStep]) -> list[_core.Selection]:
    """What several steps of one seed and column select, in one pass. Each begins where the one before ends."""
    seed, by = steps[0].seed, steps[0].by
    shares = [steps[0].low, *(step.high for step in steps)]
    if by is None:
        rows = data.rows
        cuts = [math.floor(rows * share + Fraction(1, 2)) for share in shares]
        return list(_core.Selection.split(rows, _core.order_key("split", seed), cuts))
    return _split_by(data, seed, by, shares)


def _split_by(data: SampleSequence, seed: int, by: str, shares: list[Fraction]) -> list[_core.Selection]:
    from fastshard._grouping import value_words

    field = data.full_schema.get_field_index(by)
    if field < 0:
        raise InvalidError(f"by={by!r}: there is no such column; there are {_names(data)}")
    # A word belongs to a part if it is at most the last word below the part's end.
    last = [math.floor(share * (1 << 64)) - 1 for share in shares]
    builders = [_core.SelectionBuilder(data.rows) for _ in shares[1:]]
    first = 0
    for batch in data.record_batches([by]):
        words = _core.split_words(seed, value_words(batch.column(0), by))
        begins = words > np.uint64(last[0]) if last[0] >= 0 else np.ones(len(words), np.bool_)
        for builder, end in zip(builders, last[1:], strict=True):
            inside = words <= np.uint64(end)
            builder.add(np.flatnonzero(begins & inside) + first)
            begins = ~inside
        first += batch.num_rows
    return [builder.finish() for builder in builders]


@dataclass(frozen=True, slots=True)
class NamedSplitStep(Step):
    """A part by its name alone: its fractions are those in the data set's metadata, or the usual ones."""

    name: str
    seed: int
    by: str | None = None

    def resolve(self, data: SampleSequence) -> SplitStep:
        fractions = splits_of(data)
        bounds = bounds_of(fractions)
        if self.name not in bounds:
            raise InvalidError(
                f"split={self.name}: there is no such part; there are {', '.join(fractions)} "
                '(the metadata "splits" of a data set names its parts), or write shares, as in split=0:0.9'
            )
        low, high = bounds[self.name]
        return SplitStep(low, high, self.seed, self.by, self.name)

    def apply(self, data: SampleSequence) -> _core.Selection:
        return self.resolve(data).apply(data)

    def __str__(self) -> str:
        by = "" if self.by is None else f"&by={self.by}"
        return f"split={self.name}&seed={self.seed}{by}"


def splits_of(data: SampleSequence) -> Mapping[str, Share]:
    """The parts that the data set's metadata name, or the usual ones."""
    given = data.metadata.get(SPLITS_KEY)
    if given is None:
        return DEFAULT_SPLITS
    if not isinstance(given, Mapping):
        raise InvalidError(f'the metadata "splits" of the data set are {given!r}, not names with fractions')
    return given


@dataclass(frozen=True, slots=True)
class FilterStep(Step):
    """The samples for which an expression is true.

    Attributes:
        expression: A pyarrow expression, or a condition as `fastshard.conditions` reads it.
    """

    expression: pyarrow.compute.Expression | str

    def apply(self, data: SampleSequence) -> _core.Selection:
        from fastshard._filtering import matching

        builder = _core.SelectionBuilder(data.rows)
        for places in matching(data, self._compiled(data), str(self)):
            builder.add(places)
        return builder.finish()

    def _compiled(self, data: SampleSequence) -> pyarrow.compute.Expression:
        import pyarrow.compute as pc

        from fastshard._filtering import checked
        from fastshard.conditions import parse_where

        if isinstance(self.expression, str):
            return parse_where(self.expression, data.full_schema)
        if not isinstance(self.expression, pc.Expression):
            raise InvalidError(
                f"a filter is a pyarrow expression or a text such as 'label = 3', not {self.expression!r}"
            )
        return checked(self.expression, data.full_schema, str(self))

    def __str__(self) -> str:
        return f"where={' '.join(str(self.expression).split())}"


@dataclass(frozen=True, slots=True)
class RangeStep(Step):
    """Samples at even distances, as a slice takes them.

    Attributes:
        start, stop, step: As in `slice`; None and negative numbers mean what they mean there.
    """

    start: int | None
    stop: int | None
    step: int | None = None

    def __post_init__(self) -> None:
        for name in ("start", "stop", "step"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidError(f"a slice of samples is of integers, not {value!r}")
        if self.step == 0:
            raise InvalidError("the step of a slice of samples is not 0")

    def apply(self, data: SampleSequence) -> _core.Selection:
        places = range(data.rows)[self.start : self.stop : self.step]
        if places.step < 0:
            places = places[::-1]
        if places.step == 1:
            bounds = [places.start, places.stop] if len(places) else []
            return _core.Selection.restore("runs", np.array(bounds, np.int64), data.rows)
        ids = np.arange(places.start, places.stop, places.step, dtype=np.int64)
        return _core.Selection.restore("ids", ids, data.rows)

    def __str__(self) -> str:
        bounds = (self.start, self.stop) if self.step is None else (self.start, self.stop, self.step)
        return "select=" + ":".join("" if bound is None else str(bound) for bound in bounds)


@dataclass(frozen=True, slots=True)
class ListStep(Step):
    """Samples by a few ids, as a command line names them."""

    ids: tuple[int, ...]

    def resolve(self, data: SampleSequence) -> Step:
        return IdsStep(selection_of(data, self.ids))

    def apply(self, data: SampleSequence) -> _core.Selection:
        return self.resolve(data).apply(data)

    def __str__(self) -> str:
        return f"select={','.join(map(str, self.ids))}"


@dataclass(frozen=True, slots=True)
class IdsStep(Step):
    """Samples that were named one by one. A pickle carries them, compressed."""

    selection: _core.Selection

    def apply(self, data: SampleSequence) -> _core.Selection:
        if self.selection.universe != data.rows:
            raise StateError(
                f"ids were selected from {self.selection.universe} samples, and there are {data.rows} now: "
                "the data were replaced; select them again"
            )
        return self.selection

    def __reduce__(self) -> tuple[Any, ...]:
        form, values = self.selection.parts()
        # Differences of ascending numbers are small, and so compress well.
        plain = values if form == "bits" else np.diff(values, prepend=np.uint64(0))
        packed = zlib.compress(plain.tobytes(), 1)
        if len(packed) > _MOST_CARRIED:
            raise InvalidError(
                f"a view of {self.selection.size} samples that were selected by their ids takes {len(packed)} bytes "
                f"in a pickle, at most {_MOST_CARRIED} are carried: save the ids with numpy.save and select by the "
                "file's path, or select by a filter or a split, which pickle as what they say"
            )
        return (_restore_ids, (form, packed, self.selection.universe))

    def __str__(self) -> str:
        count = self.selection.size
        if count == 0:
            return "select=:0"
        if count > 8:
            return f"select=({count} ids)"
        return "select=" + ",".join(map(str, self.selection.fill(0, count).tolist()))


def _restore_ids(form: str, packed: bytes, universe: int) -> IdsStep:
    try:
        values = np.frombuffer(zlib.decompress(packed), dtype=np.uint64)
        if form != "bits":
            values = np.cumsum(values, dtype=np.uint64)
        return IdsStep(_core.Selection.restore(form, values, universe))
    except (zlib.error, ValueError) as error:
        raise StateError(f"the pickle of a view is damaged: {error}") from None


@dataclass(frozen=True, slots=True)
class FileStep(Step):
    """Samples whose ids, or a mask of them, are in a `.npy` file.

    Attributes:
        path: Of the file, absolute.
    """

    path: str

    def apply(self, data: SampleSequence) -> _core.Selection:
        try:
            array = np.load(self.path, allow_pickle=False)
        except FileNotFoundError:
            raise NotFoundError(f"{self.path}: there is no such file of ids to select") from None
        except OSError as error:
            raise StorageError(f"{self.path}: cannot read the ids to select: {error}") from error
        except ValueError as error:
            raise InvalidError(f"{self.path}: not a .npy file of ids or of a mask: {error}") from None
        if not isinstance(array, np.ndarray):
            raise InvalidError(f"{self.path}: an archive of arrays; give a .npy file of one")
        return selection_of(data, array, f"{self.path}: ")

    def __str__(self) -> str:
        return f"select=@{self.path}"


def selection_of(data: SampleSequence, which: Any, where: str = "") -> _core.Selection:
    """The selection of ids in any order, or of a mask.

    Raises:
        OutOfRangeError: An id is not there.
        InvalidError: An id comes twice, or they are no ids.
    """
    try:
        places = data._as_ids(which)
    except (InvalidError, OutOfRangeError) as error:
        raise type(error)(f"{where}{error}") from None
    ascending = np.sort(places) if np.any(places[1:] <= places[:-1]) else places
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(repeated):
        raise InvalidError(
            f"{where}sample {int(repeated[0])} is selected twice: a view has each sample once; "
            "for a batch with repeats, use take"
        )
    return _core.Selection.restore("ids", ascending, data.rows)


def step_of(data: SampleSequence, which: Any) -> Step:
    """The step of what a user selects by; see `SampleSequence.select`."""
    if isinstance(which, slice):
        return RangeStep(*(_plain(bound) for bound in (which.start, which.stop, which.step)))
    if isinstance(which, range) and (not which or (which[0] >= 0 and which[-1] >= 0)):
        first, last = (min(which[0], which[-1]), max(which[0], which[-1])) if which else (0, -1)
        if last >= data.rows:
            data._sample_of(last)
        return RangeStep(first, last + 1, abs(which.step))
    if isinstance(which, (str, os.PathLike)):
        return FileStep(os.path.abspath(os.fspath(which)))
    return IdsStep(selection_of(data, which))


def _plain(bound: Any) -> Any:
    """NumPy's integers as Python's: they end up in recipes."""
    return operator.index(bound) if isinstance(bound, SupportsIndex) else bound


def _names(data: SampleSequence) -> str:
    return ", ".join(map(repr, data.full_schema.names))


def _decimal(share: Fraction) -> str:
    """As a decimal number if it has an end, else as a quotient."""
    rest = share.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return str(share)
    text = format(Decimal(share.numerator) / Decimal(share.denominator), "f")
    return text if Fraction(text) == share else str(share)
