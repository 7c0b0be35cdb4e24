"""Values of samples brought to few kinds: NumPy arrays and scalars, Python's own types, lists, dicts and None.

torch tensors, NumPy arrays of rank 0 and pandas' missing values are told by their modules, so that neither torch nor
pandas is imported. Nothing is rounded, cut or renamed here: what cannot be kept is refused.
"""

from __future__ import annotations

import datetime
import decimal
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["BFloat16Array", "Misfit", "adapt", "adapt_all", "capture", "describe", "size_hint"]

# What stays as it is: exactly these types.
_PLAIN = frozenset(
    {
        bool,
        int,
        float,
        str,
        bytes,
        list,
        tuple,
        dict,
        type(None),
        decimal.Decimal,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
    }
)


class Misfit(Exception):
    """A value that a column cannot hold.

    Attributes:
        index: Its place among the values at hand.
        path: Where in the value: `.field` and `[]` parts.
        problem: What is wrong, and what to do.
    """

    def __init__(self, index: int, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.index = index
        self.path = path
        self.problem = problem

    def within(self, part: str, index: int | None = None) -> Misfit:
        """The same, seen from the value around it."""
        return Misfit(self.index if index is None else index, self.problem, part + self.path)


class BFloat16Array(np.ndarray):
    """uint16 bits of bfloat16 numbers."""


def adapt(value: Any) -> Any:
    """One of the few kinds that stands for the value.

    Raises:
        Misfit: There is none; `index` is 0.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return _adapt_array(value)
    if isinstance(value, np.generic):
        return _adapt_scalar(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _adapt_tensor(value, torch)
    if (kind.__module__ or "").partition(".")[0] == "pandas":
        return _adapt_pandas(value)
    if isinstance(value, (bool, int, float, str, bytes, bytearray, list, tuple)):
        return value
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)):
        return value
    if hasattr(value, "__array__"):  # JAX, CuPy's host arrays, PIL images
        return _adapt_array(np.asarray(value))
    raise Misfit(0, f"cannot store {describe(value)}; {_advice(value)}")


def adapt_all(values: Iterable[Any]) -> list[Any]:
    """`adapt` of each; a `Misfit` says which it was."""
    adapted = list(values)
    if _PLAIN.issuperset(map(type, adapted)):
        return adapted
    for index, value in enumerate(adapted):
        if type(value) not in _PLAIN:
            try:
                adapted[index] = adapt(value)
            except Misfit as misfit:
                raise Misfit(index, misfit.problem) from None
    return adapted


def _advice(value: Any) -> str:
    if isinstance(value, complex):
        return "store its real and its imaginary part as two columns"
    if isinstance(value, (set, frozenset)):
        return "pass a list"
    return "convert it to numbers, str, bytes, lists, dicts or arrays first"


def describe(value: Any) -> str:
    """A value for error messages: its type, with dtype and shape or a short text."""
    kind = type(value)
    name = (
        kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    )
    if isinstance(value, BFloat16Array):
        return f"a bfloat16 tensor of shape {value.shape}"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        return f"{name} of {dtype}" if shape == () else f"{name} of {dtype} and shape {tuple(shape)}"
    text = repr(value)
    return f"{name} {text if len(text) <= 60 else text[:57] + '...'}"


def _adapt_array(array: np.ndarray) -> Any:
    kind = array.dtype.kind
    if (
        type(array) is np.ndarray
        and kind in "biuf"
        and array.ndim
        and array.dtype.itemsize <= 8
        and array.dtype.isnative
    ):
        return array
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise Misfit(0, "a masked array would lose its mask; fill it, or pass a list with None")
        array = array.data
    if kind == "V" and array.dtype.name == "bfloat16":  # ml_dtypes, as JAX has it
        return array.view(np.uint16).view(BFloat16Array)
    if kind == "O":
        return array.tolist() if array.ndim else adapt(array.item())
    if kind in "US":
        return array.tolist()
    if kind == "V" and array.dtype.names:
        return _adapt_structured(array)
    if kind not in "biufmM" or array.dtype.itemsize > 8:
        raise Misfit(0, f"cannot store {describe(array)}; {_dtype_advice(array.dtype)}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.ndim else _adapt_scalar(array.reshape(1)[0])


def _dtype_advice(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "c":
        return "store its real and its imaginary part as two columns"
    if dtype.kind == "f":
        return "cast it to float64"
    return "convert it to an array of numbers or to bytes"


def _adapt_structured(array: np.ndarray) -> Any:
    names = array.dtype.names or ()
    if array.ndim == 0:
        return {name: adapt(array[name]) for name in names}
    return [_adapt_structured(item) for item in array]


def _adapt_scalar(value: np.generic) -> Any:
    if isinstance(value, (np.str_, np.bytes_)):
        return value.item()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else value
    if isinstance(value, np.void):
        return _adapt_structured(np.asarray(value)) if value.dtype.names else value.tobytes()
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise Misfit(0, f"cannot store {describe(value)}; {_dtype_advice(value.dtype)}")
    return value


def _adapt_tensor(tensor: Any, torch: Any) -> Any:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Misfit(
            0,
            f"cannot store a tensor with layout {tensor.layout}; pass a dense tensor (to_dense(), dequantize())",
        )
    if tensor.is_complex():
        raise Misfit(
            0, f"cannot store a tensor of {tensor.dtype}; torch.view_as_real makes it one of real numbers"
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy().view(BFloat16Array)
    try:
        array = tensor.numpy()
    except TypeError:
        raise Misfit(
            0, f"cannot store a tensor of {tensor.dtype}; view it as torch.uint8 or cast it"
        ) from None
    return _adapt_array(array)


def _adapt_pandas(value: Any) -> Any:
    name = type(value).__name__
    if name in ("NaTType", "NAType"):
        return None
    if name == "Timestamp":
        if not value.nanosecond:
            return value.to_pydatetime()
        if value.tzinfo is None:
            return value.to_datetime64()
        raise Misfit(
            0, f"cannot store {value!r} with its time zone and nanoseconds; round it to microseconds"
        )
    if name == "Timedelta":
        return value.to_timedelta64() if value.nanoseconds else value.to_pytimedelta()
    if hasattr(value, "to_numpy"):
        return _adapt_array(value.to_numpy())
    raise Misfit(0, f"cannot store {describe(value)}; convert it to Python's own types first")


def capture(value: Any) -> Any:
    """The value as it is now, whatever the caller does with its arrays, lists and dicts later."""
    kind = type(value)
    if kind is int or kind is float or kind is str or kind is bytes or value is None:
        return value
    if kind is list or kind is tuple:
        return [capture(item) for item in value]
    if kind is dict:
        return {name: capture(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value


def size_hint(value: Any) -> int:
    """About how many bytes a value takes in a column; a guess that is cheap."""
    kind = type(value)
    if kind is int or kind is float or value is None:
        return 8
    if kind is str or kind is bytes:
        return len(value) + 4
    size = getattr(value, "nbytes", None)  # arrays, tensors, NumPy scalars, memoryviews
    if isinstance(size, int):
        return size
    if isinstance(value, Mapping):
        return sum(map(size_hint, value.values()))
    if isinstance(value, (list, tuple)):
        if not value:
            return 4
        # Lists of numbers are long: one element speaks for all. Others are looked at.
        return 8 * len(value) if isinstance(value[0], (int, float)) else sum(map(size_hint, value))
    return 16
