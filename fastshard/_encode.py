"""Values of a column as an Arrow array of a given type, or a `Misfit` that says which value does not fit.

pyarrow's own conversion cuts microseconds, drops time zones and rounds floats without a word. Here every value
arrives as it was, or does not arrive. The one exception is asked for: where the user's own schema says float32,
float16 or bfloat16, floats are rounded to it.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from fastshard._infer import VARIABLE_SHAPE, check_keys
from fastshard._numbers import encode_array, encode_floats, encode_integers, encode_temporal, is_temporal
from fastshard._values import BFloat16Array, Misfit, adapt_all, describe
from fastshard.schema import BFloat16Type

__all__ = ["encode"]

_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (types.is_boolean, (bool, np.bool_)),
    (types.is_string, (str,)),
    (types.is_large_string, (str,)),
    (types.is_binary, (bytes, bytearray)),
    (types.is_large_binary, (bytes, bytearray)),
    (types.is_fixed_size_binary, (bytes, bytearray)),
    (types.is_decimal, (decimal.Decimal, int)),
)


def encode(values: Sequence[Any], field: pa.Field, *, rounds: bool) -> pa.Array:
    """The values as an array of the field's type.

    Args:
        values: Adapted (`fastshard._values`), None for nulls.
        field: Of a normalised schema (`fastshard.schema`).
        rounds: Whether floats may be rounded to the field's width.

    Raises:
        Misfit: A value does not fit.
    """
    places = [index for index, value in enumerate(values) if value is not None]
    if len(places) == len(values) > 0:
        return _encode(values, field, rounds)
    if not field.nullable and values:
        missing = next(index for index, value in enumerate(values) if value is None)
        raise Misfit(missing, "is None, and its field says nullable=False")
    if not places:
        return pa.nulls(len(values), field.type)
    try:
        present = _encode([values[index] for index in places], field, rounds)
    except Misfit as misfit:
        raise misfit.within("", places[misfit.index]) from None
    valid = np.zeros(len(values), bool)
    valid[places] = True
    return present.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _encode(values: Sequence[Any], field: pa.Field, rounds: bool) -> pa.Array:
    """As `encode`, of values none of which is None."""
    kind = field.type
    if isinstance(kind, BFloat16Type) or types.is_floating(kind):
        return encode_floats(values, kind, rounds=rounds)
    if isinstance(kind, pa.FixedShapeTensorType):
        return _fixed_shape(values, kind, rounds)
    if _extension_name(field) == VARIABLE_SHAPE:
        return _variable_shape(values, field, rounds)
    if isinstance(kind, pa.BaseExtensionType):
        storage = _encode(values, pa.field(field.name, kind.storage_type), rounds)
        return pa.ExtensionArray.from_storage(kind, storage)
    for accepts, make in _NESTED:
        if accepts(kind):
            return make(values, kind, rounds)
    if is_temporal(kind):
        return encode_temporal(values, kind)
    if types.is_integer(kind):
        return encode_integers(values, kind)
    if types.is_null(kind):
        raise Misfit(0, f"{describe(values[0])} came after None only, or after empty lists; pass a schema")
    accepted = next((accepted for test, accepted in _LEAVES if test(kind)), None)
    if accepted is None:
        raise Misfit(0, f"samples cannot be written as {kind}; write Arrow batches (write_batch) instead")
    return _leaf(values, kind, accepted)


def _extension_name(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return str((field.metadata or {}).get(b"ARROW:extension:name", b"").decode())


def _leaf(values: Sequence[Any], kind: pa.DataType, accepted: tuple[type, ...]) -> pa.Array:
    """Values of which pyarrow makes an array that holds them as they are, once their Python types are right."""
    if not set(map(type, values)) <= set(accepted):
        for index, value in enumerate(values):
            if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
                raise Misfit(index, f"{describe(value)} does not fit {kind}")
    return _from_pylist(values, kind)


def _from_pylist(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        array = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        if len(values) == 1:
            raise Misfit(0, f"{describe(values[0])} does not fit {kind}: {error}") from error
        half = len(values) // 2
        for start, part in ((0, values[:half]), (half, values[half:])):
            try:
                _from_pylist(part, kind)
            except Misfit as misfit:
                raise misfit.within("", start + misfit.index) from error
        raise Misfit(0, f"the values of one block do not fit {kind} together: {error}") from error
    if isinstance(array, pa.ChunkedArray):
        raise Misfit(0, f"one block takes more than {kind} can hold; pass a schema with the large_ type")
    return array


def _struct(values: Sequence[Any], kind: pa.DataType, rounds: bool) -> pa.Array:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names = [field.name for field in fields]
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise Misfit(index, f"{describe(value)} does not fit {kind}")
        check_keys(index, value, names)
    columns = []
    for field in fields:
        try:
            columns.append(encode(adapt_all([value[field.name] for value in values]), field, rounds=rounds))
        except Misfit as misfit:
            raise misfit.within(f".{field.name}") from None
    return pa.Array.from_buffers(kind, len(values), [None], 0, 0, columns)


def _list(values: Sequence[Any], kind: pa.DataType, rounds: bool) -> pa.Array:
    offsets, child = _elements(values, kind, kind.value_field, rounds)
    return pa.Array.from_buffers(kind, len(values), [None, _offsets_buffer(offsets, kind)], 0, 0, [child])


def _fixed_size_list(values: Sequence[Any], kind: pa.DataType, rounds: bool) -> pa.Array:
    for index, value in enumerate(values):
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) != kind.list_size:
            raise Misfit(index, f"a list of {len(value)} does not fit {kind}")
    _, child = _elements(values, kind, kind.value_field, rounds)
    return pa.Array.from_buffers(kind, len(values), [None], 0, 0, [child])


def _map(values: Sequence[Any], kind: pa.DataType, rounds: bool) -> pa.Array:
    pairs = [list(value.items()) if isinstance(value, dict) else value for value in values]
    for index, value in enumerate(pairs):
        if not isinstance(value, list) or not all(
            isinstance(p, (tuple, list)) and len(p) == 2 for p in value
        ):
            raise Misfit(index, f"{describe(value)} does not fit {kind}; pass a dict or a list of pairs")
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in pairs], dtype=np.int64)])
    flat = list(chain.from_iterable(pairs))
    columns = []
    for place, field in ((0, kind.key_field), (1, kind.item_field)):
        try:
            columns.append(encode(adapt_all([pair[place] for pair in flat]), field, rounds=rounds))
        except Misfit as misfit:
            raise misfit.within("[]", _owner(offsets, misfit.index)) from None
    entries = pa.StructArray.from_arrays(columns, fields=[kind.key_field, kind.item_field])
    return pa.Array.from_buffers(kind, len(values), [None, _offsets_buffer(offsets, kind)], 0, 0, [entries])


_NESTED: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[Sequence[Any], pa.DataType, bool], pa.Array]], ...
] = (
    (types.is_struct, _struct),
    (types.is_map, _map),
    (types.is_fixed_size_list, _fixed_size_list),
    (types.is_list, _list),
    (types.is_large_list, _list),
)


def _elements(
    values: Sequence[Any], kind: pa.DataType, field: pa.Field, rounds: bool
) -> tuple[np.ndarray, pa.Array]:
    """The elements of all lists as one array, and where each list begins and ends in it: int64 [len + 1]."""
    for index, value in enumerate(values):
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise Misfit(index, f"{describe(value)} does not fit {kind}")
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values], dtype=np.int64)])
    try:
        if _all_flat(values) and _holds_numbers(field.type):
            return offsets, _joined(values, field.type, rounds)
        elements = list(chain.from_iterable(map(_iterated, values)))
        return offsets, encode(adapt_all(elements), field, rounds=rounds)
    except Misfit as misfit:
        raise misfit.within("[]", _owner(offsets, misfit.index)) from None


def _all_flat(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, np.ndarray) and value.ndim == 1 for value in values)


def _iterated(value: Any) -> Any:
    return [value[i, ...] for i in range(len(value))] if isinstance(value, BFloat16Array) else value


def _owner(offsets: np.ndarray, element: int) -> int:
    return int(np.searchsorted(offsets, element, side="right")) - 1


def _offsets_buffer(offsets: np.ndarray, kind: pa.DataType) -> pa.Buffer:
    if types.is_large_list(kind):
        return pa.py_buffer(offsets)
    if offsets[-1] > np.iinfo(np.int32).max:
        raise Misfit(0, f"one block has more elements than {kind} can count; pass a schema with a large_list")
    return pa.py_buffer(offsets.astype(np.int32))


def _holds_numbers(kind: pa.DataType) -> bool:
    """Whether `encode_array` makes arrays of the type."""
    if isinstance(kind, pa.BaseExtensionType):
        return isinstance(kind, BFloat16Type)
    return bool(types.is_primitive(kind) or types.is_boolean(kind))


def _joined(arrays: Sequence[np.ndarray], kind: pa.DataType, rounds: bool) -> pa.Array:
    """Arrays of any shape, one after another in row-major order, as one Arrow array."""
    flat = [array.reshape(-1) for array in arrays]
    if len({(array.dtype, isinstance(array, BFloat16Array)) for array in arrays}) == 1:
        whole = np.concatenate(flat)
        return encode_array(
            whole.view(BFloat16Array) if isinstance(arrays[0], BFloat16Array) else whole, kind, rounds=rounds
        )
    parts = []
    done = 0
    for array in flat:
        try:
            parts.append(encode_array(array, kind, rounds=rounds))
        except Misfit as misfit:
            raise misfit.within("", done + misfit.index) from None
        done += len(array)
    return pa.concat_arrays(parts)


def _arrays(values: Sequence[Any], kind: pa.DataType, rank: int) -> list[np.ndarray]:
    arrays = []
    for index, value in enumerate(values):
        array = value
        if isinstance(value, (list, tuple)):
            try:
                array = np.array(value)
            except ValueError as error:
                raise Misfit(index, f"a list that is no array ({error}) does not fit {kind}") from None
        if not isinstance(array, np.ndarray) or array.ndim != rank:
            raise Misfit(index, f"{describe(value)} does not fit {kind}")
        arrays.append(array)
    return arrays


def _fixed_shape(values: Sequence[Any], kind: pa.FixedShapeTensorType, rounds: bool) -> pa.Array:
    shape = tuple(kind.shape)
    if list(kind.permutation or range(len(shape))) != list(range(len(shape))):
        raise Misfit(0, f"samples cannot be written as {kind}; write Arrow batches (write_batch) instead")
    arrays = _arrays(values, kind, len(shape))
    for index, array in enumerate(arrays):
        if array.shape != shape:
            raise Misfit(
                index,
                f"{describe(values[index])} does not fit a tensor of shape {shape}; for shapes that vary, "
                "pass a schema with fastshard.samples.variable_shape_field",
            )
    size = int(np.prod(shape))
    try:
        child = _joined(arrays, kind.value_type, rounds)
    except Misfit as misfit:
        raise misfit.within("[]", misfit.index // size) from None
    storage = pa.Array.from_buffers(kind.storage_type, len(values), [None], 0, 0, [child])
    return pa.ExtensionArray.from_storage(kind, storage)


def _variable_shape(values: Sequence[Any], field: pa.Field, rounds: bool) -> pa.Array:
    known = isinstance(field.type, pa.BaseExtensionType)
    kind = field.type.storage_type if known else field.type
    if "permutation" in (str(field.type) if known else str(field.metadata)):
        raise Misfit(
            0, f"samples cannot be written as a permuted {VARIABLE_SHAPE}; write Arrow batches instead"
        )
    data, shape = kind.field("data").type, kind.field("shape").type
    arrays = _arrays(values, field.type, shape.list_size)
    offsets = np.concatenate([[0], np.cumsum([array.size for array in arrays], dtype=np.int64)])
    try:
        child = _joined(arrays, data.value_type, rounds)
    except Misfit as misfit:
        raise misfit.within("[]", _owner(offsets, misfit.index)) from None
    lists = pa.Array.from_buffers(data, len(values), [None, _offsets_buffer(offsets, data)], 0, 0, [child])
    sizes = pa.array(np.array([array.shape for array in arrays], np.int32).reshape(-1))
    shapes = pa.Array.from_buffers(shape, len(values), [None], 0, 0, [sizes])
    storage = pa.Array.from_buffers(kind, len(values), [None], 0, 0, [lists, shapes])
    return pa.ExtensionArray.from_storage(field.type, storage) if known else storage
