"""Spark DataFrames: told apart without importing pyspark, and what differs between classic Spark and Connect."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from fastshard.errors import InvalidError

__all__ = ["FrameKind", "check_frame", "frame_kind", "quoted"]

FrameKind: TypeAlias = Literal["classic", "connect"]


def frame_kind(data: Any) -> FrameKind | None:
    """Whether something is a DataFrame of classic Spark, or of Spark Connect; None: of neither."""
    for base in type(data).__mro__:
        if base.__name__ != "DataFrame":
            continue
        if base.__module__.startswith("pyspark.sql.connect."):
            return "connect"
        if base.__module__.startswith("pyspark.sql."):
            return "classic"
    return None


def check_frame(data: Any, what: str) -> FrameKind:
    """The kind of a DataFrame.

    Raises:
        InvalidError: It is none; `what` says who asks.
    """
    kind = frame_kind(data)
    if kind is not None:
        return kind
    found = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
    if found.startswith("pyspark.pandas."):
        raise InvalidError(f"{what} takes a Spark DataFrame, not {found}; pass frame.to_spark()")
    if isinstance(data, str):
        raise InvalidError(f"{what} takes a Spark DataFrame, not a str; pass spark.table({data!r}), say")
    raise InvalidError(
        f"{what} takes a Spark DataFrame, not {found}; data that are not in Spark are for fs.convert"
    )


def quoted(name: str) -> str:
    """A column's name as Spark's SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
