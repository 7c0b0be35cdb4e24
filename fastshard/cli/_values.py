"""Values of samples as JSON and as short text."""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from fastshard.forms import ColumnForm
    from fastshard.reader import ShardReader

__all__ = ["JsonRows", "to_text"]

_SHOWN_ITEMS = 16  # of an array, for people


class JsonRows:
    """Rows of a data set as JSON has them: null where a value is null, at any depth, and numbers as they are.

    What JSON lacks becomes text: NaN and infinities `"NaN"`, `"Infinity"` and `"-Infinity"`, bytes base64, decimals
    their digits, dates and times such as `2020-01-01 12:00:00Z`, durations with their unit. Structs are objects, maps
    lists of pairs, arrays nested lists.
    """

    def __init__(self, reader: ShardReader) -> None:
        fields = list(reader.schema)
        self._core = reader.core
        self._names = [field.name for field in fields]
        self._converts = [
            _convert(field.type, form) for field, form in zip(fields, reader.plan.forms, strict=True)
        ]
        objects = (("object", None, None),) * len(fields)
        self._projection = self._core.projection(reader.plan.columns, objects)

    def __getitem__(self, id: int) -> dict[str, Any]:
        """One row. Raises as reading does."""
        columns = self._core.take(np.array([id], np.int64), self._projection)
        return {
            name: None if value is None else convert(value)
            for name, convert, (value,) in zip(self._names, self._converts, columns, strict=True)
        }


_Convert: TypeAlias = Callable[[Any], Any]


def _convert(kind: pa.DataType, form: ColumnForm | None = None) -> _Convert:
    """What makes JSON of an Arrow type's values, which the core gave as Python objects; never called for None.

    Args:
        kind: The type.
        form: Of a column, or of a field of one: says which structs are arrays of varying shape.
    """
    import pyarrow as pa
    import pyarrow.types as types

    from fastshard.schema import BFloat16Type

    if isinstance(kind, pa.FixedShapeTensorType):
        flat = _convert(pa.list_(kind.value_type))
        return lambda values: _nested(flat(values), kind.shape, kind.permutation)
    if isinstance(kind, BFloat16Type):
        return lambda bits: _number(float(np.array(bits << 16, np.uint32).view(np.float32)))
    if isinstance(kind, pa.BaseExtensionType):
        return _convert(kind.storage_type, form)
    if form is not None and form.kind == "tensors":
        flat = _convert(kind.field("data").type)
        return lambda value: _nested(flat(value["data"]), value["shape"], form.permutation)
    if types.is_struct(kind):
        forms = {} if form is None else {child.name: child for child in form.children}
        fields = {field.name: _or_null(_convert(field.type, forms.get(field.name))) for field in kind}
        return lambda value: {name: fields[name](item) for name, item in value.items()}
    if types.is_map(kind):
        key, item = _convert(kind.key_type), _or_null(_convert(kind.item_type))
        return lambda pairs: [[key(k), item(v)] for k, v in pairs]
    if types.is_nested(kind):
        element = _or_null(_convert(kind.value_type))
        return lambda values: [element(value) for value in values]
    if types.is_floating(kind):
        return _number
    if types.is_temporal(kind):
        return list if types.is_interval(kind) else functools.partial(_time_text, kind=kind)
    if types.is_decimal(kind):
        return str
    return lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _nested(values: list[Any], shape: Sequence[int], axes: Sequence[int] | None) -> Any:
    array = np.array(values, object).reshape(shape)
    return (array if axes is None else array.transpose(axes)).tolist()


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _time_text(value: int, *, kind: pa.DataType) -> str:
    import pyarrow as pa

    if pa.types.is_duration(kind):
        return str(np.timedelta64(value, kind.unit))
    bits = pa.scalar(value, pa.int32() if kind.bit_width == 32 else pa.int64())
    return str(bits.cast(kind).cast(pa.string()))


def to_text(sample: Any, plain: Any) -> str:
    """A value for people, long ones cut: `uint8[8, 8] 0 0 5 13 ...`, `2 bytes: 00 ff`.

    Args:
        sample: As a sample has it.
        plain: As `JsonRows` has it.
    """
    if plain is None:
        return "null"
    if isinstance(sample, bytes):
        more = "..." if len(sample) > _SHOWN_ITEMS else ""
        return f"{len(sample):,} bytes: {sample[:_SHOWN_ITEMS].hex(' ')}{more}"
    if isinstance(sample, np.ndarray):
        shown = " ".join(map(_item_text, sample.reshape(-1)[:_SHOWN_ITEMS]))
        more = " ..." if sample.size > _SHOWN_ITEMS else ""
        return f"{sample.dtype}{list(sample.shape)} {shown}{more}".rstrip()
    if isinstance(plain, str):
        return plain
    return _item_text(plain) if isinstance(plain, float) else json.dumps(plain, ensure_ascii=False)


def _item_text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
