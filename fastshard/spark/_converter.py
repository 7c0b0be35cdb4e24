"""`fs.spark.make_spark_converter`: for code that was written for Petastorm's converter, with its signatures.

    converter = fs.spark.make_spark_converter(df, "file:///dbfs/tmp/cache")
    with converter.make_torch_dataloader(batch_size=64, num_epochs=1) as loader:
        for batch in loader: ...

The frame becomes a data set in a folder of the cache directory. It is reused where the inputs are shown unchanged.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastshard
from fastshard._index import read_index
from fastshard.errors import Error, InvalidError
from fastshard.spark._frames import check_frame
from fastshard.spark._inputs import cache_key
from fastshard.spark._petastorm_readers import Reading, TensorflowDataset, TorchBatches, reading
from fastshard.spark._places import resolve_place

__all__ = ["SparkDatasetConverter", "make_spark_converter"]

_LOG = logging.getLogger("fastshard.spark")
_CONFS = ("fastshard.spark.converter.parentCacheDirUrl", "petastorm.spark.converter.parentCacheDirUrl")
_ROW_GROUP_BYTES = 32 << 20
_PREFIX = "fastshard-converter-"
# Spark's names of Parquet codecs, and which of ours comes next to each in speed and size.
_CODECS = {
    None: "none",
    "uncompressed": "none",
    "none": "none",
    "snappy": "lz4",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "lzo": "lz4",
    "gzip": "zstd",
    "zstd": "zstd",
    "deflate": "zstd",
    "bzip2": "zstd",
    "brotli": "zstd",
}


@dataclass
class _Folders:
    """The folders that this process made and still has, by what they were made from; removed when it ends."""

    by_key: dict[str, str] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pid: int = field(default_factory=os.getpid)
    told: set[str] = field(default_factory=set)

    def clean_up(self) -> None:
        if os.getpid() == self.pid:
            for path in set(self.by_key.values()) - self.kept:
                shutil.rmtree(path, ignore_errors=True)

    def tell_once(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            _LOG.warning(text)


# Of the process, as what is cleaned up when it ends must be.
_FOLDERS = _Folders()
atexit.register(_FOLDERS.clean_up)


def make_spark_converter(
    df: Any,
    parent_cache_dir_url: str | None = None,
    parquet_row_group_size_bytes: int = _ROW_GROUP_BYTES,
    compression_codec: str | None = None,
    dtype: str | None = "float32",
    *,
    keep: bool = False,
) -> SparkDatasetConverter:
    """Write a frame to the cache, or find it there, and get a converter that makes loaders of it.

    Args:
        df: A DataFrame, or the path or URL of a Parquet file or folder (read without Spark) or of a data set of
            fastshard's (used as it is, and never deleted).
        parent_cache_dir_url: The cache directory, which executors must see too. None: what the Spark conf
            `fastshard.spark.converter.parentCacheDirUrl`, or else Petastorm's
            `petastorm.spark.converter.parentCacheDirUrl`, says at this moment.
        parquet_row_group_size_bytes: Of Petastorm; no Parquet is written, so it means nothing here.
        compression_codec: A Parquet codec by Spark's name: the next of ours is taken (`"snappy"`: LZ4, `"gzip"`: zstd).
        dtype: `"float32"` narrows doubles, also in arrays and vectors, `"float64"` widens floats, None leaves both.
        keep: Leave the folder when the process ends, for others to find.

    Raises:
        InvalidError: An argument cannot be used, or nothing says where the cache is.
        SchemaError, SourceError, StorageError, LockedError: As `fs.spark.write`.
    """
    if dtype not in (None, "float32", "float64"):
        raise InvalidError(f'dtype={dtype!r}: expected "float32", "float64" or None')
    if compression_codec not in _CODECS:
        known = ", ".join(repr(codec) for codec in _CODECS if codec is not None)
        raise InvalidError(f"compression_codec={compression_codec!r}: expected None or one of {known}")
    if parquet_row_group_size_bytes != _ROW_GROUP_BYTES:
        _FOLDERS.tell_once(
            "parquet_row_group_size_bytes= means nothing here: no Parquet is written; "
            "fs.spark.write takes block_bytes= and shard_bytes="
        )
    codec = _CODECS[compression_codec]
    if isinstance(df, (str, Path)):
        found = _place_of(df)
        if os.path.exists(os.path.join(found, "index.json")):
            return SparkDatasetConverter(found, owned=False, keep=True)
    else:
        check_frame(df, "make_spark_converter")
    parent = _cache_directory(df, parent_cache_dir_url)
    key = cache_key(df, {"codec": codec, "dtype": dtype, "parent": parent})
    with _FOLDERS.lock:
        path = _standing(parent, key)
        if path is None:
            name = key if keep and key is not None else os.urandom(16).hex()
            path = os.path.join(parent, _PREFIX + name)
            _write(df, path, codec, dtype)
            _FOLDERS.by_key[key or name] = path
        if keep:
            _FOLDERS.kept.add(path)
    return SparkDatasetConverter(path, owned=True, keep=keep)


def _place_of(path: str | Path) -> str:
    try:
        return resolve_place(path)
    except Error:  # a URL of a store: only Parquet can lie there
        return os.fspath(path)


def _standing(parent: str, key: str | None) -> str | None:
    """The folder that holds what the key stands for: of this process, or kept by another."""
    if key is None:
        return None
    for path in (_FOLDERS.by_key.get(key), os.path.join(parent, _PREFIX + key)):
        if path is not None:
            with suppress(Error):
                read_index(path)
                return path
    return None


def _cache_directory(df: Any, argument: str | None) -> str:
    if argument is not None:
        return resolve_place(argument)
    session = getattr(df, "sparkSession", None) or _active_session()
    if session is not None:
        for key in _CONFS:
            value = session.conf.get(key, None)
            if value:
                return resolve_place(value)
    raise InvalidError(
        "nothing says where the cache is: pass parent_cache_dir_url=, or "
        f'spark.conf.set("{_CONFS[0]}", "file:///dbfs/tmp/cache")'
    )


def _active_session() -> Any:
    import sys

    module = sys.modules.get("pyspark.sql")
    return None if module is None else module.SparkSession.getActiveSession()


def _write(df: Any, path: str, codec: str, dtype: str | None) -> None:
    cast: dict[str, str] = {}
    if dtype == "float32":
        cast = {"float64": "float32"}
    elif dtype == "float64":
        cast = {"float32": "float64"}
    if isinstance(df, (str, Path)):
        from fastshard.conversion import convert

        source: Any = os.fspath(df)
        result = convert(source, path, cast=cast, compression=codec, mode="overwrite", progress=False)
    else:
        from fastshard.spark._write import write

        result = write(df, path, cast=cast, compression=codec, mode="overwrite")
    changed = read_index(result.path).provenance.get("cast")
    if isinstance(changed, Mapping) and changed:
        shown = ", ".join(f"{name} to {kind}" for name, kind in changed.items())
        _LOG.warning('dtype="%s" changed columns: %s; pass dtype=None to leave them', dtype, shown)


class SparkDatasetConverter:
    """A data set in the cache, and loaders of it. It pickles to its path.

    Attributes:
        cache_dir_url: The data set's folder, as a URL.
        file_urls: Its shards.
        dataset_size: Samples.
        path: The folder: what `fs.open`, `fs.ShardDataset` and `fs.ShardLoader` take.
    """

    PARENT_CACHE_DIR_URL_CONF = _CONFS[0]

    def __init__(self, path: str, *, owned: bool, keep: bool) -> None:
        self.path = path
        self._owned = owned
        self._keep = keep
        index = read_index(path)
        self.dataset_size = index.rows
        self.cache_dir_url = Path(path).as_uri()
        self._deleted = False

    @property
    def file_urls(self) -> list[str]:
        with fastshard.open(self.path) as reader:
            core = reader.core
            return [Path(self.path, core.shard_path(i)).as_uri() for i in range(core.shards)]

    def __len__(self) -> int:
        return self.dataset_size

    def make_torch_dataloader(
        self,
        batch_size: int = 32,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Any = None,
        **petastorm_reader_kwargs: Any,
    ) -> TorchBatches:
        """Batches as dicts of tensors, to be used in a `with` statement.

        Args:
            batch_size: Samples of a batch; the last one of an epoch may have fewer.
            num_epochs: How many; None for ever, each in another order.
            workers_count: Threads; None for as many as `fs.ShardLoader` takes.
            shuffling_queue_capacity: Above 0 it means that samples are shuffled, as they are by default.
            data_loader_fn: Of Petastorm; means nothing here.
            **petastorm_reader_kwargs: `cur_shard` and `shard_count` (a part for each rank, of equal length),
                `transform_spec`, `schema_fields`, `shuffle_row_groups` (False: in order), `shard_seed`; others of
                Petastorm's are logged once and passed over.

        Raises:
            InvalidError: An argument is unknown or cannot be used.
            NullError: A column of integers or arrays has nulls; `fs.ShardLoader` has ways out.
        """
        if data_loader_fn is not None:
            _FOLDERS.tell_once("data_loader_fn= means nothing here: batches are made by fs.ShardLoader")
        plan = self._reading(
            batch_size, num_epochs, workers_count, shuffling_queue_capacity, petastorm_reader_kwargs
        )
        return TorchBatches(plan)

    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> TensorflowDataset:
        """A `tf.data.Dataset` of batches as named tuples, to be used in a `with` statement.

        Args:
            batch_size: Samples of a batch; None for 32.
            prefetch: Batches that TensorFlow makes ahead; None for as many as it likes.
            num_epochs, workers_count, shuffling_queue_capacity, petastorm_reader_kwargs: As of
                `make_torch_dataloader`.

        Raises:
            MissingDependencyError: There is no TensorFlow.
            InvalidError: An argument is unknown or cannot be used.
        """
        plan = self._reading(
            32 if batch_size is None else batch_size,
            num_epochs,
            workers_count,
            shuffling_queue_capacity or 0,
            petastorm_reader_kwargs,
        )
        return TensorflowDataset(plan, prefetch)

    def _reading(
        self,
        batch_size: int,
        num_epochs: int | None,
        workers_count: int | None,
        capacity: int,
        kwargs: Mapping[str, Any],
    ) -> Reading:
        if self._deleted:
            raise InvalidError(f"{self.path}: this converter was deleted; make another one")
        plan, ignored = reading(self.path, batch_size, num_epochs, workers_count, capacity, kwargs)
        for name in ignored:
            _FOLDERS.tell_once(f"{name}= means nothing here: batches are made by native threads")
        return plan

    def delete(self) -> None:
        """Remove the data set's folder, and nothing else. A second call does nothing."""
        self._deleted = True
        if not self._owned:
            return
        with _FOLDERS.lock:
            for key, path in list(_FOLDERS.by_key.items()):
                if path == self.path:
                    del _FOLDERS.by_key[key]
            _FOLDERS.kept.discard(self.path)
        shutil.rmtree(self.path, ignore_errors=True)

    def __repr__(self) -> str:
        return f"SparkDatasetConverter({self.path!r}, {self.dataset_size} rows)"
