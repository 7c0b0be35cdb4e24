"""Scoring a table on several processes: each row once, predictions joined back by id.

    torchrun --nproc-per-node 2 score_table.py FOLDER

`tail="exact"` gives every row to one process and repeats none; one process may have a step more than another, so
nothing in the loop may wait for the others. A batch knows the ids of its rows: their places in the table.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from common import make_model, parser

import fastshard as fs


def score(args: object, rank: int) -> None:
    """Writes what this process predicts, with the ids of the rows."""
    model = make_model().eval()
    ids, scores = [], []
    loader = fs.ShardLoader(args.folder / "train", batch_size=16, tail="exact", columns=["x"])
    with torch.inference_mode():
        for batch in loader:
            ids.append(batch.ids.numpy())
            scores.append(model(batch["x"])[:, 0].numpy())
    empty = np.zeros(0)  # a process may have no row
    columns = {
        "id": np.concatenate([empty.astype(np.int64), *ids]),
        "score": np.concatenate([empty.astype(np.float32), *scores]),
    }
    pq.write_table(pa.table(columns), args.folder / f"scores-{rank}.parquet")


def join(args: object) -> pa.Table:
    """The table with its scores, once all processes have written theirs."""
    scores = pq.read_table(sorted(args.folder.glob("scores-*.parquet"))).sort_by("id")
    table = fs.open(args.folder / "train").to_arrow()
    assert scores["id"].to_pylist() == list(range(table.num_rows)), "each row has one score"
    return table.append_column("score", scores["score"])


def main() -> None:
    args = parser(__doc__).parse_args()
    rank, world_size = (
        int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1))
    )
    score(args, rank)
    if world_size > 1:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if rank == 0:
        pq.write_table(join(args), args.folder / "scored.parquet")


if __name__ == "__main__":
    main()
