"""DeepSpeed, launched by what sets RANK and WORLD_SIZE: torchrun, deepspeed, Spark's DeepspeedTorchDistributor.

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 train_deepspeed.py FOLDER
    DeepspeedTorchDistributor(numGpus=2, localMode=True).run("train_deepspeed.py", FOLDER)

The loader is ours, and the engine gets none: `deepspeed.initialize(training_data=...)` would wrap a data set in a
loader and a sampler of its own, which divide it once more. The loader's state goes into the client state of the
engine's checkpoints.
"""

from __future__ import annotations

import deepspeed
import torch
import torch.distributed as dist
from common import Journal, loss_of, make_model, parser

import fastshard as fs


def main() -> None:
    args = deepspeed.add_config_arguments(parser(__doc__)).parse_args()  # its launchers pass --deepspeed
    deepspeed.init_distributed("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    batch_size = args.global_batch // world_size
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    config = {"train_micro_batch_size_per_gpu": batch_size, "train_batch_size": args.global_batch}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    loader = fs.ShardLoader(args.folder / "train", batch_size=batch_size, shuffle=True, seed=7)

    checkpoints, steps = str(args.folder / "deepspeed"), 0
    found, client = engine.load_checkpoint(checkpoints)
    if found is not None:
        loader.load_state_dict(client["data"])
        steps = client["steps"]
    journal = Journal(args.folder, rank, args.kill_at)
    while steps < args.epochs * len(loader):
        for batch in loader:
            loss = loss_of(engine, batch)
            engine.backward(loss)
            engine.step()
            steps += 1
            if steps % args.checkpoint_every == 0:
                state = {"data": loader.state_dict(), "steps": steps}
                engine.save_checkpoint(checkpoints, client_state=state)
            journal.write(steps, loss, batch["id"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
