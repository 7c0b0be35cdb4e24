"""`fastshard.torch.DataLoader`: torch's DataLoader for a `ShardDataset`, with epochs and state counted here.

A stock DataLoader works, too; this one gathers ready batches whatever the data set yields, knows after every batch
where the run stands, and leaves the global random state alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.utils.data

from fastshard import _accelerate, distributed
from fastshard._epochs import Start
from fastshard._iteration import Progress, batches, sample_lists
from fastshard._shared import SharedCell
from fastshard._shared_room import watch_room
from fastshard._source import Source
from fastshard._transforms import Function
from fastshard.dataset import ShardDataset
from fastshard.distributed import Topology
from fastshard.errors import InvalidError, StorageError

__all__ = ["DataLoader"]


class DataLoader(torch.utils.data.DataLoader[Any]):
    """A torch DataLoader over a `ShardDataset`, with `state_dict` and `load_state_dict` for any number of workers.

        loader = fastshard.torch.DataLoader(fs.ShardDataset("train", shuffle=True), batch_size=256, num_workers=2)
        for epoch in range(3):
            for batch in loader: ...

    Batches are gathered natively and come as a `Batch` of tensors. Samples are made only where a `collate_fn`, or the
    data set's `transform`, wants them.

    Attributes:
        dataset: the data set, told the batch size; its `len` is this rank's samples of an epoch.
        batch_size: samples of a batch of this rank.
    """

    dataset: ShardDataset

    # For Hugging Face Accelerate: it is prepared (`fastshard._accelerate`), and its state belongs in checkpoints.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(
        self,
        dataset: ShardDataset,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        sampler: None = None,
        batch_sampler: None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        """Takes torch's arguments, and opens the data set to check that it can be read so. Those that differ:

        Args:
            dataset: a `ShardDataset`; its options stay.
            batch_size: samples of a batch of one rank; None for the data set's own, or 1.
            shuffle: not here: `ShardDataset(shuffle=)`.
            sampler: not here: the data set has the order.
            batch_sampler: likewise.
            collate_fn: makes a batch of a list of samples, instead of a native `Batch`.
            drop_last: the same as the data set's `tail="drop"`.
            generator: draws the workers' seeds. By default they follow from `torch.initial_seed()`, the rank and the
                epoch, without touching torch's global generator.
            in_order: only True.

        Raises:
            InvalidError: an argument that cannot be used, or that contradicts the data set.
            NullError: columns with nulls are asked for in a form that has none; all are named.
            NotFoundError: there is no data set.
        """
        if not isinstance(dataset, ShardDataset):
            raise InvalidError(
                f"fastshard.torch.DataLoader is for a ShardDataset, got {type(dataset).__name__}: wrap the path, as in "
                "ShardDataset(path), or use torch.utils.data.DataLoader for other data sets"
            )
        if shuffle:
            raise InvalidError(
                "shuffle=True: the data set has the order; make it with ShardDataset(path, shuffle=True)"
            )
        if sampler is not None or batch_sampler is not None:
            raise InvalidError(
                "sampler= and batch_sampler= cannot be used: the data set has the order; select samples there"
            )
        if not in_order:
            raise InvalidError("in_order=False: batches come in the data set's order")
        if collate_fn is not None and dataset.batched:
            raise InvalidError(
                "collate_fn= is for samples, and the data set was made with batched=True: leave one of the two out, or "
                "give the data set a transform= for batches"
            )
        told = dataset._told(batch_size=batch_size, drop_last=drop_last)
        told._source.gather()
        super().__init__(
            told,
            batch_size=told.batch_size,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
        )
        self._collates = collate_fn is not None
        self._feed = _Feed(
            told._source,
            dataset._transform,
            samples=self._collates or (dataset._transform is not None and not dataset.batched),
            again=persistent_workers,
        )
        self._inner: torch.utils.data.DataLoader[Any] | None = None
        self._progress: Progress | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Begins the next epoch, or goes on where a loaded state says."""
        topology, start = self.dataset._take()
        self._progress = progress = Progress(self._feed.source.plan(start, topology), topology)
        self._feed.begin(start, topology)
        if self._inner is None or not self.persistent_workers:
            self._inner = self._make_inner()
        if self.generator is None:
            assert self._inner.generator is not None
            self._inner.generator.manual_seed(_seed(topology.rank, start.epoch))
        delivered = _counted(progress, _accelerate.placed(iter(self._inner)))
        return _accelerate.in_step(delivered, progress.plan.num_batches, progress.plan.remainder)

    def _make_inner(self) -> torch.utils.data.DataLoader[Any]:
        """The loader that runs the workers. Its items are whole batches, so it collates nothing by itself."""
        collate = self.collate_fn if self._feed.samples else _as_it_is
        return torch.utils.data.DataLoader(
            self._feed,
            batch_size=None,
            num_workers=self.num_workers,
            collate_fn=collate,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            generator=self.generator if self.generator is not None else torch.Generator(),
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
            pin_memory_device=self.pin_memory_device,
        )

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch: as many as an iteration yields."""
        return self.dataset._num_batches()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`, counted from 0. A loaded position in that epoch stays."""
        self.dataset.set_epoch(epoch)

    def state_dict(self, num_samples: int | None = None, from_beginning: bool = True) -> dict[str, Any]:
        """Where the run stands, by the batches that were handed out: a small dict for JSON or a checkpoint.

        It is the same on every rank, and loads under any world size, batch size and number of workers.

        Args:
            num_samples: samples that all ranks together have trained on, for a trainer that counts itself.
            from_beginning: whether `num_samples` counts from the beginning of the epoch, or from where this iteration
                began.
        """
        return self.dataset._state_of(self._progress, num_samples, from_beginning)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_growth: bool = False) -> None:
        """Makes the next iteration go on where the state was saved; the one after it is the next epoch.

        Args:
            state: what `state_dict` returned, of this class or of `ShardDataset`.
            allow_growth: the data set may have been appended to since. The epoch ends on the old samples.

        Raises:
            StateError: the state is damaged or belongs to other data or another order.
        """
        self.dataset.load_state_dict(state, allow_growth=allow_growth)
        self._progress = None


