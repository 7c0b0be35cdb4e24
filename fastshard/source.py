"""What an order runs over and batches are taken from, whatever it is: a data set, a view, a concatenation, a mix.

`Data` is open and reads samples. `Recipe` is how to open it: a small value that stands wherever a path stands, and
what is pickled. Readers, views and the like implement both; data sets for torch, loaders and commands use them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fastshard import _core
from fastshard.errors import InvalidError, StateError

if TYPE_CHECKING:
    import pyarrow

    from fastshard._index import ColumnStats
    from fastshard.batch import Batch
    from fastshard.forms import FormOptions
    from fastshard.reader import ReadOptions, ShardReader

__all__ = ["Data", "Geometry", "Order", "OrderKey", "PathRecipe", "Recipe", "recipe_of"]

_MOST_UNITS = 1 << 22


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where samples lie, as far as an order depends on it: docs/order.md, sections 5 and 8.

    Attributes:
        shard_rows: int64 [shards], samples of each shard.
        shard_blocks: int64 [shards], its blocks.
        shard_block_rows: int64 [shards], rows of each of its blocks but the last; 0 where they are irregular.
        window: samples of a window of the block order.
        unit_blocks: blocks of a unit of the block order.
    """

    shard_rows: npt.NDArray[np.int64]
    shard_blocks: npt.NDArray[np.int64]
    shard_block_rows: npt.NDArray[np.int64]
    window: int
    unit_blocks: int

    def select(self, selection: _core.Selection) -> Geometry:
        """That of a view."""
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.shard_rows)])
        rows = np.diff(selection.ranks(bounds))
        return Geometry(
            rows,
            np.minimum(self.shard_blocks, rows),
            np.where(rows == self.shard_rows, self.shard_block_rows, 0),
            min(self.window, selection.size),
            self.unit_blocks,
        )

    @staticmethod
    def join(parts: Sequence[Geometry]) -> Geometry:
        """That of a concatenation."""
        rows = np.concatenate([part.shard_rows for part in parts])
        blocks = np.concatenate([part.shard_blocks for part in parts])
        block_rows = np.concatenate([part.shard_block_rows for part in parts])
        unit = max(part.unit_blocks for part in parts)
        unit = 1 << (unit - 1).bit_length()
        while _count_units(rows, blocks, block_rows, unit) > _MOST_UNITS:
            unit *= 2
        return Geometry(rows, blocks, block_rows, sum(part.window for part in parts), unit)


