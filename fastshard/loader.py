"""`ShardLoader`: finished batches from native threads. No worker processes, no pickling, no copies into torch."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fastshard import _accelerate
from fastshard._at_exit import closed_at_exit
from fastshard._bad_samples import BadSample, BadSamples
from fastshard._checking import Verify
from fastshard._devices import checked_device, has_accelerator
from fastshard._engine import EngineName
from fastshard._iteration import Progress
from fastshard._pipeline import Pipeline, choose, two_windows
from fastshard._placement import on_device, pinned
from fastshard._transform_pool import Backend, TransformPool
from fastshard._transforms import Transforms
from fastshard.batch import Batch
from fastshard.dataset import ShardDataset
from fastshard.distributed import usable_cpus
from fastshard.errors import CorruptError, InvalidError, StorageError
from fastshard.forms import Binary
from fastshard.loader_stats import LoaderStats, Totals
from fastshard.source import Data, Recipe

__all__ = ["LoaderStats", "PipelineOptions", "ShardLoader"]

Batches: TypeAlias = Generator[Any, None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """How batches are made ahead.

    Attributes:
        threads: That gather; None for the usable CPUs divided by LOCAL_WORLD_SIZE, 1 to 8.
        prefetch: Batches ahead of the consumer; None for as many as are some 8 MiB, 2 to 32.
        device: Where batches are delivered; None leaves them in main memory.
        pin_memory: Whether batches lie in page-locked memory; of no effect where no accelerator is.
        on_bad_sample: "raise", or "replace" by the next good sample of the order (docs/order.md section 10).
        transform_backend: What runs Python transforms: "threads" or "processes".
        read_timeout: Seconds after which a batch that does not come raises `TimeoutError`; None waits.
    """

    threads: int | None = None
    prefetch: int | None = None
    device: Any = None
    pin_memory: bool = False
    on_bad_sample: Literal["raise", "replace"] = "raise"
    transform_backend: Backend = "threads"
    read_timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pin_memory, bool):
            raise InvalidError(f"pin_memory={self.pin_memory!r}: must be True or False")
        if self.device is not None:
            object.__setattr__(self, "device", checked_device(self.device, f"device={self.device!r}"))
        for name in ("threads", "prefetch"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidError(f"{name}={value!r}: must be an integer of at least 1, or None")
        if self.on_bad_sample not in ("raise", "replace"):
            raise InvalidError(f"on_bad_sample={self.on_bad_sample!r}: must be 'raise' or 'replace'")
        if self.transform_backend not in ("threads", "processes"):
            raise InvalidError(
                f"transform_backend={self.transform_backend!r}: must be 'threads' or 'processes'"
            )
        timeout = self.read_timeout
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf
        ):
            raise InvalidError(f"read_timeout={self.read_timeout!r}: must be seconds above 0, or None")


class ShardLoader:
    """An iterable of ready batches, in the place of a DataLoader.

        loader = fs.ShardLoader("train", batch_size=1024, shuffle=True)
        for epoch in range(3):
            for batch in loader: ...

    Threads read, check, decompress and gather ahead, in the order of the plan; each batch is a `Batch` of tensors that
    were never copied. What a batch holds depends on the data set, the seed and the epoch alone. Each iteration is the
    next epoch; `state_dict` counts what was delivered.
    """

    _is_accelerate_prepared = True  # see `fastshard._accelerate`

    def __init__(
        self,
        path: str | os.PathLike[str] | Data | Recipe,
        *,
        batch_size: int,
        shuffle: bool | str = False,
        seed: int = 0,
        tail: str = "pad",
        drop_last: bool = False,
        columns: Sequence[str] | None = None,
        cast: Mapping[str, str] | None = None,
        transform: Callable[..., Any] | None = None,
        sample_transform: Callable[..., Any] | None = None,
        transform_backend: Backend = "threads",
        rank: int | None = None,
        world_size: int | None = None,
        replication: int = 1,
        epoch_size: int | None = None,
        lanes: int | None = None,
        fill_null: Mapping[str, Any] | None = None,
        null_masks: bool = False,
        lists: Literal["auto", "ragged"] = "auto",
        tensors: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
        binary: Binary = "bytes",
        pad: Mapping[str, tuple[Any, ...]] | None = None,
        add: Mapping[str, str] | None = None,
        verify: Verify = "auto",
        memory: int | None = None,
        engine: EngineName = "auto",
        max_open: int = 1024,
        threads: int | None = None,
        prefetch: int | None = None,
        device: Any = None,
        pin_memory: bool = False,
        on_bad_sample: Literal["raise", "replace"] = "raise",
        read_timeout: float | None = None,
    ) -> None:
        """Opens the data set's index; threads start with an iteration.

        Args:
            path, batch_size, shuffle, seed, tail, drop_last, columns, cast, rank, world_size, replication,
                epoch_size, lanes, fill_null, null_masks, lists, tensors, binary, pad, add, verify, max_open: As
                `ShardDataset`.
            transform: Called with each `Batch` of tensors; what it returns is delivered.
            sample_transform: Called with each sample, a dict of NumPy values; the dicts, tuples or tensors that it
                returns are collated. Either may take `rng`, a NumPy generator keyed by (seed, epoch, and the sample's
                id or the batch's first position): augmentation is the same under any division and after a resume.
            memory: Budget in bytes for blocks that were read or decompressed; None for two windows of the data set.
                With less, blocks are read again.
            engine: "mmap", "uring", "threads", or "auto" to choose by what is found; `stats()` says why.
            threads: That gather, and that run transforms; None for the usable CPUs divided by LOCAL_WORLD_SIZE, 1 to 8.
            prefetch: Batches ahead of the consumer; None for as many as are some 8 MiB, 2 to 32.
            device: Where batches are delivered; None leaves them in main memory. To CUDA they are copied beside the
                computation, one batch ahead.
            pin_memory: Whether batches lie in page-locked memory; of no effect where no accelerator is.
            on_bad_sample: "raise", or "replace" by the next good sample of the order one that cannot be read, or on
                which `sample_transform` fails (docs/training.md, section 7); `bad_samples` lists them.
            read_timeout: Seconds after which a batch that does not come raises `ReadTimeoutError`; None waits.
            transform_backend: "threads", or "processes" for transforms that hold the GIL: functions that a module
                defines at its top level. The processes stay until `close`, which ends idle ones at once, and waits up
                to five seconds for the others to finish a batch.

        Raises:
            InvalidError: An argument that cannot be used.
            NotFoundError, CorruptError: The data set is not there, or its index is damaged.
            NullError: Columns with nulls have no form; all are named.
        """
        self._recipe_of = {name: value for name, value in locals().items() if name not in ("self", "path")}
        if batch_size is None:
            raise InvalidError("batch_size=None: must be an integer, the samples of one batch of one rank")
        self._options = PipelineOptions(
            threads=threads,
            prefetch=prefetch,
            device=device,
            pin_memory=pin_memory,
            on_bad_sample=on_bad_sample,
            transform_backend=transform_backend,
            read_timeout=read_timeout,
        )
        if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
            raise InvalidError(f"memory={memory!r}: must be bytes, or None")
        self._dataset = ShardDataset(
            path,
            batch_size=batch_size,
            batched=True,
            shuffle=shuffle,
            seed=seed,
            tail=tail,
            drop_last=drop_last,
            columns=columns,
            cast=cast,
            rank=rank,
            world_size=world_size,
            replication=replication,
            epoch_size=epoch_size,
            lanes=lanes,
            fill_null=fill_null,
            null_masks=null_masks,
            lists=lists,
            tensors=tensors,
            binary=binary,
            pad=pad,
            add=add,
            verify=verify,
            cache_bytes=memory,
            max_open=max_open,
        )
        replaces = on_bad_sample == "replace"
        self._transforms = Transforms.of(
            transform, sample_transform, where=self._dataset.path, seed=seed, keep_going=replaces
        )
        self._data = self._dataset._source.open()
        self._pipeline = Pipeline(
            data=self._data,
            gather=self._dataset._source.gather(),
            order=self._dataset._source.order.shuffle,
            engine=choose(engine, self._data, read_timeout),
            verify=verify,
            memory=two_windows(self._data) if memory is None else memory,
            threads=threads or usable_cpus(),
            prefetch=prefetch,
            read_timeout=read_timeout,
            keep_going=replaces,
        )
        self._pool = TransformPool(self._transforms, self._pipeline.threads, transform_backend)
        self._progress: Progress | None = None
        self._bad = BadSamples(self._data, self._pipeline.gather, self._dataset.path)
        self._totals = Totals()
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()

    # Iterating.

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or goes on where a loaded state says, when the first batch is asked for."""
        topology, start = self._dataset._take()
        plan = self._dataset._source.plan(start, topology)
        progress = Progress(plan, topology)
        self._progress = progress
        self._bad.begin(plan)
        batches = self._delivered(progress)
        yield from _accelerate.in_step(batches, plan.num_batches, plan.remainder)

    def _delivered(self, progress: Progress) -> Generator[Any, None, None]:
        """Hands out batches and counts them: what was made ahead does not count."""
        from torch.autograd import profiler

        batches: Batches = self._made(progress)
        if self._transforms:
            batches = self._pool.ahead(batches, self._bad.transformable)
        if self._options.pin_memory and self._options.device is None and has_accelerator():
            batches = pinned(batches)
        if self._options.device is not None:
            batches = on_device(batches, self._options.device)
        delivered = batches if self._options.device is not None else _accelerate.placed(batches)
        over = object()
        totals, clock = self._totals, self._totals.clock
        try:
            with closing(closed_at_exit(batches)):
                while True:
                    # Under torch's profiler the wait is a range; one costs more than a small batch, so not otherwise.
                    if getattr(profiler, "_is_profiler_enabled", False):
                        with profiler.record_function("fastshard.wait"):
                            batch = next(delivered, over)
                    else:
                        batch = next(delivered, over)
                    if batch is over:
                        break
                    progress.batches += 1
                    handed = clock()
                    try:
                        yield batch
                    finally:
                        totals.program_seconds += clock() - handed
            progress.finished = progress.batches == progress.plan.num_batches  # else `close` ended it
        finally:
            progress.closed = True

    def _made(self, progress: Progress) -> Generator[Any, None, None]:
        """Batches of a stream: NumPy where a transform follows, else tensors."""
        plan, pipeline = progress.plan, self._pipeline
        arrays = bool(self._transforms)
        stream = pipeline.stream(plan, arrays=arrays)
        self._streams.add(stream)
        self._totals.begin()
        try:
            yield from pipeline.batches(
                stream,
                plan,
                arrays=arrays,
                replace=self._replaced if pipeline.keep_going else None,
            )
        finally:
            stream.stop()
            self._streams.discard(stream)
            self._totals.add(stream.stats())

    def _replaced(self, index: int, error: CorruptError | StorageError) -> Batch:
        return self._bad.replaced(index, error)

    # What it is.

    @property
    def batch_size(self) -> int:
        """Samples that one rank takes at each step."""
        size = self._dataset.batch_size
        assert size is not None
        return size

    @property
    def dataset(self) -> ShardDataset:
        """The data set with its order."""
        return self._dataset

    @property
    def bad_samples(self) -> tuple[BadSample, ...]:
        """What was replaced in this epoch (`on_bad_sample="replace"`)."""
        return self._bad.found

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch: as many as an iteration yields."""
        return len(self._dataset)

    def __repr__(self) -> str:
        return f"ShardLoader({repr(self._dataset).removeprefix('ShardDataset(').replace(', batched=True', '', 1)}"

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of: a copy begins with the first epoch, and takes rank and world size where it is used."""
        return _made_again, (self._dataset._source.recipe, self._recipe_of)

    # Epochs and state.

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`, counted from 0. A loaded position in that epoch stays."""
        self._dataset.set_epoch(epoch)

    def state_dict(self, num_samples: int | None = None, from_beginning: bool = True) -> dict[str, Any]:
        """Where the run stands, by the batches that were handed out: a small dict for JSON or a checkpoint.

        It is the same on every rank, and loads under any world size, batch size, threads and kind of loader.

        Args:
            num_samples: Samples that all ranks together have trained on, for a trainer that counts itself.
            from_beginning: Whether `num_samples` counts from the beginning of the epoch, or from where this iteration
                began.
        """
        return self._dataset._state_of(self._progress, num_samples, from_beginning)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_growth: bool = False) -> None:
        """Makes the next iteration go on where the state was saved; the one after it is the next epoch.

        Raises:
            StateError: The state is damaged or belongs to other data or another order.
        """
        self._dataset.load_state_dict(state, allow_growth=allow_growth)
        self._progress = None

    def stats(self) -> LoaderStats:
        """What it did so far, and what limits it."""
        return self._totals.stats(
            [stream.stats() for stream in list(self._streams)],
            self._data.stats(),
            engine=self._pipeline.engine.name,
            engine_reason=self._pipeline.reason,
            verify=self._pipeline.checking.mode,
            verify_reason=self._pipeline.checking.reason,
            bad_samples=len(self._bad.found),
            row_bytes=self._data.row_bytes,
            transforms=bool(self._transforms),
        )

    # Its life.

    def close(self) -> None:
        """Ends the threads of every iteration and the processes of transforms, and lets go of mappings.

        A loader that is used again opens again.
        """
        for stream in list(self._streams):
            stream.stop()
        self._pool.close()
        self._data.close()

    def __enter__(self) -> ShardLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _made_again(path: Recipe, arguments: dict[str, Any]) -> ShardLoader:
    return ShardLoader(path, **arguments)
