"""Batches on their way from a DataLoader worker to the process that trains.

torch moves each tensor of a worker to /dev/shm and sends a descriptor for it. Here a whole batch lies in one piece of
memory that both processes map: it was gathered there, nothing of it is copied, one short message says where each tensor
is, and the worker gathers into it again once the last tensor is gone. The memory has no name and takes no room in
/dev/shm, which is small in many containers.

Only `multiprocessing`'s pickler, which its queues use, does this; `pickle.dumps(batch)` is a copy as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch

from fastshard import _core
from fastshard._shared_room import check_room, raise_received
from fastshard.batch import ATTRIBUTES, Batch, map_tensors, register_collate
from fastshard.errors import Error, StorageError
from fastshard.forms import ColumnForm

__all__ = ["make_pool", "register"]

_MANY_BYTES = 1 << 16  # so many of a list of bytes are worth a place of their own


def make_pool() -> _core.SharedPool | None:
    """Memory for batches of a worker; None where this system has none that processes can share without a name."""
    if not sys.platform.startswith("linux") or not os.access(f"/proc/{os.getppid()}/fd", os.R_OK):
        return None
    pool = _core.SharedPool()
    try:
        pool.batch(1).lease(1)
    except Error:
        return None
    return pool


def register() -> None:
    """From now on queues of multiprocessing hand batches over so."""
    ForkingPickler.register(Batch, _reduce)


class _Place(NamedTuple):
    """Where a tensor lies: in which of the pieces that were sent, at which byte."""

    piece: int
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Bytes(NamedTuple):
    """Where the values of a list of bytes lie, one after the other, and how long each is; -1: None."""

    place: _Place
    lengths: list[int]


def _reduce(batch: Batch) -> tuple[Any, ...]:
    shared = batch._shared
    # The pickler runs in a thread of the queue, which would print an error and lose the batch: the consumer, who waits
    # for it, is to raise it.
    try:
        if shared is not None:
            try:
                reduced = _Sender(shared).reduce(batch)
            except StorageError:
                reduced = None  # no more such memory; torch's way may have some
            if reduced is not None:
                return reduced
        check_room(batch)
    except Error as error:
        return raise_received, (error,)
    return batch.__reduce__()


class _Sender:
    """One batch being pickled."""

    def __init__(self, shared: _core.SharedBatch) -> None:
        self._shared = shared
        self._pieces = shared.pieces
        self._numbers: dict[int, int] = {}  # piece -> its place among those that are sent

    def reduce(self, batch: Batch) -> tuple[Any, ...] | None:
        """None where the batch's memory was sent before."""
        columns = {name: self._value(value) for name, value in batch.items()}
        attributes = [map_tensors(getattr(batch, name), self._place) for name in ATTRIBUTES]
        tickets = self._shared.send(list(self._numbers))
        if tickets is None:
            return None
        forms = {name: form for name, form in batch._forms.items() if _matters(form)}
        return _rebuild, (tickets, columns, attributes, forms)

    def _value(self, value: Any) -> Any:
        if type(value) is list and all(type(item) is bytes or item is None for item in value):
            lengths = [-1 if item is None else len(item) for item in value]
            total = sum(lengths) + lengths.count(-1)
            return self._bytes(value, lengths, total) if total >= _MANY_BYTES else value
        return map_tensors(value, self._place)

    def _bytes(self, values: list[bytes | None], lengths: list[int], total: int) -> _Bytes:
        piece, offset, room = self._shared.lease(total)
        view, at = room.data, 0
        for item in values:
            if item:
                view[at : at + len(item)] = item
                at += len(item)
        number = self._numbers.setdefault(piece, len(self._numbers))
        return _Bytes(_Place(number, offset, torch.uint8, (total,), (1,)), lengths)

    def _place(self, tensor: torch.Tensor) -> Any:
        if (
            type(tensor) is not torch.Tensor
            or tensor.layout != torch.strided
            or tensor.device.type != "cpu"
            or tensor.requires_grad
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            return tensor  # torch's way
        address = tensor.data_ptr()
        for piece, (begin, size) in enumerate(self._pieces):
            if begin <= address < begin + size:
                return self._at(piece, address - begin, tensor)
        tensor = tensor.contiguous()
        bytes_ = tensor.numel() * tensor.element_size()
        if bytes_ == 0:
            return _Place(-1, 0, tensor.dtype, tuple(tensor.shape), tensor.stride())
        piece, offset, room = self._shared.lease(bytes_)
        torch.from_numpy(room).copy_(tensor.view(-1).view(torch.uint8))
        return self._at(piece, offset, tensor)

    def _at(self, piece: int, offset: int, tensor: torch.Tensor) -> _Place:
        number = self._numbers.setdefault(piece, len(self._numbers))
        return _Place(number, offset, tensor.dtype, tuple(tensor.shape), tensor.stride())


def _rebuild(
    tickets: list[tuple[int, int, int, int, int]],
    columns: Mapping[str, Any],
    attributes: list[Any],
    forms: Mapping[str, ColumnForm],
) -> Batch:
    register_collate()
    pieces = [_core.ReceivedMemory(*ticket) for ticket in tickets]

    def tensor_at(place: Any) -> Any:
        if type(place) is not _Place:
            return place
        if place.piece < 0:
            return torch.empty(place.shape, dtype=place.dtype)
        extent = 1 + sum((n - 1) * step for n, step in zip(place.shape, place.stride, strict=True))
        if min(place.shape, default=1) == 0:
            return torch.empty(place.shape, dtype=place.dtype)
        flat = torch.frombuffer(pieces[place.piece], dtype=place.dtype, count=extent, offset=place.offset)
        return flat.as_strided(place.shape, place.stride)  # of a contiguous tensor: the whole of it

    def value_at(value: Any) -> Any:
        return _bytes_of(pieces, value) if type(value) is _Bytes else map_tensors(value, tensor_at, _Place)

    return Batch(
        {name: value_at(value) for name, value in columns.items()},
        forms=forms,
        **{
            name: map_tensors(value, tensor_at, _Place)
            for name, value in zip(ATTRIBUTES, attributes, strict=True)
        },
    )


def _bytes_of(pieces: list[_core.ReceivedMemory], sent: _Bytes) -> list[bytes | None]:
    """The values as objects of their own: the memory returns to the worker."""
    whole = memoryview(pieces[sent.place.piece])
    at, values = sent.place.offset, list[bytes | None]()
    for length in sent.lengths:
        values.append(None if length < 0 else bytes(whole[at : at + length]))
        at += max(0, length)
    return values


def _matters(form: ColumnForm) -> bool:
    """Whether a form says of tensors what they do not say themselves."""
    return form.delivers_bfloat16 or any(map(_matters, form.children))
