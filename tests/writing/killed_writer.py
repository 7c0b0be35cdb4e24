"""Writes one data set over and over, until it is killed: `python killed_writer.py PATH MODE`."""

import sys

import numpy as np

import fastshard as fs

ROWS = 3000


def content(generation: int) -> dict[str, np.ndarray]:
    """Rows that tell their generation, in every one."""
    numbers = np.arange(ROWS)
    return {
        "generation": np.full(ROWS, generation),
        "x": numbers * generation,
        "v": np.ones((ROWS, 8)) * generation,
    }


def main() -> None:
    path, mode = sys.argv[1:]
    generation = 1
    print("ready", flush=True)
    while True:
        generation += 1
        fs.write(content(generation), path, mode=mode, block_bytes=4000, shard_bytes=20_000)


if __name__ == "__main__":
    main()
