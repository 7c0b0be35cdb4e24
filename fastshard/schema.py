"""What a data set may hold: Arrow schemas normalised as docs/format.md section 8 says, and batches made to fit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as types

from fastshard._decode import decode
from fastshard._index import FieldText
from fastshard.errors import SchemaError

__all__ = [
    "BFloat16Type",
    "Normaliser",
    "field_texts",
    "normalise_schema",
    "normalise_storable",
    "normalise_type",
    "read_schema",
    "schema_message",
]

# Rows that are decoded at a time: a dictionary's values may be far larger than its indices.
_DECODE_ROWS = 1 << 16
_EXTENSION_NAME = b"ARROW:extension:name"
_EXTENSION_METADATA = b"ARROW:extension:metadata"


class BFloat16Type(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """bfloat16 numbers, stored as uint16: the upper halves of float32 bits."""

    NAME = "fastshard.bfloat16"

    def __init__(self) -> None:
        super().__init__(pa.uint16(), self.NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> BFloat16Type:
        if storage_type != pa.uint16():
            raise SchemaError(f"{cls.NAME} is stored as uint16, not as {storage_type}")
        return cls()


def _register() -> None:
    try:
        pa.register_extension_type(BFloat16Type())
    except pa.ArrowKeyError:  # this module was imported before, in this process
        pa.unregister_extension_type(BFloat16Type.NAME)
        pa.register_extension_type(BFloat16Type())


_register()


def schema_message(schema: pa.Schema) -> bytes:
    """The schema as an IPC message: what is pickled in its place, since pickled types forget names and metadata of
    nested fields."""
    return bytes(schema.serialize())


def read_schema(message: bytes) -> pa.Schema:
    """The schema of such a message."""
    return pa.ipc.read_schema(pa.py_buffer(message))


def normalise_schema(schema: pa.Schema) -> pa.Schema:
    """The schema under which a data set stores columns of `schema`.

    Dictionary and run-end encoding are decoded, views become large_utf8 and large_binary, list views lists, at any
    depth. Extension types keep their storage and metadata. Schema and field metadata stay.

    Raises:
        SchemaError: There are no columns, names are empty or not unique, or a type cannot be stored; the message
            names the column and its type.
    """
    if len(schema) == 0:
        raise SchemaError("there are no columns, and a data set needs at least one")
    seen: set[str] = set()
    for field in schema:
        if not field.name:
            raise SchemaError(f"column {len(seen)} has an empty name; give it one")
        if field.name in seen:
            raise SchemaError(f"two columns are named {field.name!r}; names must be unique: rename one")
        seen.add(field.name)
    return pa.schema([_normalise_field(field, field.name) for field in schema], metadata=schema.metadata)


def normalise_storable(schema: pa.Schema) -> tuple[pa.Schema, dict[str, SchemaError]]:
    """`normalise_schema` of the columns that can be stored, and why not, for each of the others, by name.

    Raises:
        SchemaError: There are no columns, or names are empty or not unique.
    """
    names_only = pa.schema([field.with_type(pa.null()) for field in schema])
    normalise_schema(names_only)
    fields, refused = [], {}
    for field in schema:
        try:
            fields.append(_normalise_field(field, field.name))
        except SchemaError as error:
            refused[field.name] = error
    return pa.schema(fields, metadata=schema.metadata), refused


def normalise_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type under which values of `kind` are stored; raises as `normalise_schema` does, naming `column`."""
    if isinstance(kind, pa.BaseExtensionType):
        # Over a storage that changes, an extension lives on as field metadata: see _normalise_field.
        storage = normalise_type(kind.storage_type, column)
        return kind if storage == kind.storage_type else storage
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return normalise_type(kind.value_type, column)
    if kind == pa.string_view():
        return pa.large_utf8()
    if kind == pa.binary_view():
        return pa.large_binary()
    if types.is_union(kind):
        raise SchemaError(
            f"column {column!r} is a union ({kind}), which cannot be stored; "
            "leave it out, or convert it to a struct with one nullable field for each alternative"
        )
    if types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if len(set(names)) != len(names):
            raise SchemaError(f"column {column!r}: a struct has two fields of one name ({kind}); rename one")
        return _unchanged_or(
            kind, pa.struct([_normalise_field(kind.field(i), column) for i in range(kind.num_fields)])
        )
    if types.is_map(kind):
        key, item = _normalise_field(kind.key_field, column), _normalise_field(kind.item_field, column)
        return _unchanged_or(kind, pa.map_(key, item, keys_sorted=kind.keys_sorted))
    make = _list_maker(kind)
    if make is not None:
        return _unchanged_or(kind, make(_normalise_field(kind.value_field, column)))
    if kind.num_fields:
        raise SchemaError(
            f"column {column!r} has the type {kind}, which cannot be stored; leave it out or cast it"
        )
    return kind


