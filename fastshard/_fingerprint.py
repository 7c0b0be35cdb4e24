"""What a function does, as JSON values that are equal, in every process, where it does the same."""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fastshard.errors import InvalidError

__all__ = ["describe_function"]


def describe_function(function: Callable[..., Any]) -> object:
    """Describe a function by its code and by what it uses: arguments bound to it, constants, functions of its module.

    Functions of other modules are told by their names alone.

    Raises:
        InvalidError: It holds an object that cannot be described.
    """
    return _Describer().value(function)


class _Describer:
    def __init__(self) -> None:
        self._seen: set[int] = set()

    def value(self, value: Any) -> object:
        if inspect.ismethod(value):
            return [self.value(value.__func__), self.value(value.__self__)]
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, ModuleType) or inspect.isclass(value) or inspect.isbuiltin(value):
            return [getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)]
        if isinstance(value, set | frozenset):
            return sorted(repr(item) for item in value)
        return self._object(value)

    def _function(self, function: FunctionType) -> object:
        name = [function.__module__, function.__qualname__]
        if id(function) in self._seen:
            return name
        self._seen.add(id(function))
        cells = [self.value(cell.cell_contents) for cell in function.__closure__ or ()]
        defaults = [self.value(item) for item in function.__defaults__ or ()]
        keywords = [[key, self.value(item)] for key, item in sorted((function.__kwdefaults__ or {}).items())]
        return [name, self._code(function.__code__), cells, defaults, keywords, self._globals(function)]

    def _globals(self, function: FunctionType) -> object:
        """Functions and constants of its module that it names."""
        used = []
        for name in sorted(_names(function.__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                used.append([name, self.value(value)])
            elif (
                isinstance(value, int | float | complex | str | bytes | None) and name in function.__globals__
            ):
                used.append([name, repr(value)])
        return used

    def _code(self, code: CodeType) -> object:
        constants = [
            self._code(item) if isinstance(item, CodeType) else self.value(item) for item in code.co_consts
        ]
        return [code.co_code.hex(), list(code.co_names), constants]

    def _object(self, value: Any) -> object:
        """An object: its value, and the code that calling it runs."""
        if isinstance(value, int | float | complex | str | bytes | None):
            return repr(value)
        call = inspect.getattr_static(type(value), "__call__", None)
        try:
            held = hashlib.sha256(pickle.dumps(value)).hexdigest()
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise InvalidError(
                f"cached: transform= holds a {kind}, which may have changed unseen ({error}); "
                "make it inside of the function"
            ) from error
        return [type(value).__qualname__, self.value(call) if isinstance(call, FunctionType) else None, held]


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names
