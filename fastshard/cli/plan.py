"""`fastshard plan`: what an epoch will look like, before a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fastshard._text import count, fields, size, table
from fastshard.cli._options import echo_json, json_option, path_argument, shuffle_option

if TYPE_CHECKING:
    from fastshard.plan import EpochOverview, RankOverview

__all__ = ["command"]

_SHOWN_RANKS = 16
_SHOWN_IDS = 4
_ORDERS = {"none": "no shuffle", "global": "global shuffle", "block": "block shuffle"}


@click.command("plan", short_help="Show what each rank of a run gets and reads.")
@path_argument
@click.option(
    "--world", "world_size", type=click.IntRange(1), default=1, show_default=True, help="Number of ranks."
)
@click.option(
    "--batch-size", "-b", type=click.IntRange(1), required=True, help="Samples of one rank at each step."
)
@shuffle_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the shuffle.")
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, help="Which epoch.")
@click.option(
    "--tail",
    type=click.Choice(["pad", "drop", "exact"]),
    default="pad",
    show_default=True,
    help="What happens at the end of an epoch that does not divide.",
)
@click.option(
    "--lanes", type=click.IntRange(1), help="Parts of the data that are dealt in turn.  [default: by size]"
)
@click.option(
    "--replication", type=click.IntRange(1), default=1, show_default=True, help="Ranks with equal batches."
)
@click.option("--epoch-size", type=click.IntRange(1), help="Samples of an epoch.  [default: all]")
@click.option("--position", type=click.IntRange(0), default=0, help="Begin here, as after a resume.")
@click.option("--plot", "plot", metavar="FILE.png", help="Draw where samples come from along the epoch.")
@json_option
def command(
    path: str,
    world_size: int,
    batch_size: int,
    shuffle: str,
    seed: int,
    epoch: int,
    tail: str,
    lanes: int | None,
    replication: int,
    epoch_size: int | None,
    position: int,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show how an epoch is divided: batches of each rank, repeats or drops, and what each rank reads.

    PATH may name a part of a data set. Only the index is read, so this shows in a moment whether a world size suits the
    data, how well it is shuffled, and which blocks several ranks would read.

    \b
    Examples:
      fastshard plan train/ --world 8 --batch-size 256
      fastshard plan train/ --world 8 -b 256 --shuffle global --plot epoch.png
      fastshard plan "train/?split=val" -b 64 --shuffle none --tail exact
      fastshard plan train/ --world 8 -b 256 --json | jq '.ranks[].batches'
    """
    from fastshard.plan import Run

    run = Run(
        path,
        world_size=world_size,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        epoch=epoch,
        tail=tail,
        lanes=lanes,
        replication=replication,
        epoch_size=epoch_size,
        position=position,
    )
    overview = run.overview()
    if plot is not None:
        from fastshard._plot import draw

        draw(run, plot)
    if as_json:
        echo_json(asdict(overview))
        return
    click.echo(_summary(overview))
    click.echo()
    click.echo(_ranks(overview))
    if plot is not None:
        click.echo()
        click.echo(f"drawn in {plot}")


def _summary(plan: EpochOverview) -> str:
    order = _ORDERS[plan.kind]
    if plan.kind != "none":
        order += f", seed {plan.seed}, epoch {plan.epoch}"
    if plan.kind == "block":
        order += f", windows of {count(min(plan.window, plan.rows), 'sample')}"
    if plan.lanes > 1:
        order += f", {plan.lanes} lanes"
    samples = count(plan.rows)
    if plan.size != plan.rows or plan.position:
        samples += f", of which positions {count(plan.position)} to {count(plan.size)}"
    pairs = [
        ("data", plan.where),
        ("samples", samples),
        ("order", order),
        ("a step", _step(plan)),
        ("an epoch", _epoch(plan)),
        ("reads", _reads(plan)),
    ]
    if plan.sources:
        pairs.insert(2, ("mixed", ", ".join(f"{name} {share:.1%}" for name, share in plan.sources)))
    return fields(pairs)


def _step(plan: EpochOverview) -> str:
    text = count(plan.global_batch, "sample")
    if plan.world_size > 1:
        text += f": {count(plan.batch_size)} on each of {count(plan.world_size, 'rank')}"
    if plan.replication > 1:
        text += f", {plan.replication} of which get the same"
    return text


def _epoch(plan: EpochOverview) -> str:
    text = count(plan.full_steps, "full step")
    if plan.last_step:
        text += f" and one of {count(plan.last_step, 'sample')}"
    if plan.dropped:
        text += f'; {count(plan.dropped, "sample")} at the end dropped (tail "drop")'
    elif plan.repeats:
        text += f'; {count(plan.repeats, "sample")} repeated to make ranks equal (tail "pad")'
    return text


def _reads(plan: EpochOverview) -> str:
    least = "" if plan.counted == 1 else "at least "
    text = f"{least}{count(plan.blocks, 'block')} in {count(plan.shards, 'shard')}, {size(plan.bytes)}"
    if plan.shards < plan.data_shards:
        text += f" (of {count(plan.data_shards, 'shard')})"
    if plan.world_size > 1:
        text += f"; each block by {plan.reads:.2f} ranks on average"
    return text


def _ranks(plan: EpochOverview) -> str:
    shown = plan.ranks
    cut = len(shown) > _SHOWN_RANKS + 1
    if cut:
        shown = (*shown[: _SHOWN_RANKS - 2], *shown[-2:])
    header = ("rank", "batches", "samples", "repeats", "shards", "blocks", "reads", "first ids")
    rows = [
        (
            count(rank.rank),
            count(rank.batches),
            count(rank.samples),
            count(rank.repeats),
            count(rank.shards),
            count(rank.blocks),
            size(rank.bytes),
            _first(rank),
        )
        for rank in shown
    ]
    if cut:
        rows.insert(_SHOWN_RANKS - 2, ("...",) * 7 + ("",))
    return table(header, rows, right=range(7))


def _first(rank: RankOverview) -> str:
    ids = [str(id) for id in rank.first_ids[:_SHOWN_IDS]]
    if rank.first_sources:
        ids = [f"{source}:{id}" for source, id in zip(rank.first_sources, ids, strict=False)]
    return " ".join(ids) + (" ..." if rank.samples > len(ids) else "")
