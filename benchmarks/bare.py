"""The compiled loops of limits.cpp, called from Python: built when they are needed, with arrays as pointers."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Frames", "address", "direct_reads", "library", "pointers", "rate_of", "shard_frames"]

SOURCE = Path(__file__).with_name("limits.cpp")
CODECS = ("zstd", "lz4")  # in limits.cpp's order


def library(folder: Path) -> tuple[ctypes.CDLL, ctypes.PyDLL]:
    """The compiled limits.cpp, once called without and once with the GIL; made in `folder` when it is not there.

    Raises:
        RuntimeError: The compiler is missing or failed.
    """
    compiler = os.environ.get("CXX", "c++")
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(SOURCE.read_bytes() + f"{compiler}{sys.version}".encode()).hexdigest()[:16]
    built = folder / f"limits-{digest}.so"
    if not built.exists():
        command = [compiler, "-O3", "-std=c++20", "-shared", "-fPIC", "-pthread"]
        command += [f"-I{sysconfig.get_paths()['include']}", str(SOURCE), "-o", f"{built}.tmp"]
        try:
            with_codecs = subprocess.run(
                [*command, "-lzstd", "-llz4"], capture_output=True, text=True, check=False
            )
            if with_codecs.returncode != 0:
                subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise RuntimeError(f"there is no compiler {compiler!r}: install one, or name it in CXX") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{compiler} could not build {SOURCE}:\n{error.stderr}") from None
        os.replace(f"{built}.tmp", built)
    libraries = ctypes.CDLL(str(built)), ctypes.PyDLL(str(built))
    for loaded in libraries:
        for name in (
            "limit_gather",
            "limit_copies",
            "limit_mixed",
            "limit_mixed_bytes",
            "limit_memcpy",
            "limit_direct_reads",
            "limit_decompress",
        ):
            getattr(loaded, name).restype = ctypes.c_double
    return libraries


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def pointers(addresses: list[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(addresses))(*addresses)


def rate_of(amount: float, seconds: float) -> float:
    if seconds < 0:
        raise RuntimeError(
            "a limit could not be measured here (no direct reads, no codec, or a batch too large)"
        )
    return amount / seconds


class Frames:
    """Buffers compressed one by one, as record batches have them.

    Attributes:
        raw_bytes: Of all buffers before compression.
    """

    def __init__(self, codec: str, buffers: Sequence[Any], native: Any) -> None:
        # What Arrow's writer takes where no level is asked for.
        compressor = pa.Codec(codec, compression_level=1) if codec == "zstd" else pa.Codec(codec)
        self._codec = CODECS.index(codec)
        self._frames = [compressor.compress(buffer) for buffer in buffers]
        self._sizes = np.array([frame.size for frame in self._frames], dtype=np.int64)
        self._raw = np.array([buffer.size for buffer in buffers], dtype=np.int64)
        self._native = native
        self.raw_bytes = int(self._raw.sum())

    def rate(self, threads: int) -> float:
        """GB/s of decompressed bytes, on as many threads, each into a buffer of its own."""
        seconds = self._native.limit_decompress(
            ctypes.c_int(self._codec),
            pointers([frame.address for frame in self._frames]),
            address(self._sizes),
            address(self._raw),
            ctypes.c_int64(len(self._frames)),
            ctypes.c_int(threads),
        )
        return rate_of(self.raw_bytes / 1e9, seconds)


def shard_frames(folder: Path, codec: str, native: Any) -> Frames:
    """The compressed buffers of a data set's shards, all of them."""
    return Frames(codec, list(_buffers(folder)), native)


def _buffers(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.glob("shard-*.arrow")):
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                for column in reader.get_batch(number).columns:
                    yield from (
                        buffer for buffer in column.buffers() if buffer is not None and buffer.size > 0
                    )


def direct_reads(
    files: Sequence[Path],
    chunk: int,
    depth: int,
    *,
    shuffled: bool,
    native: Any,
    total: int | None = None,
    huge: bool = False,
) -> float:
    """GB/s of reads of `chunk` bytes past the page cache, `depth` at a time, file after file.

    Args:
        shuffled: At random places of a file, else one after the other.
        total: Bytes of all reads at most; None for the whole files.
        huge: Whether they go into huge pages.
    """
    generator = np.random.default_rng(5)
    share = None if total is None else max(1, total // chunk // len(files))
    seconds, size = 0.0, 0
    for path in files:
        offsets = np.arange(0, path.stat().st_size - chunk + 1, chunk, dtype=np.int64)
        if shuffled:
            offsets = generator.permutation(offsets)
        offsets = np.ascontiguousarray(offsets[:share])
        took = native.limit_direct_reads(
            ctypes.c_char_p(str(path).encode()),
            address(offsets),
            ctypes.c_int64(len(offsets)),
            ctypes.c_int64(chunk),
            ctypes.c_int(depth),
            ctypes.c_int(huge),
        )
        rate_of(0, took)
        seconds += took
        size += len(offsets) * chunk
    return rate_of(size / 1e9, seconds)