class _Feed(torch.utils.data.IterableDataset[Any]):
    """What the workers iterate: the batches of the epoch that the main process names, before it starts them or, where
    they stay, before it starts them again."""

    def __init__(self, source: Source, transform: Function | None, *, samples: bool, again: bool) -> None:
        super().__init__()
        self.source = source
        self.samples = samples
        self._transform = transform
        self._begun: tuple[Start, Topology] | None = None
        self._cell = SharedCell() if again else None

    def begin(self, start: Start, topology: Topology) -> None:
        """Names the next iteration."""
        self._begun = (start, topology)
        if self._cell is not None:
            with self._cell.locked():
                self._cell.write(json.dumps([asdict(start), asdict(topology)]).encode())

    def __iter__(self) -> Iterator[Any]:
        start, topology = self._next()
        info = distributed.worker_info()
        if info is not None:
            watch_room()
            topology = replace(topology, worker=info.worker, num_workers=info.num_workers)
        progress = Progress(self.source.plan(start, topology), topology)
        if self.samples:
            return sample_lists(progress, self.source.gather(), self._transform)
        return batches(progress, self.source.made(progress), self._transform)

    def _next(self) -> tuple[Start, Topology]:
        if self._cell is not None:
            with self._cell.locked():
                start, topology = json.loads(self._cell.read())
            return Start(**start), Topology(**topology)
        assert self._begun is not None
        return self._begun


def _counted(progress: Progress, inner: Iterator[Any]) -> Generator[Any, None, None]:
    """Hands on what the workers deliver, and counts it. Raises `StorageError` where torch lost batches on the way."""
    try:
        for batch in inner:
            progress.batches += 1
            yield batch
        plan = progress.plan
        if progress.batches != plan.num_batches:
            raise StorageError(
                f"of {plan.num_batches} batches of epoch {plan.start.epoch}, {progress.batches} arrived: a worker "
                "could not send the others, and says on stderr why"
            )
        progress.finished = True
    finally:
        progress.closed = True


def _seed(rank: int, epoch: int) -> int:
    """Seeds the workers: other numbers for each rank and epoch, the same in each run that seeds torch alike."""
    text = f"{torch.initial_seed()}/{rank}/{epoch}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _as_it_is(batch: Any) -> Any:
    return batch
