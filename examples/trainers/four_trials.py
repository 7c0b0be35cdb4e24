"""Four trials at a time on one machine, over one data set.

    python four_trials.py FOLDER

The trials share the pages of the data set in the machine's memory: each opens the same files, none copies them. Each is
one process of its own, whatever launcher is around it, so rank and world size are given. All see the same batches.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from common import loss_of, make_model, parser
from joblib import Parallel, delayed

import fastshard as fs

RATES = (0.001, 0.01, 0.03, 0.1)


def trial(data: Path, rate: float, epochs: int, batch_size: int) -> dict[str, object]:
    """Trains at one learning rate; returns the loss of the last epoch and the ids in the order in which they came."""
    torch.set_num_threads(1)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    loader = fs.ShardLoader(
        data, batch_size=batch_size, shuffle=True, seed=7, rank=0, world_size=1, threads=1
    )
    ids: list[int] = []
    losses: list[float] = []
    for _ in range(epochs):
        losses.clear()
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            ids += batch["id"].tolist()
    return {"rate": rate, "loss": sum(losses) / len(losses), "ids": ids}


def main() -> None:
    args = parser(__doc__).parse_args()
    jobs = [delayed(trial)(args.folder / "train", rate, args.epochs, args.global_batch) for rate in RATES]
    found = Parallel(n_jobs=len(RATES))(jobs)
    best = min(found, key=lambda result: result["loss"])
    print(f"best learning rate: {best['rate']}")
    (args.folder / "trials.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
