"""A /dev/shm of 64 MB, four workers, batches of 16 MB that are kept: all come, or an error names it and its size.

So it is in each of the ways that tensors take from a worker. Nothing is killed by a signal, and no batch is lost.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastshard as fs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/shm is Linux's")

ROWS = 2048
BATCH = 256  # samples of 64 KiB: what four workers hold fills 64 MB to the last byte, and labels find no room

SMALL_SHM = f"""
set -e
mount -t tmpfs -o size=64m tmpfs /dev/shm
exec {sys.executable} -W ignore -c "$@"
"""

RUN = """
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader
import fastshard as fs
import fastshard.torch

def into_dict(batch):
    return {"x": batch["x"] * 2, "id": batch["id"]}

def into_batch(batch):
    return fs.Batch({"x": batch["x"] * 2, "id": batch["id"]})

def into_tensors(sample):
    return {"x": torch.from_numpy(sample["x"].copy()), "id": int(sample["id"])}

def together(samples):
    return {"x": torch.from_numpy(np.stack([sample["x"] for sample in samples])), "id": torch.zeros(len(samples))}

def main():
    kind, path, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def data(**options):
        return fs.ShardDataset(path, batch_size=batch, **options)

    def stock(data, batch_size=batch, **options):
        return DataLoader(data, batch_size=batch_size, num_workers=4, timeout=60, **options)

    def ours(data, **options):
        return fastshard.torch.DataLoader(data, num_workers=4, timeout=60, **options)

    loader = {
        "batches": lambda: stock(data(batched=True), None),
        "batches into dicts": lambda: stock(data(batched=True, transform=into_dict), None),
        "batches into batches": lambda: stock(data(batched=True, transform=into_batch), None),
        "samples": lambda: stock(data()),
        "samples into tensors": lambda: stock(data(transform=into_tensors)),
        "samples collated": lambda: stock(data(), collate_fn=together),
        "reader": lambda: stock(fs.open(path)),
        "ours": lambda: ours(data()),
        "ours into dicts": lambda: ours(data(batched=True, transform=into_dict)),
        "ours into tensors": lambda: ours(data(transform=into_tensors)),
        "ours collated": lambda: ours(data(), collate_fn=together),
        "ShardLoader": lambda: fs.ShardLoader(path, batch_size=batch),
    }[kind]()
    batches = list(loader)
    print(len(batches), sum(len(batch["x"]) for batch in batches))

main()
"""

ALL_COME = ("batches", "ours", "ShardLoader")
NAMED = (
    "batches into dicts",
    "batches into batches",
    "samples",
    "samples into tensors",
    "samples collated",
    "reader",
    "ours into dicts",
    "ours into tensors",
    "ours collated",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "d"
    fs.write({"x": np.zeros((ROWS, 1 << 14), np.float32), "id": np.arange(ROWS)}, path)
    return path


@pytest.fixture(scope="module")
def with_mounts() -> list[str]:
    """The command that runs another one with mounts of its own, if this user may."""
    tool = shutil.which("unshare")
    for options in ([], ["--user", "--map-root-user"]):
        command = [str(tool), "--mount", *options]
        probe = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if tool and subprocess.run(probe, capture_output=True).returncode == 0:
            return command
    pytest.skip("this user may not mount a tmpfs, not even in a namespace")  # no package could change that


@pytest.mark.parametrize("kind", [*ALL_COME, *NAMED])
def test_a_small_dev_shm_is_enough_or_named(with_mounts: list[str], path: Path, kind: str) -> None:
    done = subprocess.run(
        [*with_mounts, "sh", "-c", SMALL_SHM, "sh", RUN, kind, str(path), str(BATCH)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if kind in ALL_COME:
        assert (done.returncode, done.stdout) == (0, f"{ROWS // BATCH} {ROWS}\n"), done.stderr
    else:
        assert done.returncode == 1, done.stderr  # an exception, and no signal
        said = done.stderr.strip().splitlines()[-1]
        assert said.startswith("fastshard.errors.StorageError: "), said
        assert "/dev/shm has" in said
        assert "of 67,108,864 bytes left" in said
