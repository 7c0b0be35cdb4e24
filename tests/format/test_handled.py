"""What docs/format.md section 9 says a reader must handle, each as a file that pyarrow reads too."""

from __future__ import annotations

import io
import random
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import flat
import numpy as np
import pyarrow as pa
import pytest
from relaid import Layout, Parts, in_turn, relaid

import fastshard as fs
from fastshard.errors import UnsupportedError

TABLE = pa.table(
    {
        "x": pa.array([1, None, 3, 4, 5], pa.int64()),
        "d": pa.array([Decimal("1.25"), None, Decimal("-3.50"), Decimal("0.00"), Decimal("9.75")]),
        "s": ["one", "", None, "four ☃", "five"],
        "l": [[1.5, 2.5], [], None, [3.5], [4.5, 5.5, 6.5]],
        "n": [[["a"], []], [["b", None]], [], None, [["c"]]],
        "b": [True, False, None, True, True],
        "f": pa.array([[1, 2], [3, 4], None, [5, 6], [7, 8]], pa.list_(pa.int16(), 2)),
        "t": [{"u": 1, "v": "x"}, None, {"u": None, "v": "z"}, {"u": 4, "v": None}, {"u": 5, "v": "y"}],
        "m": pa.array(
            [[("k", 1)], [], None, [("p", None), ("q", 2)], [("r", 3)]], pa.map_(pa.utf8(), pa.int8())
        ),
    }
)
NUMBERS = TABLE.select(["x", "l", "s"])


def assert_reads(folder: Path, data: bytes, expected: pa.Table | None = None) -> None:
    """The file indexes, and reads in every way as pyarrow reads it."""
    path = folder / "file.arrow"
    path.write_bytes(data)
    theirs = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    rows = (theirs if expected is None else expected).to_pylist()
    assert theirs.to_pylist() == rows
    fs.index(path)
    for options in ({}, {"verify": "never"}, {"cache_bytes": 0}):
        with fs.open(folder, **options) as reader:
            assert reader.to_arrow().to_pylist() == rows
            assert reader.verify() == []
            samples = [plain(reader[i]) for i in range(len(reader))]
            assert samples == [plain(sample) for sample in reader] == rows
            back = list(range(len(rows)))[::-1]
            assert [plain(sample) for sample in reader.__getitems__(back)] == rows[::-1]
            for name in theirs.column_names:
                if theirs[name].null_count == 0:
                    batch = fs.open(folder, columns=[name], **options).take(back * 2)
                    assert [plain(sample)[name] for sample in batch.samples()] == [
                        row[name] for row in rows[::-1] * 2
                    ]


