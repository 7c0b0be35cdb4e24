"""Hugging Face Accelerate with a loader of ours.

    accelerate launch --cpu --num_processes 2 train_accelerate.py FOLDER

`prepare` leaves our loaders as they are: they know rank and world size, deliver on the accelerator's device, and tell
it of their last batch. Their state is saved and loaded with everything else.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from common import Journal, StepCount, loss_of, make_model, parser

import fastshard as fs
import fastshard.torch


def main() -> None:
    args = parser(__doc__).parse_args()
    accelerator = Accelerator()
    dataset = fs.ShardDataset(args.folder / "train", shuffle=True, seed=7)
    loader = fastshard.torch.DataLoader(dataset, batch_size=args.global_batch // accelerator.num_processes)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    count = StepCount()
    accelerator.register_for_checkpointing(count)

    checkpoint = args.folder / "checkpoint"
    if checkpoint.exists():
        accelerator.load_state(checkpoint)
    journal = Journal(args.folder, accelerator.process_index, args.kill_at)
    while count.steps < args.epochs * len(loader):
        for batch in loader:
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            count.steps += 1
            if count.steps % args.checkpoint_every == 0:
                accelerator.save_state(checkpoint)
                accelerator.wait_for_everyone()
            journal.write(count.steps, loss, batch["id"])
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
