"""A workload as flat files that NumPy maps: what people write by hand, and what the limits are measured on.

Columns of constant width are one file `NAME.npy`, the others `NAME.values.npy` and `NAME.offsets.npy`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FlatColumn", "open_flat", "write_flat"]


class FlatColumn:
    """A mapped column.

    Attributes:
        values: [rows, ...] where `offsets` is None, else the values of all rows, one after the other.
        offsets: int64 [rows + 1] or None.
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray | None = None) -> None:
        self.values = values
        self.offsets = offsets


def write_flat(parquet: Path, folder: Path) -> None:
    """Convert a workload's Parquet file, row group by row group."""
    folder.mkdir(parents=True, exist_ok=True)
    with pq.ParquetFile(parquet) as file:
        rows = file.metadata.num_rows
        for field in file.schema_arrow:
            parts = (
                file.read_row_group(group, columns=[field.name]).column(0).combine_chunks()
                for group in range(file.num_row_groups)
            )
            arrays = [part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part for part in parts]
            if pa.types.is_fixed_size_list(field.type):
                values = np.concatenate([array.flatten().to_numpy() for array in arrays])
                np.save(folder / f"{field.name}.npy", values.reshape(rows, field.type.list_size))
            elif pa.types.is_primitive(field.type):
                np.save(folder / f"{field.name}.npy", np.concatenate([array.to_numpy() for array in arrays]))
            else:
                _save_variable(folder, field.name, arrays)


def _save_variable(folder: Path, name: str, arrays: list[pa.Array]) -> None:
    values, offsets, total = [], [np.zeros(1, dtype=np.int64)], 0
    for array in arrays:
        if pa.types.is_list(array.type):
            own = array.offsets.to_numpy().astype(np.int64)
            values.append(array.values.to_numpy()[own[0] : own[-1]])
        else:
            buffers = array.buffers()
            own = np.frombuffer(buffers[1], dtype=np.int32)[
                array.offset : array.offset + len(array) + 1
            ].astype(np.int64)
            values.append(np.frombuffer(buffers[2], dtype=np.uint8)[own[0] : own[-1]])
        offsets.append(own[1:] - own[0] + total)
        total += int(own[-1] - own[0])
    np.save(folder / f"{name}.values.npy", np.concatenate(values))
    np.save(folder / f"{name}.offsets.npy", np.concatenate(offsets))


def open_flat(folder: Path) -> dict[str, FlatColumn]:
    """The mapped columns by name."""
    columns = {}
    for path in sorted(folder.glob("*.npy")):
        name, *part = path.name.split(".")[:-1]
        if part == ["offsets"]:
            continue
        # A plain array over the mapping: indexing a np.memmap costs several times as much.
        values = np.asarray(np.load(path, mmap_mode="r"))
        offsets = np.load(folder / f"{name}.offsets.npy") if part == ["values"] else None
        columns[name] = FlatColumn(values, offsets)
    return columns
