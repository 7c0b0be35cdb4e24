"""A batch: columns by name, and beside them which samples they are."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fastshard.errors import InvalidError
from fastshard.forms import ColumnForm
from fastshard.ragged import Ragged, is_tensor

if TYPE_CHECKING:
    from fastshard._core import PlannedSamples, SharedBatch

__all__ = ["Batch", "Ragged"]

_OF_SAMPLES = ("ids", "positions", "is_repeat", "source")
ATTRIBUTES = (*_OF_SAMPLES, "epoch")
_LATER = object()
_LOOKED_AT = 1000  # objects of a column, to say what they are


class Batch(dict[str, Any]):
    """Columns of some samples: a dict whose keys are column names alone, so that `model(**batch)` works.

    Values are arrays or tensors [n, ...], `Ragged`, lists of n str, bytes or objects, or dicts of these for a struct
    column; docs/types.md says which.

    Attributes:
        ids: int64 [n], each sample's id in its data set, or None where it is not known.
        positions: int64 [n], places in the epoch's order, or None.
        is_repeat: bool [n], True where a sample is there to fill up the last batch (tail="pad"), or None: no repeats.
        source: int64 [n], which of several mixed data sets a sample is from, or None.
        epoch: The epoch, or None.
    """

    # `ids` and `positions` of a batch of the native pipeline stay unset until somebody asks for them: see __getattr__.
    __slots__ = (
        "_forms",
        "_of_tensors",
        "_planned",
        "_shared",
        "epoch",
        "ids",
        "is_repeat",
        "positions",
        "source",
    )

    ids: Any
    positions: Any
    is_repeat: Any
    source: Any
    epoch: int | None

    def __init__(
        self,
        columns: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        *,
        ids: Any = None,
        positions: Any = None,
        is_repeat: Any = None,
        source: Any = None,
        epoch: int | None = None,
        forms: Mapping[str, ColumnForm] | None = None,
    ) -> None:
        super().__init__(columns)
        if isinstance(columns, Batch):
            ids = columns.ids if ids is None else ids
            positions = columns.positions if positions is None else positions
            is_repeat = columns.is_repeat if is_repeat is None else is_repeat
            source = columns.source if source is None else source
            epoch = columns.epoch if epoch is None else epoch
            forms = columns._forms if forms is None else forms
        self.ids = ids
        self.positions = positions
        self.is_repeat = is_repeat
        self.source = source
        self.epoch = epoch
        self._forms: Mapping[str, ColumnForm] = forms or {}
        # Memory that another process can map, and where the tensors lie, if they are (see `_handover`).
        self._shared: SharedBatch | None = columns._shared if isinstance(columns, Batch) else None
        self._planned: PlannedSamples | None = None
        self._of_tensors = False

    @classmethod
    def _of_planned(
        cls,
        columns: Mapping[str, Any],
        planned: PlannedSamples,
        is_repeat: Any,
        epoch: int | None,
        forms: Mapping[str, ColumnForm],
        shared: SharedBatch | None,
        *,
        of_tensors: bool,
    ) -> Batch:
        """What the native pipeline delivered, at the least expense: a small batch takes as long as its objects.

        Args:
            columns: In their forms.
            planned: From which `ids` and `positions` are made when they are asked for.
            is_repeat, epoch, forms, shared: As the attributes.
            of_tensors: Arrays are tensors everywhere, those of `ids` and `positions`, too.
        """
        batch = cls.__new__(cls)
        batch.update(columns)
        batch._planned = planned
        batch._of_tensors = of_tensors
        batch.is_repeat = is_repeat
        batch.source = None
        batch.epoch = epoch
        batch._forms = forms
        batch._shared = shared
        return batch

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """`ids` and `positions` that were not made yet; called for attributes that are not there."""
            if name not in ("ids", "positions"):
                raise AttributeError(f"'Batch' object has no attribute {name!r}", name=name, obj=self)
            array = getattr(self._planned, name)()
            value = array_to_torch(array) if self._of_tensors else array
            setattr(self, name, value)
            return value

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: getattr(self, name) for name in ATTRIBUTES}
        return (_rebuild, (dict(self), state, dict(self._forms)))

    def __copy__(self) -> Batch:
        return Batch(self)

    def copy(self) -> Batch:
        return Batch(self)

    @property
    def num_samples(self) -> int:
        """How many samples it holds. (`len` of a batch is that of a dict: the number of columns.)"""
        if self._planned is not None:
            return len(self._planned)
        if self.ids is not None:
            return len(self.ids)
        for value in self.values():
            return _rows(value)
        return 0

    def to_torch(self) -> Batch:
        """Arrays as tensors that share their memory; bfloat16 columns as torch.bfloat16. What is no array stays."""
        register_collate()
        columns = {name: _to_torch(value, self._forms.get(name)) for name, value in self.items()}
        batch = self._with(columns, _attribute_to_torch)
        batch._of_tensors = True
        return batch

    def to_numpy(self) -> Batch:
        """Tensors as arrays, on this machine's memory; bfloat16 becomes uint16 of its bits."""
        batch = self._with({name: _to_numpy(value) for name, value in self.items()}, _to_numpy)
        batch._of_tensors = False
        return batch

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """Every tensor moved or cast as `torch.Tensor.to` does; a dtype applies to floating-point columns alone.

        `ids`, `positions` and the like stay where they are.

        Raises:
            InvalidError: The device is not known, or torch does not find it here.
        """
        from fastshard._devices import destination, moving_to

        device, dtype, non_blocking = destination("Batch.to", *args, **kwargs)
        batch = self.to_torch()

        def move(tensor: Any) -> Any:
            wanted = dtype if dtype is not None and tensor.is_floating_point() else None
            return tensor.to(device=device, dtype=wanted, non_blocking=non_blocking)

        with moving_to(device, f"Batch.to({str(device)!r})"):
            return batch._with({name: map_tensors(value, move) for name, value in batch.items()}, None)

    def pin_memory(self) -> Batch:
        """Every tensor in page-locked memory, from which a copy to a GPU can run beside the computation.

        Of no effect where torch finds no accelerator, as `ShardLoader(pin_memory=True)` is.
        """
        from fastshard._devices import pinned_where_possible

        def pin(batch: Batch) -> Batch:
            columns = {
                name: map_tensors(value, lambda tensor: tensor.pin_memory()) for name, value in batch.items()
            }
            return batch._with(columns, None)

        return pinned_where_possible(self.to_torch(), pin)

    def tensors(self) -> list[Any]:
        """Every tensor in it: of columns, `Ragged`, structs and lists."""
        found: list[Any] = []

        def note(tensor: Any) -> Any:
            found.append(tensor)
            return tensor

        for value in self.values():
            map_tensors(value, note)
        return found

    def samples(self) -> Iterator[dict[str, Any]]:
        """Its samples one by one: dicts of NumPy scalars and arrays (views of the batch), str, bytes, ...

        bfloat16 values are torch tensors, since NumPy has no such type.
        """
        count = self.num_samples
        columns = {name: _split(value, self._forms.get(name), count) for name, value in self.items()}
        return _zipped(columns, count)

    def _with(self, columns: Mapping[str, Any], convert: Any) -> Batch:
        """The same samples with other columns; `convert` makes the other form of each attribute that is there."""
        batch = Batch(columns, epoch=self.epoch, forms=self._forms)
        batch._shared, batch._planned, batch._of_tensors = self._shared, self._planned, self._of_tensors
        for name in _OF_SAMPLES:
            value = self._made(name)
            if value is _LATER:
                delattr(batch, name)
            elif value is not None:
                setattr(batch, name, value if convert is None else convert(value))
        return batch

    def _made(self, name: str) -> Any:
        """An attribute, or _LATER where nobody has asked for it yet."""
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return _LATER

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        return f"Batch({self.num_samples} samples, {{{columns}}})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(_describe(value))}</td></tr>"
            for name, value in self.items()
        )
        head = f"<tr><th>Batch</th><th>{self.num_samples} samples</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _rebuild(columns: dict[str, Any], attributes: dict[str, Any], forms: dict[str, ColumnForm]) -> Batch:
    register_collate()
    return Batch(columns, **attributes, forms=forms)


