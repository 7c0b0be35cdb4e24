"""`fs.lightning.ShardDataModule`: data sets for the Trainer of Lightning.

The Trainer keeps the state of training loaders in its checkpoints and restores it, in the middle of an epoch, too: our
loaders have what it looks for. It replaces no sampler of theirs, and moves their batches to its device.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TypeAlias

from fastshard._optional import require
from fastshard.errors import InvalidError
from fastshard.loader import ShardLoader
from fastshard.source import Data, Recipe

__all__ = ["ShardDataModule"]

Samples: TypeAlias = "str | os.PathLike[str] | Data | Recipe"


def _base() -> Any:
    """The class of the package that the program uses: lightning, or its older name, pytorch_lightning."""
    older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    package = "pytorch_lightning" if older else "lightning.pytorch"
    return require(package, "lightning", "fs.lightning").LightningDataModule


class ShardDataModule(_base()):  # type: ignore[misc]
    """The data of a Trainer: each part a data set, a view, or a text such as `"data/?split=val"`.

        data = fs.lightning.ShardDataModule("data/?split=train", val="data/?split=val", batch_size=256, seed=7)
        Trainer(strategy="ddp", devices=8).fit(model, data)
        Trainer(strategy="ddp", devices=4).fit(model, data, ckpt_path="last.ckpt")

    Ranks divide each part by themselves. A run goes on with exactly the samples not yet seen, on any number of devices.

    Attributes:
        batch_size: samples of a batch of one rank; may be changed until loaders are made (by Lightning's tuner, say).
    """

    def __init__(
        self,
        train: Samples | None = None,
        *,
        val: Samples | None = None,
        test: Samples | None = None,
        predict: Samples | None = None,
        batch_size: int,
        shuffle: bool | str = True,
        seed: int = 0,
        num_workers: int = 0,
        **options: Any,
    ) -> None:
        """Notes what to read; data sets are opened when the Trainer asks for their loaders.

        Args:
            train: what `fit` trains on.
            val: what `fit` and `validate` evaluate on, in the order in which it is stored.
            test: what `test` evaluates on.
            predict: what `predict` takes. Every sample comes once (`tail="exact"`), so ranks may differ by one step.
            batch_size: samples of a batch of one rank.
            shuffle: of `train`; see `ShardDataset`.
            seed: of the shuffle.
            num_workers: 0 for `ShardLoader`, whose threads need no processes; else that many worker processes of
                `fastshard.torch.DataLoader`, for slow Python in `transform`.
            options: for every part, as `ShardLoader` takes them (with workers, as `ShardDataset` does): `columns`,
                `cast`, `transform` (of batches), `tail` (of `train`), ...

        Raises:
            InvalidError: An argument that cannot be used.
        """
        super().__init__()
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
            raise InvalidError(f"num_workers={num_workers!r}: must be an integer of at least 0")
        self.batch_size = batch_size
        self._parts = {"train": train, "val": val, "test": test, "predict": predict}
        self._shuffle = shuffle
        self._seed = seed
        self._num_workers = num_workers
        self._options = options
        if val is None:  # the Trainer looks whether there is such a method
            self.val_dataloader = super().val_dataloader  # type: ignore[method-assign]

    def train_dataloader(self) -> Any:
        """A loader over `train`."""
        return self._loader("train", shuffle=self._shuffle, seed=self._seed)

    def val_dataloader(self) -> Any:
        """A loader over `val`."""
        return self._loader("val", tail="pad")

    def test_dataloader(self) -> Any:
        """A loader over `test`."""
        return self._loader("test", tail="pad")

    def predict_dataloader(self) -> Any:
        """A loader over `predict`."""
        return self._loader("predict", tail="exact")

    def _loader(self, part: str, **order: Any) -> Any:
        samples = self._parts[part]
        if samples is None:
            raise InvalidError(f"the Trainer asks for samples to {part}: pass {part}= to ShardDataModule")
        options = {**self._options, **order}
        if self._num_workers == 0:
            return ShardLoader(samples, batch_size=self.batch_size, **options)
        from fastshard.dataset import ShardDataset
        from fastshard.torch import DataLoader

        dataset = ShardDataset(samples, batch_size=self.batch_size, batched=True, **options)
        return DataLoader(dataset, num_workers=self._num_workers, persistent_workers=part in ("train", "val"))
