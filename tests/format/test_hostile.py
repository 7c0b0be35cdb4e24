"""One hostile file for each way in which bytes can break the format: an error with its code, never a value."""

from __future__ import annotations

import io
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import flat
import numpy as np
import pyarrow as pa
import pytest

import fastshard as fs
from fastshard import _core
from fastshard.errors import CorruptError, Error, UnsupportedError

TABLE = pa.table(
    {
        "x": pa.array(range(100), pa.int64()),
        "s": [f"text {i}" for i in range(100)],
        "f": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(200.0)), 2),
    }
)


def file_of(table: pa.Table | pa.Schema, compression: str | None = None) -> bytearray:
    sink = io.BytesIO()
    schema = table if isinstance(table, pa.Schema) else table.schema
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        if not isinstance(table, pa.Schema):
            writer.write_table(table)
    return bytearray(sink.getvalue())


class Batch:
    """The first record batch of a file."""

    def __init__(self, data: bytearray) -> None:
        blocks = flat.footer(data).vector(3) + 4
        self.offset, self.metadata, _, self.length = struct.unpack_from("<qiiq", data, blocks)
        self.struct_at = blocks
        self.message = flat.root(data, self.offset + 8)
        self.table = self.message.table(2)
        self.body = self.offset + self.metadata
        self.data = data

    def node(self, index: int) -> int:
        return self.table.vector(1) + 4 + 16 * index

    def buffer(self, index: int) -> int:
        return self.table.vector(2) + 4 + 16 * index

    def bytes_of(self, index: int) -> int:
        """Where a buffer's bytes begin in the file."""
        return self.body + int(struct.unpack_from("<q", self.data, self.buffer(index))[0])


def patch(data: bytearray, at: int, form: str, value: int) -> bytearray:
    struct.pack_into(form, data, at, value)
    return data


def file_too_short() -> bytearray:
    return bytearray(b"ARROW1\0\0")


def file_magic() -> bytearray:
    return file_of(TABLE)[:-1]


def footer_length() -> bytearray:
    data = file_of(TABLE)
    return patch(data, len(data) - 10, "<i", 1 << 30)


def footer_block() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).struct_at, "<q", 1 << 40)


def flatbuffer() -> bytearray:
    data = file_of(TABLE)
    return patch(data, flat.footer_begin(data), "<I", 0xFFFFFFF0)


def metadata_version() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).message.at(0), "<h", 77)


def schema_missing() -> bytearray:
    data = file_of(TABLE)
    return patch(data, flat.footer(data).slot(1), "<H", 0)


def schema_differs() -> bytearray:
    data = file_of(TABLE)
    leading = flat.root(data, 16).table(2).element(1, 0)
    return patch(data, leading.follow(0) + 4, "<B", ord("y"))


def schema_type() -> bytearray:
    data = file_of(TABLE)
    return patch(data, flat.footer(data).table(1).element(1, 0).at(2), "<B", 99)


def schema_depth() -> bytearray:
    kind = pa.int8()
    for _ in range(70):
        kind = pa.list_(kind)
    return file_of(pa.schema([("deep", kind)]))


def schema_children() -> bytearray:
    data = file_of(TABLE)
    return patch(data, flat.footer(data).table(1).element(1, 2).slot(5), "<H", 0)


def message_bounds() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).offset + 4, "<I", 1 << 30)


def message_kind() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).message.at(1), "<B", 1)


def body_bounds() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).message.at(3), "<q", 1 << 40)


def node_count() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).table.vector(1), "<I", 3)


def node_length() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).node(0) + 8, "<q", -1)


def buffer_count() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).table.vector(2), "<I", 4)


def buffer_bounds() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).buffer(1), "<q", 1 << 40)


def buffer_alignment() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).buffer(1), "<q", 4)


def buffer_size() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).buffer(1) + 8, "<q", 8)


def compression_kind() -> bytearray:
    data = file_of(TABLE, "zstd")
    return patch(data, Batch(data).table.table(3).at(0), "<b", 7)


def compressed_length() -> bytearray:
    data = file_of(TABLE, "lz4")
    return patch(data, Batch(data).bytes_of(1), "<q", -5)


def decompression() -> bytearray:
    data = file_of(TABLE, "zstd")
    at = Batch(data).bytes_of(1) + 8
    data[at + 12 : at + 60] = b"\xff" * 48
    return data


def offsets() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).bytes_of(3) + 4 * 50, "<i", 1 << 20)


def child_length() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).node(3), "<q", 150)


def view() -> bytearray:
    data = file_of(pa.table({"v": pa.array(["a long text in a view " * 3], pa.string_view())}))
    return patch(data, Batch(data).bytes_of(1) + 8, "<i", 99)


def utf8() -> bytearray:
    data = file_of(TABLE)
    return patch(data, Batch(data).bytes_of(4) + 3, "<B", 0xFF)


