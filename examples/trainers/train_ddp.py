"""DistributedDataParallel under torchrun.

    torchrun --nproc-per-node 2 train_ddp.py FOLDER

Run it again after it was killed, also with another number of processes: it goes on where the checkpoint stands.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Journal, loss_of, make_model, parser, replace
from torch.nn.parallel import DistributedDataParallel

import fastshard as fs


def main() -> None:
    args = parser(__doc__).parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = fs.ShardLoader(
        args.folder / "train", batch_size=args.global_batch // world_size, shuffle=True, seed=7
    )
    steps = 0

    checkpoint = args.folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        steps = saved["steps"]
    journal = Journal(args.folder, rank, args.kill_at)
    while steps < args.epochs * len(loader):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % args.checkpoint_every == 0:
                if rank == 0:
                    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                    replace(checkpoint, {**state, "data": loader.state_dict(), "steps": steps})
                dist.barrier()
            journal.write(steps, loss, batch["id"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
