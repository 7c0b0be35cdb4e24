"""Types as users name them: "float32", a NumPy or torch dtype, or an Arrow type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from fastshard.errors import InvalidError

__all__ = ["parse_type", "with_leaf"]

_DECIMAL = re.compile(r"^decimal(32|64|128|256)?\((\d+), ?(-?\d+)\)$")


def parse_type(value: Any, argument: str) -> pa.DataType:
    """The Arrow type that a user means.

    Args:
        value: An Arrow type, a NumPy dtype or scalar type, a torch dtype, or a name of one.
        argument: What was being said, for the message of an error: `cast={"x": ...}`.

    Raises:
        InvalidError: It names no type.
    """
    if isinstance(value, pa.DataType):
        return value
    name = (
        str(value).removeprefix("torch.") if not isinstance(value, type | np.dtype) else np.dtype(value).name
    )
    if name == "bfloat16":
        from fastshard.schema import BFloat16Type

        return BFloat16Type()
    decimal = _DECIMAL.match(name)
    if decimal is not None:
        factory = getattr(pa, f"decimal{decimal[1] or 128}")
        return factory(int(decimal[2]), int(decimal[3]))
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise InvalidError(
            f"{argument}: {value!r} names no type; use a name such as "
            '"float32", "int64", "string", "timestamp[us]", or an Arrow type'
        ) from None


def with_leaf(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """`type_` with its leaf types changed: of a list its values, of a struct all fields, of a map keys and values.

    Types that hold no others are their own leaf; so are extension types, but for tensors of a fixed shape.
    """

    def of(field: pa.Field) -> pa.Field:
        return field.with_type(with_leaf(field.type, change))

    if isinstance(type_, pa.FixedShapeTensorType):
        return pa.fixed_shape_tensor(
            with_leaf(type_.value_type, change), type_.shape, type_.dim_names, type_.permutation
        )
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(of(type_.value_field), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(of(type_.value_field))
    if pa.types.is_list(type_):
        return pa.list_(of(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(of(type_.key_field), of(type_.item_field), type_.keys_sorted)
    if pa.types.is_struct(type_):
        return pa.struct([of(type_.field(i)) for i in range(type_.num_fields)])
    return change(type_)