MAKERS: list[Callable[[], bytearray]] = [
    file_too_short,
    file_magic,
    footer_length,
    footer_block,
    flatbuffer,
    metadata_version,
    schema_missing,
    schema_differs,
    schema_type,
    schema_depth,
    schema_children,
    message_bounds,
    message_kind,
    body_bounds,
    node_count,
    node_length,
    buffer_count,
    buffer_bounds,
    buffer_alignment,
    buffer_size,
    compression_kind,
    compressed_length,
    decompression,
    offsets,
    child_length,
    view,
    utf8,
]


def test_each_code_has_a_hostile_file() -> None:
    assert sorted(maker.__name__ for maker in MAKERS) == sorted(_core.fault_codes())


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_a_hostile_file_is_refused_with_its_code(tmp_path: Path, maker: Callable[[], bytearray]) -> None:
    path = tmp_path / "hostile.arrow"
    path.write_bytes(maker())
    with pytest.raises(CorruptError, match=r"^hostile\.arrow") as caught:
        _core.index_file(str(path))
    assert caught.value.code == maker.__name__


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_files_that_are_patched_are_good(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "good.arrow"
    path.write_bytes(file_of(TABLE, compression))
    assert _core.index_file(str(path)).rows == 100


UNSUPPORTED = {
    "dictionary": pa.table({"d": pa.array(["a", "b", "a"]).dictionary_encode()}),
    "run-end": pa.table({"r": pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2])}),
    "union": pa.table({"u": pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])}),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_valid_but_not_read_names_the_way_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / "other.arrow"
    path.write_bytes(file_of(UNSUPPORTED[name]))
    with pytest.raises(UnsupportedError, match="fastshard convert"):
        _core.index_file(str(path))


def test_big_endian_data_are_refused(tmp_path: Path) -> None:
    data = file_of(TABLE)
    schema = flat.footer(data).table(1)
    # Little-endian is the default and stands nowhere: let the field lie where another one has a number that is not 0.
    other = schema.at(1) - schema.position
    assert struct.unpack_from("<h", data, schema.at(1))[0] != 0
    path = tmp_path / "big.arrow"
    path.write_bytes(patch(data, schema.slot(0), "<H", other))
    with pytest.raises(UnsupportedError, match="big-endian"):
        _core.index_file(str(path))


@pytest.fixture(scope="module", params=["none", "zstd"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / request.param
    fs.write(TABLE, path, compression=request.param, block_bytes=1024, shard_bytes=2048)
    return path


def test_a_flipped_byte_is_an_error_or_changes_nothing(small: Path, tmp_path: Path) -> None:
    """Every file of a data set, place after place: an error, or the right values; `verify` sees each flip."""
    expected = fs.open(small).to_arrow().combine_chunks()
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    names = [name.name for name in sorted(copy.iterdir()) if name.stat().st_size]
    assert sum(name.startswith("shard-") for name in names) >= 2
    for name in names:
        good = (copy / name).read_bytes()
        step = max(1, len(good) // 97)  # a prime: all kinds of places
        for at in range(0, len(good), step):
            (copy / name).write_bytes(good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1 :])
            try:
                reader = fs.open(copy, verify="once")
                batch = reader.take(np.arange(len(reader)))
            except Error:
                continue
            assert batch["x"].tolist() == expected["x"].to_pylist(), (name, at)
            assert batch["s"] == expected["s"].to_pylist(), (name, at)
            if name.startswith(("shard-", "blocks-")):
                assert reader.verify(), f"a flip at {at} of {name} went unseen"
        (copy / name).write_bytes(good)
    assert fs.open(copy).verify() == []


def broken_copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy"))


def test_a_shard_that_is_cut_missing_or_swapped_is_named(small: Path, tmp_path: Path) -> None:
    copy = broken_copy(small, tmp_path)
    first, second = sorted(copy.glob("shard-*"))[:2]
    good = first.read_bytes()
    first.write_bytes(good[: len(good) // 2])
    with pytest.raises(CorruptError, match=first.name):
        fs.open(copy)[0]
    first.unlink()
    with pytest.raises(FileNotFoundError, match=first.name):
        fs.open(copy)[0]
    first.write_bytes(second.read_bytes())
    with pytest.raises(CorruptError, match=first.name):
        fs.open(copy, verify="once").take([0, 1])
    faults = fs.open(copy).verify()
    assert {fault.file for fault in faults} == {first.name}
    first.write_bytes(good)
    assert fs.open(copy).verify() == []


def test_a_newer_version_is_refused_by_name(small: Path, tmp_path: Path) -> None:
    copy = broken_copy(small, tmp_path)
    index = copy / "index.json"
    index.write_text(index.read_text().replace('"version": 1', '"version": 2', 1))
    with pytest.raises(UnsupportedError, match=r"version 2.*upgrade"):
        fs.open(copy)
