"""Lightning: its Trainer starts the processes, and restores the loader's state from its checkpoint in mid-epoch.

python train_lightning.py FOLDER
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from common import Journal, loss_of, make_model, parser
from lightning.pytorch.callbacks import ModelCheckpoint

import fastshard as fs


class Regression(lightning.LightningModule):
    """The model of all examples."""

    def __init__(self, args: Any) -> None:
        super().__init__()
        self.args = args
        self.model = make_model()
        self.journal: Journal | None = None

    def on_fit_start(self) -> None:
        self.journal = Journal(self.args.folder, self.global_rank, self.args.kill_at)

    def training_step(self, batch: Any, index: int) -> dict[str, Any]:
        loss = loss_of(self.model, batch)
        return {"loss": loss, "ids": batch["id"]}

    def on_train_batch_end(self, outputs: Any, batch: Any, index: int) -> None:
        assert self.journal is not None
        self.journal.write(self.global_step, outputs["loss"], outputs["ids"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    args = parser(__doc__).parse_args()
    data = fs.lightning.ShardDataModule(
        args.folder / "train", batch_size=args.global_batch // args.processes, shuffle=True, seed=7
    )
    saving = ModelCheckpoint(
        args.folder / "checkpoints", every_n_train_steps=args.checkpoint_every, save_last=True, save_top_k=0
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=args.processes,
        strategy="ddp" if args.processes > 1 else "auto",
        max_epochs=args.epochs,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = args.folder / "checkpoints" / "last.ckpt"
    trainer.fit(Regression(args), data, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
