"""From what the native core gathered to the columns of a batch: nulls, casts, masks, tensors of varying shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastshard._index import ColumnStats, DatasetIndex
from fastshard.batch import Batch
from fastshard.errors import CorruptError, InvalidError, NullError
from fastshard.forms import ColumnForm, FormOptions, choose_forms
from fastshard.ragged import Ragged

__all__ = ["ColumnPlan"]

_WAYS_OUT = (
    "leave the column out (columns=), say what stands in (fill_null={{{name!r}: ...}}), "
    "or ask for masks (null_masks=True)"
)


class ColumnPlan:
    """Which columns of a data set are read, and how each is delivered.

    Attributes:
        columns: Their places in the schema.
        forms: One for each.
    """

    def __init__(
        self, core: Any, index: DatasetIndex, columns: Sequence[str] | None, options: FormOptions
    ) -> None:
        fields = core.fields
        self.columns = _places(fields, columns)
        self.options = options
        self.forms = choose_forms([fields[place] for place in self.columns], index.columns, options)
        self._by_name: Mapping[str, ColumnForm] = {form.name: form for form in self.forms}
        self._stats = index.columns
        self.native = core.projection(self.columns, tuple(form.native() for form in self.forms))
        self._finish: tuple[Callable[[Any], Any] | None, ...] = tuple(
            self._finisher(form) for form in self.forms
        )
        self._masked = tuple(
            form
            for form in self.forms
            if options.null_masks and form.kind == "array" and self._nulls(form.name)
        )
        for form in self._masked:
            if f"{form.name}__valid" in self._by_name:
                raise InvalidError(
                    f"null_masks=True would add a column {form.name + '__valid'!r}, which is there already"
                )
        # Sample by sample the core's own values are right unless one of these asks for more.
        self.simple_samples = not (self._masked or options.fill_null or any(map(_is_changed, self.forms)))

    def _nulls(self, name: str) -> int:
        stats = self._stats.get(name)
        return stats.null_count + stats.child_null_count if stats is not None else 0

    def check_nulls(self) -> None:
        """Raise `NullError` naming all columns whose nulls have no form, by the index: for when a loader is built."""
        if self.options.null_masks:
            return
        bad = [form for form in self.forms if self._nulls(form.name) and self._needs_values(form)]
        if bad:
            listed = ", ".join(
                f"{form.name!r} ({form.type}: {_count(self._stats[form.name])})" for form in bad
            )
            raise NullError(
                f"columns with nulls are delivered in a form that has none: {listed}; for each, "
                + _WAYS_OUT.format(name=bad[0].name)
            )

    def _needs_values(self, form: ColumnForm) -> bool:
        """Whether a null of this column has no form."""
        if form.kind == "struct":
            return any(self._needs_values(child) for child in form.children)
        if form.kind not in ("array", "ragged") or form.path in self.options.fill_null:
            return False
        if form.kind == "ragged":
            stats = self._stats.get(form.name)
            null_lists = stats is None or stats.null_count > 0
            return null_lists or not form.floating
        return not form.floating

    def assemble(self, gathered: Sequence[Any], **attributes: Any) -> Batch:
        """The batch of what `ShardSet.take` returned for `self.native`."""
        columns = {}
        for form, value, finish in zip(self.forms, gathered, self._finish, strict=True):
            plain = finish is None and type(value) is not tuple
            columns[form.name] = value if plain else self._finished(form, value, finish)
        for form, value in zip(self.forms, gathered, strict=True):
            if form in self._masked:
                columns[f"{form.name}__valid"] = _mask(value)
        return Batch(columns, **attributes, forms=self._by_name)

    def _finished(self, form: ColumnForm, value: Any, finish: Callable[[Any], Any] | None) -> Any:
        if form.kind == "array":
            value = self._array(form, value)
        elif form.kind == "ragged":
            value = self._ragged(form, value)
        elif form.kind == "tensors":
            value = _tensors(form, value)
        elif form.kind == "struct":
            value = self._struct(form, value)
        return value if finish is None else finish(value)

    def _array(self, form: ColumnForm, value: Any) -> Any:
        if type(value) is not tuple:
            return value
        array, valid, element_valid = value
        if valid is not None:
            self._fill(form, array, valid)
        if element_valid is not None:
            if valid is not None:  # elements of a null row were filled with the row
                element_valid = element_valid | ~valid.reshape(-1, *[1] * (array.ndim - 1))
            self._fill(form, array, element_valid)
        return array

    def _fill(self, form: ColumnForm, array: Any, valid: Any) -> None:
        missing = ~valid
        if form.path in self.options.fill_null:
            fill = _fill_value(form, self.options.fill_null[form.path])
        elif form.floating:
            fill = np.uint16(0x7FC0) if form.bfloat16 else np.nan
        elif self.options.null_masks:
            fill = 0
        elif not missing.any():
            return
        else:
            raise NullError(
                f"column {form.name!r} of type {form.type} has {int(missing.sum())} nulls here, "
                f"and {form.describe()} has none: " + _WAYS_OUT.format(name=form.path)
            )
        array[missing] = fill

    def _ragged(self, form: ColumnForm, value: Any) -> Any:
        values, offsets, valid, element_valid = value
        if element_valid is not None:
            self._fill(form, values, element_valid)
        if valid is not None and form.path not in self.options.fill_null and not self.options.null_masks:
            raise NullError(
                f"column {form.name!r} of type {form.type} has {int((~valid).sum())} null lists here, "
                "and a ragged column has none: " + _WAYS_OUT.format(name=form.path)
            )
        return Ragged(values, offsets)  # a null list is an empty one

    def _struct(self, form: ColumnForm, value: Any) -> Any:
        children, valid = value
        finished = {}
        for child in form.children:
            part = children[child.name]
            if valid is not None:
                part = _under_mask(child, part, valid)
            finished[child.name] = self._finished(child, part, self._finisher(child))
        return finished

    def _finisher(self, form: ColumnForm) -> Callable[[Any], Any] | None:
        """What is left to do with a value without nulls: axes, then the dtype."""
        steps: list[Callable[[Any], Any]] = []
        if form.permutation is not None:
            axes = form.permutation
            if form.kind == "array":
                steps.append(lambda array: array.transpose(0, *(axis + 1 for axis in axes)))
            else:
                steps.append(
                    lambda arrays: [array if array is None else array.transpose(axes) for array in arrays]
                )
        if form.cast is not None:
            steps.append(_caster(form))
        elif form.kind in ("text", "bytes", "object") and form.path in self.options.fill_null:
            fill = self.options.fill_null[form.path]
            steps.append(lambda items: [fill if item is None else item for item in items])
        if not steps:
            return None
        return steps[0] if len(steps) == 1 else lambda value: steps[1](steps[0](value))


def _is_changed(form: ColumnForm) -> bool:
    """Whether what is delivered is not what is stored."""
    return form.cast is not None or form.permutation is not None or any(map(_is_changed, form.children))


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


def _fill_value(form: ColumnForm, value: Any) -> Any:
    if form.bfloat16:
        return np.uint16(np.float32(value).view(np.uint32) >> np.uint32(16))
    dtype = np.dtype(form.dtype)
    try:
        filled = np.asarray(value).astype(dtype, casting="unsafe")
        exact = dtype.kind == "f" or bool((filled == np.asarray(value)).all())
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact:
        raise InvalidError(f"fill_null[{form.path!r}]: {value!r} is not a value of {dtype.name}")
    return filled


def _mask(value: Any) -> Any:
    if type(value) is not tuple:
        return np.ones(len(value), dtype=np.bool_)
    array, valid, element_valid = value
    if element_valid is None:
        return valid
    if valid is None:
        return element_valid
    return element_valid & valid.reshape(-1, *[1] * (array.ndim - 1))


def _under_mask(form: ColumnForm, value: Any, valid: Any) -> Any:
    """A field of a struct with nulls: a null struct has null fields."""
    if form.kind == "array":
        array, own, elements = value if type(value) is tuple else (value, None, None)
        return array, valid if own is None else own & valid, elements
    if form.kind == "ragged":
        values, offsets, own, elements = value
        return values, offsets, valid if own is None else own & valid, elements
    if form.kind == "tensors":
        values, offsets, shapes, own = value
        return values, offsets, shapes, valid if own is None else own & valid
    if form.kind == "struct":
        children, own = value
        return children, valid if own is None else own & valid
    return [item if ok else None for item, ok in zip(value, valid.tolist(), strict=True)]


def _tensors(form: ColumnForm, value: Any) -> list[Any]:
    values, offsets, shapes, valid = value
    bounds = offsets.tolist()
    rows: list[Any] = []
    for row, shape in enumerate(shapes.tolist()):
        if valid is not None and not valid[row]:
            rows.append(None)
            continue
        data = values[bounds[row] : bounds[row + 1]]
        if min(shape, default=0) < 0 or int(np.prod(shape, dtype=np.int64)) != len(data):
            raise CorruptError(
                f"column {form.name!r} has a tensor of {len(data)} values whose shape says {shape}"
            )
        rows.append(data.reshape(shape))
    return rows


def _caster(form: ColumnForm) -> Callable[[Any], Any]:
    """Conversion to `form.cast`. Integers that do not fit raise `InvalidError`: precision may be lost, numbers not."""
    target = form.cast
    assert target is not None

    def convert(array: Any) -> Any:
        return cast_array(array, form, target)

    if form.kind == "ragged":
        return lambda ragged: Ragged(convert(ragged.values), ragged.offsets)
    if form.kind == "tensors":
        return lambda arrays: [array if array is None else convert(array) for array in arrays]
    return convert


def cast_array(array: Any, form: ColumnForm, target: str) -> Any:
    """`array` as dtype `target`; bfloat16 is uint16 bits on either side. Raises `InvalidError` for a lost integer."""
    if form.bfloat16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    if target == "bfloat16":
        return _to_bfloat16(array.astype(np.float32))
    dtype = np.dtype(target)
    with np.errstate(invalid="ignore", over="ignore"):
        out = array.astype(dtype)
    if dtype.kind in "iub":
        if array.dtype.kind == "f":
            lost = ~(out.astype(array.dtype) == array)
        else:
            lost = (out.astype(array.dtype) != array) | ((out < 0) != (array < 0))
        if lost.any():
            value = array[lost].flat[0]
            raise InvalidError(
                f"cast of column {form.name!r} from {array.dtype} to {target} would lose {value!r}; choose a wider type"
            )
    return out


def _to_bfloat16(array: Any) -> Any:
    """Bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = array.view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    nan = np.isnan(array)
    rounded[nan] = ((bits[nan] >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return rounded
