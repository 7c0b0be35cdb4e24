"""`transform=` of `fs.spark.write`: a function of Arrow batches, or of pandas frames where its annotation says so."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from fastshard.errors import InvalidError, SchemaError

__all__ = ["batch_transform", "takes_pandas"]

_PANDAS_NAMES = re.compile(r"(pd|pandas)(\.core\.frame)?\.DataFrame")


def takes_pandas(function: Callable[..., Any]) -> bool:
    """Whether the annotation of a function's first parameter is `pandas.DataFrame`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        return _PANDAS_NAMES.fullmatch(annotation.strip("'\" ")) is not None
    module, name = getattr(annotation, "__module__", ""), getattr(annotation, "__qualname__", "")
    return name == "DataFrame" and str(module).split(".")[0] == "pandas"


def batch_transform(function: Any) -> Any:
    """A transform as `fs.convert` takes it: from `pyarrow.RecordBatch` to `pyarrow.RecordBatch`.

    Raises:
        InvalidError: It is no function.
    """
    if function is None:
        return None
    if not callable(function):
        raise InvalidError(f"transform= must be a function of a batch, not {type(function).__name__}")
    return _of_frames(function) if takes_pandas(function) else function


def _of_frames(function: Callable[[Any], Any]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function from frame to frame as one from batch to batch."""

    def transform(batch: pa.RecordBatch) -> pa.RecordBatch:
        import pandas as pd

        result = function(batch.to_pandas(types_mapper=_nullable_dtypes(batch).get))
        if not isinstance(result, pd.DataFrame):
            raise SchemaError(f"it must return a pandas.DataFrame, not {type(result).__name__}")
        result = result.rename(columns=str)
        return pa.RecordBatch.from_pandas(result, preserve_index=False).replace_schema_metadata(None)

    transform.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return transform


def _nullable_dtypes(batch: pa.RecordBatch) -> dict[pa.DataType, Any]:
    """pandas' own nullable types for those integers and booleans that have nulls: others would become floats."""
    import pandas as pd

    dtypes = {}
    for array in batch.columns:
        name = str(array.type)
        if array.null_count and pa.types.is_boolean(array.type):
            dtypes[array.type] = pd.BooleanDtype()
        elif array.null_count and pa.types.is_integer(array.type):
            dtypes[array.type] = getattr(pd, name.replace("uint", "UInt").replace("int", "Int") + "Dtype")()
    return dtypes
