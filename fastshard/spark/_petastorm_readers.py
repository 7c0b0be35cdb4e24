"""Petastorm's reader arguments, and the loaders that a converter makes."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any

import numpy as np

import fastshard
from fastshard._optional import require
from fastshard.errors import InvalidError

__all__ = ["Reading", "TensorflowDataset", "TorchBatches", "TransformSpec", "reading"]

# Of make_batch_reader and make_reader; here they mean nothing.
_IGNORED = frozenset(
    {
        "reader_pool_type",
        "results_queue_size",
        "shuffle_row_drop_partitions",
        "cache_type",
        "cache_location",
        "cache_size_limit",
        "cache_row_size_estimate",
        "cache_extra_settings",
        "hdfs_driver",
        "storage_options",
        "zmq_copy_buffers",
        "filesystem",
        "convert_early_to_numpy",
        "pyarrow_serialize",
    }
)
_REFUSED = {
    "predicate": "select the rows in Spark before they are written, or use fs.open(converter.path).filter(...)",
    "filters": "select the rows in Spark before they are written, or use fs.open(converter.path).filter(...)",
    "rowgroup_selector": "there are no row groups here; use fs.open(converter.path).select(...)",
}


@dataclass(frozen=True)
class TransformSpec:
    """Petastorm's `TransformSpec`: a function of a pandas frame, and which columns come of it.

    Attributes:
        func: Gets the rows of a batch as a frame and returns one; None: no function.
        edit_fields: Of Petastorm; types are those of what `func` returns.
        removed_fields: Columns that go.
        selected_fields: Columns that stay, in this order; None: all.
    """

    func: Callable[[Any], Any] | None = None
    edit_fields: Any = None
    removed_fields: Any = None
    selected_fields: Any = None


@dataclass(frozen=True)
class Reading:
    """What is read, how, and how often.

    Attributes:
        path: The data set.
        batch_size: Samples of a batch.
        num_epochs: How often; None for ever.
        threads: Of the loader; None for its default.
        shuffle: Whether the order is shuffled.
        seed: Of the order.
        rank, world_size: Which part is read.
        columns: Names; None for all.
        spec: A TransformSpec, ours or Petastorm's; or None.
    """

    path: str
    batch_size: int
    num_epochs: int | None
    threads: int | None
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    columns: list[str] | None
    spec: Any

    def epochs(self) -> Iterator[int]:
        return iter(range(self.num_epochs)) if self.num_epochs is not None else count()

    def transformed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch of NumPy arrays through the TransformSpec."""
        import pandas as pd

        spec = self.spec
        if getattr(spec, "func", None) is None:
            columns: dict[str, Any] = dict(batch)
        else:
            # pandas has no columns of several dimensions: rows of arrays are objects there, as with Petastorm.
            frame = pd.DataFrame(
                {n: list(v) if getattr(v, "ndim", 1) > 1 else v for n, v in batch.items()}, copy=True
            )
            result = spec.func(frame)
            columns = {str(name): _array(result[name]) for name in result.columns}
        for name in getattr(spec, "removed_fields", None) or ():
            columns.pop(name, None)
        selected = getattr(spec, "selected_fields", None)
        return columns if selected is None else {name: columns[name] for name in selected}


def _array(series: Any) -> Any:
    values = series.to_numpy()
    if values.dtype == object and len(values) and isinstance(values[0], (np.ndarray, list, tuple)):
        rows = [np.asarray(value) for value in values]
        return np.stack(rows) if len({row.shape for row in rows}) == 1 else list(rows)
    return list(values) if values.dtype == object else values


def reading(
    path: str,
    batch_size: int,
    num_epochs: int | None,
    workers_count: int | None,
    capacity: int,
    kwargs: Mapping[str, Any],
) -> tuple[Reading, list[str]]:
    """Settle the arguments. Returns also the names of those that mean nothing.

    Raises:
        InvalidError: One is unknown or cannot be used.
    """
    given = dict(kwargs)
    for name in ("num_epochs", "workers_count", "batch_size"):
        if name in given:
            raise InvalidError(f"{name}= is an argument of its own")
    for name, advice in _REFUSED.items():
        if given.pop(name, None) is not None:
            raise InvalidError(f"{name}= is not supported: {advice}")
    rank, world_size = given.pop("cur_shard", None), given.pop("shard_count", None)
    if (rank is None) != (world_size is None):
        raise InvalidError(f"cur_shard={rank!r}, shard_count={world_size!r}: give both or none")
    spec = given.pop("transform_spec", None)
    fields = given.pop("schema_fields", None)
    row_groups, rows = given.pop("shuffle_row_groups", True), given.pop("shuffle_rows", False)
    seeds = [given.pop(name, None) for name in ("shard_seed", "seed", "shuffle_seed")]
    ignored = [name for name in given if name in _IGNORED]
    unknown = [name for name in given if name not in _IGNORED]
    if unknown:
        raise InvalidError(
            f"unknown argument {unknown[0]!r}: neither Petastorm's readers nor fastshard have it"
        )
    if num_epochs is not None and (not isinstance(num_epochs, int) or num_epochs < 1):
        raise InvalidError(f"num_epochs={num_epochs!r}: expected a positive number, or None for ever")
    chosen = Reading(
        path=path,
        batch_size=batch_size,
        num_epochs=num_epochs,
        threads=workers_count,
        shuffle=bool(row_groups or rows or capacity > 0),
        seed=next((seed for seed in seeds if seed is not None), 0),
        rank=0 if rank is None else rank,
        world_size=1 if world_size is None else world_size,
        columns=None if fields is None else _columns(path, fields),
        spec=spec,
    )
    return chosen, ignored


