"""Devices as torch has them here: what is not to be had is told as an error of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fastshard._text import shorten
from fastshard.errors import InvalidError

__all__ = ["checked_device", "destination", "has_accelerator", "moving_to", "pinned_where_possible"]

_Value = TypeVar("_Value")
_REFUSALS = (
    AssertionError,
    RuntimeError,
)  # what torch raises for a device that is not here, by device and by build


def checked_device(device: Any, what: str) -> Any:
    """The torch.device. Raises `InvalidError`, which begins with `what`, for one that is not known, or not here."""
    import torch

    try:
        made = torch.device(device)
        if made.type != "cuda":
            torch.empty(0, device=made)
    except Exception as error:  # of many types, by device and by build of torch
        reason = shorten(str(error).partition("\n")[0] or type(error).__name__, 120)
        raise InvalidError(f'{what}: torch cannot use it here: {reason}; stay on "cpu"') from error
    if made.type == "cuda":  # without a CUDA context, which would forbid to fork
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (made.index or 0) >= count:
            raise InvalidError(f"{what}: torch finds {count} CUDA devices here; {_instead(count)}")
    return made


def _instead(count: int) -> str:
    import torch

    if count:
        return f'they are "cuda:0" to "cuda:{count - 1}"'
    if torch.version.cuda is None:
        return 'this torch is built without CUDA: stay on "cpu", or install a build for CUDA'
    return 'stay on "cpu", or see that the driver is there and CUDA_VISIBLE_DEVICES names a device'


def destination(what: str, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
    """Device, dtype (each may be None) and non_blocking, of arguments as `torch.Tensor.to` takes them.

    Raises `InvalidError`, which begins with `what`, for a device of which torch has never heard.
    """
    import torch

    try:
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
    except RuntimeError as error:
        raise InvalidError(f"{what}: {error}") from error
    return device, dtype, non_blocking


@contextmanager
def moving_to(device: Any, what: str) -> Iterator[None]:
    """Where torch refuses to move something to a device that is not here, that is an `InvalidError`."""
    try:
        yield
    except _REFUSALS:
        if device is not None:
            checked_device(device, what)
        raise


def pinned_where_possible(value: _Value, pin: Callable[[_Value], _Value]) -> _Value:
    """What `pin` makes of it; the value itself on a machine without an accelerator."""
    try:
        return pin(value)
    except _REFUSALS:
        if has_accelerator():
            raise
        return value


def has_accelerator() -> bool:
    """Whether torch finds a device that page-locked memory is for."""
    import torch

    accelerator = getattr(torch, "accelerator", None)  # of torch 2.6 and newer
    return bool(torch.cuda.is_available() if accelerator is None else accelerator.is_available())
