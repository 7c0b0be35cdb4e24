"""From what the native core gathered for a column to what a batch or a sample holds: nulls, casts, axes.

A delivery is made once for each column. Its `batch` gives the column of a batch, which has nulls only where its form
has; its `rows` the same rows as samples hold them, None where they are null. docs/types.md is the table of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fastshard._optional import require
from fastshard.batch import array_to_torch
from fastshard.casting import cast_array, fill_value, nan_of
from fastshard.errors import CorruptError, InvalidError, NullError
from fastshard.forms import ColumnForm, FormOptions
from fastshard.ragged import Ragged

__all__ = ["Delivery", "make_delivery"]


class Delivery(Protocol):
    """One column, or one field of a struct."""

    form: ColumnForm

    def batch(self, value: Any) -> Any:
        """The column of a batch.

        Raises:
            NullError: There are nulls, and the form has none.
            InvalidError: A cast would lose a number.
            CorruptError: The values contradict each other.
        """

    def rows(self, value: Any) -> Iterable[Any]:
        """The column's value in each sample. Raises as `batch` does, but for nulls."""

    def mask(self, value: Any, elements: bool) -> Any:
        """bool [n], True where a row is valid; of an array with `elements`, True where each of its elements is."""

    def lengths(self, value: Any) -> Any:
        """int64 [n], how many values of each row are its list's; None where rows are no padded lists."""

    def padding(self) -> bytes | None:
        """One element that the core puts behind lists; None where it puts zeros, or nothing."""

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        """Whether `batch` would raise `NullError` for rows that are null (own), or for nulls in rows (below)."""


def make_delivery(form: ColumnForm, options: FormOptions) -> Delivery:
    """The delivery of a form. Raises `InvalidError` for a `fill_null` that the column cannot hold."""
    if form.kind == "array":
        return _ArrayDelivery(form, options)
    if form.kind == "padded":
        return _PaddedDelivery(form, options)
    if form.kind == "ragged":
        return _RaggedDelivery(form, options)
    if form.kind == "tensors":
        return _TensorsDelivery(form, options)
    if form.kind == "struct":
        return _StructDelivery(form, options)
    return _ListDelivery(form, options)


def _ways_out(path: str, masks: bool) -> str:
    fill = f"say what stands in (fill_null={{{path!r}: ...}})"
    if masks:
        return f"leave the column out (columns=), {fill}, or ask for masks (null_masks=True)"
    return f"leave the column out (columns=), or {fill}"


class _Unpadded:
    """Rows that are no padded lists."""

    def lengths(self, value: Any) -> Any:
        return None

    def padding(self) -> bytes | None:
        return None


class _Numbers(_Unpadded):
    """What arrays, ragged columns and tensors have in common: values of one dtype, some of which may be null."""

    def __init__(self, form: ColumnForm, options: FormOptions) -> None:
        self.form = form
        self._masked = options.null_masks
        self._fill = (
            fill_value(form, options.fill_null[form.path]) if form.path in options.fill_null else None
        )

    def _cast(self, array: Any, missing: Any | None) -> Any:
        """Cast values, looking at none that are missing."""
        if missing is not None and self.form.cast is not None:
            array[missing] = 0
        return cast_array(array, self.form)

    def _filled(self, array: Any, missing: Any | None, standing_in: Any) -> Any:
        """Cast, with `standing_in` where values are missing. Writes into `array`, which is the batch's own."""
        array = self._cast(array, missing)
        if missing is not None:
            array[missing] = standing_in
        return array

    def _element_fill(self) -> Any:
        """What stands in for a null element, or None where nothing does."""
        if self._fill is not None:
            return self._fill
        return nan_of(self.form) if self.form.delivers_floating else None

    def _refusal(self, count: int, what: str, masks: bool) -> NullError:
        form = self.form
        shown = form.describe() if form.kind == "array" else f"a {form.describe()} column"
        return NullError(
            f"column {form.path!r} of type {form.type} has {count} {what} here, and {shown} has none: "
            + _ways_out(form.path, masks)
        )


