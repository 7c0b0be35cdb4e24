"""Filters as text: `label == 3 and name in ["a", "b"]` as a pyarrow expression.

The text is an expression of Python's syntax, of which this is understood: names of columns, numbers, text in quotes,
True, False, None; `and`, `or`, `not`; comparisons, also chained; `in` and `not in` with a list; `is None` and
`is not None`; `+ - * /`; and a few functions. Nothing of it is executed by Python.
"""

from __future__ import annotations

import ast
import datetime
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastshard.errors import InvalidError

__all__ = ["parse"]

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}


def _date(text: str) -> pc.Expression:
    return pc.scalar(pa.scalar(datetime.date.fromisoformat(text)))


def _time(text: str) -> pc.Expression:
    return pc.scalar(pa.scalar(datetime.datetime.fromisoformat(text)))


# Functions of one column (and a literal), by what they are called.
_OF_COLUMN: dict[str, Callable[..., Any]] = {
    "length": pc.binary_length,
    "count": pc.list_value_length,
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "starts_with": lambda column, text: pc.starts_with(column, text),
    "ends_with": lambda column, text: pc.ends_with(column, text),
    "contains": lambda column, text: pc.match_substring(column, text),
    "matches": lambda column, text: pc.match_substring_regex(column, text),
    "is_nan": pc.is_nan,
    "abs": pc.abs,
}
_OF_TEXT: dict[str, Callable[[str], Any]] = {"col": pc.field, "date": _date, "time": _time}


def parse(text: str) -> pc.Expression:
    """The expression that a text says.

    Examples: `label == 3`, `0.5 <= score < 0.9`, `user in ["ann", "bob"] and score is not None`,
    `day >= date("2024-01-01")`, `starts_with(name, "img_")`, `length(text) > 100`, `col("odd name") == 1`.

    Raises:
        InvalidError: It cannot be read; the message says what part of it.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InvalidError(
            f"the filter {text!r} cannot be read: {reason}; write it like label == 3 and name != 'x'"
        ) from None
    try:
        result = _convert(tree.body, text)
    except RecursionError:
        raise InvalidError(f"the filter {text[:100]!r}... is nested too deeply") from None
    if not isinstance(result, pc.Expression):
        raise InvalidError(f"the filter {text!r} names no column; write it like label == 3")
    return result


def _convert(node: ast.expr, text: str) -> Any:
    """A node as an expression, or as the plain value that a literal is."""
    if isinstance(node, ast.Constant) and (
        node.value is None or isinstance(node.value, (bool, int, float, str, bytes))
    ):
        return node.value
    if isinstance(node, ast.Name):
        return pc.field(node.id)
    if isinstance(node, ast.BoolOp):
        join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        parts = [_expression(_convert(value, text)) for value in node.values]
        whole = parts[0]
        for part in parts[1:]:
            whole = join(whole, part)
        return whole
    if isinstance(node, ast.UnaryOp):
        return _unary(node, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _convert(node.left, text), _convert(node.right, text)
        return _BINARY[type(node.op)](_expression(left), _expression(right))
    if isinstance(node, ast.Compare):
        return _comparison(node, text)
    if isinstance(node, ast.Call):
        return _call(node, text)
    raise _refusal(node, text)


def _unary(node: ast.UnaryOp, text: str) -> Any:
    value = _convert(node.operand, text)
    if isinstance(node.op, (ast.Not, ast.Invert)):
        return ~_expression(value)
    if isinstance(node.op, ast.USub):
        if isinstance(value, pc.Expression):
            return pc.negate(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
    raise _refusal(node, text)


def _comparison(node: ast.Compare, text: str) -> pc.Expression:
    whole: pc.Expression | None = None
    left = node.left
    for kind, right in zip(node.ops, node.comparators, strict=True):
        part = _compared(kind, left, right, node, text)
        whole = part if whole is None else whole & part
        left = right
    assert whole is not None
    return whole


def _compared(
    kind: ast.cmpop, left: ast.expr, right: ast.expr, whole: ast.Compare, text: str
) -> pc.Expression:
    if isinstance(kind, (ast.In, ast.NotIn)):
        if not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            raise _refusal(right, text, "in wants a list, as in label in [1, 2]")
        values = [_convert(item, text) for item in right.elts]
        if not all(isinstance(value, (bool, int, float, str, bytes)) for value in values):
            raise _refusal(right, text, "a list is of numbers or of text")
        found = _expression(_convert(left, text)).isin(values)
        return ~found if isinstance(kind, ast.NotIn) else found
    one, other = _convert(left, text), _convert(right, text)
    if isinstance(kind, (ast.Is, ast.IsNot)):
        if other is not None:
            raise _refusal(whole, text, "is stands before None; compare values with ==")
        null = _expression(one).is_null()
        return ~null if isinstance(kind, ast.IsNot) else null
    if one is None or other is None:
        raise _refusal(whole, text, "a null equals nothing; write x is None")
    return _COMPARE[type(kind)](_expression(one), _expression(other))


def _call(node: ast.Call, text: str) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    values = [_convert(argument, text) for argument in node.args]
    try:
        if name in _OF_TEXT and len(values) == 1 and isinstance(values[0], str) and not node.keywords:
            return _OF_TEXT[name](values[0])
        if name in _OF_COLUMN and values and isinstance(values[0], pc.Expression) and not node.keywords:
            return _OF_COLUMN[name](*values)
    except (TypeError, ValueError) as error:
        raise _refusal(node, text, str(error)) from None
    known = ", ".join(sorted({*_OF_TEXT, *_OF_COLUMN}))
    raise _refusal(node, text, f"the functions are {known}")


def _expression(value: Any) -> pc.Expression:
    return value if isinstance(value, pc.Expression) else pc.scalar(value)


def _refusal(node: ast.AST, text: str, reason: str = "") -> InvalidError:
    part = ast.get_source_segment(text.strip(), node) or text
    return InvalidError(
        f"the filter {text!r} cannot be read: {part!r} is not understood" + (f"; {reason}" if reason else "")
    )
