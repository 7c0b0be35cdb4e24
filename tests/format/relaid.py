"""Lays the buffers of an Arrow file's record batch out anew, in ways that pyarrow reads and does not write."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass

import flat
import pyarrow as pa


@dataclass
class Parts:
    """What a record batch is made of.

    Attributes:
        nodes: Length and null count of each field, depth first.
        buffers: The bytes of each buffer, compressed where the file is.
    """

    nodes: list[tuple[int, int]]
    buffers: list[bytes]


# The body, and where in it each buffer begins.
Layout = tuple[bytes, list[int]]


def in_turn(buffers: list[bytes], align: int = 8, first: int = 0) -> Layout:
    """One after the other; empty ones at the end of the body, as some writers have them."""
    body = bytearray(first)
    starts = []
    for buffer in buffers:
        body += bytes(-len(body) % align)
        starts.append(len(body))
        body += buffer
    body += bytes(-len(body) % 8)
    return bytes(body), [
        len(body) if not buffer else start for buffer, start in zip(buffers, starts, strict=True)
    ]


def relaid(
    table: pa.Table,
    *,
    compression: str | None = None,
    edit: Callable[[Parts], None] = lambda parts: None,
    layout: Callable[[list[bytes]], Layout] = in_turn,
    shift: int = 0,
) -> bytes:
    """An Arrow file of one record batch.

    Args:
        table: What pyarrow writes first.
        compression: Of its buffers.
        edit: Changes the parts that pyarrow wrote, not their number.
        layout: Where the buffers go.
        shift: Bytes, a multiple of 8, by which the record batch's message begins later in the file.
    """
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])
    data = bytearray(sink.getvalue())
    block = flat.footer(data).vector(3) + 4
    offset, metadata, _, length = struct.unpack_from("<qiiq", data, block)
    message = flat.root(data, offset + 8)
    batch = message.table(2)
    nodes, buffers = batch.vector(1), batch.vector(2)
    body = offset + metadata
    parts = Parts([], [])
    for i in range(struct.unpack_from("<I", data, nodes)[0]):
        parts.nodes.append(struct.unpack_from("<qq", data, nodes + 4 + 16 * i))
    for i in range(struct.unpack_from("<I", data, buffers)[0]):
        start, size = struct.unpack_from("<qq", data, buffers + 4 + 16 * i)
        parts.buffers.append(bytes(data[body + start : body + start + size]))
    counts = len(parts.nodes), len(parts.buffers)
    edit(parts)
    assert counts == (len(parts.nodes), len(parts.buffers))
    made, starts = layout(parts.buffers)
    for i, node in enumerate(parts.nodes):
        struct.pack_into("<qq", data, nodes + 4 + 16 * i, *node)
    for i, (start, buffer) in enumerate(zip(starts, parts.buffers, strict=True)):
        struct.pack_into("<qq", data, buffers + 4 + 16 * i, start, len(buffer))
    struct.pack_into("<q", data, message.at(3), len(made))
    struct.pack_into("<qiiq", data, block, offset + shift, metadata, 0, len(made))
    return bytes(data[:offset] + bytes(shift) + data[offset:body] + made + data[body + length :])