def _rows(value: Any) -> int:
    if isinstance(value, dict):
        return _rows(next(iter(value.values()))) if value else 0
    return len(value)


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_describe(child)}" for name, child in value.items()) + "}"
    if isinstance(value, list):
        names = sorted({type(item).__name__ for item in value[:_LOOKED_AT]} - {"NoneType"}) or ["NoneType"]
        return f"list of {' or '.join(names)}" if value else "list"
    if isinstance(value, Ragged):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else type(value).__name__
    shape = f"[{', '.join(map(str, value.shape))}]" if hasattr(value, "shape") else ""
    device = f" on {value.device}" if is_tensor(value) and value.device.type != "cpu" else ""
    return f"{dtype}{shape}{device}"


def array_to_torch(array: Any, bfloat16: bool = False) -> Any:
    """A tensor over the same memory; uint16 bits as torch.bfloat16 if so said."""
    import torch

    if bfloat16 and array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_torch(value: Any, form: ColumnForm | None) -> Any:
    bfloat16 = form is not None and form.delivers_bfloat16
    if isinstance(value, np.ndarray):
        return array_to_torch(value, bfloat16)
    if isinstance(value, Ragged):
        if isinstance(value.values, np.ndarray):
            return Ragged(array_to_torch(value.values, bfloat16), array_to_torch(value.offsets))
        return value
    if isinstance(value, dict):
        children = {child.name: child for child in form.children} if form is not None else {}
        return {name: _to_torch(child, children.get(name)) for name, child in value.items()}
    if isinstance(value, list) and form is not None and form.kind == "tensors":
        return [array_to_torch(item, bfloat16) if isinstance(item, np.ndarray) else item for item in value]
    return value