def _columns(path: str, fields: Any) -> list[str]:
    """`schema_fields`: names, regular expressions, or fields with a name, in the order of the data set."""
    with fastshard.open(path) as reader:
        names = reader.columns
    wanted = [str(getattr(field, "name", field)) for field in fields]
    found = [name for name in names if any(re.fullmatch(pattern, name) for pattern in wanted)]
    if not found:
        raise InvalidError(f"schema_fields={wanted}: none of them is there; the columns are {list(names)}")
    return found


class TorchBatches:
    """Batches as dicts of tensors, epoch after epoch. Leaving the `with` statement stops the threads."""

    def __init__(self, plan: Reading) -> None:
        loader: Any = fastshard.ShardLoader
        self._plan = plan
        self._loader = loader(
            plan.path,
            batch_size=plan.batch_size,
            shuffle="block" if plan.shuffle else False,
            seed=plan.seed,
            columns=plan.columns,
            rank=plan.rank,
            world_size=plan.world_size,
            threads=plan.threads,
            transform=None if plan.spec is None else self._transform,
        )
        self._iterators: list[Any] = []

    def _transform(self, batch: Any) -> Any:
        import torch

        columns = self._plan.transformed(batch.to_numpy())
        return {
            # A copy: what pandas hands out may be its own.
            name: torch.from_numpy(np.array(value, order="C")) if isinstance(value, np.ndarray) else value
            for name, value in columns.items()
        }

    def __len__(self) -> int:
        """Batches of all epochs; raises `TypeError` where they have no end."""
        if self._plan.num_epochs is None:
            raise TypeError("with num_epochs=None there is no end, and so no length")
        return self._plan.num_epochs * len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for epoch in self._plan.epochs():
            self._loader.set_epoch(epoch)
            iterator = iter(self._loader)
            self._iterators.append(iterator)
            try:
                yield from iterator
            finally:
                self._iterators.remove(iterator)

    def __enter__(self) -> TorchBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for iterator in list(self._iterators):
            iterator.close()


class TensorflowDataset:
    """`with` gives a `tf.data.Dataset` whose elements are named tuples of one batch's columns."""

    def __init__(self, plan: Reading, prefetch: int | None) -> None:
        self._tensorflow = require("tensorflow", "tensorflow-cpu", "make_tf_dataset")
        self._plan = plan
        self._prefetch = prefetch

    def __enter__(self) -> Any:
        tf = self._tensorflow
        first = next(self._batches(only_first=True), None)
        if first is None:
            raise InvalidError(
                f"{self._plan.path}: it is empty, so TensorFlow cannot be told what its columns are"
            )
        names = [re.sub(r"\W|^(?=\d)", "_", name) for name in first]
        row = namedtuple("row", names, rename=True)  # type: ignore[misc]
        signature = row(
            *(
                tf.TensorSpec(shape=(None, *np.shape(v)[1:]), dtype=tf.as_dtype(v.dtype))
                for v in first.values()
            )
        )
        dataset = tf.data.Dataset.from_generator(
            lambda: (row(*batch.values()) for batch in self._batches()), output_signature=signature
        )
        return dataset.prefetch(tf.data.AUTOTUNE if self._prefetch is None else self._prefetch)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held between the batches."""

    def _batches(self, *, only_first: bool = False) -> Iterator[dict[str, Any]]:
        """Batches of NumPy arrays: no torch is needed."""
        from fastshard._epochs import Start
        from fastshard._options import OrderOptions
        from fastshard._plan import EpochPlan, order_key
        from fastshard.distributed import Topology

        plan = self._plan
        options = OrderOptions(
            shuffle="block" if plan.shuffle else "none", seed=plan.seed, batch_size=plan.batch_size
        )
        topology = Topology(rank=plan.rank, world_size=plan.world_size)
        with fastshard.open(plan.path, columns=plan.columns) as reader:
            key = order_key(reader, options)
            for epoch in plan.epochs():
                epoch_plan = EpochPlan(
                    reader, key, options, topology, Start(epoch, explicit=True), where=plan.path
                )
                for index in range(epoch_plan.num_batches):
                    batch = reader.take(epoch_plan.batch(index).places.astype(np.int64)).to_numpy()
                    columns = plan.transformed(batch) if plan.spec is not None else dict(batch)
                    yield {name: _as_array(name, value) for name, value in columns.items()}
                    if only_first:
                        return


def _as_array(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list) and all(isinstance(item, (str, bytes)) for item in value):
        return np.array([item.encode() if isinstance(item, str) else item for item in value], dtype=object)
    raise InvalidError(
        f"column {name!r} holds rows of several lengths, which a batch of TensorFlow's cannot; "
        "pad them in transform_spec"
    )
