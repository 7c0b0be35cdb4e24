"""Any Arrow table: types from hypothesis, values from a seed, with nulls, chunks, offsets and rubbish behind nulls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

WORDS = ["", "a", "snow ☃", "\U0001f600 grin", "tab\tand\nline", "x" * 40, "nul\0inside"]

LEAVES = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(7, 2), pa.decimal128(38, 10), pa.decimal256(50, 3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns")),
    *(
        pa.duration("s"),
        pa.duration("ms"),
        pa.duration("us"),
        pa.duration("ns"),
        pa.month_day_nano_interval(),
    ),
    *(pa.utf8(), pa.large_utf8(), pa.binary(), pa.large_binary(), pa.binary(5), pa.binary(0)),
    *(pa.string_view(), pa.binary_view()),
]
ENCODABLE = [pa.int32(), pa.utf8(), pa.binary(), pa.float64(), pa.decimal128(7, 2), pa.timestamp("us")]


def _struct(kinds: list[pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)])


def _map(kinds: tuple[pa.DataType, pa.DataType]) -> pa.DataType:
    return pa.map_(*kinds)


def arrow_types(*, views: bool = True, encoded: bool = True) -> st.SearchStrategy[pa.DataType]:
    """Types nested up to three deep; with `views` also those, with `encoded` also dictionaries and runs."""
    leaves = [kind for kind in LEAVES if views or "view" not in str(kind)]
    leaf: st.SearchStrategy[pa.DataType] = st.sampled_from(leaves)
    if encoded:
        dictionary = st.builds(
            pa.dictionary, st.sampled_from([pa.int8(), pa.int32()]), st.sampled_from(ENCODABLE)
        )
        runs = st.builds(
            pa.run_end_encoded, st.sampled_from([pa.int16(), pa.int32()]), st.sampled_from(ENCODABLE)
        )
        leaf = leaf | dictionary | runs

    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        made = [
            inner.map(pa.list_),
            inner.map(pa.large_list),
            st.builds(pa.list_, inner, st.integers(1, 3)),
            st.lists(inner, min_size=0, max_size=3).map(_struct),
            st.tuples(st.sampled_from([pa.utf8(), pa.int32()]), inner).map(_map),
        ]
        if views:
            made += [inner.map(pa.list_view), inner.map(pa.large_list_view)]
        return st.one_of(made)

    return st.recursive(leaf, nested, max_leaves=4)


@st.composite
def arrow_tables(
    draw: st.DrawFn, *, views: bool = True, encoded: bool = True, max_rows: int = 40
) -> pa.Table:
    """A table of one to four columns, each in chunks of its own, each chunk a slice of something larger."""
    kinds = draw(st.lists(arrow_types(views=views, encoded=encoded), min_size=1, max_size=4))
    rows = draw(st.integers(0, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = []
    for kind in kinds:
        cuts = sorted({0, rows, *(draw(st.lists(st.integers(0, rows), max_size=3)))})
        chunks = []
        for start, stop in pairwise(cuts):
            before, after = int(rng.integers(0, 4)), int(rng.integers(0, 4))
            chunks.append(
                random_array(kind, before + (stop - start) + after, rng).slice(before, stop - start)
            )
        columns.append(pa.chunked_array(chunks, kind))
    return pa.table(columns, names=[f"c{i} {'é' * i}" for i in range(len(kinds))])


def random_array(kind: pa.DataType, rows: int, rng: np.random.Generator) -> pa.Array:
    """An array of a type; a third of its values null where the type has nulls."""
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    valid = rng.random(rows) > 1 / 3 if rng.random() > 0.3 else np.ones(rows, bool)
    if pa.types.is_dictionary(kind):
        values = random_array(kind.value_type, 5, rng)
        indices = pa.array(rng.integers(0, 5, rows), kind.index_type, mask=~valid)
        return pa.DictionaryArray.from_arrays(indices, values)
    if pa.types.is_run_end_encoded(kind):
        ends = np.unique(np.append(rng.integers(1, rows + 1, 4), rows)) if rows else np.zeros(0, int)
        children = [pa.array(ends, kind.run_end_type), random_array(kind.value_type, len(ends), rng)]
        return pa.RunEndEncodedArray.from_buffers(kind, rows, [None], 0, 0, children)
    if pa.types.is_struct(kind):
        children = [random_array(kind.field(i).type, rows, rng) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, rows, [_bitmap(valid)], children=children)
    if pa.types.is_fixed_size_list(kind):
        child = random_array(kind.value_type, rows * kind.list_size, rng)
        return pa.Array.from_buffers(kind, rows, [_bitmap(valid)], children=[child])
    for test, make in _VARIABLE:
        if test(kind):
            return make(kind, rows, valid, rng)
    return _leaf(kind, rows, valid, rng)


def _bitmap(valid: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _lists(kind: pa.DataType, rows: int, valid: np.ndarray, rng: np.random.Generator) -> pa.Array:
    lengths = rng.integers(0, 4, rows)  # of null lists too: what lies behind a null is nobody's
    offsets = np.concatenate([[0], np.cumsum(lengths)]) + 2
    total = int(offsets[-1]) + 1
    if pa.types.is_map(kind):
        keys = random_array(kind.key_type, total, rng)
        keys = keys.fill_null("k" if pa.types.is_string(kind.key_type) else 7)
        entries = pa.StructArray.from_arrays(
            [keys, random_array(kind.item_type, total, rng)], fields=[kind.key_field, kind.item_field]
        )
        child = entries
    else:
        child = random_array(kind.value_type, total, rng)
    width = np.int64 if pa.types.is_large_list(kind) else np.int32
    return pa.Array.from_buffers(
        kind, rows, [_bitmap(valid), pa.py_buffer(offsets.astype(width))], children=[child]
    )


def _list_views(kind: pa.DataType, rows: int, valid: np.ndarray, rng: np.random.Generator) -> pa.Array:
    child = random_array(kind.value_type, 12, rng)
    width = np.int64 if pa.types.is_large_list_view(kind) else np.int32
    offsets = rng.integers(0, 9, rows).astype(width)  # out of order, and overlapping
    sizes = rng.integers(0, 4, rows).astype(width)
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(sizes)]
    return pa.Array.from_buffers(kind, rows, buffers, children=[child])


def _texts(kind: pa.DataType, rows: int, valid: np.ndarray, rng: np.random.Generator) -> pa.Array:
    words = [WORDS[i] if ok else None for i, ok in zip(rng.integers(0, len(WORDS), rows), valid, strict=True)]
    if "string" in str(kind):
        return pa.array(words, kind)
    return pa.array([None if word is None else word.encode() + b"\xff" for word in words], kind)


_VARIABLE: list[tuple[Callable[[pa.DataType], bool], Callable[..., pa.Array]]] = [
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind), _lists),
    (lambda kind: pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind), _list_views),
    (lambda kind: str(kind) in {"string", "large_string", "string_view"}, _texts),
    (lambda kind: str(kind) in {"binary", "large_binary", "binary_view"}, _texts),
]


def _leaf(kind: pa.DataType, rows: int, valid: np.ndarray, rng: np.random.Generator) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(rng.random(rows) > 0.5, mask=~valid)
    if pa.types.is_time(kind):
        steps = {"s": 86_400, "ms": 86_400_000, "us": 86_400 * 10**6, "ns": 86_400 * 10**6}[kind.unit]
        numbers = rng.integers(0, steps, rows) * (
            1000 if kind.unit == "ns" else 1
        )  # Python's times have no ns
        return _of_numbers(kind, numbers, valid)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        per_day = 86_400_000 if pa.types.is_date64(kind) else 1
        spread = {"s": 10**9, "ms": 10**12, "us": 10**15}.get(getattr(kind, "unit", ""), 10**4)
        return _of_numbers(kind, rng.integers(-spread, spread, rows) * per_day, valid)
    if pa.types.is_decimal(kind):
        digits = min(kind.precision, 18)
        numbers = pa.array(rng.integers(-(10**digits) + 1, 10**digits, rows), mask=~valid)
        whole = pa.decimal256(20, 0) if kind.bit_width == 256 else pa.decimal128(19, 0)
        unscaled = numbers.cast(whole)
        return pa.Array.from_buffers(kind, rows, unscaled.buffers(), unscaled.null_count, unscaled.offset)
    # Any bits at all: signalling NaNs, denormals, and what lies behind nulls.
    size = kind.bit_width // 8 * rows
    if pa.types.is_interval(kind):
        parts = np.zeros(rows, np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")]))
        for name in ("months", "days", "nanos"):
            parts[name] = rng.integers(-1000, 1000, rows)
        return pa.Array.from_buffers(kind, rows, [_bitmap(valid), pa.py_buffer(parts.tobytes())])
    return pa.Array.from_buffers(kind, rows, [_bitmap(valid), pa.py_buffer(rng.bytes(size))])


def _of_numbers(kind: pa.DataType, numbers: np.ndarray, valid: np.ndarray) -> pa.Array:
    width = np.int64 if kind.bit_width == 64 else np.int32
    return pa.Array.from_buffers(kind, len(numbers), [_bitmap(valid), pa.py_buffer(numbers.astype(width))])
