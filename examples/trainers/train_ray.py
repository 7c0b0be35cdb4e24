"""Ray Train: Ray starts the processes, each reads its share of the data set by itself.

    python train_ray.py FOLDER

The loader finds rank and world size in what Ray Train sets up. Its state goes into Ray's checkpoints.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from common import Journal, loss_of, make_model, parser

import fastshard as fs


def train(config: dict[str, Any]) -> None:
    """What each process does."""
    folder, context = Path(config["folder"]), ray.train.get_context()
    model = ray.train.torch.prepare_model(make_model())
    plain = model.module if hasattr(model, "module") else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batch_size = config["global_batch"] // context.get_world_size()
    loader = fs.ShardLoader(folder / "train", batch_size=batch_size, shuffle=True, seed=7, threads=1)
    steps = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as saved_in:
            saved = torch.load(os.path.join(saved_in, "state.pt"))
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        steps = saved["steps"]
    journal = Journal(folder, context.get_world_rank(), config["kill_at"] if checkpoint is None else None)
    while steps < config["epochs"] * len(loader):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            journal.write(steps, loss, batch["id"])
            if steps % config["checkpoint_every"] == 0:
                state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict()}
                with tempfile.TemporaryDirectory() as directory:
                    torch.save(
                        {**state, "data": loader.state_dict(), "steps": steps},
                        os.path.join(directory, "state.pt"),
                    )
                    new = ray.train.Checkpoint.from_directory(directory)
                    ray.train.report(
                        {"loss": float(loss)}, checkpoint=new if context.get_world_rank() == 0 else None
                    )


def main() -> None:
    args = parser(__doc__).parse_args()
    ray.init(
        num_cpus=args.processes, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False
    )
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={**vars(args), "folder": str(args.folder.absolute())},
        scaling_config=ray.train.ScalingConfig(num_workers=args.processes, resources_per_worker={"CPU": 0.5}),
        run_config=ray.train.RunConfig(
            name="run",
            storage_path=str(args.folder.absolute() / "ray"),
            failure_config=ray.train.FailureConfig(
                max_failures=1
            ),  # Ray starts again from its last checkpoint
        ),
    )
    trainer.fit()
    ray.shutdown()


if __name__ == "__main__":
    main()
