"""From a Parquet export to a trained network, on scikit-learn's 1,797 images of handwritten digits.

What a user would do, in five steps: export a table, convert it, look at it, check it, train on it. `make demo` runs
this; the only argument is a folder for its files, which is made anew.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

import fastshard as fs

SEED = 7
BATCH_SIZE = 32
EPOCHS = 20


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def run(*words: str) -> None:
    """Show a command and run it, as a user would in a terminal."""
    print(f"\n$ {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", *words], check=True)


def export_digits(folder: Path) -> tuple[Path, Path]:
    """Write the digits as two Parquet files, as an export would look: 80 % to train on and 20 % to test with."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(SEED)).numpy()
    parts = {"train": order[: len(order) * 4 // 5], "test": order[len(order) * 4 // 5 :]}
    paths = []
    for name, rows in parts.items():
        pixels = pa.array(digits.data[rows].astype("uint8").tolist(), pa.list_(pa.uint8()))
        table = pa.table({"image": pixels, "label": pa.array(digits.target[rows], pa.int64())})
        path = folder / f"{name}.parquet"
        pq.write_table(table, path, row_group_size=500)
        say(f"Wrote {path}: {table.num_rows:,} images of 8 x 8 pixels with their labels.")
        paths.append(path)
    return paths[0], paths[1]


def train(path: Path) -> tuple[nn.Module, float]:
    """Train a small network and return it with the samples that it took a second."""
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    dataset = fs.ShardDataset(path, shuffle=True, seed=SEED)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE)
    seen, start = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"].float() / 16), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["label"])
            seen += len(batch["label"])
        if epoch % 5 == 4:
            print(f"  epoch {epoch + 1:2}: loss {total / len(dataset):.4f}", flush=True)
    return model, seen / (time.perf_counter() - start)


def accuracy(model: nn.Module, path: Path) -> float:
    """The share of test images that the network is right about."""
    right = total = 0
    with torch.no_grad():
        for batch in fs.ShardLoader(path, batch_size=128, tail="exact"):
            right += int((model(batch["image"].float() / 16).argmax(1) == batch["label"]).sum())
            total += len(batch["label"])
    return right / total


def delivery_rate(path: Path, epochs: int = 50) -> float:
    """Samples a second when nothing is done with them: ready batches of 128, shuffled."""
    loader = fs.ShardLoader(path, batch_size=128, shuffle=True, seed=SEED)
    start = time.perf_counter()
    samples = sum(len(batch["label"]) for _ in range(epochs) for batch in loader)
    return samples / (time.perf_counter() - start)


def main(folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    train_parquet, test_parquet = export_digits(folder)
    train_path, test_path = folder / "train", folder / "test"

    say("Convert: the list of 64 numbers becomes an image of 8 x 8.")
    run("fastshard", "convert", str(train_parquet), str(train_path), "--tensor", "image=uint8:8x8")
    run("fastshard", "convert", str(test_parquet), str(test_path), "--tensor", "image=uint8:8x8")

    say("Look at the result, and check every byte of it.")
    run("fastshard", "info", str(train_path))
    run("fastshard", "head", "-n", "2", str(train_path))
    run("fastshard", "verify", str(train_path))

    say(f"Train a network of one hidden layer for {EPOCHS} epochs, each in an order of its own.")
    model, speed = train(train_path)
    share = accuracy(model, test_path)

    unseen = len(fs.open(test_path))
    say(f"The network is right about {share:.1%} of {unseen:,} images that it has never seen.")
    print(f"Training went at {speed:,.0f} samples/s; as shuffled batches with nothing to do for the network,")
    print(f"fastshard delivers {delivery_rate(train_path):,.0f} samples/s here.")
    print(f"The files are in {folder}: try `fastshard head {train_path}`.")
    if share <= 0.95:
        print("That is less than the 95 % that this network should reach.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/demo")))
