"""Conditions as people type them: `label in (1, 2) and day >= '2024-01-01' and not name is null`.

    condition   or: and ("or" and)*
    and         not ("and" not)*
    not         "not" not | comparison
    comparison  sum ((= == != <> < <= > >=) sum)*              a < b <= c is a < b and b <= c
              | sum ["not"] "in" ( "(" | "[" ) value, ... ( ")" | "]" )
              | sum ["not"] "between" sum "and" sum
              | sum ["not"] "like" 'pattern'                   % is any text, _ any character
              | sum "is" ["not"] "null"
    sum         product (("+" | "-") product)*
    product     unit (("*" | "/") unit)*
    unit        "-" unit | "(" condition ")" | value | column
    value       12  -1.5e3  'text'  "text"  true  false  null  date '2024-01-31'  timestamp '2024-01-31 12:00'
    column      name  name.of.a.field  `any name`

Words are read in any case. Where a text is compared with a column of dates, times or decimals, it is read as one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastshard._evaluate import empty_batch, evaluate
from fastshard.errors import InvalidError

__all__ = ["parse_where"]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`[^`]+`)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><>|<=|>=|==|!=|[=<>()\[\],+\-*/.])
    )""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_WORDS = {
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "none",
    "true",
    "false",
    "between",
    "like",
    "date",
    "timestamp",
}
_OTHER_SIGNS = {"&": "and", "|": "or", "~": "not", "!": "not"}


def parse_where(text: str, schema: pa.Schema) -> pc.Expression:
    """A condition on the columns of a schema.

    Args:
        text: As the module describes it.
        schema: Of the rows.

    Raises:
        InvalidError: The text is no such condition; the message says where, and what was expected.
    """
    try:
        return _Parser(text, schema).parse()
    except RecursionError:
        raise InvalidError("the condition is nested too deeply; write it with fewer parentheses") from None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # number, text, quoted, word, sign or end
    text: str
    start: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind in ("word", "sign") else ""


@dataclass(frozen=True, slots=True)
class _Value:
    """A part of a condition: a constant that may still take a type, or an expression of a type."""

    expression: pc.Expression | None
    type: pa.DataType | None
    constant: Any = None

    @property
    def is_constant(self) -> bool:
        return self.expression is None


class _Parser:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = list(self._split())
        self._place = 0

    def parse(self) -> pc.Expression:
        if not self._text.strip():
            raise InvalidError("the condition is empty")
        condition = self._or()
        if self._next.kind != "end":
            raise self._expected('"and", "or" or the end')
        return self._truth(condition)

    # Tokens

    def _split(self) -> list[_Token]:
        tokens = []
        place = 0
        while self._text[place:].strip():
            match = _TOKEN.match(self._text, place)
            if match is None:
                start = place + len(self._text[place:]) - len(self._text[place:].lstrip())
                sign = self._text[start]
                if sign in "'\"`":
                    raise self._error(start, f"the {sign} is never closed")
                hint = f'; write "{_OTHER_SIGNS[sign]}"' if sign in _OTHER_SIGNS else ""
                raise self._error(start, f"{sign!r} means nothing here{hint}")
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            place = match.end()
        tokens.append(_Token("end", "the end", len(self._text)))
        return tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self, *words: str) -> str:
        """The next token, if it is one of these words or signs, else an empty text."""
        word = self._next.word
        if word and word in words:
            self._place += 1
            return word
        return ""

    def _need(self, *words: str) -> None:
        if not self._take(*words):
            raise self._expected(" or ".join(f'"{word}"' for word in words))

    def _error(self, start: int, problem: str) -> InvalidError:
        shown = (
            self._text if len(self._text) <= 60 else f"...{self._text[max(0, start - 20) : start + 20]}..."
        )
        return InvalidError(f"condition {shown!r}, character {start + 1}: {problem}")

    def _expected(self, what: str) -> InvalidError:
        token = self._next
        found = token.text if token.kind == "end" else repr(token.text)
        return self._error(token.start, f"expected {what}, found {found}")

    # Conditions

    def _or(self) -> _Value:
        left = self._and()
        while self._take("or"):
            left = _condition(self._truth(left) | self._truth(self._and()))
        return left

    def _and(self) -> _Value:
        left = self._not()
        while self._take("and"):
            left = _condition(self._truth(left) & self._truth(self._not()))
        return left

    def _not(self) -> _Value:
        if self._take("not"):
            return _condition(~self._truth(self._not()))
        return self._comparison()

    def _truth(self, value: _Value) -> pc.Expression:
        if value.is_constant and isinstance(value.constant, bool):
            return pc.scalar(value.constant)
        if value.expression is None or value.type != pa.bool_():
            found = repr(value.constant) if value.is_constant else f"a value of type {value.type}"
            raise self._error(
                self._tokens[max(0, self._place - 1)].start, f"expected a condition, found {found}"
            )
        return value.expression

    def _comparison(self) -> _Value:
        left = self._sum()
        if self._take("is"):
            negated = bool(self._take("not"))
            self._need("null", "none")
            if left.expression is None:
                raise self._error(self._next.start, "only a column can be null")
            return _condition(left.expression.is_valid() if negated else left.expression.is_null())
        negated = bool(self._take("not"))
        for word, parse in (("in", self._in), ("between", self._between), ("like", self._like)):
            if self._take(word):
                condition = parse(left)
                return _condition(~condition if negated else condition)
        if negated:
            raise self._expected('"in", "between" or "like" after "not"')
        return self._chain(left)

    def _chain(self, left: _Value) -> _Value:
        conditions: pc.Expression | None = None
        while sign := self._take(*_COMPARE):
            start = self._next.start
            right = self._sum()
            condition = self._compare(sign, left, right, start)
            conditions = condition if conditions is None else conditions & condition
            left = right
        return left if conditions is None else _condition(conditions)

    def _compare(self, sign: str, left: _Value, right: _Value, start: int) -> pc.Expression:
        for value in (left, right):
            if value.is_constant and value.constant is None:
                raise self._error(start, 'nothing equals null; write "is null" or "is not null"')
        if left.is_constant and right.is_constant:
            raise self._error(start, "two constants are compared; one side must be a column")
        a, b = self._typed(left, right.type, start), self._typed(right, left.type, start)
        return self._checked(_COMPARE[sign](a, b), start)

    def _in(self, left: _Value) -> pc.Expression:
        start = self._next.start
        closing = ")" if self._take("(") else "]"
        if closing == "]":
            self._need("[", "(")
        if left.expression is None or left.type is None:
            raise self._error(start, 'only a column can stand before "in"')
        values: list[Any] = []
        while not self._take(closing):
            if values:
                self._need(",")
                if self._take(closing):
                    break
            place = self._next.start
            value = self._sum()
            if not value.is_constant:
                raise self._error(place, 'a list after "in" holds constants only')
            values.append(self._option(value.constant, left.type, place))
        found = left.expression.isin(pa.array(values, left.type))
        # As in SQL: of a null it cannot be said whether it is in the list or not.
        return pc.if_else(left.expression.is_valid(), found, pc.scalar(pa.scalar(None, pa.bool_())))

    def _between(self, left: _Value) -> pc.Expression:
        start = self._next.start
        low = self._sum()
        self._need("and")
        high = self._sum()
        return self._compare(">=", left, low, start) & self._compare("<=", left, high, start)

    def _like(self, left: _Value) -> pc.Expression:
        token = self._next
        if token.kind != "text":
            raise self._expected("a pattern in quotes")
        self._place += 1
        if left.expression is None:
            raise self._error(token.start, 'only a column can stand before "like"')
        return self._checked(pc.match_like(left.expression, _unquoted(token.text)), token.start)

    # Values

    def _sum(self) -> _Value:
        left = self._product()
        while sign := self._take("+", "-"):
            left = self._arithmetic(sign, left, self._product())
        return left

    def _product(self) -> _Value:
        left = self._unit()
        while sign := self._take("*", "/"):
            left = self._arithmetic(sign, left, self._unit())
        return left

    def _arithmetic(self, sign: str, left: _Value, right: _Value) -> _Value:
        start = self._tokens[self._place - 1].start
        a, b = self._typed(left, right.type, start), self._typed(right, left.type, start)
        if sign == "+":
            result = a + b
        elif sign == "-":
            result = a - b
        else:
            result = a * b if sign == "*" else a / b
        return _Value(result, self._type_of(result, start))

    def _unit(self) -> _Value:
        token = self._next
        if self._take("-"):
            start = self._next.start
            value = self._unit()
            if isinstance(value.constant, int | float) and not isinstance(value.constant, bool):
                return _Value(None, None, -value.constant)
            if value.expression is None:
                raise self._error(start, 'expected a number or a column after "-"')
            return self._arithmetic("-", _Value(None, None, 0), value)
        if self._take("("):
            inner = self._or()
            self._need(")")
            return inner
        if token.kind == "number":
            self._place += 1
            return _Value(None, None, self._number(token))
        if token.kind == "text":
            self._place += 1
            return _Value(None, None, _unquoted(token.text))
        following = self._tokens[self._place + 1] if token.kind != "end" else token
        if token.word in ("date", "timestamp") and following.kind == "text":
            self._place += 2
            type_ = pa.date32() if token.word == "date" else pa.timestamp("us")
            return _Value(None, None, self._constant(_unquoted(following.text), type_, following.start))
        if token.kind == "word" and token.word in ("true", "false", "null", "none"):
            self._place += 1
            return _Value(None, None, {"true": True, "false": False}.get(token.word))
        if token.kind == "quoted" or (token.kind == "word" and self._is_name(token)):
            return self._column()
        raise self._expected("a column or a value")

    def _is_name(self, token: _Token) -> bool:
        return token.word not in _WORDS or token.text in self._schema.names

    def _number(self, token: _Token) -> int | float:
        try:
            return int(token.text)
        except ValueError:
            return float(token.text)

    def _column(self) -> _Value:
        start = self._next.start
        parts = [self._name()]
        while self._next.word == "." and self._tokens[self._place + 1].kind in ("word", "quoted"):
            self._place += 1
            parts.append(self._name())
        for count in range(len(parts), 0, -1):  # a column whose name has dots wins over a field of a struct
            name = ".".join(parts[:count])
            if name in self._schema.names:
                path = [name, *parts[count:]]
                expression = pc.field(*path) if len(path) > 1 else pc.field(name)
                return _Value(expression, self._type_of(expression, start))
        lower = {name.lower(): name for name in self._schema.names}
        close = [lower[name] for name in difflib.get_close_matches(parts[0].lower(), lower, 1)]
        hint = f"did you mean {close[0]!r}?" if close else f"the columns are {self._schema.names}"
        raise self._error(start, f"there is no column {parts[0]!r}; {hint}")

    def _name(self) -> str:
        token = self._next
        self._place += 1
        return token.text[1:-1] if token.kind == "quoted" else token.text

    def _typed(self, value: _Value, other: pa.DataType | None, start: int) -> pc.Expression:
        """An expression; a constant takes on the type of what it is compared with, where that is not a number's."""
        if value.expression is not None:
            return value.expression
        constant = value.constant if other is None else self._constant(value.constant, other, start)
        return pc.scalar(constant)

    def _constant(self, constant: Any, type_: pa.DataType, start: int) -> Any:
        """A constant as it is compared with values of a type: text read as dates, times or decimals."""
        if (
            isinstance(constant, int | float)
            and pa.types.is_decimal(type_)
            and not isinstance(constant, bool)
        ):
            return Decimal(str(constant))
        if isinstance(constant, pa.Scalar) and not pa.types.is_temporal(type_):
            return constant
        if not isinstance(constant, str | pa.Scalar) or _is_text(type_):
            return constant
        scalar = constant if isinstance(constant, pa.Scalar) else pa.scalar(constant)
        try:
            if pa.types.is_timestamp(type_) and type_.tz is not None:
                scalar = scalar.cast(pa.timestamp(type_.unit))
            return scalar.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._error(start, f"{_shown(scalar)} is no {type_}") from error

    def _option(self, constant: Any, type_: pa.DataType, start: int) -> Any:
        """A constant of a list, as a value of the column's type."""
        if constant is None:
            raise self._error(start, 'null is in no list; write "or ... is null"')
        value = self._constant(constant, type_, start)
        if isinstance(value, float) and value != int(value) and pa.types.is_integer(type_):
            raise self._error(start, f"{constant!r} is no {type_}")
        try:
            return (value.cast(type_) if isinstance(value, pa.Scalar) else pa.scalar(value, type_)).as_py()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise self._error(start, f"{_shown(constant)} is no {type_}") from error

    def _type_of(self, expression: pc.Expression, start: int) -> pa.DataType:
        try:
            return evaluate(expression, empty_batch(self._schema)).type
        except (pa.ArrowException, TypeError) as error:
            raise self._error(start, str(error).splitlines()[0]) from error

    def _checked(self, expression: pc.Expression, start: int) -> pc.Expression:
        self._type_of(expression, start)
        return expression


def _condition(expression: pc.Expression) -> _Value:
    return _Value(expression, pa.bool_())


def _shown(constant: Any) -> str:
    return repr(str(constant.as_py())) if isinstance(constant, pa.Scalar) else repr(constant)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _unquoted(text: str) -> str:
    quote, inner = text[0], text[1:-1]
    return re.sub(r"\\(.)", r"\1", inner.replace(quote * 2, quote))