class _ArrayDelivery(_Numbers):
    def batch(self, value: Any) -> Any:
        if type(value) is not tuple:
            return self._transposed(cast_array(value, self.form))
        array, valid, element_valid = value
        missing = _missing(valid, element_valid)
        if self._fill is not None:
            fill = self._fill
        elif self.form.delivers_floating and (valid is None or not self.form.shape or self._masked):
            fill = nan_of(self.form)
        elif self._masked:
            fill = 0
        else:
            raise self._refusal(*_counted(valid, element_valid), masks=True)
        return self._transposed(self._filled(array, missing, fill))

    def rows(self, value: Any) -> Iterable[Any]:
        if type(value) is not tuple or self._fill is not None or self._masked:
            return _rows(self.batch(value), self.form)
        array, valid, element_valid = value
        missing = _missing(valid, element_valid)
        floating = self.form.delivers_floating
        out = self._transposed(self._filled(array, missing, nan_of(self.form) if floating else 0))
        rows = list(_rows(out, self.form))
        if element_valid is not None and not floating:
            gone = self._transposed(~element_valid)
            for row in np.flatnonzero(gone.reshape(len(gone), -1).any(axis=1)):
                rows[row] = _with_nones(out[row], gone[row])
        if valid is not None and (self.form.shape or not floating):
            for row in np.flatnonzero(~valid):
                rows[row] = None
        return rows

    def mask(self, value: Any, elements: bool) -> Any:
        array, valid, element_valid = value if type(value) is tuple else (value, None, None)
        if not elements:
            return np.ones(len(array), np.bool_) if valid is None else valid
        present = np.ones(array.shape, np.bool_) if element_valid is None else element_valid.copy()
        if valid is not None:
            present[~valid] = False
        return self._transposed(present)

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        if self._fill is not None or self._masked:
            return False
        floating = self.form.delivers_floating
        return (own and (bool(self.form.shape) or not floating)) or (below and not floating)

    def _transposed(self, array: Any) -> Any:
        axes = self.form.permutation
        return array if axes is None else array.transpose(0, *(axis + 1 for axis in axes))


class _Lists(_Numbers):
    """Lists of varying length, some of which may be null, as may their elements."""

    def _fill_of(self, valid: Any, element_valid: Any) -> Any:
        """What stands in for null elements of a batch, or None where there are none. Raises `NullError`."""
        if valid is not None and self._fill is None and not self._masked:
            raise self._refusal(int((~valid).sum()), "null lists", masks=True)
        if element_valid is None:
            return None
        fill = self._element_fill()
        if fill is None:
            raise self._refusal(int((~element_valid).sum()), "null elements", masks=False)
        return fill

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        if self._fill is not None:
            return False
        return (own and not self._masked) or (below and not self.form.delivers_floating)


class _RaggedDelivery(_Lists):
    def batch(self, value: Any) -> Any:
        values, offsets, valid, element_valid = value
        fill = self._fill_of(valid, element_valid)
        missing = None if element_valid is None else ~element_valid
        return Ragged(self._filled(values, missing, fill), offsets)  # a null list is an empty one

    def rows(self, value: Any) -> Iterable[Any]:
        values, offsets, valid, element_valid = value
        if self._fill is not None:
            valid = None
        fill = self._element_fill()
        missing = None if element_valid is None else ~element_valid
        out = self._filled(values, missing, 0 if fill is None else fill)
        rows: list[Any] = list(_rows(Ragged(out, offsets), self.form))
        if missing is not None and fill is None:
            _put_nones(rows, out, missing, offsets.tolist())
        if valid is not None:
            for row in np.flatnonzero(~valid):
                rows[row] = None
        return rows

    def mask(self, value: Any, elements: bool) -> Any:
        _, offsets, valid, _ = value
        return np.ones(len(offsets) - 1, np.bool_) if valid is None else valid


class _PaddedDelivery(_Lists):
    """Lists as rows of one length. A null list has no elements."""

    def __init__(self, form: ColumnForm, options: FormOptions) -> None:
        super().__init__(form, options)
        self._value = fill_value(form, options.pad[form.path][1], "pad")

    def padding(self) -> bytes | None:
        return None if self.form.cast is not None else self._value.tobytes()

    def batch(self, value: Any) -> Any:
        array, lengths, valid, element_valid = value
        return self._padded(array, lengths, element_valid, self._fill_of(valid, element_valid))

    def rows(self, value: Any) -> Iterable[Any]:
        array, lengths, valid, element_valid = value
        fill = self._element_fill()
        out = self._padded(array, lengths, element_valid, 0 if fill is None else fill)
        rows: list[Any] = list(_rows(out, self.form))
        if element_valid is not None and fill is None:
            for row in np.flatnonzero(~element_valid.all(axis=1)):
                rows[row] = _with_nones(out[row], ~element_valid[row])
        if valid is not None and self._fill is None and not self._masked:
            for row in np.flatnonzero(~valid):
                rows[row] = None
        return rows

    def _padded(self, array: Any, lengths: Any, element_valid: Any, fill: Any) -> Any:
        out = self._filled(array, None if element_valid is None else ~element_valid, fill)
        if self.form.cast is not None:  # the core's zeros were cast with the rest
            out[np.arange(out.shape[1]) >= lengths[:, None]] = self._value
        return out

    def mask(self, value: Any, elements: bool) -> Any:
        _, lengths, valid, _ = value
        return np.ones(len(lengths), np.bool_) if valid is None else valid

    def lengths(self, value: Any) -> Any:
        return value[1]


