"""Views: some samples of a data set, used wherever a data set is.

A view holds which samples it has in a compact form, and how it came about. It pickles as the latter, with a digest of
the former, and is refused where the same steps lead to other samples. docs/order.md, section 8, says which samples a
step selects and in which order a view is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._selecting import (
    FileStep,
    FilterStep,
    ListStep,
    NamedSplitStep,
    RangeStep,
    Share,
    SplitStep,
    Step,
    bounds_of,
    split_all,
    splits_of,
    step_of,
)
from fastshard._sequence import SampleSequence
from fastshard.batch import Batch
from fastshard.describe import Description
from fastshard.errors import InvalidError, StateError
from fastshard.forms import FormOptions
from fastshard.source import Data, Geometry, PathRecipe, Reading, Recipe, absolute

if TYPE_CHECKING:
    import pyarrow

    from fastshard._index import ColumnStats
    from fastshard.reader import ReadOptions, ShardReader

__all__ = ["View", "open_spec", "parse_spec", "path_of", "refuse_part", "selects"]


class View(SampleSequence):
    """Some samples of a data set or of a concatenation. Made by `select`, `filter` and `split`.

    It is read like a data set: its samples are numbered from 0 in the order in which they lie there. A batch's `ids`
    are those of the data set. Views of views are views of the data set.

    Attributes:
        root: The data set or concatenation.
        steps: How the samples were selected from it.
        selection: Their ids.
    """

    _kind = "the view"

    def __init__(self, root: SampleSequence, steps: tuple[Step, ...], selection: _core.Selection) -> None:
        self.root = root
        self.steps = steps
        self.selection = selection
        self._forms = root._forms
        self._known = _Known(selection)

    @property
    def rows(self) -> int:
        """How many samples it has; the same as `len`."""
        return self.selection.size

    @property
    def digest(self) -> str:
        """The xxh3-128 of its ids, each as 8 bytes, little-endian: 32 hexadecimal digits."""
        return self._known.digest

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name its samples: of the data set's fingerprint and the digest."""
        return _fingerprint(self.root.fingerprint, self.digest)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return self.root.columns

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the columns that are read."""
        return self.root.schema

    @property
    def full_schema(self) -> pyarrow.Schema:
        """The Arrow schema of all columns of the data set."""
        return self.root.full_schema

    @property
    def statistics(self) -> Mapping[str, ColumnStats]:
        """Those of the whole data set, which are bounds for the view's."""
        return self.root.statistics

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The user's metadata of the data set."""
        return self.root.metadata

    @property
    def row_bytes(self) -> int:
        """Mean size of a sample of the data set in memory, in bytes."""
        return self.root.row_bytes

    @property
    def geometry(self) -> Geometry:
        """Where its samples lie, for orders."""
        return self._known.geometry(self.root)

    @property
    def recipe(self) -> ViewRecipe:
        """How to open the same again."""
        return ViewRecipe(self.root.recipe, self.steps, known=self._known)

    def ids(self) -> npt.NDArray[np.int64]:
        """The ids of its samples in the data set: int64 [len], ascending."""
        return self.selection.fill(0, self.rows)

    def identity(self) -> dict[str, Any]:
        """What a saved state says of it: the steps as text and the digest."""
        return {
            **self.root.identity(),
            "view": [str(step) for step in self.steps],
            "view_of": self.root.fingerprint,
            "digest": self.digest,
        }

    def fingerprint_of(self, shards: int) -> str | None:
        """The fingerprint of its samples in the first `shards` shards."""
        root = self.root.fingerprint_of(shards)
        if root is None:
            return None
        rows = int(self.root.geometry.shard_rows[:shards].sum())
        return _fingerprint(root, self.selection.clip(0, rows).digest().hex())

    def gather(self, places: npt.NDArray[np.int64]) -> Batch:
        """The samples `places`, counted in the view and each at least 0, as a batch of NumPy arrays."""
        return self.root.gather(self.selection.ids(places))

    def _get(self, key: int) -> dict[str, Any]:
        return self.root._get(self.selection.at(self._sample_of(key)))

    def _samples(self, places: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        return self.root._samples(self.selection.ids(places))

    def locate(self, place: int) -> tuple[int, str]:
        """The id of a sample in the data set, and the path of its shard."""
        return self.root.locate(self.selection.at(place))

    @property
    def native(self) -> tuple[ShardReader, _core.Selection] | None:
        """The data set and the ids, or None for a view of a concatenation."""
        root = self.root.native
        return None if root is None else (root[0], self.selection)

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns of the data set whose nulls have no form."""
        self.root.check_nulls()

    def _delivering(
        self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> View:
        root = self.root._delivering(columns, forms, statistics)
        other = View(root, self.steps, self.selection)
        other._known = self._known
        return other

    def record_batches(
        self, columns: Sequence[str] | None = None, selection: _core.Selection | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Its samples in order as Arrow, of the columns that are read or of others of the data set.

        Args:
            columns: Names of columns, or None.
            selection: Places of the samples, or None for all.
        """
        wanted = self.selection if selection is None else self.selection.compose(selection)
        return self.root.record_batches(columns, wanted)

    def describe(self) -> Description:
        """Its samples, and of the data set its sizes and for each column type, form and statistics."""
        shards = int(np.count_nonzero(self.geometry.shard_rows))
        whole = self.root.describe()
        return replace(whole, rows=self.rows, of=whole.rows, touched=shards, fingerprint=self.fingerprint)

    def stats(self) -> dict[str, int]:
        """Counters of the data set's reader."""
        return self.root.stats()

    def close(self) -> None:
        """Close the data set. It opens again when it is used."""
        self.root.close()

    def __repr__(self) -> str:
        count = f"{self.rows} of {self.root.rows} samples"
        return f"View({self.recipe.where!r}, {count}, columns {', '.join(self.columns)})"


def _fingerprint(root: str, digest: str) -> str:
    return _core.xxh3_128(b"view" + bytes.fromhex(root + digest)).hex()


class _Known:
    """What was worked out for a view in this process: its ids, and when they are asked for, what follows from them."""

    def __init__(self, selection: _core.Selection) -> None:
        self.selection = selection
        self._geometry: Geometry | None = None

    @cached_property
    def digest(self) -> str:
        return self.selection.digest().hex()

    def geometry(self, root: SampleSequence) -> Geometry:
        if self._geometry is None:
            self._geometry = root.geometry.select(self.selection)
        return self._geometry


@dataclass(frozen=True, slots=True)
class ViewRecipe(Recipe):
    """A view by its steps. A pickle carries the steps and the digest of the ids, not the ids.

    Attributes:
        root: The data set or concatenation.
        steps: What selects from it, one after the other.
        digest: What the ids must have, or None.
        known: The ids, in the process that worked them out.
    """

    root: Recipe
    steps: tuple[Step, ...]
    digest: str | None = None
    known: _Known | None = field(default=None, compare=False, repr=False)

    @property
    def where(self) -> str:
        return f"{self.root.where}?{'&'.join(map(str, self.steps))}"

    def _open(self, reading: Reading) -> Data:
        root = self.root._open(reading)
        if not isinstance(root, SampleSequence):
            raise InvalidError(f"{self.root.where}: a mix has no views; mix views instead")
        if self.known is not None and self.known.selection.universe == root.rows:
            view = View(root, self.steps, self.known.selection)
            view._known = self.known
            return view
        view = _replay(root, self.steps)
        if self.digest is not None and view.digest != self.digest:
            raise StateError(
                f"{self.where}: it selects other samples than when it was pickled: {view.rows} of {root.rows}, with "
                f"the digest {view.digest} instead of {self.digest}; what it selects by was changed since"
            )
        return view

    def __reduce__(self) -> tuple[Any, ...]:
        digest = self.digest if self.known is None else self.known.digest
        return ViewRecipe, (self.root, self.steps, digest)


def _replay(root: SampleSequence, steps: tuple[Step, ...]) -> View:
    data: SampleSequence = root
    for step in steps:
        data = _narrowed(data, step)
    return data if isinstance(data, View) else View(root, (), RangeStep(None, None).apply(root))


def _narrowed(data: SampleSequence, step: Step, selection: _core.Selection | None = None) -> View:
    """The view that a step selects."""
    step = step.resolve(data)
    if selection is None:
        selection = step.apply(data)
    if not isinstance(data, View):
        return View(data, (step,), selection)
    return View(data.root, (*data.steps, step), data.selection.compose(selection))


def selected(data: SampleSequence, which: Any) -> View:
    """See `SampleSequence.select`."""
    return _narrowed(data, step_of(data, which))


def filtered(data: SampleSequence, expression: Any) -> View:
    """See `SampleSequence.filter`."""
    return _narrowed(data, FilterStep(expression))


def split(
    data: SampleSequence, fractions: Mapping[str, Share] | None, *, seed: int, by: str | None
) -> dict[str, View]:
    """See `SampleSequence.split`."""
    bounds = bounds_of(splits_of(data) if fractions is None else fractions)
    steps = [SplitStep(low, high, seed, by, name) for name, (low, high) in bounds.items()]
    parts = split_all(data, steps)
    return {step.name: _narrowed(data, step, selection) for step, selection in zip(steps, parts, strict=True)}


# Views as text.

_BEGINS = re.compile(r"[?&](?=(?:split|where|select|seed|by)=)")
_LOOKS_LIKE = re.compile(r"(?!.*://).+\?(\w+)=")


def open_spec(
    text: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    forms: FormOptions | None = None,
    options: ReadOptions | None = None,
) -> SampleSequence:
    """Open a data set by its path, or a view by a path and what selects samples from it, as command lines take them.

    `train/?split=val` is the part "val" (see `SampleSequence.split`), `train/?split=0:0.9&seed=1&by=user` lies between
    two shares, `train/?where=label = 3` is a filter, `train/?select=0:1000` and `?select=3,17` and `?select=@ids.npy`
    are given samples. What follows behind a "&" selects from what is before it.

    Args:
        text: The path.
        columns, forms, options: As for `Recipe.open`.

    Raises:
        InvalidError: The text cannot be read, or does not fit the data set.
        Error: As `fastshard.open` says.
    """
    data = parse_spec(os.fspath(text)).open(columns=columns, forms=forms, options=options)
    assert isinstance(data, SampleSequence)
    return data


def selects(text: str) -> bool:
    """Whether a text is a path with a selection behind it. Raises `InvalidError` for one that cannot be read."""
    return _end_of_path(text) < len(text)


def path_of(text: str) -> str:
    """The path of such a text. Raises `InvalidError` for one that cannot be read."""
    return text[: _end_of_path(text)]


def refuse_part(path: str | os.PathLike[str], what: str) -> None:
    """Raise `InvalidError` for a path with a selection behind it, where `what` takes whole data sets alone."""
    text = os.fspath(path)
    if isinstance(text, str) and selects(text):
        whole = path_of(text)
        raise InvalidError(f"{text}: {what} takes whole data sets, not parts: say {whole}")


def parse_spec(text: str) -> Recipe:
    """The recipe of a text as `open_spec` takes it. Nothing is opened.

    Raises:
        InvalidError: What is behind the "?" cannot be read.
    """
    end = _end_of_path(text)
    if end == len(text):
        return PathRecipe(absolute(text))
    steps: list[Step] = []
    for item in _BEGINS.split(text[end + 1 :]):
        key, _, value = item.partition("=")
        try:
            if key in ("seed", "by"):
                steps.append(_with_option(steps.pop() if steps else None, key, value))
            else:
                steps.append(_PARSERS[key](value))
        except InvalidError as error:
            raise InvalidError(f"{text!r}: {error}") from None
    return ViewRecipe(PathRecipe(absolute(text[:end])), tuple(steps))


def _end_of_path(text: str) -> int:
    """Where the path ends: the longest one that is there, or what is before the first step."""
    if os.path.lexists(text):
        return len(text)
    ends = [match.start() for match in _BEGINS.finditer(text) if "?" in text[: match.end()]]
    for end in reversed(ends):
        if os.path.lexists(text[:end]):
            return end
    if ends:
        return ends[0]
    other = _LOOKS_LIKE.match(text)
    if other is not None:
        raise InvalidError(f"{text!r}: behind the ? stands split=, where= or select=, not {other[1]}=")
    return len(text)


def _parse_split(value: str) -> Step:
    low, colon, high = value.partition(":")
    if not colon:
        return NamedSplitStep(value, 0)
    return SplitStep(_share(low, Fraction(0)), _share(high, Fraction(1)), 0)


def _share(text: str, default: Fraction) -> Fraction:
    if not text.strip():
        return default
    try:
        return Fraction(text.strip()[:-1]) / 100 if text.strip().endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InvalidError(
            f"split= wants the name of a part, or two shares such as 0:0.9 or 90%:, not {text!r}"
        ) from None


def _parse_select(value: str) -> Step:
    if value.startswith("@"):
        return FileStep(absolute(value[1:]))
    try:
        if ":" in value:
            start, stop, *step = (int(part) if part else None for part in value.split(":"))
            if len(step) < 2:
                return RangeStep(start, stop, step[0] if step else None)
        else:
            return ListStep(tuple(int(part) for part in value.split(",")))
    except InvalidError:
        raise
    except ValueError:
        pass
    raise InvalidError(
        f"select= wants ids such as 3,17,20, a range such as 0:1000 or ::10, or @FILE.npy, not {value!r}"
    )


_PARSERS: dict[str, Callable[[str], Step]] = {
    "split": _parse_split,
    "where": FilterStep,
    "select": _parse_select,
}


def _with_option(step: Step | None, key: str, value: str) -> Step:
    if not isinstance(step, (SplitStep, NamedSplitStep)):
        raise InvalidError(f"{key}= belongs behind split=, as in split=train&{key}={value}")
    if key == "by":
        return replace(step, by=value)
    try:
        return replace(step, seed=int(value))
    except ValueError:
        raise InvalidError(f"seed= wants a number, not {value!r}") from None
