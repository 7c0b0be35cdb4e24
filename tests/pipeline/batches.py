"""Batches as something that == compares."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

import fastshard as fs
from fastshard._engine import Engine
from fastshard._pipeline import Pipeline
from fastshard.ragged import Ragged


class RowPipeline(Pipeline):
    """One that reads rows by themselves wherever that can be, be it sooner or not."""

    visits = 1e-9  # type: ignore[assignment]


def with_engine(made: fs.ShardLoader, name: str) -> fs.ShardLoader:
    """The loader, reading by the engine of that name, such as "scrambled:SEED" for completions in any order."""
    engine = Engine(name, "for a test", direct=False)  # type: ignore[arg-type]
    made._pipeline = dataclasses.replace(made._pipeline, engine=engine)
    return made


def by_rows(made: fs.ShardLoader) -> fs.ShardLoader:
    """The loader, reading rows by themselves wherever that can be."""
    old = made._pipeline
    made._pipeline = RowPipeline(
        **{field.name: getattr(old, field.name) for field in dataclasses.fields(old)}
    )
    return made


def comparable(value: Any) -> Any:
    """A value of a batch; arrays and tensors by their bytes, dtype and shape, so that NaN equals NaN."""
    if isinstance(value, dict):
        return {name: comparable(child) for name, child in value.items()}
    if isinstance(value, Ragged):
        return "ragged", comparable(value.values), comparable(value.offsets)
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            return comparable(value.view(torch.int16))
        return comparable(value.numpy())
    if isinstance(value, np.ndarray):
        return value.tobytes(), str(value.dtype), value.shape
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return repr(value)
