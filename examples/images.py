"""JPEG files in Parquet, decoded and augmented while a small network trains.

    python examples/images.py images.parquet [--crop 24] [--epochs 2]

The Parquet file has a column `image`, the bytes of a JPEG each, and a column `label`, an integer. The bytes are stored
as they are; Pillow decodes them in threads beside the training (it leaves the GIL while it does). Crops and flips draw
from `rng`, which depends on seed, epoch and sample alone: any number of threads or ranks sees the same pictures.
Needs fastshard, torch and Pillow.
"""

from __future__ import annotations

import argparse
import io
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

import fastshard as fs


def augmented(sample: dict[str, Any], rng: np.random.Generator, *, crop: int) -> dict[str, Any]:
    """A random square of a picture, mirrored half of the time: float32 [3, crop, crop], 0 to 1."""
    picture = Image.open(io.BytesIO(sample["image"])).convert("RGB")
    if min(picture.size) < crop:
        scale = crop / min(picture.size)
        picture = picture.resize(
            (max(crop, round(picture.width * scale)), max(crop, round(picture.height * scale)))
        )
    left = int(rng.integers(picture.width - crop + 1))
    top = int(rng.integers(picture.height - crop + 1))
    pixels = np.asarray(picture.crop((left, top, left + crop, top + crop)), np.float32) / 255
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    return {
        "image": torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))),
        "label": sample["label"],
    }


def network(classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 16, classes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on JPEG files in Parquet.")
    parser.add_argument("parquet")
    parser.add_argument("--crop", type=int, default=24, help="side of the pictures that are trained on")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    data = fs.cached(arguments.parquet)  # converted on first use
    loader = fs.ShardLoader(
        data,
        batch_size=arguments.batch_size,
        shuffle=True,
        seed=arguments.seed,
        sample_transform=partial(augmented, crop=arguments.crop),
    )
    classes = 1 + int(max(fs.open(data)["label"][:]))
    torch.manual_seed(arguments.seed)
    model = network(classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(arguments.epochs):
        losses = []
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {len(losses)} steps, loss {sum(losses) / len(losses):.3f}")
    print(loader.stats().limit)


if __name__ == "__main__":
    main()
