"""`tensors=`: columns of bytes or lists become tensors of one fixed shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastshard.converters._cast import cast_array
from fastshard.converters._types import parse_type
from fastshard.errors import InvalidError, NullError, SchemaError, SourceError

__all__ = ["TensorSpec", "tensor_specs", "to_tensors"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The tensors that a column becomes.

    Attributes:
        value_type: Of an element; of a fixed width.
        shape: Of one sample; every length at least 1.
    """

    value_type: pa.DataType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.value_type} {self.shape}"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.fixed_shape_tensor(self.value_type, self.shape)


def tensor_specs(schema: pa.Schema, tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Parse `tensors={"image": ("uint8", (3, 224, 224))}` and hold it against the schema.

    Raises:
        InvalidError: An entry is malformed, or names no column.
        SchemaError: A column's type cannot become tensors.
    """
    specs = {}
    for name, value in tensors.items():
        where = f"tensors={{{name!r}: {value!r}}}"
        if name not in schema.names:
            raise InvalidError(f"{where}: there is no such column; the columns are {schema.names}")
        spec = _parse(value, where)
        _check_type(schema.field(name).type, spec, name)
        specs[name] = spec
    return specs


def _parse(value: Any, where: str) -> TensorSpec:
    expected = 'expected a type and a shape, such as ("uint8", (3, 224, 224))'
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InvalidError(f"{where}: {expected}")
    value_type = parse_type(value[0], where)
    try:
        shape = tuple(int(length) for length in (value[1] if isinstance(value[1], Sequence) else (value[1],)))
    except (TypeError, ValueError):
        raise InvalidError(f"{where}: {expected}") from None
    if not shape or min(shape) < 1:
        raise InvalidError(f"{where}: every length of the shape must be at least 1")
    storage = value_type.storage_type if isinstance(value_type, pa.BaseExtensionType) else value_type
    if not (pa.types.is_integer(storage) or pa.types.is_floating(storage) or pa.types.is_boolean(storage)):
        raise InvalidError(
            f"{where}: tensors hold integers, floating-point numbers or booleans, not {value_type}"
        )
    return TensorSpec(value_type, shape)


def _check_type(type_: pa.DataType, spec: TensorSpec, name: str) -> None:
    if isinstance(type_, pa.FixedShapeTensorType):
        if math.prod(type_.shape) != spec.elements:
            raise SchemaError(
                f"column {name!r} holds tensors of shape {tuple(type_.shape)}, not {spec.shape}"
            )
        if type_.permutation not in (None, list(range(len(type_.shape)))):
            raise SchemaError(
                f"column {name!r} holds tensors with a permutation, which tensors= does not reorder"
            )
        return
    if _is_bytes(type_):
        if pa.types.is_boolean(spec.value_type):
            raise SchemaError(
                f'column {name!r} holds bytes, which cannot become bits; use "uint8" in tensors='
            )
        return
    depth = 0
    leaf = type_
    while _is_list(leaf):
        depth += 1
        leaf = leaf.value_type
    plain = pa.types.is_primitive(leaf) or pa.types.is_boolean(leaf)
    if depth == 0 or not (plain or leaf == spec.value_type):
        raise SchemaError(
            f"column {name!r} is of type {type_}, which cannot become tensors; binary and (nested) lists of numbers can"
        )
    if depth > len(spec.shape):
        raise SchemaError(f"column {name!r} is nested {depth} deep ({type_}), the shape {spec.shape} is not")


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    ) and not pa.types.is_decimal(type_)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


def to_tensors(array: pa.Array, spec: TensorSpec, where: Callable[[int], str]) -> pa.Array:
    """Turn a column of bytes or lists into tensors.

    Bytes are the elements of one sample in C order, little-endian. A list is either flat, with all elements, or
    nested with the lengths of the shape (its innermost lists hold the rest).

    Args:
        array: The column.
        spec: What it becomes.
        where: Names a row of `array`, for messages.

    Raises:
        NullError: A row or an element is null.
        SourceError: A row has another length, or a value does not fit the type.
    """
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise NullError(
            f"{where(row)}: null, and tensors have no nulls; filter such rows out, or fill them in transform="
        )
    if isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    if _is_bytes(array.type):
        values = _from_bytes(array, spec, where)
    else:
        values = _from_lists(array, spec, where)
    storage = pa.FixedSizeListArray.from_arrays(values, spec.elements)
    return pa.ExtensionArray.from_storage(spec.arrow_type, storage.cast(spec.arrow_type.storage_type))


def _from_bytes(array: pa.Array, spec: TensorSpec, where: Callable[[int], str]) -> pa.Array:
    size = spec.elements * spec.value_type.bit_width // 8
    if pa.types.is_fixed_size_binary(array.type):
        if array.type.byte_width != size and len(array):
            raise _wrong_length(where(0), array.type.byte_width, size, "bytes", spec)
        start, data = array.offset * size, array.buffers()[1]
    else:
        offsets = _offsets(array)
        _check_lengths(offsets, 1, size, "bytes", spec, where)
        start, data = int(offsets[0]) if len(offsets) else 0, array.buffers()[2]
    count = len(array) * spec.elements
    if count == 0:
        return pa.array([], spec.value_type)
    return pa.Array.from_buffers(spec.value_type, count, [None, data.slice(start, len(array) * size)])


def _from_lists(array: pa.Array, spec: TensorSpec, where: Callable[[int], str]) -> pa.Array:
    """Flatten level by level, each level's lists having the length that the shape says; the last holds the rest."""
    rows_of = 1  # lists of this level in one sample
    level = 0
    while _is_list(array.type):
        is_last = not _is_list(array.type.value_type)
        length = math.prod(spec.shape[level:]) if is_last else spec.shape[level]
        if pa.types.is_fixed_size_list(array.type):
            if array.type.list_size != length and len(array):
                raise _wrong_length(where(0), array.type.list_size, length, "elements", spec)
            array = array.values.slice(array.offset * length, len(array) * length)
        else:
            offsets = _offsets(array)
            _check_lengths(offsets, rows_of, length, "elements", spec, where)
            first = int(offsets[0]) if len(offsets) else 0
            array = array.values.slice(first, len(array) * length)
        rows_of *= length
        level += 1
        if array.null_count:
            element = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            row = element // rows_of
            raise NullError(f"{where(row)}: element {element % rows_of} is null, and tensors have no nulls")
    return cast_array(array, spec.value_type, lambda element: where(element // spec.elements))


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    """The offsets of an array's own rows; as many as rows plus one, or none."""
    is_large = pa.types.is_large_list(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.int64 if is_large else np.int32
    if len(array) == 0:
        return np.zeros(0, np.int64)
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)


def _check_lengths(
    offsets: npt.NDArray[np.int64],
    rows_of: int,
    expected: int,
    unit: str,
    spec: TensorSpec,
    where: Callable[[int], str],
) -> None:
    lengths = np.diff(offsets)
    wrong = np.flatnonzero(lengths != expected)
    if len(wrong):
        raise _wrong_length(where(int(wrong[0]) // rows_of), int(lengths[wrong[0]]), expected, unit, spec)


def _wrong_length(where: str, found: int, expected: int, unit: str, spec: TensorSpec) -> SourceError:
    return SourceError(f"{where}: {found} {unit} where {spec} takes {expected}")