class _TensorsDelivery(_Numbers):
    """Arrays of varying shape: a list, None where a row is null."""

    def __init__(self, form: ColumnForm, options: FormOptions) -> None:
        if form.path in options.fill_null:
            raise InvalidError(
                f"fill_null[{form.path!r}]: a tensor of varying shape has no value to stand in for it"
            )
        super().__init__(form, options)

    def batch(self, value: Any) -> Any:
        element_valid = value[4]
        if element_valid is not None and not self.form.delivers_floating:
            raise self._refusal(int((~element_valid).sum()), "null elements", masks=False)
        return self._arrays(value)[0]

    def rows(self, value: Any) -> Iterable[Any]:
        arrays, flat = self._arrays(value)
        rows: list[Any] = list(_each(arrays, self.form))
        element_valid = value[4]
        if element_valid is not None and not self.form.delivers_floating:
            bounds = value[1].tolist()
            for row, array in enumerate(arrays):
                gone = ~element_valid[bounds[row] : bounds[row + 1]]
                if array is not None and gone.any():
                    shape = value[2][row]
                    rows[row] = _with_nones(
                        self._permuted(flat[bounds[row] : bounds[row + 1]].reshape(shape)),
                        self._permuted(gone.reshape(shape)),
                    )
        return rows

    def _arrays(self, value: Any) -> tuple[list[Any], Any]:
        values, offsets, shapes, valid, element_valid = value
        fill = nan_of(self.form) if self.form.delivers_floating else 0
        flat = self._filled(values, None if element_valid is None else ~element_valid, fill)
        bounds = offsets.tolist()
        arrays: list[Any] = []
        for row, shape in enumerate(shapes.tolist()):
            if valid is not None and not valid[row]:
                arrays.append(None)
                continue
            data = flat[bounds[row] : bounds[row + 1]]
            if min(shape, default=0) < 0 or int(np.prod(shape, dtype=object)) != len(data):
                raise CorruptError(
                    f"column {self.form.path!r} has a tensor of {len(data)} values whose shape says {shape}"
                )
            arrays.append(self._permuted(data.reshape(shape)))
        return arrays, flat

    def _permuted(self, array: Any) -> Any:
        return array if self.form.permutation is None else array.transpose(self.form.permutation)

    def mask(self, value: Any, elements: bool) -> Any:
        shapes, valid = value[2], value[3]
        return np.ones(len(shapes), np.bool_) if valid is None else valid

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        return below and not self.form.delivers_floating


class _ListDelivery(_Unpadded):
    """Text, bytes, views and objects: lists that hold None for null."""

    def __init__(self, form: ColumnForm, options: FormOptions) -> None:
        self.form = form
        self._fills = form.path in options.fill_null
        self._fill: Any = options.fill_null.get(form.path)
        wanted: type | None = {"text": str, "bytes": bytes, "views": bytes}.get(form.kind)
        if self._fills and wanted is not None and not isinstance(self._fill, wanted):
            raise InvalidError(f"fill_null[{form.path!r}]: {self._fill!r} is not {wanted.__name__}")
        if self._fills and form.kind == "views":
            self._fill = np.frombuffer(options.fill_null[form.path], np.uint8)

    def batch(self, value: Any) -> Any:
        return [self._fill if item is None else item for item in value] if self._fills else value

    rows = batch

    def mask(self, value: Any, elements: bool) -> Any:
        return np.fromiter((item is not None for item in value), np.bool_, len(value))

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        return False


