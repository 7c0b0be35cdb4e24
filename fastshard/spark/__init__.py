"""Spark: frames written as data sets by the executors, and converters for those who come from Petastorm.

    fs.spark.write(df, "/Volumes/ml/data/train")

Importing this module does not import pyspark: a DataFrame that is passed in brings it.
"""

from __future__ import annotations

from fastshard.spark._converter import SparkDatasetConverter, make_spark_converter
from fastshard.spark._petastorm_readers import TransformSpec
from fastshard.spark._write import write

__all__ = ["SparkDatasetConverter", "TransformSpec", "make_spark_converter", "write"]