def _attribute_to_torch(value: Any) -> Any:
    return array_to_torch(value) if isinstance(value, np.ndarray) else value


def _to_numpy(value: Any) -> Any:
    if is_tensor(value):
        import torch

        value = value.detach().cpu()
        return (
            value.view(torch.int16).numpy().view(np.uint16)
            if value.dtype == torch.bfloat16
            else value.numpy()
        )
    if isinstance(value, Ragged):
        return Ragged(_to_numpy(value.values), _to_numpy(value.offsets))
    if isinstance(value, dict):
        return {name: _to_numpy(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_to_numpy(item) if is_tensor(item) else item for item in value]
    return value


def map_tensors(value: Any, function: Any, kind: type | None = None) -> Any:
    """A value of a batch with each tensor in it (or each object of `kind`) replaced by what the function returns."""
    if isinstance(value, kind) if kind is not None else is_tensor(value):
        return function(value)
    if isinstance(value, Ragged):
        return Ragged(map_tensors(value.values, function, kind), map_tensors(value.offsets, function, kind))
    if isinstance(value, dict):
        return {name: map_tensors(child, function, kind) for name, child in value.items()}
    if isinstance(value, list):
        if isinstance(next((item for item in value if item is not None), None), str | bytes):
            return value  # to look at each would take long
        return [map_tensors(item, function, kind) for item in value]
    return value


def _zipped(columns: Mapping[str, Iterable[Any]], count: int) -> Iterator[dict[str, Any]]:
    if not columns:
        return ({} for _ in range(count))
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _split(value: Any, form: ColumnForm | None, count: int) -> Iterable[Any]:
    if isinstance(value, dict):
        children = {child.name: child for child in form.children} if form is not None else {}
        return _zipped(
            {name: _split(child, children.get(name), count) for name, child in value.items()}, count
        )
    if form is not None and form.delivers_bfloat16:
        return _split_bfloat16(value)
    values: Iterable[Any] = value
    return values


def _split_bfloat16(value: Any) -> Iterable[Any]:
    if isinstance(value, Ragged):
        return (array_to_torch(item, True) if isinstance(item, np.ndarray) else item for item in value)
    if isinstance(value, np.ndarray):
        tensors: Iterable[Any] = array_to_torch(value, True)
        return tensors
    return (array_to_torch(item, True) if isinstance(item, np.ndarray) else item for item in value)


def register_collate() -> None:
    """Teach torch's default collate, if torch is there, two things: batches are finished, and decimals make a list."""
    if "torch" in sys.modules:
        _register_collate()


@cache
def _register_collate() -> None:
    from decimal import Decimal

    from torch.utils.data._utils.collate import default_collate_fn_map

    default_collate_fn_map.setdefault(Batch, _refuse_collate)
    default_collate_fn_map.setdefault(Decimal, _collate_list)


def _collate_list(batch: list[Any], *, collate_fn_map: Any = None) -> list[Any]:
    return list(batch)


def _refuse_collate(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    raise InvalidError(
        "a DataLoader with a batch_size was given finished batches, and would build batches of batches: pass "
        "batch_size=None to it, or batched=False to the data set"
    )