def _list_maker(kind: pa.DataType) -> Callable[[pa.Field], pa.DataType] | None:
    if types.is_list(kind) or types.is_list_view(kind):
        return lambda field: pa.list_(field)
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return lambda field: pa.large_list(field)
    if types.is_fixed_size_list(kind):
        return lambda field: pa.list_(field, kind.list_size)
    return None


def _unchanged_or(kind: pa.DataType, changed: pa.DataType) -> pa.DataType:
    # Type equality ignores the metadata of nested fields, which `kind` itself has for certain.
    return kind if kind == changed else changed


def _normalise_field(field: pa.Field, column: str) -> pa.Field:
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = normalise_type(kind.storage_type, column)
        if storage == kind.storage_type:
            return field
        # As another process would see it that does not know the extension: storage, and its name as metadata.
        name, serialized = _extension_of(kind)
        metadata = {**(field.metadata or {}), _EXTENSION_NAME: name, _EXTENSION_METADATA: serialized}
        return pa.field(field.name, storage, field.nullable, metadata)
    changed = normalise_type(kind, column)
    return field if changed is kind else field.with_type(changed)


def _extension_of(kind: pa.BaseExtensionType) -> tuple[bytes, bytes]:
    serialized = kind.__arrow_ext_serialize__() if isinstance(kind, pa.ExtensionType) else b""
    return kind.extension_name.encode(), serialized


def field_texts(schema: pa.Schema) -> list[FieldText]:
    """The columns for people, as `index.json` lists them."""
    return [FieldText(field.name, str(field.type), field.nullable) for field in schema]


@dataclass(frozen=True, slots=True)
class _Column:
    """How one column of the output is had: which input column, and the type to make of it (None: as it is)."""

    source: int
    target: pa.Field
    convert: bool


