"""Python functions of the user on batches and samples: each with its own randomness, and named where they fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastshard import _core
from fastshard.batch import Batch
from fastshard.errors import InvalidError

__all__ = ["Faults", "Function", "Transforms", "generator", "noted"]


def generator(seed: int, epoch: int, which: int) -> np.random.Generator:
    """A NumPy generator that depends on these three numbers alone (and not on ranks, workers or what came before).

    Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the xxh3-128 of the numbers as key.
    """
    words = np.array([seed, epoch, which], dtype=np.uint64)
    return np.random.Generator(
        np.random.Philox(key=np.frombuffer(_core.xxh3_128(words.tobytes()), dtype="<u8"))
    )


def noted(error: BaseException, note: str) -> None:
    """Adds a note, as `add_note` of Python 3.11 does: it stands below the error's message."""
    notes = [*getattr(error, "__notes__", []), note]
    error.__notes__ = notes  # type: ignore[attr-defined, unused-ignore]  # 3.10 keeps it, and shows nothing


def _wants_rng(function: Callable[..., Any]) -> bool:
    """Whether a transform takes the argument `rng`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    return "rng" in parameters


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the user on batches or on samples; picklable if that is.

    What it raises is raised as it is, with a note that says on which samples.

    Attributes:
        call: the function.
        name: of the argument that gave it.
        where: the data set.
        seed: of the data set's order; part of the key of each `rng`.
        takes_rng: it is called with `rng=`.
    """

    call: Callable[..., Any]
    name: str
    where: str
    seed: int
    takes_rng: bool

    @staticmethod
    def of(call: Callable[..., Any] | None, name: str, where: str, seed: int) -> Function | None:
        """Raises `InvalidError` for what cannot be called."""
        if call is None:
            return None
        if not callable(call):
            raise InvalidError(f"{name}={call!r}: must be callable")
        return Function(call, name, where, seed, _wants_rng(call))

    def on_batch(self, batch: Batch) -> Any:
        """What it makes of a batch; `rng` is keyed by the epoch and the batch's first position."""
        try:
            if not self.takes_rng:
                return self.call(batch)
            first = int(batch.positions[0]) if batch.positions is not None and len(batch.positions) else 0
            return self.call(batch, rng=generator(self.seed, batch.epoch or 0, first))
        except Exception as error:
            first_id = f" from {int(batch.ids[0])} on" if len(batch.ids) else ""
            count = f"{len(batch.ids)} samples{first_id}"
            noted(error, f"{self.name}= failed on a batch of {count}, of {self.where} (epoch {batch.epoch})")
            raise

    def on_samples(self, batch: Batch) -> Iterator[Any]:
        """What it makes of each sample; `rng` is keyed by the epoch and the sample's id. `batch` holds arrays."""
        epoch, ids = batch.epoch or 0, batch.ids.tolist()
        for i, sample in enumerate(batch.samples()):
            try:
                made = self._on_sample(sample, ids[i], epoch)
            except Exception as error:
                noted(error, self._failed_on(batch, i))
                raise
            yield made

    def tried(self, batch: Batch) -> tuple[list[Any], dict[int, Exception]]:
        """As `on_samples`, going on where it fails: the results, and what it raised by places in the batch."""
        epoch, ids = batch.epoch or 0, batch.ids.tolist()
        results: list[Any] = []
        faults: dict[int, Exception] = {}
        for i, sample in enumerate(batch.samples()):
            try:
                results.append(self._on_sample(sample, ids[i], epoch))
            except Exception as error:
                noted(error, self._failed_on(batch, i))
                faults[i] = error
        return results, faults

    def _on_sample(self, sample: dict[str, Any], id: int, epoch: int) -> Any:
        if not self.takes_rng:
            return self.call(sample)
        return self.call(sample, rng=generator(self.seed, epoch, id))

    def _failed_on(self, batch: Batch, i: int) -> str:
        source = "" if batch.source is None else f" (of source {int(batch.source[i])})"
        return (
            f"{self.name}= failed on sample {int(batch.ids[i])}{source} of {self.where} (epoch {batch.epoch})"
        )


@dataclass(frozen=True, slots=True)
class Faults:
    """What `sample_transform` raised, by places in the batch."""

    raised: dict[int, Exception]


@dataclass(frozen=True, slots=True)
class Transforms:
    """What is done with a batch before it is delivered; picklable if the functions are.

    Attributes:
        batch: called with a `Batch` of tensors.
        sample: called with each sample as a dict of NumPy values; the results are collated as torch does.
        keep_going: where `sample` fails, `Faults` are returned instead of a batch.
    """

    batch: Function | None
    sample: Function | None
    keep_going: bool = False

    @staticmethod
    def of(
        batch: Callable[..., Any] | None,
        sample: Callable[..., Any] | None,
        *,
        where: str,
        seed: int,
        keep_going: bool = False,
    ) -> Transforms:
        """Raises `InvalidError` for what cannot be called."""
        return Transforms(
            Function.of(batch, "transform", where, seed),
            Function.of(sample, "sample_transform", where, seed),
            keep_going,
        )

    def __bool__(self) -> bool:
        return self.batch is not None or self.sample is not None

    def __call__(self, batch: Batch) -> Any:
        """The batch as it is delivered, or `Faults`. `batch` holds NumPy arrays.

        Raises:
            InvalidError: A function returned None.
            Exception: What a function raised, with a note.
        """
        made: Any
        if self.sample is None:
            made = batch.to_torch()
        elif self.keep_going:
            results, faults = self.sample.tried(batch)
            if faults:
                return Faults(faults)
            made = self._collated(self.sample, batch, results)
        else:
            made = self._collated(self.sample, batch, list(self.sample.on_samples(batch)))
        if self.batch is None:
            return made
        made = self.batch.on_batch(made)
        if made is None:
            raise InvalidError("transform= returned None: it must return the batch that is to be delivered")
        return made

    @staticmethod
    def _collated(sample: Function, batch: Batch, results: list[Any]) -> Any:
        from torch.utils.data import default_collate

        try:
            collated = default_collate(results)
        except Exception as error:
            for id, result in zip(batch.ids.tolist(), results, strict=True):
                if result is None:
                    raise InvalidError(
                        f"sample_transform= returned None for sample {id} of {sample.where}: it must return the "
                        "sample that is to be delivered"
                    ) from None
            noted(
                error,
                f"what sample_transform= returned for {len(results)} samples of {sample.where} makes no batch: give "
                "each the same keys, shapes and types (torch.utils.data.default_collate joins them)",
            )
            raise
        if not isinstance(collated, dict):
            return collated
        return Batch(
            collated,
            ids=batch.ids,
            positions=batch.positions,
            is_repeat=batch.is_repeat,
            source=batch.source,
            epoch=batch.epoch,
        )
