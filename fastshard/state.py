"""Where a run stands in the order of its samples: a few numbers, as JSON, the same on every rank.

A state counts what was *delivered*. It names the data (fingerprint, rows, shards), the order (kind, seed, lanes, ...)
and the place in it (epoch, position), as docs/order.md, section 10, says. It says nothing of ranks, workers, batch
sizes or engines, so it loads under any of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fastshard.errors import StateError

__all__ = ["VERSION", "OrderKey", "State", "WorkerPart", "check_order"]

FORMAT = "fastshard.state"
VERSION = 1
_ARGUMENTS = {"kind": "shuffle"}  # where a data set's argument has another name


@dataclass(frozen=True, slots=True)
class OrderKey:
    """All that decides which sample is at a position of an epoch.

    Attributes:
        fingerprint: of the data set, or of the shards that the order runs over.
        rows: samples in the order.
        shards: shards that they lie in.
        kind: "none", "global" or "block".
        seed: of the shuffle.
        lanes: C of the order.
        window: samples of a window of the block order; from the index.
        unit_blocks: blocks of a unit of the block order; from the index.
        epoch_size: samples of an epoch; None for all.
    """

    fingerprint: str
    rows: int
    shards: int
    kind: str
    seed: int
    lanes: int
    window: int
    unit_blocks: int
    epoch_size: int | None = None

    @property
    def size(self) -> int:
        """Samples of an epoch: T."""
        return self.rows if self.epoch_size is None else self.epoch_size

    def to_dict(self) -> dict[str, Any]:
        """Its attributes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """The share of one DataLoader worker in a state, as it saves and loads it by itself.

    Attributes:
        worker, num_workers: which worker it was, of how many.
        batches: batches that this worker delivered since the state's position.
        samples: samples delivered of the batch after those.
        batch_size, tail, rank, world_size, replication: how the epoch was divided.
    """

    worker: int
    num_workers: int
    batches: int
    samples: int
    batch_size: int
    tail: str
    rank: int
    world_size: int
    replication: int


@dataclass(frozen=True, slots=True)
class State:
    """A place in an order. `position` samples of `epoch` were delivered (by all ranks together).

    `samples` says for people what a view, a concatenation or a mix is made of; the fingerprint is what counts. `worker`
    is set only in states that DataLoader workers save for themselves: then `position` is where their iteration began.
    """

    order: OrderKey
    epoch: int
    position: int
    worker: WorkerPart | None = None
    samples: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able dict, read back by `from_dict`."""
        result: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "epoch": self.epoch,
            "position": self.position,
        }
        result |= self.order.to_dict()
        if self.samples:
            result["samples"] = dict(self.samples)
        if self.worker is not None:
            result["worker"] = asdict(self.worker)
        return result

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> State:
        """Reads what `to_dict` made.

        Raises:
            StateError: it is no state of ours, one of a newer version, or a part of it is missing or wrong.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            found = f"a mapping with {sorted(map(str, value))}" if isinstance(value, Mapping) else repr(value)
            raise StateError(
                f"load_state_dict wants what state_dict() of fastshard returned, and got {found}; "
                "if it is a part of a larger checkpoint, pass that part"
            )
        version = value.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version > VERSION:
            raise StateError(
                f"the state has version {version!r}, this fastshard reads up to {VERSION}; load it with the fastshard "
                "that wrote it, or a newer one"
            )
        worker = value.get("worker")
        if worker is not None and not isinstance(worker, Mapping):
            raise StateError(f"the state is damaged: 'worker' is {worker!r}, not a mapping")
        samples = value.get("samples", {})
        if not isinstance(samples, Mapping):
            raise StateError(f"the state is damaged: 'samples' is {samples!r}, not a mapping")
        return State(
            OrderKey(**_members(OrderKey, value)),
            _count(value, "epoch"),
            _count(value, "position"),
            None if worker is None else WorkerPart(**_members(WorkerPart, worker)),
            samples,
        )


def check_order(
    state: OrderKey,
    here: OrderKey,
    *,
    allow_growth: bool,
    fingerprint_of: Callable[[int], str | None],
    samples: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    where: str,
) -> OrderKey | None:
    """Compares a state's order with the one that would be read now.

    Args:
        state: the state's.
        here: that of the data set it is loaded into.
        allow_growth: accept data that hold the state's as their first shards.
        fingerprint_of: the fingerprint of the first n shards of the data set; None for what cannot grow.
        samples: what the state and what the data say of themselves, for messages.
        where: the data set, for messages.

    Returns:
        None if both are the same order; the state's own order if the data have grown: an epoch begun under it ends
        under it.

    Raises:
        StateError: they differ; the message says in what.
    """
    same_data = state.fingerprint == here.fingerprint
    names = ["kind", "seed", "epoch_size"]
    if same_data:
        names += ["lanes", "window", "unit_blocks"] if here.kind == "block" else ["lanes"]
    different = [
        f"{_ARGUMENTS.get(name, name)} is {getattr(state, name)!r} in the state and {getattr(here, name)!r} here"
        for name in names
        if getattr(state, name) != getattr(here, name)
    ]
    if different:
        raise StateError(
            f"{where}: the state belongs to another order: {', '.join(different)}; give the data set the state's "
            "values, or start without the state"
        )
    if same_data:
        return None
    grown = state.shards <= here.shards and state.rows <= here.rows
    grown = grown and fingerprint_of(state.shards) == state.fingerprint
    if grown and allow_growth:
        return state
    if grown:
        raise StateError(
            f"{where}: the data set has grown since the state was saved: {state.rows} samples in {state.shards} shards "
            f"then, {here.rows} in {here.shards} now; pass allow_growth=True to end the epoch on the old samples and "
            "take all from the next one on"
        )
    raise StateError(
        f"{where}: the state belongs to other data: fingerprint {state.fingerprint} ({state.rows} samples in "
        f"{state.shards} shards{_made_of(samples[0])}) in the state, {here.fingerprint} ({here.rows} samples in "
        f"{here.shards} shards{_made_of(samples[1])}) here; {_advice(*samples)}"
    )


def _advice(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if "view" in then and then["view"] == now.get("view"):
        return (
            "the same steps select other samples from these data; as data grow, a filter and a split with by= keep "
            "the old samples, a split without by= does not"
        )
    return "load it into the data set that it was saved from"


def _made_of(samples: Mapping[str, Any]) -> str:
    return f", {json.dumps(samples, ensure_ascii=False)}" if samples else ""


def _count(value: Mapping[str, Any], name: str) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise StateError(f"the state is damaged: {name!r} is {number!r}, not a count")
    return number


def _members(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a dataclass of counts and strings, checked. Members that this version does not know are ignored."""
    result: dict[str, Any] = {}
    for item in fields(cls):
        value = values.get(item.name)
        if item.type == "str":
            if not isinstance(value, str):
                raise StateError(f"the state is damaged: {item.name!r} is {value!r}, not a string")
            result[item.name] = value
        elif item.type == "int | None" and value is None:
            result[item.name] = None
        else:
            result[item.name] = _count(values, item.name)
    return result
