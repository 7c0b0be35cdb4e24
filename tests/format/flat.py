"""Finds the fields of FlatBuffers tables in the bytes of an Arrow file, so that tests can break one at a time."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table at `position` of `data`."""

    data: bytearray
    position: int

    def slot(self, field: int) -> int:
        """Where the vtable says where the field lies."""
        vtable = self.position - struct.unpack_from("<i", self.data, self.position)[0]
        return vtable + 4 + 2 * field

    def at(self, field: int) -> int:
        """Where the field lies; it must be there."""
        offset = struct.unpack_from("<H", self.data, self.slot(field))[0]
        assert offset, f"field {field} is absent"
        return self.position + offset

    def follow(self, field: int) -> int:
        at = self.at(field)
        return at + struct.unpack_from("<I", self.data, at)[0]

    def table(self, field: int) -> Table:
        return Table(self.data, self.follow(field))

    def vector(self, field: int) -> int:
        """Where the vector's length stands; its elements follow."""
        return self.follow(field)

    def element(self, field: int, index: int) -> Table:
        at = self.vector(field) + 4 + 4 * index
        return Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])


def root(data: bytearray, begin: int) -> Table:
    """The root table of the flatbuffer that begins at `begin`."""
    return Table(data, begin + struct.unpack_from("<I", data, begin)[0])


def footer(data: bytearray) -> Table:
    """The footer of an Arrow IPC file."""
    return root(data, footer_begin(data))


def footer_begin(data: bytearray) -> int:
    length = struct.unpack_from("<i", data, len(data) - 10)[0]
    return len(data) - 10 - int(length)
