"""Which form each column takes in a sample and in a batch: decided once, from field, statistics and options.

docs/types.md is the table of it. The native core only makes the objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import numpy as np

from fastshard._index import ColumnStats
from fastshard.errors import CorruptError, InvalidError

__all__ = ["BFLOAT16", "DTYPE_NAMES", "ColumnForm", "FormOptions", "choose_forms"]

BFLOAT16 = "fastshard.bfloat16"
_FIXED_TENSOR = "arrow.fixed_shape_tensor"
_VARIABLE_TENSOR = "arrow.variable_shape_tensor"
_MAX_DIMENSIONS = 32
_LISTS = frozenset({"list", "large_list", "list_view", "large_list_view"})
_TEXT = frozenset({"utf8", "large_utf8", "utf8_view"})
_BINARY = frozenset({"binary", "large_binary", "binary_view", "fixed_size_binary"})
_DTYPES = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "date32": np.int32,
    "date64": np.int64,
    "time32": np.int32,
    "time64": np.int64,
    "timestamp": np.int64,
    "duration": np.int64,
    "interval_months": np.int32,
}

_TEMPORAL = frozenset({"date32", "date64", "time32", "time64", "timestamp", "duration", "interval_months"})

Kind = Literal["array", "text", "bytes", "views", "ragged", "padded", "tensors", "struct", "object"]
Binary = Literal["bytes", "view"]


@dataclass(frozen=True, slots=True)
class FormOptions:
    """How columns are delivered.

    Attributes:
        lists: "auto": list columns of one constant length (by the index) become arrays; "ragged": never.
        tensors: Per list column (dtype, shape): it must have that shape, and is cast to that dtype.
        cast: Per column name, or per dtype name, the dtype to deliver. A dtype name means columns of numbers: dates,
            times and the like are cast by column name alone.
        fill_null: Per column the value that stands in for null; of a list column for null elements, null lists being
            empty ones. Fields of structs are named as in "struct.field".
        null_masks: True adds a bool column NAME__valid for each array, ragged or struct column with nulls, and fills
            arrays with 0 or NaN and null lists with nothing. Null elements of ragged columns of integers need
            fill_null.
        binary: "bytes": binary columns are bytes; "view": uint8 arrays that share the batch's buffer, without a copy.
        pad: Per list column (length, value) or (length, value, "truncate"): its lists become rows of that length,
            with `value` behind their elements, and a column NAME__length (int64) says how many are theirs. A longer
            list raises `InvalidError`, or loses its end.
    """

    lists: Literal["auto", "ragged"] = "auto"
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    cast: Mapping[str, str] = field(default_factory=dict)
    fill_null: Mapping[str, Any] = field(default_factory=dict)
    null_masks: bool = False
    binary: Binary = "bytes"
    pad: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @staticmethod
    def of_arguments(
        *,
        lists: Literal["auto", "ragged"],
        tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None,
        cast: Mapping[str, str] | None,
        fill_null: Mapping[str, Any] | None,
        null_masks: bool,
        binary: Binary,
        pad: Mapping[str, tuple[Any, ...]] | None,
    ) -> FormOptions:
        """As users give them: None where there are none. Raises `InvalidError` for what is none of these."""
        given = {"tensors": tensors, "cast": cast, "fill_null": fill_null, "pad": pad}
        mappings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return FormOptions(lists=lists, null_masks=null_masks, binary=binary, **mappings)

    def __post_init__(self) -> None:
        for option in ("tensors", "cast", "fill_null", "pad"):
            value = getattr(self, option)
            if not isinstance(value, Mapping):
                raise InvalidError(f"{option} is a dict by column names, not {value!r}")
            object.__setattr__(self, option, dict(value))
        if not isinstance(self.null_masks, bool):
            raise InvalidError(f"null_masks is True or False, not {self.null_masks!r}")
        cast = {dtype_name(name): dtype_name(dtype) for name, dtype in self.cast.items()}
        object.__setattr__(self, "cast", cast)
        if self.lists not in ("auto", "ragged"):
            raise InvalidError(f"lists is 'auto' or 'ragged', not {self.lists!r}")
        for name, pin in self.tensors.items():
            if not isinstance(pin, Sequence) or isinstance(pin, str) or len(pin) != 2:
                raise InvalidError(
                    f"tensors[{name!r}] is (dtype, shape), as in ('float32', (16,)), not {pin!r}"
                )
            dtype, shape = dtype_name(pin[0]), pin[1]
            check_dtype(dtype, f"tensors[{name!r}]")
            if (
                not isinstance(shape, Sequence)
                or len(shape) > _MAX_DIMENSIONS
                or not all(isinstance(size, int) and size >= 0 for size in shape)
            ):
                raise InvalidError(f"tensors[{name!r}]: a shape is a tuple of sizes, not {shape!r}")
            self.tensors[name] = dtype, tuple(shape)  # type: ignore[index]
        for name, dtype in self.cast.items():
            check_dtype(dtype, f"cast[{name!r}]")
        if self.binary not in ("bytes", "view"):
            raise InvalidError(f"binary is 'bytes' or 'view', not {self.binary!r}")
        for name, padding in self.pad.items():
            _check_padding(name, padding)
            if name in self.tensors:
                raise InvalidError(f"tensors and pad both name column {name!r}; leave one of them out")


def _check_padding(name: str, padding: Any) -> None:
    if (
        not isinstance(padding, tuple)
        or len(padding) not in (2, 3)
        or isinstance(padding[0], bool)
        or not isinstance(padding[0], int)
        or padding[0] < 1
        or padding[2:] not in ((), ("truncate",))
    ):
        raise InvalidError(
            f"pad[{name!r}] is (length, value), as in (2048, 0), or (length, value, 'truncate') to cut longer lists; "
            f"not {padding!r}"
        )


def dtype_name(dtype: Any) -> Any:
    """The name of a dtype that NumPy or torch may have made; what is none of these as it is."""
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        return np.dtype(dtype).name
    if type(dtype).__module__ == "torch" and type(dtype).__name__ == "dtype":
        return str(dtype).removeprefix("torch.")
    return dtype


def check_dtype(name: Any, where: str) -> None:
    """Raise `InvalidError` unless `name` is the name of a dtype that can be delivered."""
    if not isinstance(name, str) or name not in DTYPE_NAMES:
        raise InvalidError(f"{where}: {name!r} is not a dtype; known are {', '.join(sorted(DTYPE_NAMES))}")


DTYPE_NAMES = frozenset({*(np.dtype(dtype).name for dtype in _DTYPES.values()), "bfloat16"})


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """The form of one column (or of one field of a struct column).

    Attributes:
        name: Column name.
        kind: "array" [n, *shape]; "text" list of str; "bytes" list of bytes; "views" list of uint8 arrays; "ragged";
            "padded" [n, length] and lengths; "tensors" arrays of varying shape; "struct" dict; "object" list of plain
            Python objects.
        type: Arrow type as text, for messages.
        shape: Of one row, for "array" and "padded".
        dtype: Of the values as stored, for "array", "ragged", "padded" and "tensors"; bfloat16 is uint16 here.
        cast: Dtype to deliver, or None.
        bfloat16: The values are bfloat16.
        permutation: Of the axes of one row, from stored to logical, for tensors that say so.
        children: Fields, for "struct".
        path: Names from the top-level column down, joined by dots: what `fill_null` and `cast` call it.
        truncates: Longer lists lose their end, for "padded".
    """

    name: str
    kind: Kind
    type: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] | None = None
    cast: str | None = None
    bfloat16: bool = False
    permutation: tuple[int, ...] | None = None
    children: tuple[ColumnForm, ...] = ()
    path: str = ""
    truncates: bool = False

    def native(self, padding: bytes | None = None) -> tuple[str, Any, tuple[tuple[str, Any], ...] | None]:
        """The form as the native core takes it.

        Args:
            padding: Of "padded" one element as stored, which stands behind lists; None for zeros.
        """
        children = (
            tuple((child.name, child.native()) for child in self.children) if self.kind == "struct" else None
        )
        if self.kind == "padded":
            assert self.dtype is not None
            value = bytes(self.dtype.itemsize) if padding is None else padding
            return (self.kind, (*self.shape, self.truncates, value), None)
        return (self.kind, self.shape if self.kind == "array" else None, children)

    @property
    def stored(self) -> str | None:
        """Name of the dtype that the shards hold, or None where a batch holds objects."""
        if self.dtype is None:
            return None
        return "bfloat16" if self.bfloat16 else np.dtype(self.dtype).name

    @property
    def delivers_floating(self) -> bool:
        """A batch holds floating-point numbers."""
        delivered = self.delivered
        return delivered is not None and (delivered == "bfloat16" or np.dtype(delivered).kind == "f")

    @property
    def delivers_bfloat16(self) -> bool:
        """A batch holds the uint16 bits of bfloat16 numbers (torch.bfloat16 once they are tensors)."""
        return self.cast == "bfloat16" or (self.bfloat16 and self.cast is None)

    @property
    def delivered(self) -> str | None:
        """Name of the dtype that a batch holds, or None where it holds objects."""
        return self.cast or self.stored

    def describe(self) -> str:
        """The form for people, as in `float32[16]` or `list of str`."""
        if self.kind == "array":
            return f"{self.delivered}{list(self.shape)}" if self.shape else str(self.delivered)
        if self.kind == "padded":
            return f"{self.delivered}{list(self.shape)} and lengths"
        if self.kind == "struct":
            return "dict of " + ", ".join(f"{child.name}: {child.describe()}" for child in self.children)
        names = {
            "text": "list of str",
            "bytes": "list of bytes",
            "views": "list of uint8 arrays",
            "object": "list of objects",
        }
        return names.get(self.kind) or f"{self.kind} {self.delivered}"


def choose_forms(
    fields: Sequence[Mapping[str, Any]], stats: Mapping[str, ColumnStats], options: FormOptions
) -> tuple[ColumnForm, ...]:
    """The form of each field (as `ShardSet.fields` describes them). Raises `InvalidError` for options that misfit."""
    top = {description["name"] for description in fields}
    known = {path for description in fields for path in _paths(description, "")}
    for option, names in (("tensors", top), ("fill_null", known), ("pad", top)):
        for name in getattr(options, option):
            if name not in names:
                raise InvalidError(
                    f"{option} names column {name!r}, which is not read; there are {sorted(names)}"
                )
    for name in options.cast:
        if name not in known and name not in DTYPE_NAMES:
            raise InvalidError(
                f"cast names {name!r}, which is neither a column that is read nor a dtype; there are {sorted(known)}"
            )
    return tuple(
        _choose(description, stats.get(description["name"]), options, True, "") for description in fields
    )


def _paths(description: Mapping[str, Any], parent: str) -> list[str]:
    path = f"{parent}.{description['name']}" if parent else str(description["name"])
    paths = [path]
    if description["type"] == "struct":
        for child in description["children"]:
            paths += _paths(child, path)
    return paths


def _choose(
    description: Mapping[str, Any], stats: ColumnStats | None, options: FormOptions, top: bool, parent: str
) -> ColumnForm:
    path = f"{parent}.{description['name']}" if parent else str(description["name"])
    form = _form({**description, "path": path}, stats, options, top, path)
    form = replace(form, path=path)
    if top and path in options.pad and form.kind != "padded":
        raise InvalidError(
            f"pad[{path!r}]: a column of type {form.type} holds no lists of numbers of varying length"
        )
    wanted = options.cast.get(path)
    if wanted is not None and form.dtype is None:
        raise InvalidError(f"cast[{path!r}]: a column of type {form.type} holds no numbers to cast")
    return form


def _form(
    description: Mapping[str, Any], stats: ColumnStats | None, options: FormOptions, top: bool, path: str
) -> ColumnForm:
    kind = description["type"]
    if description["extension"] == _FIXED_TENSOR:
        return _fixed_tensor(description, options, top)
    if description["extension"] == _VARIABLE_TENSOR and kind == "struct":
        return _variable_tensor(description, options, top)
    if kind in _DTYPES:
        pinned = options.tensors.get(description["name"]) if top else None
        if pinned is not None and pinned[1] != ():
            raise InvalidError(
                f"tensors[{description['name']!r}] wants shape {pinned[1]}, the column has one {kind} a row"
            )
        return _array(description, (), options, top)
    if kind == "fixed_size_list":
        shape, inner = _fixed_shape(description)
        if inner["type"] in _DTYPES:
            return _array(description, _pinned_shape(description, shape, options, top), options, top)
        _pin_refused(description, options, top)
        return _plain(description, "object")
    if kind in _LISTS:
        return _list(description, stats, options, top)
    _pin_refused(description, options, top)
    if kind in _TEXT:
        return _plain(description, "text")
    if kind in _BINARY:
        return _plain(description, "bytes" if options.binary == "bytes" else "views")
    if kind == "struct":
        children = tuple(_choose(child, None, options, False, path) for child in description["children"])
        return ColumnForm(description["name"], "struct", description["text"], children=children)
    return _plain(description, "object")


def _plain(description: Mapping[str, Any], kind: Kind) -> ColumnForm:
    return ColumnForm(description["name"], kind, description["text"])


def _list(
    description: Mapping[str, Any], stats: ColumnStats | None, options: FormOptions, top: bool
) -> ColumnForm:
    child = description["children"][0]
    padding = options.pad.get(description["name"]) if top else None
    if padding is not None and child["type"] in _DTYPES:
        form = _values(description, "padded", child, options, top, shape=(padding[0],))
        return replace(form, truncates=len(padding) == 3)
    pinned = options.tensors.get(description["name"]) if top else None
    shape, inner = _fixed_shape(child)
    if inner["type"] not in _DTYPES:
        _pin_refused(description, options, top)
        return _plain(description, "object")
    constant = (
        stats is not None
        and stats.null_count == 0
        and stats.min_length is not None
        and stats.min_length == stats.max_length
    )
    if pinned is not None and not constant:
        found = (
            "no values"
            if stats is None or stats.min_length is None
            else f"lengths {stats.min_length} to {stats.max_length}"
        )
        nulls = f" and {stats.null_count} nulls" if stats is not None and stats.null_count else ""
        if stats is None or stats.min_length is not None or stats.null_count:
            raise InvalidError(
                f"tensors[{description['name']!r}] wants one shape, the column has {found}{nulls}"
            )
        return _array(description, tuple(pinned[1]), options, top)  # no rows: any shape is right
    if pinned is not None or (constant and options.lists == "auto" and stats is not None):
        assert stats is not None
        assert stats.min_length is not None
        return _array(
            description, _pinned_shape(description, (stats.min_length, *shape), options, top), options, top
        )
    if child["type"] in _DTYPES:
        return _values(description, "ragged", child, options, top)
    return _plain(description, "object")


def _fixed_shape(description: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
    """Sizes of nested fixed-size lists from `description` down, and the field below them."""
    shape: tuple[int, ...] = ()
    while description["type"] == "fixed_size_list":
        shape = (*shape, description["list_size"])
        description = description["children"][0]
    return shape, description


def _innermost(description: Mapping[str, Any]) -> Mapping[str, Any]:
    while description["type"] == "fixed_size_list" or description["type"] in _LISTS:
        description = description["children"][0]
    return description


def _pinned_shape(
    description: Mapping[str, Any], shape: tuple[int, ...], options: FormOptions, top: bool
) -> tuple[int, ...]:
    pinned = options.tensors.get(description["name"]) if top else None
    if pinned is None:
        return shape
    wanted = tuple(pinned[1])
    if prod(wanted) != prod(shape):
        raise InvalidError(f"tensors[{description['name']!r}] wants shape {wanted}, the column has {shape}")
    return wanted


def _pin_refused(description: Mapping[str, Any], options: FormOptions, top: bool) -> None:
    if top and description["name"] in options.tensors:
        raise InvalidError(
            f"tensors[{description['name']!r}]: a column of type {description['text']} cannot be an array; "
            "convert the source with tensors= to store it as one"
        )


def _array(
    description: Mapping[str, Any], shape: tuple[int, ...], options: FormOptions, top: bool
) -> ColumnForm:
    return _values(description, "array", _innermost(description), options, top, shape=shape)


def _values(
    description: Mapping[str, Any],
    kind: Kind,
    inner: Mapping[str, Any],
    options: FormOptions,
    top: bool,
    *,
    shape: tuple[int, ...] = (),
    permutation: tuple[int, ...] | None = None,
) -> ColumnForm:
    dtype = np.dtype(_DTYPES[inner["type"]])
    bfloat16 = BFLOAT16 in (inner["extension"], description["extension"])
    stored = "bfloat16" if bfloat16 else dtype.name
    pinned = options.tensors.get(description["name"]) if top else None
    wanted = options.cast.get(description["path"]) or (pinned[0] if pinned else None)
    if wanted is None and inner["type"] not in _TEMPORAL:  # int64 means numbers, not timestamps
        wanted = options.cast.get(stored)
    return ColumnForm(
        description["name"],
        kind,
        description["text"],
        shape=shape,
        dtype=dtype,
        cast=wanted if wanted != stored else None,
        bfloat16=bfloat16,
        permutation=permutation,
    )


def _extension(description: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parsed = json.loads(description["extension_metadata"] or b"{}")
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _bad_extension(description, "its metadata are not a JSON object")
    return parsed


def _bad_extension(description: Mapping[str, Any], what: str) -> CorruptError:
    return CorruptError(f"column {description['name']!r} of type {description['extension']}: {what}")


def _axes(description: Mapping[str, Any], permutation: Any, dimensions: int) -> tuple[int, ...] | None:
    """The permutation that an extension's metadata give, or None where axes stay as they are."""
    if permutation is None:
        return None
    is_list = isinstance(permutation, list) and all(type(axis) is int for axis in permutation)
    if not is_list or sorted(permutation) != list(range(dimensions)):
        raise _bad_extension(description, f"{permutation} is no permutation of {dimensions} axes")
    return None if permutation == sorted(permutation) else tuple(permutation)


