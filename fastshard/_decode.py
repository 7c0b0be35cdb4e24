"""Arrays decoded: dictionaries, runs and views, at any depth, whatever the offset of the array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as types

__all__ = ["decode"]


def decode(array: pa.Array, target: pa.DataType) -> pa.Array:
    """An equal array of the type that `fastshard.schema.normalise_type` gives for its type.

    Raises:
        pa.ArrowInvalid: The values do not fit 32-bit offsets ("overflow"): try with fewer rows.
    """
    kind = array.type
    if kind == target:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return decode(array.storage, target)
    if types.is_dictionary(kind):
        # The dictionary first: its values may be encoded themselves, and are fewer.
        values = decode(array.dictionary, target)
        return _take(values, array.indices)
    if types.is_run_end_encoded(kind):
        return _take(decode(array.values, target), pa.array(_runs(array), pa.int64()))
    if kind == pa.string_view() or kind == pa.binary_view():
        return _from_view(array, target)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _from_list_view(array, target)
    return _with_children(array, target)


def _take(values: pa.Array, indices: pa.Array) -> pa.Array:
    taken = values.take(indices)
    if isinstance(taken, pa.ChunkedArray):
        return taken.combine_chunks()
    return taken


def _runs(array: pa.Array) -> np.ndarray:
    """For each element of a run-end encoded array, the place of its value: int64 [len]."""
    ends = np.clip(array.run_ends.to_numpy().astype(np.int64) - array.offset, 0, len(array))
    return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))


def _from_view(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowNotImplementedError:  # before pyarrow 18
        return pa.array(array.to_pylist(), target)


def _from_list_view(array: pa.Array, target: pa.DataType) -> pa.Array:
    valid = np.asarray(array.is_valid())
    starts = np.asarray(array.offsets)[: len(array)].astype(np.int64)
    sizes = np.where(valid, np.asarray(array.sizes), 0).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    wide = types.is_large_list(target)
    if not wide and offsets[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid("offset overflow while decoding a list view")
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    child = _take(decode(array.values, target.value_type), pa.array(places, pa.int64()))
    offsets_buffer = pa.py_buffer(offsets.astype(np.int64 if wide else np.int32))
    return pa.Array.from_buffers(target, len(array), [_bitmap(valid), offsets_buffer], children=[child])


def _bitmap(valid: np.ndarray) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _with_children(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A nested array of which only descendants change."""
    # As one array of its own, its children begin where it begins and hold nothing else.
    whole = pa.concat_arrays([array])
    kind = whole.type
    validity = whole.buffers()[0]
    if types.is_struct(kind):
        children = [decode(whole.field(i), target.field(i).type) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(target, len(whole), [validity], whole.null_count, 0, children)
    if types.is_fixed_size_list(kind):
        child = decode(whole.values, target.value_type)
        return pa.Array.from_buffers(target, len(whole), [validity], whole.null_count, 0, [child])
    buffers = [validity, whole.buffers()[1]]
    if types.is_map(kind):
        keys, items = decode(whole.keys, target.key_type), decode(whole.items, target.item_type)
        fields = [target.key_field, target.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return pa.Array.from_buffers(target, len(whole), buffers, whole.null_count, 0, [entries])
    if not (types.is_list(kind) or types.is_large_list(kind)):
        raise pa.ArrowNotImplementedError(f"decoding {kind}")
    child = decode(whole.values, target.value_type)
    return pa.Array.from_buffers(target, len(whole), buffers, whole.null_count, 0, [child])
