"""`ShardDataset`: a data set as a torch IterableDataset, the same samples in the same order for any division."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.context import get_spawning_popen
from typing import Any, Literal

from torch.utils.data import IterableDataset

from fastshard import _accelerate, _handover, distributed
from fastshard._epochs import EpochCounter, Member, Start, set_epoch
from fastshard._gather import Reading
from fastshard._iteration import Progress, batches, samples
from fastshard._options import OrderOptions
from fastshard._plan import EpochPlan
from fastshard._shared_room import watch_room
from fastshard._source import Source
from fastshard._transforms import Function
from fastshard.batch import register_collate
from fastshard.distributed import Topology, WorkerInfo
from fastshard.errors import InvalidError, StateError
from fastshard.forms import Binary, FormOptions
from fastshard.reader import Verify, column_names
from fastshard.source import Data, Recipe
from fastshard.state import State, WorkerPart

__all__ = ["ShardDataset"]

_logger = logging.getLogger("fastshard")

_handover.register()
register_collate()  # before a loader of torch's collates what is yielded here, in this process or in a worker


class ShardDataset(IterableDataset[Any]):
    """A data set for `torch.utils.data.DataLoader`: give it the path, and it does the rest.

    It yields samples, so a stock DataLoader does what its arguments say:

        dataset = fs.ShardDataset("train", batch_size=32, shuffle=True)
        for batch in DataLoader(dataset, batch_size=32, num_workers=4): ...

    With `batched=True` it yields ready batches, which is much faster; the DataLoader then gets `batch_size=None`.

    What every rank gets at each step is a function of the data set, `seed` and the epoch alone. Ranks divide it, loader
    workers divide a rank's share, and neither changes it. Each new iteration is the next epoch, in any number of
    workers, however they were started.

    The object pickles to its path and arguments, opens nothing before it is used, and finds rank and world size when
    an iteration starts: `rank=` and `world_size=`, else torch.distributed, else the launcher's environment.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Data | Recipe,
        *,
        batch_size: int | None = None,
        batched: bool = False,
        shuffle: bool | str = False,
        seed: int = 0,
        tail: str = "pad",
        drop_last: bool = False,
        columns: Sequence[str] | None = None,
        cast: Mapping[str, str] | None = None,
        transform: Callable[..., Any] | None = None,
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
        cache_bytes: int | None = None,
        max_open: int = 1024,
    ) -> None:
        """Checks the arguments; the data set itself is opened when it is first needed.

        Args:
            path: the data set's directory, also with a selection as in `train/?split=val`; or what `fs.open`, its
                views, `fs.concat` or `fs.mix` returned, which is then read as it was opened unless arguments here
                say otherwise.
            batch_size: samples that one rank takes at each step. Give it also where a DataLoader batches: torch tells
                no worker, and the sequence is the same for any number of workers only if they know it.
            batched: yield a `Batch` of torch tensors at each step instead of samples.
            shuffle: False or "none" for the data set's order; True or "block" for a shuffle that reads whole blocks;
                "global" for one that is uniform over all samples.
            seed: of the shuffle.
            tail: what happens at the end of an epoch that does not divide. "pad": all ranks get the same number of
                samples, a few of them twice. "drop": full global batches only. "exact": each sample once; ranks may
                differ by one sample and one step.
            drop_last: the same as `tail="drop"`.
            columns: the columns to read; all if None.
            cast: column or type name to the type to deliver, such as `{"float64": "float32"}`.
            transform: is given each sample (each batch if `batched`), and what it returns is yielded. It may take
                `rng`, a NumPy generator keyed by seed, epoch and the sample's id (the batch's first position):
                augmentation of samples is the same under any division and after a resume.
            rank: this process among `world_size`; both None to find out.
            world_size: the number of ranks.
            replication: so many consecutive ranks get the same samples.
            epoch_size: samples of an epoch, if not all.
            lanes: how many parts of the data set are dealt in turn; None for the default.
            fill_null: column to the value that stands in for nulls.
            null_masks: add a column `NAME__valid` for each column with nulls.
            lists: "auto", or "ragged" to deliver lists of one constant length as ragged, too.
            tensors: column to (dtype, shape), which its lists must have.
            binary: "bytes", or "view" for uint8 arrays that share the batch's buffer.
            pad: list column to (length, value) or (length, value, "truncate"): its lists become rows of that length,
                `NAME__length` says how many values of each are its own.
            add: name of a new column to "__id__", "__valid__" (False where a sample is a repeat of `tail="pad"`) or
                "__source__" (which of the sources of `fs.mix`).
            verify: when columns are compared with their hashes: "auto", "always", "once" or "never"; see
                `fastshard.reader.ReadOptions`.
            cache_bytes: budget for decompressed blocks in each process, in bytes. None for 256 MiB, or for two windows
                of the data set if that is more and blocks are shuffled.
            max_open: shards that are mapped at a time.

        Raises:
            InvalidError: an argument that cannot be used.
        """
        super().__init__()
        order = OrderOptions.of_arguments(
            shuffle=shuffle,
            seed=seed,
            lanes=lanes,
            epoch_size=epoch_size,
            batch_size=batch_size,
            tail=tail,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            replication=replication,
        )
        if batched and batch_size is None:
            raise InvalidError("batched=True: give batch_size=, the samples of one batch of one rank")
        if not isinstance(batched, bool):
            raise InvalidError(f"batched={batched!r}: must be True or False")
        forms = FormOptions.of_arguments(
            lists=lists,
            tensors=tensors,
            cast=cast,
            fill_null=fill_null,
            null_masks=null_masks,
            binary=binary,
            pad=pad,
        )
        reading = Reading(
            columns=column_names(columns),
            forms=forms,
            verify=verify,
            cache_bytes=cache_bytes,
            max_open=max_open,
            add={} if add is None else add,
        )
        self._source = Source(path, order, reading)
        self._batched = bool(batched)
        self._transform = Function.of(transform, "transform", self.path, seed)
        self._epochs = EpochCounter()
        self._carried: tuple[int, int] | None = None
        self._of_loader = False
        self._forget()

    def _forget(self) -> None:
        """Sets what belongs to this process only."""
        self._progress: Progress | None = None  # of the newest iteration in this process
        self._given: Callable[[Start], Start] | State | None = (
            None  # to a DataLoader worker, for its next iteration
        )
        self._iterations = (os.getpid(), 0)

    def __getstate__(self) -> dict[str, Any]:
        """Path and arguments; for a process that multiprocessing is spawning, the epoch counter and the rank, too."""
        state = dict(self.__dict__)
        for name in ("_progress", "_given", "_iterations"):
            del state[name]
        spawning = get_spawning_popen() is not None
        if not spawning:
            del state["_epochs"]
        order = self._source.order
        if spawning:
            self._check_undivided()  # a worker that is spawned knows nothing of Accelerate
        state["_carried"] = (
            distributed.known(order.rank, order.world_size, carried=self._carried) if spawning else None
        )
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_epochs" not in state:
            self._epochs = EpochCounter()
        self._forget()

    @property
    def path(self) -> str:
        """Where the data set lies, with what selects from it."""
        return self._source.where

    @property
    def batched(self) -> bool:
        """Whether it yields batches."""
        return self._batched

    @property
    def batch_size(self) -> int | None:
        """Samples of one rank at each step, if they were given."""
        return self._source.order.batch_size

    def __repr__(self) -> str:
        order = self._source.order
        parts = [repr(self._source.where)]
        if order.batch_size is not None:
            parts.append(f"batch_size={order.batch_size}")
        if self._batched:
            parts.append("batched=True")
        parts += [f"shuffle={order.shuffle!r}", f"seed={order.seed}", f"tail={order.tail!r}"]
        if order.world_size is not None:
            parts.append(f"rank={order.rank}, world_size={order.world_size}")
        return f"ShardDataset({', '.join(parts)})"

    def _told(self, *, batch_size: int | None, drop_last: bool) -> ShardDataset:
        """This data set as a loader sees it: of samples, with the loader's batch size, on the same epoch counter.

        Raises:
            InvalidError: the loader's arguments contradict the data set's.
        """
        order = self._source.order
        if batch_size is not None and order.batch_size is not None and batch_size != order.batch_size:
            raise InvalidError(
                f"batch_size={batch_size}: the data set was made with batch_size={order.batch_size}; give it once"
            )
        if drop_last and order.tail == "exact":
            raise InvalidError(
                'drop_last=True: the data set was made with tail="exact"; leave one of the two out'
            )
        told: ShardDataset = object.__new__(type(self))
        told.__dict__.update(self.__dict__)
        told._forget()
        told._source = self._source.with_order(
            batch_size=batch_size or order.batch_size or 1, tail="drop" if drop_last else order.tail
        )
        told._batched = False
        told._of_loader = True
        return told

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or goes on where a loaded state says.

        In a DataLoader worker the iteration is settled at once, with the other workers; elsewhere when its first
        sample is asked for.
        """
        info = distributed.worker_info()
        return self._yield_here() if info is None else self._yield(self._begin(info))

    def _yield_here(self) -> Iterator[Any]:
        progress = self._begin(None)
        yield from self._yield(progress)

    def _yield(self, progress: Progress) -> Iterator[Any]:
        if self._batched:
            return batches(progress, self._source.made(progress), self._transform)
        return samples(progress, self._source.gather(), self._transform)

    def _topology(self) -> Topology:
        order = self._source.order
        return distributed.resolve(order.rank, order.world_size, carried=self._carried)

    def _begin(self, info: WorkerInfo | None) -> Progress:
        """Takes a start and plans from it."""
        self._check_undivided()
        part: WorkerPart | None = None
        if info is None:
            topology, start = self._take()
        else:
            topology, start, part = self._take_in_worker(self._member(info))
        progress = Progress(self._source.plan(start, topology), topology)
        if part is not None:
            self._resume_worker(progress, part)
        if info is not None:
            watch_room()
            self._warn_of_order(info)
        self._progress = progress
        return progress

    def _check_undivided(self) -> None:
        """Raises `InvalidError` where Accelerate would divide once more what this data set divides."""
        if self._source.order.rank is None:
            _accelerate.check_undivided(repr(self), of_loader=self._of_loader)

    def _take(self) -> tuple[Topology, Start]:
        """Finds this process's place and takes the next start, which no other iteration gets."""
        topology = self._topology()
        self._source.key()  # opens the data set before others wait for the counter
        return topology, self._epochs.take(lambda start: self._source.settle(start, topology))

    def _take_in_worker(self, member: Member) -> tuple[Topology, Start, WorkerPart | None]:
        """The start that this worker shares with the others of its iterator, or the one that it was given."""
        source, topology = self._source, self._topology()
        source.key()
        given, self._given = self._given, None
        if isinstance(given, State):
            start = source.start_of(given, allow_growth=True)
            self._epochs.take_given(start, member)
            return topology, start, given.worker

        def next_start(start: Start) -> Start:
            return source.settle(start if given is None else given(start), topology)

        start = self._epochs.take(next_start, member)
        if given is not None and (wanted := next_start(start)).epoch != start.epoch:
            start = wanted  # the other workers were given none, or another
            self._epochs.take_given(start, member)
        return topology, start, None

    def _resume_worker(self, progress: Progress, part: WorkerPart) -> None:
        """Goes on within a worker's share.

        Raises:
            StateError: the share is another worker's, or the epoch was divided differently.
        """
        here = self._part(progress)
        different = [
            f"{name} was {getattr(part, name)} and is {getattr(here, name)}"
            for name in ("num_workers", "worker", "rank", "world_size", "replication", "batch_size", "tail")
            if getattr(part, name) != getattr(here, name)
        ]
        if different:
            raise StateError(
                f"{self!r}: a DataLoader worker can only go on with a state of its own: {', '.join(different)}; keep "
                "them as they were, or use fastshard.torch.DataLoader, whose states hold for any of them"
            )
        progress.resume(part.batches, part.samples, batched=self._batched)

    def _part(self, progress: Progress) -> WorkerPart:
        done, within = progress.counted()
        topology, order = progress.topology, self._source.order
        return WorkerPart(
            worker=topology.worker,
            num_workers=topology.num_workers,
            batches=done,
            samples=within,
            batch_size=progress.plan.batch_size,
            tail=order.tail,
            rank=topology.rank,
            world_size=topology.world_size,
            replication=order.replication,
        )

    def _member(self, info: WorkerInfo) -> Member:
        """This worker, about to iterate once more."""
        pid, iterations = self._iterations
        iterations = iterations + 1 if pid == os.getpid() else 1
        self._iterations = (os.getpid(), iterations)
        return Member(info.worker, info.num_workers, info.base_seed, iterations)

    def _warn_of_order(self, info: WorkerInfo) -> None:
        if self._source.order.batch_size is not None or info.num_workers == 1 or info.worker != 0:
            return
        if self._epochs.first("batch_size"):
            _logger.warning(
                "%r: without batch_size= the sequence of samples depends on num_workers (%d here); give the data set "
                "the batch_size of the DataLoader, and it is the same for any number of workers",
                self,
                info.num_workers,
            )

    def __len__(self) -> int:
        """This rank's samples of a whole epoch, or batches if `batched`: as many as an iteration yields.

        Raises:
            InvalidError: the options yield nothing at all.
        """
        plan = self._whole()
        return plan.num_batches if self._batched else plan.num_samples

    def _num_batches(self) -> int:
        return self._whole().num_batches

    def _whole(self) -> EpochPlan:
        return self._source.plan(Start(), self._topology())

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of `epoch`, counted from 0.

        A loaded position in that same epoch stays. Works for running (persistent) workers, too.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise InvalidError(f"set_epoch({epoch!r}): must be an integer of at least 0")
        if distributed.worker_info() is not None:
            self._given = set_epoch(epoch)
        else:
            self._epochs.set_next(set_epoch(epoch))

    # State

    def state_dict(self, num_samples: int | None = None, from_beginning: bool = True) -> dict[str, Any]:
        """Where the run stands: a small dict for JSON or a checkpoint, the same on every rank.

        Args:
            num_samples: samples that all ranks together have trained on, for a trainer that counts itself. Needed
                where DataLoader workers iterate and this process does not know.
            from_beginning: whether `num_samples` counts from the beginning of the epoch, or from where this iteration
                began (which differs after a resume).

        Raises:
            StateError: this process does not know, or stands within a batch that ranks or lanes share.
        """
        return self._state_of(self._progress, num_samples, from_beginning)

    def _state_of(
        self, progress: Progress | None, num_samples: int | None, from_beginning: bool
    ) -> dict[str, Any]:
        """As `state_dict`, of whoever iterates and has come as far as `progress`."""
        source = self._source
        in_worker = distributed.worker_info() is not None
        next_start, taken = self._epochs.look(of_parent=in_worker)
        if num_samples is not None:
            start = taken.start if taken is not None else next_start
            position = num_samples + (0 if from_beginning else start.position)
            return source.state(start, position).to_dict()
        if in_worker:
            return self._worker_state(next_start).to_dict()
        if progress is not None and not progress.closed:
            start, position = progress.plan.start, self._position(progress)
        elif taken is None:
            start, position = next_start, next_start.position
        elif progress is not None and not taken.by_workers and progress.plan.start == taken.start:
            start, position = taken.start, self._position(progress)
        else:
            raise StateError(
                f"{self!r}: other processes or a loader iterate this data set, so it does not know what was "
                "delivered; ask fastshard.torch.DataLoader or fastshard.ShardLoader for state_dict() (a stock "
                "DataLoader with workers has none), or pass num_samples="
            )
        return source.state(start, position).to_dict()

    def _position(self, progress: Progress) -> int:
        position = progress.position()
        if position is None:
            _, within = progress.counted()
            raise StateError(
                f"{self!r}: {within} samples of a batch of {progress.plan.batch_size} were delivered; ranks and lanes "
                "share such a batch, so a state exists only between batches: ask for it after a whole one"
            )
        return position

    def _worker_state(self, next_start: Start) -> State:
        """What one DataLoader worker saves for itself, as torchdata's StatefulDataLoader asks it to."""
        progress = self._progress
        if progress is not None:
            start = progress.plan.start
            return replace(self._source.state(start, start.position), worker=self._part(progress))
        if isinstance(self._given, State):
            return self._given
        start = next_start if self._given is None else self._given(next_start)
        return self._source.state(start, start.position)

    def load_state_dict(self, state: Mapping[str, Any], *, allow_growth: bool = False) -> None:
        """Makes the next iteration go on where the state was saved; the one after it is the next epoch.

        Any world size, batch size and number of workers will do: what is left are exactly the samples not yet
        delivered.

        Args:
            state: what `state_dict` returned.
            allow_growth: the data set may have been appended to since. The epoch ends on the old samples.

        Raises:
            StateError: the state is damaged or belongs to other data or another order.
        """
        loaded = State.from_dict(state)
        start = self._source.start_of(loaded, allow_growth=allow_growth)
        if distributed.worker_info() is not None:
            self._given = loaded if loaded.worker is not None else lambda _: start
        elif loaded.worker is not None:
            raise StateError(
                f"{self!r}: this is the state of worker {loaded.worker.worker} of {loaded.worker.num_workers}, saved "
                "in a worker process; load it there, or use the states of fastshard.torch.DataLoader, which hold for "
                "any number of workers"
            )
        else:
            self._epochs.set_next(lambda _: start)
        self._progress = None
