"""A picture of an epoch: where its samples come from, and from how many shards each batch is made.

The larger panels show places in the data against positions in the epoch. A shuffle that is uniform fills them evenly;
one that reads block by block shows its windows; none at all is a diagonal. The lower panel counts shards (or blocks,
where there are few shards) in each batch, against what a uniform shuffle would give.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastshard._optional import require
from fastshard.errors import InvalidError, StorageError
from fastshard.plan import Run, Storage, planned_chunks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_SAMPLES = 1 << 20  # that a panel shows at most
_POINTS = 6_000  # up to so many samples are drawn one by one
_PER_CELL = 60  # samples that a cell of a panel should have, so that chance does not look like structure
_MOST_CELLS = 200
_BATCHES = 240  # that the lower panel shows
_FEW_SHARDS = 12
_MARKED_SHARDS = 48
_INK = "#1f3a5f"
_SECOND = "#c2571a"
_QUIET = "#8a8f98"


def draw(run: Run, file: str | os.PathLike[str]) -> None:
    """Draw the epoch of a run.

    Args:
        run: What is planned.
        file: The picture, .png, .pdf or .svg.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        InvalidError: A picture of no known kind.
        StorageError: The file cannot be written.
    """
    require("matplotlib", "matplotlib", "--plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    storage = Storage(run.data)
    figure = Figure(figsize=(11, 7.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    several = run.world_size > 1
    grid = figure.add_gridspec(2, 2 if several else 1, height_ratios=[3, 1])
    whole = figure.add_subplot(grid[0, 0])
    _panel(whole, run, _all_ranks(run), "all ranks" if several else "all samples", legend=not several)
    whole.set_ylabel("place in the data" + (", marks between shards" if _marks_shards(run) else ""))
    if several:
        one = figure.add_subplot(grid[0, 1], sharey=whole)
        _panel(one, run, _of_rank(run, 0), "rank 0 alone", legend=True)
        one.tick_params(labelleft=False)
    _mixture(figure.add_subplot(grid[1, :]), run, storage)
    figure.suptitle(_title(run), fontsize=12, x=0.01, ha="left")
    try:
        figure.savefig(file)
    except ValueError as error:
        raise InvalidError(f"--plot {os.fspath(file)}: {error}") from None
    except OSError as error:
        raise StorageError(
            f"{os.fspath(file)}: cannot write the picture: {error.strerror or error}"
        ) from error


def _title(run: Run) -> str:
    key = run.key
    order = {"none": "no shuffle", "global": "global shuffle", "block": "block shuffle"}[key.kind]
    where = run.source.where
    where = where if len(where) <= 60 else f"...{where[-57:]}"
    parts = [where, f"{run.data.rows:,} samples", order]
    if key.kind != "none":
        parts.append(f"seed {key.seed}, epoch {run.start.epoch}")
    if key.kind == "block":
        parts.append(f"windows of {min(key.window, key.rows):,}")
    if key.lanes > 1:
        parts.append(f"{key.lanes} lanes")
    return "  ·  ".join(parts)


def _all_ranks(run: Run) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(positions, places) of the epoch, or of an even part of it."""
    first, end = run.start.position, run.key.size
    step = max(1, (end - first) // _SAMPLES)
    positions = np.arange(first, end, step, dtype=np.uint64)
    if step > 1:  # evenly spaced, but not in step with lanes
        positions += np.random.default_rng(0).integers(0, step, len(positions)).astype(np.uint64)
        positions = positions[positions < end]
    order = run.data.epoch_order(run.key, run.start.epoch)
    return positions.view(np.int64), order.ids(positions).view(np.int64)


def _of_rank(run: Run, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(positions along the epoch, places) of one rank: its k-th sample stands where the epoch is at that time."""
    plan = run.plan(rank)
    every = max(1, plan.num_samples // _SAMPLES)
    places = np.concatenate(
        [chunk.view(np.int64) for chunk in planned_chunks(plan, every)] or [np.zeros(0, np.int64)]
    )
    first, end = run.start.position, run.key.size
    return np.linspace(first, end, len(places), endpoint=False).astype(np.int64), places


def _panel(
    axes: Axes,
    run: Run,
    points: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    title: str,
    *,
    legend: bool,
) -> None:
    positions, places = points
    first, end, rows = run.start.position, max(run.key.size, run.start.position + 1), max(run.data.rows, 1)
    axes.set_xlim(first, end)
    axes.set_ylim(0, rows)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("position in the epoch")
    if len(places) <= _POINTS:
        size = float(np.clip(2500 / max(len(places), 1), 0.6, 14))
        axes.scatter(positions + 0.5, places + 0.5, s=size, color=_INK, linewidths=0)
    else:
        cells = int(np.clip(np.sqrt(len(places) / _PER_CELL), 20, _MOST_CELLS))
        counts, _, _ = np.histogram2d(positions, places, bins=(cells, cells), range=((first, end), (0, rows)))
        image = axes.imshow(
            counts.T / (len(places) / cells**2),
            origin="lower",
            aspect="auto",
            extent=(first, end, 0, rows),
            cmap="Blues",
            vmin=0,
            vmax=3,
            interpolation="nearest",
        )
        if legend:
            bar = axes.figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 1, 2, 3])
            bar.ax.set_yticklabels(["none", "even", "2x", "3x or more"], fontsize=8)
            bar.outline.set_visible(False)
    _borders(axes, run)
    _plain(axes)


def _borders(axes: Axes, run: Run) -> None:
    """Where one source of a mix, or one shard of a few, ends."""
    from fastshard.mixing import Mix

    if isinstance(run.data, Mix):
        place = 0
        for name, part in zip(run.data.sources, run.data.parts, strict=True):
            axes.axhline(place, color=_SECOND, linewidth=0.8)
            axes.annotate(
                name,
                (0.01, place),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                color=_SECOND,
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
            )
            place += part.rows
        return
    if _marks_shards(run):
        axes.set_yticks(np.cumsum(run.data.geometry.shard_rows)[:-1], minor=True)
        axes.tick_params(axis="y", which="minor", direction="in", length=6, width=1.2, color=_SECOND)


def _marks_shards(run: Run) -> bool:
    return not run.data.sources and 1 < len(run.data.geometry.shard_rows) <= _MARKED_SHARDS


def _mixture(axes: Axes, run: Run, storage: Storage) -> None:
    """How many shards, or blocks, each batch is made of."""
    few = len(storage.shard_rows) < _FEW_SHARDS
    unit = "blocks" if few else "shards"

    def units(places: npt.NDArray[np.uint64]) -> int:
        rows = storage.rows_of(places.view(np.int64))
        shards = storage.shards_of(rows)
        return len(np.unique(storage.blocks_of(rows, shards) if few else shards))

    order = run.data.epoch_order(run.key, run.start.epoch)
    groups = run.world_size // run.options.replication
    size = groups * run.options.step_size
    first, end = run.start.position, run.key.size
    starts = np.unique(np.linspace(first, max(first, end - size), _BATCHES).astype(np.int64))
    whole = [units(order.ids(np.arange(start, min(start + size, end), dtype=np.uint64))) for start in starts]
    middle = starts + min(size, end - first) / 2
    label = f"batch of all ranks, {size:,} samples" if run.world_size > 1 else f"batch of {size:,} samples"
    axes.plot(middle, whole, color=_INK, linewidth=1.3, drawstyle="steps-mid", label=label)
    shares = _shares(run, storage, few)
    _even(axes, shares, size, _INK)
    if run.world_size > 1:
        plan = run.plan(0)
        last = plan.num_batches - 1
        indices = np.unique(np.linspace(0, last, _BATCHES).astype(np.int64)).tolist() if last >= 0 else []
        axes.plot(
            [first + (index + 0.5) * size for index in indices],
            [units(plan.batch(index).places) for index in indices],
            color=_SECOND,
            linewidth=1.3,
            drawstyle="steps-mid",
            label=f"batch of rank 0, {run.options.step_size:,} samples",
        )
        _even(axes, shares, run.options.step_size, _SECOND)
    axes.plot([], [], color=_QUIET, linestyle=":", label="a uniform shuffle")
    axes.set_xlim(first, max(end, first + 1))
    axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
    axes.set_title(f"{unit} in a batch", fontsize=10, loc="left")
    axes.set_xlabel("position in the epoch")
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=3, bbox_to_anchor=(1, 1.22))
    _plain(axes)


def _shares(run: Run, storage: Storage, few: bool) -> npt.NDArray[np.float64]:
    """By shard, or block, how much of an epoch comes from it: float64, with a sum of 1."""
    from fastshard.mixing import Mix

    parts = (
        [(part.rows, weight) for part, weight in zip(run.data.parts, run.data.weights, strict=True)]
        if isinstance(run.data, Mix)
        else [(run.data.rows, 1)]
    )
    shares = np.zeros(storage.blocks if few else len(storage.shard_rows))
    first = 0
    for rows, weight in parts:
        places = first + np.unique(np.linspace(0, rows - 1, min(rows, _SAMPLES)).astype(np.int64))
        found = storage.rows_of(places)
        units = storage.shards_of(found)
        units = storage.blocks_of(found, units) if few else units
        shares += np.bincount(units, minlength=len(shares)) * (weight / len(places))
        first += rows
    shares /= shares.sum()
    return shares


def _even(axes: Axes, shares: npt.NDArray[np.float64], size: int, color: str) -> None:
    """From how many shards or blocks a batch of a uniform shuffle is made, on average."""
    axes.axhline(float((1 - (1 - shares) ** size).sum()), color=color, linestyle=":", linewidth=1)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_thousands)
        axis.label.set_fontsize(9)


def _thousands(value: float, _: Any) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[unit]:.4g}{unit}"
    return f"{value:g}"
