"""The examples of docs/training.md run, in the order in which they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from torchrun import torchrun

import fastshard as fs

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
# Every rank says so when all have come to the end of the script.
LEAVE = "dist.destroy_process_group()\n"
LEFT = "a rank has done its part"


def run(call: list[str], folder: Path) -> str:
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{call}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_examples_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 16)).astype("float32")
    y = pa.array(x.sum(axis=1), pa.float32())
    fs.write(
        pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 16), "y": y}),
        tmp_path / "train",
    )
    blocks = re.findall(r"^```(python|console)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 6
    printed = []
    for language, text in blocks:
        name = re.match(r"# file: (\S+)\n", text)
        if language == "python" and name:
            (tmp_path / name[1]).write_text(
                text.replace(LEAVE, f"print({LEFT!r}, flush=True)\ndist.barrier()\n{LEAVE}")
            )
        elif language == "python":
            run([sys.executable, "-W", "error", "-c", text], tmp_path)
        else:
            for line in text.splitlines():
                program, *arguments = shlex.split(line.removeprefix("$ "))
                if program == "torchrun":
                    option, ranks, *arguments = arguments
                    assert option == "--nproc-per-node"
                    printed.append(torchrun(arguments, int(ranks), tmp_path, LEFT))
                else:
                    assert program == "python"
                    run([sys.executable, "-W", "error", *arguments], tmp_path)
    two, three = printed
    assert two.count("48 samples on each of 2 processes") == 5
    # 1500 samples are 15 steps of 96 and one of 60: 5 before, 11 after.
    assert three.count("32 samples on each of 3 processes") == 10
    assert three.count("20 samples on each of 3 processes") == 1
    assert three.count("step ") == 11
