"""Several data sets mixed by weights: `fs.mix`. docs/order.md, section 9, says which sample comes where."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard._index import ColumnStats
from fastshard._sequence import SampleSequence
from fastshard.batch import Batch
from fastshard.combining import Parts, aligned, nullable_as_any, total_stats
from fastshard.errors import InvalidError
from fastshard.forms import FormOptions
from fastshard.source import Data, Geometry, Order, OrderKey, Reading, Recipe, recipe_of

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Mix", "MixOrder", "mix"]

_MOST_WEIGHT = 65_536
_MOST_SAMPLES = 1 << 62
_KEPT_ORDERS = 2  # of a source: the epoch that is read, and the one before or after

_Samples: TypeAlias = "str | os.PathLike[str] | Data | Recipe"
Weight: TypeAlias = "float | str | Fraction | Decimal"


def mix(
    sources: Mapping[str, _Samples] | Sequence[_Samples],
    *,
    weights: Mapping[str, Weight] | Sequence[Weight] | None = None,
    columns: Sequence[str] | None = None,
) -> Mix:
    """Several data sets (or views) mixed: each batch holds of each as its weight says.

    A source that is exhausted starts its next epoch, and each goes on where it was when the mixed epoch ends: a small
    source is repeated, and of a large one another part comes in the next epoch. `epoch_size=` of a data set or loader
    says how many samples a mixed epoch has; by default as many as the sources together.

    Args:
        sources: By name, or a list (which gets the names "0", "1", ...): paths, also with a selection as in
            `train/?split=val`; readers, views, concatenations.
        weights: How much of each, by name or in the order of the sources: 3 and 1, or 0.75 and 0.25, taken exactly as
            written. None gives all the same.
        columns: Names of the columns to read; None for those of the first. All must have them, with the same types.

    Raises:
        InvalidError: There are no sources, one has no samples or is a mix itself, or the weights are not above 0, or
            cannot be written as integers with a sum of at most 65,536.
        SchemaError: They have other columns, or columns of other types.
        Error: As `fastshard.open` says.
    """
    if isinstance(sources, Mapping):
        names = tuple(sources)
        if not all(isinstance(name, str) for name in names):
            raise InvalidError(f"the sources of a mix have names, not {list(names)!r}")
        given = list(sources.values())
    elif isinstance(sources, Sequence) and not isinstance(sources, (str, bytes)):
        given = list(sources)
        names = tuple(str(number) for number in range(len(given)))
    else:
        raise InvalidError(f"mix takes data sets by name, or a list of them, not {sources!r}")
    whole = whole_weights(_ordered(weights, names), names)
    opened = [recipe_of(source).open() if not isinstance(source, Data) else source for source in given]
    return Mix(names, aligned(opened, columns, "mix"), whole)


def _ordered(weights: Mapping[str, Weight] | Sequence[Weight] | None, names: Sequence[str]) -> list[Weight]:
    if weights is None:
        return [1] * len(names)
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise InvalidError(f"weights are for {list(weights)!r}, and the sources are {list(names)!r}")
        return [weights[name] for name in names]
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)):
        raise InvalidError(f"weights are numbers by name or in a list, not {weights!r}")
    if len(weights) != len(names):
        raise InvalidError(f"there are {len(weights)} weights for {len(names)} sources")
    return list(weights)


def whole_weights(weights: Sequence[Weight], names: Sequence[str]) -> tuple[int, ...]:
    """The smallest integers in the same proportions. Raises `InvalidError` where there are none with a small sum."""
    shares = []
    for weight, name in zip(weights, names, strict=True):
        try:
            if isinstance(weight, (bool, np.bool_)):
                raise ValueError
            if isinstance(weight, np.generic):
                weight = weight.item()
            share = Fraction(repr(weight)) if isinstance(weight, float) else Fraction(weight)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, InvalidOperation):
            raise InvalidError(f"the weight of {name!r} is a number, not {weight!r}") from None
        if share <= 0:
            raise InvalidError(f"the weight of {name!r} is above 0, not {weight!r}; leave the source out")
        shares.append(share)
    scale = math.lcm(*(share.denominator for share in shares))
    whole = [int(share * scale) for share in shares]
    divisor = math.gcd(*whole) if whole else 1
    whole = [weight // divisor for weight in whole]
    if sum(whole) > _MOST_WEIGHT:
        raise InvalidError(
            f"the weights {list(weights)!r} are as {whole}, whose sum is {sum(whole)}; at most {_MOST_WEIGHT} is "
            "allowed: round them, to three digits say"
        )
    return tuple(whole)


class Mix(Data):
    """Several data sets mixed by weights. Made by `fastshard.mix`.

    It stands where a path stands in `ShardDataset` and `ShardLoader`. A batch's `source` says from which source each
    sample is, as a number that counts `sources`, and `ids` are those of the source. It has no samples of its own to
    look at: look at `parts`.

    Attributes:
        parts: The data sets and views.
        weights: Integers, in the order of the parts.
    """

    def __init__(self, names: Sequence[str], parts: Sequence[SampleSequence], weights: Sequence[int]) -> None:
        """Use `mix`, which checks that the parts fit."""
        for name, part in zip(names, parts, strict=True):
            if part.rows == 0:
                raise InvalidError(f"mix: {name!r} ({part.recipe.where}) has no samples; leave it out")
        self.parts = tuple(parts)
        self.weights = tuple(weights)
        self._names = tuple(names)
        self._places = Parts(parts)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the parts."""
        return self._names

    @property
    def rows(self) -> int:
        """The samples of all parts: those of an epoch, unless `epoch_size` says otherwise."""
        return self._places.rows

    def __len__(self) -> int:
        return self.rows

    @property
    def max_epoch_size(self) -> int:
        """No limit: sources are repeated."""
        return _MOST_SAMPLES

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the sources with all that their orders depend on, and the weights."""
        text = b"mix"
        for part, weight in zip(self.parts, self.weights, strict=True):
            geometry = part.geometry
            numbers = (part.rows, geometry.window, geometry.unit_blocks, weight)
            text += bytes.fromhex(part.fingerprint) + b"".join(n.to_bytes(8, "little") for n in numbers)
        return _core.xxh3_128(text).hex()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return self.parts[0].columns

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the columns that are read: the first part's, with nulls where any has them."""
        return nullable_as_any(self.parts[0].schema, self.parts)

    @cached_property
    def geometry(self) -> Geometry:
        """Where the samples of all parts lie, one part after the other."""
        return Geometry.join([part.geometry for part in self.parts])

    @property
    def recipe(self) -> MixRecipe:
        """How to open the same again."""
        return MixRecipe(self._names, tuple(part.recipe for part in self.parts), self.weights)

    @property
    def statistics(self) -> Mapping[str, ColumnStats]:
        """Those of the first part; the forms follow from those of all."""
        return self.parts[0].statistics

    @property
    def row_bytes(self) -> int:
        """Mean size of a sample in memory, in bytes, as the sources are mixed."""
        total = sum(part.row_bytes * weight for part, weight in zip(self.parts, self.weights, strict=True))
        return max(1, total // sum(self.weights))

    @property
    def largest_row_bytes(self) -> int:
        """A bound for the size of one sample in memory, in bytes."""
        return max(part.largest_row_bytes for part in self.parts)

    def identity(self) -> dict[str, Any]:
        """What a saved state says of it: what each part is, and its weight."""
        return {
            "mix": [
                {"name": name, "weight": weight, "fingerprint": part.fingerprint, **part.identity()}
                for name, part, weight in zip(self._names, self.parts, self.weights, strict=True)
            ]
        }

    def gather(self, places: npt.NDArray[np.int64]) -> Batch:
        """The samples `places` as a batch of NumPy arrays; the places of the second part follow those of the first."""
        batch, which = self._places.gather(places)
        batch.source = which
        return batch

    def locate(self, place: int) -> tuple[int, str]:
        """The id of a sample in its source, and the path of its shard with that of the source before it."""
        part, own = self._places.at(place)
        id, shard = self.parts[part].locate(own)
        return id, os.path.join(self.parts[part].recipe.where, shard)

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form."""
        self.parts[0].check_nulls()  # forms and statistics are those of all

    def default_lanes(self, kind: str) -> int:
        """Lanes of an order of this kind where none are asked for: the fewest that a part would have."""
        return min(part.default_lanes(kind) for part in self.parts)

    def epoch_order(self, key: OrderKey, epoch: int) -> Order:
        """The order of one mixed epoch."""
        return MixOrder(self.parts, self.weights, key, epoch)

    def _delivering(
        self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> Mix:
        return Mix(self._names, aligned(self.parts, columns, "mix", forms), self.weights)

    def stats(self) -> dict[str, int]:
        """The sums of the parts' counters."""
        return total_stats(self.parts)

    def close(self) -> None:
        """Close all parts. They open again when they are used."""
        for part in self.parts:
            part.close()

    def __repr__(self) -> str:
        total = sum(self.weights)
        shares = ", ".join(
            f"{name}: {part.rows} samples at {weight / total:.1%}"
            for name, part, weight in zip(self._names, self.parts, self.weights, strict=True)
        )
        return f"Mix({shares})"


@dataclass(frozen=True, slots=True)
class MixRecipe(Recipe):
    """A mix by its parts and weights."""

    names: tuple[str, ...]
    parts: tuple[Recipe, ...]
    weights: tuple[int, ...]

    @property
    def where(self) -> str:
        shares = (
            f"{name}={part.where} * {weight}"
            for name, part, weight in zip(self.names, self.parts, self.weights, strict=True)
        )
        return f"mix({', '.join(shares)})"

    def _open(self, reading: Reading) -> Data:
        # Each part is opened as it is, since some forms follow from the statistics of all.
        parts = [part._open(replace(reading, columns=None, forms=None)) for part in self.parts]
        return Mix(self.names, aligned(parts, reading.columns, "mix", reading.forms), self.weights)


class MixOrder:
    """The order of one mixed epoch: position -> place among those of all parts. Threads may share it."""

    def __init__(
        self, parts: Sequence[SampleSequence], weights: Sequence[int], key: OrderKey, epoch: int
    ) -> None:
        self._parts = tuple(parts)
        self._key = key
        self._schedule = _core.MixSchedule(weights)
        self._firsts = np.concatenate([[0], np.cumsum([part.rows for part in parts])]).astype(np.uint64)
        # Of source j, position 0 of this epoch is number epoch * n_j: its epoch, and the position in that.
        counts = self._schedule.count(key.size, lanes=key.lanes).tolist()
        self._starts = [divmod(epoch * n, part.rows) for n, part in zip(counts, parts, strict=True)]
        self._kept: list[dict[int, Order]] = [{} for _ in parts]

    def ids(self, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The places of the samples at `positions`, each below the key's size."""
        which, own = self._schedule.locate(positions, lanes=self._key.lanes)
        places = np.empty(len(positions), np.uint64)
        for source in np.unique(which).tolist():
            mine = np.flatnonzero(which == source)
            places[mine] = self._firsts[source] + self._source_places(source, own[mine])
        return places

    def _source_places(self, source: int, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        rows = np.uint64(self._parts[source].rows)
        first_epoch, first_position = self._starts[source]
        rounds, own = np.divmod(positions + np.uint64(first_position), rows)
        places = np.empty(len(positions), np.uint64)
        for turn in np.unique(rounds).tolist():
            mine = np.flatnonzero(rounds == turn)
            places[mine] = self._order(source, first_epoch + turn).ids(own[mine])
        return places

    def _order(self, source: int, epoch: int) -> Order:
        """That of one epoch of a source; the last ones stay."""
        kept = self._kept[source]
        order = kept.get(epoch)
        if order is None:
            part = self._parts[source]
            key = _SourceKey(
                kind=self._key.kind,
                seed=_core.order_key("source", self._key.seed, source),
                lanes=self._key.lanes,
                rows=part.rows,
                shards=part.shards,
                window=part.geometry.window,
                unit_blocks=part.geometry.unit_blocks,
            )
            order = part.epoch_order(key, epoch)
            self._kept[source] = {**dict(list(kept.items())[1 - _KEPT_ORDERS :]), epoch: order}
        return order


@dataclass(frozen=True, slots=True)
class _SourceKey:
    """The key of a source's own order; see `fastshard.state.OrderKey`."""

    kind: str
    seed: int
    lanes: int
    rows: int
    shards: int
    window: int
    unit_blocks: int

    @property
    def size(self) -> int:
        return self.rows