def plain(value: Any) -> Any:
    """A sample as pyarrow has it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("first", [0, 8, 24, 40])
def test_any_offset_that_is_a_multiple_of_eight(tmp_path: Path, compression: str | None, first: int) -> None:
    def layout(buffers: list[bytes]) -> Layout:
        return in_turn(buffers, 8, first)

    assert_reads(tmp_path, relaid(TABLE, compression=compression, layout=layout, shift=first), TABLE)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_buffers_in_any_order_with_gaps(tmp_path: Path, compression: str | None) -> None:
    def layout(buffers: list[bytes]) -> Layout:
        order = list(range(len(buffers)))
        random.Random(3).shuffle(order)
        body, starts = bytearray(), [0] * len(buffers)
        for i in order:
            body += b"\xaa" * (8 * (i % 3) + -len(body) % 8)
            starts[i] = len(body)
            body += buffers[i]
        return bytes(body + bytes(-len(body) % 8)), starts

    assert_reads(tmp_path, relaid(TABLE, compression=compression, layout=layout), TABLE)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_buffers_that_overlap(tmp_path: Path, compression: str | None) -> None:
    """Equal buffers are one and the same, across columns: the extents of columns overlap."""
    twice = pa.table({"a": NUMBERS["x"], "b": NUMBERS["x"], "s": NUMBERS["s"], "t": NUMBERS["s"]})

    def layout(buffers: list[bytes]) -> Layout:
        body, starts = in_turn(buffers)
        return body, [starts[buffers.index(buffer)] for buffer in buffers]

    assert_reads(tmp_path, relaid(twice, compression=compression, layout=layout), twice)


def test_a_buffer_that_lies_in_the_midst_of_another(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, 2, 3, 4]), "b": pa.array([2, 3, 4, 5])})

    def edit(parts: Parts) -> None:
        parts.buffers[1] += struct.pack("<q", 5)

    def layout(buffers: list[bytes]) -> Layout:
        body, starts = in_turn(buffers)
        starts[3] = starts[1] + 8
        return body, starts

    assert_reads(tmp_path, relaid(table, edit=edit, layout=layout), table)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("every", [1, 2])
def test_compressed_buffers_stored_raw(tmp_path: Path, compression: str, every: int) -> None:
    def edit(parts: Parts) -> None:
        codec = pa.Codec("lz4" if compression == "lz4" else "zstd")
        for i, buffer in enumerate(parts.buffers):
            if not buffer or i % every:
                continue
            size = struct.unpack_from("<q", buffer)[0]
            raw = buffer[8:] if size == -1 else codec.decompress(buffer[8:], size, asbytes=True)
            parts.buffers[i] = struct.pack("<q", -1) + raw

    assert_reads(tmp_path, relaid(TABLE, compression=compression, edit=edit), TABLE)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_of_length_0(tmp_path: Path, compression: str) -> None:
    """Written as nothing at all, as a length of 0, and as a length of 0 before a compressed nothing."""
    table = pa.table({name: pa.array(["", ""]) for name in "abc"})
    frame = struct.pack("<q", 0) + pa.Codec(compression).compress(b"", asbytes=True)
    # pyarrow reads LZ4 only with its frame.
    forms = [b"", frame if compression == "lz4" else struct.pack("<q", 0), frame]

    def edit(parts: Parts) -> None:
        for column, data in enumerate(forms):
            assert parts.buffers[3 * column + 2] in (b"", struct.pack("<q", 0))
            parts.buffers[3 * column + 2] = data

    assert_reads(tmp_path, relaid(table, compression=compression, edit=edit), table)


def test_absent_validity_counts_as_no_nulls(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1, 2, 3]), "s": ["a", "b", "c"]})

    def edit(parts: Parts) -> None:
        parts.nodes = [(length, 2) for length, _ in parts.nodes]
        assert parts.buffers[0] == parts.buffers[2] == b""

    path = tmp_path / "file.arrow"
    path.write_bytes(relaid(table, edit=edit))
    result = fs.index(path)
    assert result.rows == 3
    reader = fs.open(tmp_path)
    assert {name: stats.null_count for name, stats in reader.index.columns.items()} == {"x": 0, "s": 0}
    assert [plain(sample) for sample in reader] == table.to_pylist()
    assert reader.take([2, 0])["x"].tolist() == [3, 1]
    assert reader.take([2, 0])["s"] == ["c", "a"]


def test_a_null_count_that_is_wrong_is_not_trusted(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1, None, 3])})

    def edit(parts: Parts) -> None:
        parts.nodes = [(3, 0)]

    path = tmp_path / "file.arrow"
    path.write_bytes(relaid(table, edit=edit))
    try:
        fs.index(path)
    except fs.errors.CorruptError:
        return
    reader = fs.open(tmp_path)
    assert reader.index.columns["x"].null_count == 1
    assert [plain(sample)["x"] for sample in reader] == [1, None, 3]


@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8(), pa.list_(pa.int32()), pa.large_list(pa.utf8())])
def test_offsets_of_0_bytes_where_there_are_no_rows(tmp_path: Path, kind: pa.DataType) -> None:
    """An empty list's child of a variable length, too, has no offsets in some writers' files."""
    table = pa.table({"l": pa.array([[], []], pa.list_(kind)), "x": [1, 2]})

    def edit(parts: Parts) -> None:
        offsets = 3  # validity and offsets of the list, validity of its child
        assert not any(parts.buffers[offsets])
        parts.buffers[offsets] = b""
        if pa.types.is_large_list(kind):
            parts.buffers[offsets + 2] = b""

    assert_reads(tmp_path, relaid(table, edit=edit), table)


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("width", ["i", "q"])
def test_a_first_offset_that_is_not_0(tmp_path: Path, width: str, compression: str | None) -> None:
    table = pa.table({"s": ["one", "", "four"], "l": [[1, 2], [], [3]], "x": [1, 2, 3]})
    if width == "q":
        schema = pa.schema([("s", pa.large_utf8()), ("l", pa.large_list(pa.int64())), ("x", pa.int64())])
        table = table.cast(schema)

    def edit(parts: Parts) -> None:
        def later(buffer: bytes, count: int) -> bytes:
            values = struct.unpack_from(f"<4{width}", buffer)
            return struct.pack(f"<4{width}", *(value + count for value in values))

        def raw(buffer: bytes) -> bytes:
            if compression is None or not buffer:
                return buffer
            size = struct.unpack_from("<q", buffer)[0]
            return buffer[8:] if size == -1 else pa.Codec("zstd").decompress(buffer[8:], size, asbytes=True)

        def stored(buffer: bytes) -> bytes:
            return buffer if compression is None else struct.pack("<q", -1) + buffer

        buffers = [raw(buffer) for buffer in parts.buffers]
        buffers[1] = later(buffers[1], 5)
        buffers[2] = b"?????" + buffers[2]
        buffers[4] = later(buffers[4], 2)
        buffers[6] = struct.pack("<qq", -1, -2) + buffers[6]
        parts.nodes[2] = (5, 0)
        parts.buffers = [stored(buffer) if buffer else b"" for buffer in buffers]

    assert_reads(tmp_path, relaid(table, edit=edit, compression=compression), table)


@pytest.mark.parametrize("stream", [False, True])
def test_blocks_of_0_rows(tmp_path: Path, stream: bool) -> None:
    empty = TABLE.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], schema=TABLE.schema)]
    full = TABLE.combine_chunks().to_batches()
    path = tmp_path / "file.arrow"
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, TABLE.schema) as writer:
        for batch in [*empty, *full, *empty, *empty, *full, *empty]:
            writer.write_batch(batch)
    result = fs.index(path)
    assert (result.rows, result.shards) == (10, 1)
    reader = fs.open(tmp_path)
    assert [plain(sample) for sample in reader] == TABLE.to_pylist() * 2
    assert [plain(sample) for sample in reader.__getitems__([9, 0, 5])] == [
        TABLE.to_pylist()[i] for i in (4, 0, 0)
    ]
    assert reader.verify() == []


def test_custom_metadata_everywhere(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), metadata={"unit": "m"})], metadata={"who": "me"})
    path = tmp_path / "file.arrow"
    with pa.ipc.new_file(path, schema, metadata={"footer": "x" * 999}) as writer:
        for i in range(3):
            writer.write_batch(
                pa.record_batch([pa.array([i])], schema=schema), custom_metadata={"k" * i: "v" * 99 * i}
            )
    fs.index(path)
    reader = fs.open(tmp_path)
    assert [sample["x"] for sample in reader] == [0, 1, 2]
    assert reader.schema.equals(schema, check_metadata=True)


def test_endianness_given_as_little(tmp_path: Path) -> None:
    data = bytearray(relaid(NUMBERS))
    for schema in (flat.footer(data).table(1), flat.root(data, 16).table(2)):
        # Let the field, which is absent, lie where two bytes are 0.
        fields = range(4, 64, 2)
        other = next(at for at in fields if data[schema.position + at : schema.position + at + 2] == b"\0\0")
        struct.pack_into("<H", data, schema.slot(0), other)
    assert_reads(tmp_path, bytes(data), NUMBERS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("delta", [False, True])
def test_dictionaries_and_their_deltas_are_refused(tmp_path: Path, stream: bool, delta: bool) -> None:
    parts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "b", "c"]).dictionary_encode()]
    schema = pa.schema([("d", parts[0].type)])
    path = tmp_path / "file.arrow"
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=delta)
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, schema, options=options) as writer:
        for part in parts if stream or delta else parts[:1]:
            writer.write_batch(pa.record_batch([part], schema=schema))
    path.write_bytes(sink.getvalue())
    with pytest.raises(UnsupportedError, match=r"file\.arrow.*'d'.*dictionar.*fastshard convert"):
        fs.index(path)


@pytest.mark.parametrize("size", [1, 12, 13, 40])
def test_views(tmp_path: Path, size: int) -> None:
    """Short values lie in the view, long ones in one of several data buffers."""
    words = [("ab☃" * size)[: size + i] for i in range(4)]
    text = pa.array([*words, None, ""], pa.string_view())
    data = pa.array([word.encode() for word in words] + [b"", None], pa.binary_view())
    nested = pa.array([[words[0], None], [], words[1:], None, [], []], pa.list_(pa.string_view()))
    lists = pa.array([[1, 2], [], None, [3], [4, 5, 6], [7]], pa.list_view(pa.int32()))
    large = pa.array([["x"], [], None, ["y", None], [], []], pa.large_list_view(pa.utf8()))
    table = pa.table({"text": text, "data": data, "nested": nested, "lists": lists, "large": large})
    both = pa.concat_tables([table, table.slice(2)])  # more data buffers
    for compression in (None, "zstd"):
        folder = tmp_path / str(compression)
        folder.mkdir()
        assert_reads(folder, relaid(both, compression=compression), both)
