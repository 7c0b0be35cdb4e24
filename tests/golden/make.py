"""Made the golden data sets beside this file, once. Not to be run again over them: see README.md.

python make.py FOLDER
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
from contents import every_type, numbers, tensors

import fastshard as fs


def main() -> None:
    root = Path(sys.argv[1])
    root.mkdir()
    for compression in ("none", "lz4", "zstd", "zstd:19"):
        path = root / f"types-{compression.replace(':', '-')}"
        fs.write(every_type(), path, compression=compression, block_bytes=1 << 14)
    fs.write(tensors(), root / "tensors")
    fs.write(numbers(0, 0), root / "empty")

    several = root / "several-shards"
    fs.write(
        numbers(0, 300),
        several,
        block_bytes=1000,
        shard_bytes=3000,
        metadata={"note": "grüße", "numbers": [1, 2.5]},
    )
    fs.write(numbers(300, 100), several, mode="append", compression="zstd", block_bytes=500)

    replaced = root / "replaced"
    fs.write(numbers(0, 10), replaced)
    fs.write(numbers(10, 10), replaced, mode="overwrite")

    foreign = root / "foreign"
    (foreign / "deeper").mkdir(parents=True)
    views = numbers(0, 20).cast(
        pa.schema(
            [
                ("id", pa.int32()),
                ("square", pa.int64()),
                ("text", pa.string_view()),
                ("tail", pa.list_(pa.int16())),
            ]
        )
    )
    pyarrow.feather.write_feather(views, str(foreign / "1.feather"), compression="zstd", chunksize=6)
    with pa.ipc.new_stream(foreign / "2.arrows", views.schema) as writer:
        writer.write_table(views, max_chunksize=7)
    old = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_file(foreign / "deeper" / "3.arrow", views.schema, options=old) as writer:
        writer.write_table(views)
    fs.index(foreign)

    for lock in root.rglob(".fastshard.lock"):
        lock.unlink()
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n"
        for path in sorted(root.rglob("*"))
        if path.is_file()
    ]
    (root / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    main()
