"""Lists of varying length without padding: values end to end, and where each list begins."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastshard.errors import InvalidError, OutOfRangeError

__all__ = ["Ragged"]


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class Ragged:
    """n lists of numbers, as arrays or tensors.

    Attributes:
        values: [total] all elements, list after list.
        offsets: int64 [n + 1]; list i is values[offsets[i]:offsets[i + 1]].
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int | slice) -> Any:
        """List i (a view), or the lists of a slice as a `Ragged`. Raises `OutOfRangeError`."""
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                last = max(first, last)
                begin, end = int(self.offsets[first]), int(self.offsets[last])
                return Ragged(self.values[begin:end], self.offsets[first : last + 1] - begin)
            rows = [self[i] for i in range(first, last, step)]
            return self._like(rows)
        i = int(index)
        if not -len(self) <= i < len(self):
            raise OutOfRangeError(f"there is no list {index}: there are {len(self)}")
        i %= len(self)
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def _like(self, rows: Sequence[Any]) -> Ragged:
        lengths = [len(row) for row in rows]
        if is_tensor(self.values):
            import torch

            values = torch.cat(list(rows)) if rows else self.values[:0]
            offsets = torch.zeros(len(rows) + 1, dtype=torch.int64)
            offsets[1:] = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
            return Ragged(values, offsets)
        values = np.concatenate(rows) if rows else self.values[:0]
        return Ragged(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @property
    def lengths(self) -> Any:
        """int64 [n]: elements of each list."""
        return self.offsets[1:] - self.offsets[:-1]

    def to_list(self) -> list[list[Any]]:
        """Python lists of Python numbers."""
        flat = self.values.tolist()
        offsets = self.offsets.tolist()
        return [flat[begin:end] for begin, end in itertools.pairwise(offsets)]

    def to_padded(self, value: Any = 0, length: int | None = None) -> tuple[Any, Any]:
        """([n, length] with `value` behind each list, int64 lengths [n]).

        Args:
            value: What fills the rest of a row.
            length: Of each row; None takes the longest. Longer lists raise `InvalidError`.
        """
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        if length is None:
            length = longest
        elif longest > length:
            raise InvalidError(f"a list has {longest} elements, more than the length {length} to pad to")
        if is_tensor(self.values):
            import torch

            padded: Any = torch.full(
                (len(self), length), value, dtype=self.values.dtype, device=self.values.device
            )
            inside: Any = torch.arange(length, device=self.values.device)[None, :] < lengths[:, None]
        else:
            padded = np.full((len(self), length), value, dtype=self.values.dtype)
            inside = np.arange(length)[None, :] < lengths[:, None]
        padded[inside] = self.values[int(self.offsets[0]) : int(self.offsets[-1])]
        return padded, lengths

    def to_nested(self) -> Any:
        """A torch nested tensor of layout jagged that shares the values."""
        import torch

        tensors = self.to_torch()
        return torch.nested.nested_tensor_from_jagged(tensors.values, tensors.offsets)

    def to_torch(self) -> Ragged:
        """The same as tensors, sharing memory."""
        if is_tensor(self.values):
            return self
        import torch

        return Ragged(torch.from_numpy(self.values), torch.from_numpy(self.offsets))

    def to_numpy(self) -> Ragged:
        """The same as arrays, sharing memory where it is in main memory."""
        if not is_tensor(self.values):
            return self
        return Ragged(self.values.cpu().numpy(), self.offsets.cpu().numpy())

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Values and offsets on another device (`torch.Tensor.to`); a dtype applies to the values alone.

        Raises:
            InvalidError: The device is not known, or torch does not find it here.
        """
        from fastshard._devices import destination, moving_to

        device, _, non_blocking = destination("Ragged.to", *args, **kwargs)
        tensors = self.to_torch()
        with moving_to(device, f"Ragged.to({str(device)!r})"):
            values = tensors.values.to(*args, **kwargs)
            return Ragged(values, tensors.offsets.to(values.device, non_blocking=non_blocking))

    def pin_memory(self) -> Ragged:
        """Values and offsets in page-locked memory; of no effect where torch finds no accelerator."""
        from fastshard._devices import pinned_where_possible

        def pin(ragged: Ragged) -> Ragged:
            return Ragged(ragged.values.pin_memory(), ragged.offsets.pin_memory())

        return pinned_where_possible(self.to_torch(), pin)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return self.to_list() == other.to_list()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lengths = self.lengths
        spread = f", lengths {int(lengths.min())} to {int(lengths.max())}" if len(self) else ""
        return f"Ragged({len(self)} lists of {str(self.values.dtype).removeprefix('torch.')}{spread})"
