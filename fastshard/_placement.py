"""Where batches are delivered: page-locked memory, or a device; whatever a transform may have made of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

from fastshard.batch import Batch
from fastshard.ragged import Ragged, is_tensor

__all__ = ["on_device", "pinned"]

_Batches: TypeAlias = Generator[Any, None, None]


def pinned(batches: _Batches) -> _Batches:
    """Each batch in page-locked memory."""
    try:
        for batch in batches:
            yield _each(batch, lambda part: part.pin_memory())
    finally:
        batches.close()


def on_device(batches: _Batches, device: Any) -> _Batches:
    """Each batch on a torch.device; for CUDA copied beside the computation, one batch ahead."""
    import torch

    try:
        if device.type != "cuda":
            for batch in batches:
                yield _each(batch, lambda part: part.to(device))
            return
        side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        ahead: Any = None
        for batch in batches:
            with torch.cuda.stream(side):
                copied = _each(batch, lambda part: part.pin_memory().to(device, non_blocking=True))
                done = side.record_event()
            if ahead is not None:
                yield _arrived(*ahead)
            ahead = (copied, done, batch)  # the source lives until its copy has ended
        if ahead is not None:
            yield _arrived(*ahead)
    finally:
        batches.close()


def _arrived(batch: Any, done: Any, _source: Any) -> Any:
    """Lets the current stream wait for the copy, and tells the allocator that it uses the tensors."""
    import torch

    stream = torch.cuda.current_stream()
    stream.wait_event(done)
    for tensor in _tensors(batch):
        tensor.record_stream(stream)
    return batch


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """What a transform may have made, with the function's result in place of each batch and tensor."""
    if isinstance(value, Batch) or is_tensor(value):
        return function(value)
    if isinstance(value, Mapping):
        return {name: _each(child, function) for name, child in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each(child, function) for child in value))
    if isinstance(value, list | tuple):
        return type(value)(_each(child, function) for child in value)
    if isinstance(value, Ragged):
        return Ragged(function(value.values), function(value.offsets))
    return value


def _tensors(value: Any) -> list[Any]:
    """Every tensor in it."""
    found: list[Any] = []
    _each(value, lambda part: found.extend(part.tensors() if isinstance(part, Batch) else [part]))
    return found
