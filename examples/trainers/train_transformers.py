"""The Trainer of Hugging Face transformers with a loader of ours.

    torchrun --nproc-per-node 2 train_transformers.py FOLDER

`Trainer(train_dataset=fs.open(path))` works as it is: a map-style data set, shuffled and divided by the Trainer. With a
loader in `get_train_dataloader`, as here, batches come ready, and a resumed run goes on at the next sample instead of
reading everything again up to it. For that the loader's state is kept beside the Trainer's, and the Trainer is told
not to skip by itself: `ignore_data_skip=True`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from common import Journal, loss_of, make_model, parser
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import fastshard as fs
import fastshard.torch


class DataState(TrainerCallback):
    """Keeps the state of the loader in each checkpoint of the Trainer."""

    FILE = "fastshard.json"

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **now: Any) -> None:
        if state.is_world_process_zero:  # it is the same on every rank
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / self.FILE).write_text(json.dumps(now["train_dataloader"].state_dict()))


class ShardTrainer(Trainer):
    """Trains on the batches of a `fastshard.torch.DataLoader`."""

    def __init__(
        self, dataset: fs.ShardDataset, checkpoint: str | None, journal: Journal, **options: Any
    ) -> None:
        super().__init__(**options, callbacks=[DataState()])
        self._dataset = dataset
        self._checkpoint = checkpoint
        self._journal = journal

    def get_train_dataloader(self) -> fastshard.torch.DataLoader:
        loader = fastshard.torch.DataLoader(self._dataset, batch_size=self.args.per_device_train_batch_size)
        if self._checkpoint is not None:
            loader.load_state_dict(json.loads((Path(self._checkpoint) / DataState.FILE).read_text()))
        return loader

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **unused: Any) -> Any:
        loss = loss_of(model, inputs)
        self._journal.write(self.state.global_step + 1, loss, inputs["id"])
        return (loss, {}) if return_outputs else loss


def main() -> None:
    args = parser(__doc__).parse_args()
    output = args.folder / "trainer"
    options = TrainingArguments(
        output_dir=str(output),
        num_train_epochs=args.epochs,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        save_steps=args.checkpoint_every,
        ignore_data_skip=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    options.per_device_train_batch_size = args.global_batch // options.world_size
    model = make_model()
    checkpoint = get_last_checkpoint(str(output)) if output.exists() else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = ShardTrainer(
        fs.ShardDataset(args.folder / "train", shuffle=True, seed=7),
        checkpoint,
        Journal(args.folder, options.process_index, args.kill_at),
        model=model,
        args=options,
        train_dataset=fs.open(args.folder / "train"),  # for its length; batches come from the loader
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