def _fixed_tensor(description: Mapping[str, Any], options: FormOptions, top: bool) -> ColumnForm:
    metadata = _extension(description)
    shape = metadata.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise _bad_extension(description, f"its shape is {shape!r}")
    sizes, inner = _fixed_shape(description)
    fits = inner["type"] in _DTYPES and len(shape) <= _MAX_DIMENSIONS and prod(shape) == prod(sizes)
    if description["type"] != "fixed_size_list" or not fits:
        raise _bad_extension(description, f"a tensor of shape {shape} does not fit {description['text']}")
    order = _axes(description, metadata.get("permutation"), len(shape))
    if top and description["name"] in options.tensors:
        shape, order = list(_pinned_shape(description, tuple(shape), options, top)), None
    return _values(description, "array", inner, options, top, shape=tuple(shape), permutation=order)


def _variable_tensor(description: Mapping[str, Any], options: FormOptions, top: bool) -> ColumnForm:
    _pin_refused(description, options, top)
    metadata = _extension(description)
    by_name = {child["name"]: child for child in description["children"]}
    data, shape = by_name.get("data"), by_name.get("shape")
    fits = (
        data is not None
        and data["type"] in _LISTS
        and data["children"][0]["type"] in _DTYPES
        and shape is not None
        and shape["type"] == "fixed_size_list"
        and shape["list_size"] <= _MAX_DIMENSIONS
        and shape["children"][0]["type"] == "int32"
    )
    if not fits or data is None or shape is None:
        raise _bad_extension(
            description, f"{description['text']} is not the storage of a variable-shape tensor"
        )
    order = _axes(description, metadata.get("permutation"), shape["list_size"])
    return _values(description, "tensors", data["children"][0], options, top, permutation=order)