def _count_units(
    rows: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], block_rows: npt.NDArray[np.int64], unit: int
) -> int:
    full = rows > 0
    rows, blocks, block_rows = rows[full], blocks[full], block_rows[full]
    of_unit = np.where(block_rows > 0, block_rows, -(-rows // np.maximum(blocks, 1))) * unit
    return int((-(-rows // of_unit)).sum())


class OrderKey(Protocol):
    """What an order depends on beside the data; see `fastshard.state.OrderKey`."""

    @property
    def kind(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def shards(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def unit_blocks(self) -> int: ...
    @property
    def size(self) -> int: ...


class Order(Protocol):
    """The order of one epoch. Threads may share it."""

    def ids(self, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The places of the samples at `positions`: what `Data.take` takes."""


class Data(ABC):
    """Samples that are open. They are numbered by *places*, 0 to rows - 1; for a data set these are its ids."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many samples there are: those of an epoch."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """32 hexadecimal digits that name the samples and their places."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""

    @property
    @abstractmethod
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of these columns."""

    @property
    @abstractmethod
    def geometry(self) -> Geometry:
        """Where the samples lie."""

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """How to open the same again."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Mean size of a sample in memory, in bytes; at least 1."""

    @property
    @abstractmethod
    def statistics(self) -> Mapping[str, ColumnStats]:
        """By column what is known of it: bounds for these samples."""

    @abstractmethod
    def gather(self, places: npt.NDArray[np.int64]) -> Batch:
        """A batch of NumPy arrays, with the samples' ids. Raises `OutOfRangeError` for a place that is not there."""

    @abstractmethod
    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form."""

    @abstractmethod
    def _delivering(
        self,
        columns: tuple[str, ...] | None,
        forms: FormOptions,
        statistics: Mapping[str, ColumnStats] | None = None,
    ) -> Data:
        """The same samples with other columns and forms, chosen by these statistics instead of their own."""

    @abstractmethod
    def locate(self, place: int) -> tuple[int, str]:
        """The id of a sample and the path of its shard."""

    @abstractmethod
    def stats(self) -> dict[str, int]:
        """Counters since it was opened: shards, blocks and columns opened, checked and decompressed, bytes."""

    @abstractmethod
    def close(self) -> None:
        """Let go of mappings. What is used again opens again."""

    @property
    def native(self) -> tuple[ShardReader, _core.Selection | None] | None:
        """The one data set that the samples are read from, and which of its samples they are (None: all)."""
        return None

    @property
    def shards(self) -> int:
        """How many shards they lie in."""
        return len(self.geometry.shard_rows)

    @property
    def largest_row_bytes(self) -> int:
        """A bound for the size of one sample in memory, in bytes."""
        known = [self.statistics[name] for name in self.columns if name in self.statistics]
        return self.row_bytes + sum(8 * (column.max_length or 0) for column in known)

    @property
    def max_epoch_size(self) -> int:
        """How many samples an epoch may have at most."""
        return self.rows

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of what is mixed; empty where nothing is."""
        return ()

    def identity(self) -> dict[str, Any]:
        """What a saved state says of the samples beside the fingerprint, as JSON; empty for a data set."""
        return {}

    def fingerprint_of(self, shards: int) -> str | None:
        """The fingerprint of the first `shards` shards; None for what cannot grow."""
        return None

    def default_lanes(self, kind: str) -> int:
        """Lanes of an order of this kind where none are asked for."""
        if kind != "block":
            return 1
        geometry = self.geometry
        lanes: int = _core.default_lanes(
            shard_rows=geometry.shard_rows,
            shard_blocks=geometry.shard_blocks,
            shard_block_rows=geometry.shard_block_rows,
            unit_blocks=geometry.unit_blocks,
        )
        return lanes

    def epoch_order(self, key: OrderKey, epoch: int) -> Order:
        """The order of one epoch. `key` may be that of the data before they grew: its shards come first."""
        geometry = self.geometry
        dealt = key.kind == "block" or key.lanes > 1  # the order depends on where shards and blocks begin
        order: Order = _core.EpochOrder(
            kind=key.kind,
            size=key.rows,
            seed=key.seed,
            epoch=epoch,
            lanes=key.lanes,
            shard_rows=geometry.shard_rows[: key.shards] if dealt else None,
            shard_blocks=geometry.shard_blocks[: key.shards] if dealt else None,
            shard_block_rows=geometry.shard_block_rows[: key.shards] if dealt else None,
            window=key.window,
            unit_blocks=key.unit_blocks,
        )
        return order

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.recipe,)


def _opened(recipe: Recipe) -> Data:
    """What a pickle of open samples becomes."""
    return recipe.open()


@dataclass(frozen=True, slots=True)
class Reading:
    """How samples are to be read: what `Recipe.open` was asked for."""

    columns: tuple[str, ...] | None
    forms: FormOptions | None
    options: ReadOptions | None
    windows: int
    whole_blocks: bool = False


class Recipe(ABC):
    """How to open samples. Immutable and small; opens nothing by itself; pickles.

    One that was taken from open samples remembers in this process what was worked out for them.
    """

    @property
    @abstractmethod
    def where(self) -> str:
        """The samples in one line, for messages; where possible as a command line takes them."""

    @abstractmethod
    def _open(self, reading: Reading) -> Data: ...

    def open(
        self,
        *,
        columns: Sequence[str] | None = None,
        forms: FormOptions | None = None,
        options: ReadOptions | None = None,
        windows: int = 0,
        whole_blocks: bool = False,
        fingerprint: str | None = None,
    ) -> Data:
        """Open the samples.

        Args:
            columns: Names of the columns to read; None for those that the recipe names, or all.
            forms: How they are delivered; None for what the recipe says.
            options: How shards are opened; likewise.
            windows, whole_blocks: See `ReadOptions`.
            fingerprint: What the samples must have; None for any.

        Raises:
            StateError: The data were replaced, or what selects samples from them now selects others.
            Error: As `fastshard.open` says.
        """
        if isinstance(columns, str):
            raise InvalidError(f"columns is a list of names, not the string {columns!r}")
        data = self._open(
            Reading(None if columns is None else tuple(columns), forms, options, windows, whole_blocks)
        )
        if fingerprint is not None and fingerprint != data.fingerprint:
            raise StateError(
                f"{self.where}: the data were replaced: the fingerprint was {fingerprint}, now it is {data.fingerprint}"
            )
        return data


@dataclass(frozen=True, slots=True)
class PathRecipe(Recipe):
    """A data set by its path.

    Attributes:
        path: Absolute if it is on this machine.
        fingerprint: What it must have, or None.
        columns, forms, options: How it is read unless `open` is told otherwise.
    """

    path: str
    fingerprint: str | None = None
    columns: tuple[str, ...] | None = None
    forms: FormOptions | None = None
    options: ReadOptions | None = None

    @property
    def where(self) -> str:
        return self.path

    def _open(self, reading: Reading) -> Data:
        from fastshard.reader import ReadOptions, ShardReader

        options = reading.options or self.options or ReadOptions()
        if reading.windows or reading.whole_blocks:
            options = replace(options, windows=reading.windows, whole_blocks=reading.whole_blocks)
        return ShardReader(
            self.path,
            columns=self.columns if reading.columns is None else reading.columns,
            forms=self.forms if reading.forms is None else reading.forms,
            options=options,
            fingerprint=self.fingerprint,
        )


def absolute(path: str) -> str:
    """A path of this machine as absolute; a URL as it is."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def recipe_of(samples: str | os.PathLike[str] | Data | Recipe) -> Recipe:
    """The recipe of whatever a user may give as samples.

    Args:
        samples: A path, also with a selection behind a "?" (see `fastshard.views.open_spec`); a reader, view,
            concatenation or mix; or a recipe.

    Raises:
        InvalidError: It is none of these, or the text does not read as a selection.
    """
    if isinstance(samples, Recipe):
        return samples
    if isinstance(samples, Data):
        return samples.recipe
    if not isinstance(samples, (str, os.PathLike)):
        raise InvalidError(
            f"{samples!r} is no data set: give a path, or what fs.open, a view, fs.concat or fs.mix returned"
        )
    from fastshard.views import parse_spec

    return parse_spec(os.fspath(samples))
