"""Schemas of Delta tables, and how columns of their files become columns of the table.

With column mapping, the files have names or numbers of their own for columns and for the members of structs, so that
columns can be renamed and dropped without writing the files again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from fastshard.errors import UnsupportedError

__all__ = ["DeltaField", "Mapped", "fields_of", "find", "to_table"]

Mapped = Literal["none", "name", "id"]

_PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class DeltaField:
    """A column of a Delta table, or a member of a struct in one.

    Attributes:
        name: In the table.
        physical: In the files.
        number: Its id, where columns are mapped; else -1.
        type: In the table, as Arrow.
        children: Members of a struct; one element of an array; key and value of a map; else empty.
        nullable: Nulls are allowed.
    """

    name: str
    physical: str
    number: int
    type: pa.DataType
    children: tuple[DeltaField, ...]
    nullable: bool = True

    @property
    def arrow(self) -> pa.Field:
        """As a field of an Arrow schema."""
        return pa.field(self.name, self.type, self.nullable)


def fields_of(schema: Mapping[str, Any], where: str) -> list[DeltaField]:
    """The columns of a schema in Delta's JSON.

    Args:
        schema: What `schemaString` holds.
        where: The table, for messages.

    Raises:
        UnsupportedError: A column has a type that is none of Delta's known ones.
    """
    return [_member(field, where, field["name"]) for field in schema["fields"]]


def _member(field: Mapping[str, Any], where: str, path: str) -> DeltaField:
    metadata = field.get("metadata", {})
    type_, children = _type(field["type"], where, path)
    name = field["name"]
    physical = str(metadata.get("delta.columnMapping.physicalName", name))
    number = int(metadata.get("delta.columnMapping.id", -1))
    return DeltaField(name, physical, number, type_, children, bool(field.get("nullable", True)))


def _type(spec: Any, where: str, path: str) -> tuple[pa.DataType, tuple[DeltaField, ...]]:
    if isinstance(spec, str):
        decimal = _DECIMAL.fullmatch(spec)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2])), ()
        if spec in _PRIMITIVES:
            return _PRIMITIVES[spec], ()
    elif spec["type"] == "struct":
        members = tuple(_member(field, where, f"{path}.{field['name']}") for field in spec["fields"])
        return pa.struct([member.arrow for member in members]), members
    elif spec["type"] == "array":
        element = _element("element", spec["elementType"], where, f"{path}.element")
        return pa.list_(element.arrow), (element,)
    elif spec["type"] == "map":
        key = _element("key", spec["keyType"], where, f"{path}.key")
        value = _element("value", spec["valueType"], where, f"{path}.value")
        return pa.map_(key.type, value.type), (key, value)
    raise UnsupportedError(
        f"{where}: column {path!r} has Delta's type {spec if isinstance(spec, str) else spec['type']!r}, which is not "
        "read; leave it out with columns=, or cast it in the table"
    )


def _element(name: str, spec: Any, where: str, path: str) -> DeltaField:
    type_, children = _type(spec, where, path)
    return DeltaField(name, name, -1, type_, children)


def find(fields: Sequence[pa.Field], wanted: DeltaField, mapped: Mapped) -> int:
    """The place of a column among those of a file, or of a member among those of a struct there; -1 if absent."""
    if mapped == "id":
        for index, field in enumerate(fields):
            if (field.metadata or {}).get(b"PARQUET:field_id") == str(wanted.number).encode():
                return index
    name = wanted.name if mapped == "none" else wanted.physical
    return next((index for index, field in enumerate(fields) if field.name == name), -1)


def to_table(array: pa.Array, wanted: DeltaField, mapped: Mapped) -> pa.Array:
    """An array of a file as one of the table: members renamed, found by number, or null; types as the table has them.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the table's type.
    """
    type_ = array.type
    if not wanted.children or pa.types.is_null(type_):
        return array if type_ == wanted.type else array.cast(wanted.type)
    if pa.types.is_struct(type_):
        there = list(type_)
        members = []
        for member in wanted.children:
            place = find(there, member, mapped)
            # `field` of a sliced struct is sliced, too; validity stays with the struct.
            found = pa.nulls(len(array), member.type) if place < 0 else array.field(place)
            members.append(found if place < 0 else to_table(found, member, mapped))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(wanted.type), mask=mask)
    if pa.types.is_map(type_):
        lists = array.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)])))
        offsets, entries, mask = _opened(lists)
        key, value = wanted.children
        keys = to_table(entries.field(0), key, mapped)
        values = to_table(entries.field(1), value, mapped)
        return pa.MapArray.from_arrays(_with_nulls(offsets, mask), keys, values, wanted.type)
    offsets, elements, mask = _opened(array)
    inner = to_table(elements, wanted.children[0], mapped)
    return pa.ListArray.from_arrays(_with_nulls(offsets, mask), inner, type=wanted.type)


def _opened(lists: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """(offsets from 0, values, which are null or None) of lists of any kind."""
    if not pa.types.is_list(lists.type):
        lists = lists.cast(pa.list_(lists.type.value_field))
    import pyarrow.compute as pc

    offsets = lists.offsets
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    mask = lists.is_null() if lists.null_count else None
    values = lists.values.slice(first, end - first)
    return pc.subtract(offsets, pa.scalar(first, offsets.type)), values, mask


def _with_nulls(offsets: pa.Array, mask: pa.Array | None) -> pa.Array:
    """Offsets that say by a null which lists are null."""
    if mask is None:
        return offsets
    import pyarrow.compute as pc

    last = pa.array([False])
    return pc.if_else(pa.concat_arrays([mask, last]), pa.scalar(None, offsets.type), offsets)