class _StructDelivery(_Unpadded):
    """A dict of the fields' columns. The fields of a null struct are null."""

    def __init__(self, form: ColumnForm, options: FormOptions) -> None:
        if form.path in options.fill_null:
            fields = ", ".join(f"{child.path!r}" for child in form.children)
            raise InvalidError(f"fill_null[{form.path!r}]: a struct is filled by its fields: {fields}")
        self.form = form
        self._fields = tuple(make_delivery(child, options) for child in form.children)
        self._masked = options.null_masks
        names = {child.name for child in form.children}
        for name in names if self._masked else ():
            if f"{name}__valid" in names:
                raise InvalidError(
                    f"null_masks=True would add {name + '__valid'!r} to the fields of {form.path!r}, "
                    "which has it already"
                )

    def batch(self, value: Any) -> Any:
        columns = {}
        for field, part in self._parts(value):
            columns[field.form.name] = field.batch(part)
            if self._masked and field.form.kind in ("array", "ragged", "struct"):
                columns[f"{field.form.name}__valid"] = field.mask(part, field.form.kind == "array")
        return columns

    def rows(self, value: Any) -> Iterator[Any]:
        children, valid = value
        names: list[str] = []
        columns: list[Iterable[Any]] = []
        for field, part in self._parts(value):
            names.append(field.form.name)
            if self._masked and field.form.kind in ("array", "ragged", "struct"):
                mask = field.mask(part, field.form.kind == "array")
                columns += (field.rows(part), mask)
                names.append(f"{field.form.name}__valid")
            else:
                columns.append(field.rows(part))
        count = _length(children, valid)
        rows = zip(*columns, strict=True) if columns else (() for _ in range(count))
        for row, values in enumerate(rows):
            yield None if valid is not None and not valid[row] else dict(zip(names, values, strict=True))

    def _parts(self, value: Any) -> Iterator[tuple[Delivery, Any]]:
        children, valid = value
        for field in self._fields:
            part = children[field.form.name]
            yield field, part if valid is None else _under_mask(field.form, part, valid)

    def mask(self, value: Any, elements: bool) -> Any:
        children, valid = value
        return np.ones(_length(children, valid), np.bool_) if valid is None else valid

    def lacks_nulls(self, own: bool, below: bool) -> bool:
        # Which field has the nulls below is not known: only where each of them would lack them it is certain.
        return (own and any(field.lacks_nulls(True, False) for field in self._fields)) or (
            below and bool(self._fields) and all(field.lacks_nulls(True, True) for field in self._fields)
        )


def _missing(valid: Any, element_valid: Any) -> Any:
    """A mask of rows, or of elements where some of those are null: True where a value is missing."""
    if element_valid is None:
        return ~valid
    missing = ~element_valid
    if valid is not None:
        missing[~valid] = True
    return missing


def _counted(valid: Any, element_valid: Any) -> tuple[int, str]:
    if valid is not None:
        return int((~valid).sum()), "nulls"
    return int((~element_valid).sum()), "null elements"


def _rows(values: Any, form: ColumnForm) -> Iterable[Any]:
    """The rows of an array or a `Ragged`; as torch tensors where NumPy has no such dtype."""
    if not form.delivers_bfloat16:
        rows: Iterable[Any] = values
        return rows
    require("torch", "torch", "bfloat16 in samples")
    if isinstance(values, Ragged):
        return (array_to_torch(row, True) for row in values)
    tensors: Iterable[Any] = array_to_torch(values, True)
    return tensors


def _each(arrays: Sequence[Any], form: ColumnForm) -> Iterable[Any]:
    """Arrays one by one, as `_rows` gives rows."""
    if not form.delivers_bfloat16:
        return arrays
    require("torch", "torch", "bfloat16 in samples")
    return (None if array is None else array_to_torch(array, True) for array in arrays)


def _with_nones(array: Any, gone: Any) -> Any:
    """Nested lists of plain numbers, None where they are gone."""
    objects = array.astype(object)
    objects[gone] = None
    return objects.tolist()


def _put_nones(rows: list[Any], values: Any, missing: Any, bounds: Sequence[int]) -> None:
    """Replace the lists among `rows` that have missing elements."""
    for row in range(len(rows)):
        inside = slice(bounds[row], bounds[row + 1])
        if missing[inside].any():
            rows[row] = _with_nones(values[inside], missing[inside])


def _under_mask(form: ColumnForm, value: Any, valid: Any) -> Any:
    """What the core gathered for a field of a struct with nulls: null where the struct is."""

    def both(own: Any) -> Any:
        return valid if own is None else own & valid

    if form.kind == "array":
        array, own, elements = value if type(value) is tuple else (value, None, None)
        return array, both(own), elements
    if form.kind == "ragged":
        values, offsets, own, elements = value
        return values, offsets, both(own), elements
    if form.kind == "tensors":
        values, offsets, shapes, own, elements = value
        return values, offsets, shapes, both(own), elements
    if form.kind == "struct":
        children, own = value
        return children, both(own)
    return [item if ok else None for item, ok in zip(value, valid.tolist(), strict=True)]


def _length(children: Any, valid: Any) -> int:
    """Rows of a struct column; one without fields always has a mask."""
    if valid is not None:
        return len(valid)
    value = next(iter(children.values()))
    if isinstance(value, tuple):
        inner, offsets = value[0], value[1]
        if isinstance(inner, dict):
            return _length(inner, offsets)
        return len(inner) if len(value) == 3 else len(offsets) - 1
    return len(value)
