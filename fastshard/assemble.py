"""The plan of which columns are read and how each is delivered; batches and samples made by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastshard._index import ColumnStats, DatasetIndex
from fastshard.batch import Batch
from fastshard.delivery import Delivery, make_delivery
from fastshard.errors import InvalidError, NullError
from fastshard.forms import ColumnForm, FormOptions, choose_forms

__all__ = ["ColumnPlan"]

_NO_NULLS = ColumnStats(0, 0)


class ColumnPlan:
    """Which columns of a data set are read, and how each is delivered.

    Attributes:
        columns: Their places in the schema.
        forms: One for each.
        native: The projection that `ShardSet.take` gathers for it.
        masks: Names of the columns that null_masks=True adds.
        lengths: Names of the columns that pad= adds.
        simple_samples: What the core makes of one row is a sample as it is.
        as_tensors: For each column whether the core may make tensors of it, where it has no nulls.
        simple_batches: What the core makes of columns without nulls, tensors among them, is a batch as it is.
    """

    def __init__(
        self, core: Any, index: DatasetIndex, columns: Sequence[str] | None, options: FormOptions
    ) -> None:
        """Decide the forms.

        Raises:
            InvalidError: An option, or a name in `columns`, does not fit the data set.
            CorruptError: The metadata of an extension type contradict its storage.
        """
        fields = core.fields
        self.columns = _places(fields, columns)
        self.options = options
        self.forms = choose_forms([fields[place] for place in self.columns], index.columns, options)
        self._by_name: Mapping[str, ColumnForm] = {form.name: form for form in self.forms}
        self._stats = index.columns
        self._deliveries: tuple[Delivery, ...] = tuple(make_delivery(form, options) for form in self.forms)
        self.native = core.projection(
            self.columns,
            tuple(delivery.form.native(delivery.padding()) for delivery in self._deliveries),
        )
        # Which arrays have a mask of elements is decided by the index, so that all batches are alike.
        self._masked = {
            i: self._nulls(form).child_null_count > 0
            for i, form in enumerate(self.forms)
            if options.null_masks and form.kind in _MASKED and self._nulls(form) != _NO_NULLS
        }
        self.masks = tuple(f"{self.forms[i].name}__valid" for i in self._masked)
        self._padded = tuple(i for i, form in enumerate(self.forms) if form.kind == "padded")
        self.lengths = tuple(f"{self.forms[i].name}__length" for i in self._padded)
        for option, names in (("null_masks=True", self.masks), ("pad=", self.lengths)):
            for name in names:
                if name in self._by_name:
                    raise InvalidError(f"{option} would add a column {name!r}, which is there already")
        self.simple_samples = not (options.fill_null or self._masked or any(map(_is_changed, self.forms)))
        self.as_tensors = tuple(
            form.kind in ("array", "ragged") and i not in self._masked and not _is_changed(form)
            for i, form in enumerate(self.forms)
        )
        self.simple_batches = self.simple_samples and all(
            form.kind in ("array", "text", "bytes", "object") for form in self.forms
        )

    @property
    def by_name(self) -> Mapping[str, ColumnForm]:
        """The forms by the names of their columns."""
        return self._by_name

    def _nulls(self, form: ColumnForm) -> ColumnStats:
        stats = self._stats.get(form.name, _NO_NULLS)
        return ColumnStats(stats.null_count, stats.child_null_count)

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form, by the index: for when a loader is built."""
        bad = []
        for delivery in self._deliveries:
            nulls = self._nulls(delivery.form)
            if delivery.lacks_nulls(nulls.null_count > 0, nulls.child_null_count > 0):
                bad.append(f"{delivery.form.name!r} ({delivery.form.type}: {_count(nulls)})")
        if bad:
            raise NullError(
                f"columns with nulls are delivered in a form that has none: {', '.join(bad)}; "
                "leave them out (columns=), say what stands in (fill_null={name: value}), or ask for masks of their "
                "rows (null_masks=True)"
            )

    def assemble(self, gathered: Sequence[Any], **attributes: Any) -> Batch:
        """The batch of what `ShardSet.take` returned for `self.native`.

        Raises:
            NullError: A column has nulls here, and its form has none.
            InvalidError: A cast would lose a number.
            CorruptError: The values of a column contradict each other.
        """
        return Batch(self.columns_of(gathered), **attributes, forms=self._by_name)

    def columns_of(self, gathered: Sequence[Any]) -> dict[str, Any]:
        """The columns of that batch. Raises as `assemble` does."""
        columns = {
            delivery.form.name: delivery.batch(value)
            for delivery, value in zip(self._deliveries, gathered, strict=True)
        }
        columns.update(self._added_columns(gathered))
        return columns

    def samples(self, gathered: Sequence[Any], count: int) -> Iterator[dict[str, Any]]:
        """The same rows as samples: like batches, but with None for each null that a batch has no form for.

        Raises:
            InvalidError: A cast would lose a number.
            CorruptError: The values of a column contradict each other.
        """
        columns: dict[str, Iterable[Any]] = {
            delivery.form.name: delivery.rows(value)
            for delivery, value in zip(self._deliveries, gathered, strict=True)
        }
        columns.update(self._added_columns(gathered))
        if not columns:
            return ({} for _ in range(count))
        names = tuple(columns)
        return (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))

    def check_lengths(self) -> None:
        """Raise `InvalidError` naming all columns with lists, by the index, longer than pad= gives them."""
        long = []
        for i in self._padded:
            form, longest = self.forms[i], self._longest(self.forms[i])
            if longest > form.shape[0] and not form.truncates:
                long.append(f"{form.name!r} (up to {longest}, pad= says {form.shape[0]})")
        if long:
            raise InvalidError(
                f"columns have lists that are too long for pad=: {', '.join(long)}; give a larger length, or cut them "
                'with (length, value, "truncate")'
            )

    def _longest(self, form: ColumnForm) -> int:
        stats = self._stats.get(form.name)
        return 0 if stats is None or stats.max_length is None else stats.max_length

    def _added_columns(self, gathered: Sequence[Any]) -> dict[str, Any]:
        lengths = {
            name: self._deliveries[i].lengths(gathered[i])
            for name, i in zip(self.lengths, self._padded, strict=True)
        }
        return lengths | {
            name: self._deliveries[i].mask(gathered[i], elements)
            for name, (i, elements) in zip(self.masks, self._masked.items(), strict=True)
        }


_MASKED = ("array", "ragged", "padded", "struct")


def _is_changed(form: ColumnForm) -> bool:
    """Whether what is delivered is not what is stored, or nothing that NumPy has, or more."""
    changed = form.cast is not None or form.permutation is not None or form.bfloat16 or form.kind == "padded"
    return changed or any(map(_is_changed, form.children))


def _places(fields: Sequence[Mapping[str, Any]], columns: Sequence[str] | None) -> list[int]:
    if columns is None:
        return list(range(len(fields)))
    if isinstance(columns, str):
        raise InvalidError(f"columns is a list of names, not the string {columns!r}")
    by_name = {field["name"]: place for place, field in enumerate(fields)}
    missing = [name for name in columns if name not in by_name]
    if missing:
        raise InvalidError(f"there is no column {missing[0]!r}; there are {', '.join(map(repr, by_name))}")
    if len(set(columns)) != len(columns):
        raise InvalidError(f"columns names one twice: {list(columns)}")
    return [by_name[name] for name in columns]


def _count(stats: ColumnStats) -> str:
    parts = [f"{stats.null_count} nulls"] if stats.null_count else []
    if stats.child_null_count:
        parts.append(f"{stats.child_null_count} nulls inside")
    return " and ".join(parts)
