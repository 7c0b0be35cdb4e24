"""Spark's data source "fastshard": Spark 4 finds this module by its name.

    df.write.format("fastshard").mode("overwrite").save("/Volumes/ml/data/train")
    spark.read.format("fastshard").load("/Volumes/ml/data/train")

docs/spark.md says which modes and options there are.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):  # type: ignore[misc]  # pyspark's types are not seen here
    """Data sets, to read and to write."""

    @classmethod
    def name(cls) -> str:
        return "fastshard"

    def schema(self) -> Any:
        """The data set's columns in Spark's types."""
        from pyspark_fastshard._reading import dataset_schema

        return dataset_schema(self._local_path())

    def reader(self, schema: Any) -> Any:
        from pyspark_fastshard._reading import DatasetReader

        return DatasetReader(self._local_path(), schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from pyspark_fastshard._writing import DatasetWriter

        return DatasetWriter(self._path(), schema, overwrite, self.options)

    def _path(self) -> str:
        from fastshard.errors import InvalidError
        from fastshard.spark._places import resolve_place

        path = self.options.get("path")
        if not path:
            raise InvalidError('format("fastshard") needs a path: .load(path) or .save(path)')
        return resolve_place(path, stores=True)

    def _local_path(self) -> str:
        from fastshard._store import Store
        from fastshard.errors import UnsupportedError
        from fastshard.spark._places import is_store

        path = self._path()
        if is_store(path):
            raise UnsupportedError(
                f"{Store(path).name}: data sets are read where they are mounted or copied to, not from a store; "
                "fs.cached(url) copies one to a machine"
            )
        return path
