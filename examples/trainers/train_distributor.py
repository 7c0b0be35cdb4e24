"""Spark's TorchDistributor: Spark starts the processes, on executors or on this machine; each reads its own share.

    python train_distributor.py FOLDER --local-mode --make-data-on driver

`FOLDER` must be one that all machines see. The data set may be made on the driver: it travels as its path and options,
and finds rank and world size where it is used. Or it is made in the function.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import fastshard as fs


def train(folder: str, options: dict[str, Any], dataset: fs.ShardDataset | None) -> int:
    """What each process does; returns the steps that it made."""
    import sys

    sys.path.insert(0, options["examples"])
    import torch
    import torch.distributed as dist
    from common import Journal, loss_of, make_model, replace
    from torch.nn.parallel import DistributedDataParallel

    import fastshard.torch

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if dataset is None:
        dataset = fs.ShardDataset(f"{folder}/train", shuffle=True, seed=7)
    loader = fastshard.torch.DataLoader(dataset, batch_size=options["global_batch"] // world_size)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps, checkpoint = 0, Path(folder) / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        steps = saved["steps"]
    journal = Journal(Path(folder), rank, options["kill_at"])
    while steps < options["epochs"] * len(loader):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % options["checkpoint_every"] == 0:
                if rank == 0:
                    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    replace(checkpoint, {**state, "data": loader.state_dict(), "steps": steps})
                dist.barrier()
            journal.write(steps, loss, batch["id"])
    dist.barrier()
    dist.destroy_process_group()
    return steps


def arguments() -> Namespace:
    from common import parser

    found = parser(__doc__)
    found.add_argument(
        "--local-mode", action="store_true", help="start the processes on the driver's machine"
    )
    found.add_argument("--make-data-on", choices=["driver", "executor"], default="driver")
    found.add_argument("--connect", action="store_true", help="through Spark Connect")
    return found.parse_args()


def main() -> None:
    args = arguments()
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    if args.connect:
        spark = builder.remote(f"local[{args.processes}]").getOrCreate()
    else:
        builder = builder.master(f"local[{args.processes}]").config("spark.driver.host", "127.0.0.1")
        spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    folder = str(args.folder.absolute())
    dataset = None
    if args.make_data_on == "driver":
        dataset = fs.ShardDataset(f"{folder}/train", shuffle=True, seed=7)
    options = {
        name: getattr(args, name) for name in ("epochs", "global_batch", "checkpoint_every", "kill_at")
    }
    options["examples"] = os.path.dirname(os.path.abspath(__file__))
    distributor = TorchDistributor(num_processes=args.processes, local_mode=args.local_mode, use_gpu=False)
    print("steps:", distributor.run(train, folder, options, dataset))
    spark.stop()


if __name__ == "__main__":
    main()