class Normaliser:
    """Makes batches of one schema fit the schema that a data set stores. One that fits passes through untouched.

    Attributes:
        source: The schema of what comes in.
        schema: The schema of what goes out.
    """

    def __init__(self, source: pa.Schema, target: pa.Schema | None = None) -> None:
        """Set up.

        Args:
            source: The schema of the batches to come.
            target: The normalised schema of a data set that they are to join. Columns are matched by name, and
                converted where no value can change: null to anything, numbers to wider ones, 32-bit to 64-bit offsets
                and back. None: the normal form of `source`.

        Raises:
            SchemaError: `source` cannot be stored, or does not fit `target`; the message names column and type.
        """
        normal = normalise_schema(source)
        self.source = source
        self.schema = normal if target is None else target
        if target is not None:
            _check_names(normal.names, target.names)
        self._columns = [self._plan(normal, field) for field in self.schema]
        self._same = not any(column.convert for column in self._columns) and normal.names == self.schema.names
        self._required = [i for i, field in enumerate(self.schema) if not field.nullable]
        self._decodes = any(not field.type.equals(normal.field(i).type) for i, field in enumerate(source))

    def _plan(self, normal: pa.Schema, target: pa.Field) -> _Column:
        index = normal.get_field_index(target.name)
        came, found = self.source.field(index), normal.field(index)
        same_extension = _extension_name(found) == _extension_name(target) != ""
        fits = same_extension and _storage(found.type) == _storage(target.type)
        if not fits and found.type != target.type and not _widens(found.type, target.type):
            raise SchemaError(
                f"column {target.name!r} is {came.type}, and the data set stores {target.type}; cast it first"
            )
        return _Column(index, target, came.type != target.type)

    def batches(self, batch: pa.RecordBatch, first_row: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a batch in the data set's schema: as they are, or decoded in batches that may be smaller.

        Args:
            batch: Of the schema `source`; metadata may differ.
            first_row: The number of its first row, for errors, where it is known.

        Raises:
            SchemaError: The batch has another schema, a null where none may be, or a value that does not fit.
        """
        if not batch.schema.equals(self.source):
            _check_names(batch.schema.names, self.source.names)
            raise SchemaError(_difference(batch.schema, self.source))
        if self._same:
            self._check_nulls(batch, first_row)
            yield batch
            return
        step = _DECODE_ROWS if self._decodes else max(1, batch.num_rows)
        for start in range(0, batch.num_rows, step):
            yield from self._converted(batch.slice(start, step), _plus(first_row, start))

    def _converted(self, batch: pa.RecordBatch, first_row: int | None) -> Iterator[pa.RecordBatch]:
        try:
            columns = [self._convert(batch.column(c.source), c) for c in self._columns]
        except _OverflowError:
            half = batch.num_rows // 2
            yield from self._converted(batch.slice(0, half), first_row)
            yield from self._converted(batch.slice(half), _plus(first_row, half))
            return
        converted = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self._check_nulls(converted, first_row)
        yield converted

    def _convert(self, array: pa.Array, column: _Column) -> pa.Array:
        if not column.convert:
            return array
        kind, name = column.target.type, column.target.name
        try:
            decoded = decode(array, normalise_type(array.type, name))
            if decoded.type == kind:
                return decoded
            if isinstance(decoded, pa.ExtensionArray):
                return decoded.storage
            if isinstance(kind, pa.BaseExtensionType):
                return pa.ExtensionArray.from_storage(kind, decoded)
            return decoded.cast(kind)
        except pa.ArrowInvalid as error:
            if len(array) > 1 and "overflow" in str(error):
                raise _OverflowError from error
            raise SchemaError(f"column {name!r}: {array.type} does not fit {kind}: {error}") from error
        except pa.ArrowNotImplementedError as error:
            raise SchemaError(f"column {name!r}: cannot make {kind} of {array.type}: {error}") from error

    def _check_nulls(self, batch: pa.RecordBatch, first_row: int | None) -> None:
        for i in self._required:
            column = batch.column(i)
            if column.null_count:
                row = _plus(first_row, column.is_null().index(True).as_py())
                raise SchemaError(
                    f"{'' if row is None else f'row {row}: '}column {self.schema.field(i).name!r} "
                    f"({self.schema.field(i).type}) is null, and its field says nullable=False"
                )


def _plus(first: int | None, count: int) -> int | None:
    return None if first is None else first + count


def _extension_name(field: pa.Field) -> str:
    """The name of a field's extension type, whether this process knows the type or not; empty where it has none."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return bytes((field.metadata or {}).get(_EXTENSION_NAME, b"")).decode(errors="replace")


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


class _OverflowError(Exception):
    """Too many values for 32-bit offsets: try with fewer rows."""


def _check_names(found: list[str], wanted: list[str]) -> None:
    if found == wanted or (sorted(found) == sorted(wanted)):
        return
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    parts = []
    if missing:
        parts.append(f"missing {', '.join(map(repr, missing))}")
    if extra:
        parts.append(f"not expected {', '.join(map(repr, extra))}")
    raise SchemaError(f"the columns are not the data set's: {'; '.join(parts)}")


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    for field in wanted:
        other = found.field(field.name)
        if not other.equals(field):
            return f"column {field.name!r} is {other.type}, and in the schema announced it is {field.type}"
    return f"the columns come in the order {found.names}, announced was {wanted.names}"


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `found` is a value of `wanted`, or the cast itself raises where one is not."""
    if found == wanted or types.is_null(found):
        return True
    if types.is_integer(found) and types.is_integer(wanted):
        if types.is_signed_integer(found) == types.is_signed_integer(wanted):
            return bool(found.bit_width <= wanted.bit_width)
        return bool(types.is_signed_integer(wanted) and found.bit_width < wanted.bit_width)
    if types.is_floating(found) and types.is_floating(wanted):
        return bool(found.bit_width <= wanted.bit_width)
    for group in ((pa.utf8(), pa.large_utf8()), (pa.binary(), pa.large_binary())):
        if found in group and wanted in group:
            return True
    if types.is_struct(found) and types.is_struct(wanted):
        pairs = [(found.field(i), wanted.field(i)) for i in range(min(found.num_fields, wanted.num_fields))]
        return found.num_fields == wanted.num_fields and all(
            a.name == b.name and _field_widens(a, b) for a, b in pairs
        )
    if types.is_map(found) and types.is_map(wanted):
        return _widens(found.key_type, wanted.key_type) and _field_widens(found.item_field, wanted.item_field)
    if types.is_fixed_size_list(found) and types.is_fixed_size_list(wanted):
        return found.list_size == wanted.list_size and _field_widens(found.value_field, wanted.value_field)
    lists = (types.is_list, types.is_large_list)
    if any(test(found) for test in lists) and any(test(wanted) for test in lists):
        return _field_widens(found.value_field, wanted.value_field)
    return False


def _field_widens(found: pa.Field, wanted: pa.Field) -> bool:
    return (wanted.nullable or not found.nullable) and _widens(found.type, wanted.type)
