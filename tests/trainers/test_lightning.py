"""`fs.lightning.ShardDataModule` under Lightning's Trainer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from journals import check_curves
from launching import call, ended_well, results

import fastshard as fs
from fastshard.errors import InvalidError


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    check_curves(
        tmp_path, {1: [sys.executable], 2: [sys.executable]}, "train_lightning.py", own_processes=True
    )


def test_parts(tmp_path: Path, script: Callable[[str], Path], data: Callable[..., str]) -> None:
    """Training, validation and prediction on two processes; with worker processes, too."""
    data(25)
    data(11, "val")
    main = """
    import json
    import torch
    import lightning
    import fastshard as fs


    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.seen = {"train": [], "val": [], "predict": []}

        def step(self, kind, batch):
            self.seen[kind] += batch["id"].tolist()
            return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])

        def training_step(self, batch, index):
            return self.step("train", batch)

        def validation_step(self, batch, index):
            if not self.trainer.sanity_checking:
                self.step("val", batch)

        def predict_step(self, batch, index):
            return self.step("predict", batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)


    if __name__ == "__main__":
        found = []
        for workers in (0, 1):
            data = fs.lightning.ShardDataModule(
                "train", val="val", predict="val", batch_size=4, num_workers=workers, columns=["id", "x", "y"])
            trainer = lightning.Trainer(
                accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
            model = Model()
            trainer.fit(model, data)
            trainer.predict(model, data, return_predictions=False)
            found.append(model.seen)
        with open(f"rank-{trainer.global_rank}.json", "w") as file:
            json.dump(found, file)
    """
    done = call([sys.executable, str(script(main))], tmp_path)
    assert ended_well(done), done.stdout
    first, second = results(tmp_path)
    for mine, its in zip(first, second, strict=True):
        assert sorted(mine["predict"] + its["predict"]) == list(range(11))
        assert len(mine["train"]) == len(its["train"]) == 26
        for epoch in range(2):
            part = slice(13 * epoch, 13 * epoch + 13)
            assert set(mine["train"][part] + its["train"][part]) == set(range(25))
            part = slice(6 * epoch, 6 * epoch + 6)
            assert set(mine["val"][part] + its["val"][part]) == set(range(11))
    assert first[0] == first[1]


def test_a_part_that_was_not_given(data: Callable[..., str]) -> None:
    module = fs.lightning.ShardDataModule(data(5), batch_size=2)
    assert len(module.train_dataloader()) == 3
    with pytest.raises(InvalidError, match="test="):
        module.test_dataloader()
    with pytest.raises(InvalidError, match="num_workers=-1"):
        fs.lightning.ShardDataModule(data(5, "other"), batch_size=2, num_workers=-1)
