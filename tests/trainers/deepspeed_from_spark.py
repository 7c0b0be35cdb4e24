"""Spark's DeepspeedTorchDistributor as a launcher: python deepspeed_from_spark.py PROCESSES SCRIPT [ARGUMENTS]."""

from __future__ import annotations

import sys

from pyspark.ml.deepspeed.deepspeed_distributor import DeepspeedTorchDistributor
from pyspark.sql import SparkSession


def main() -> None:
    processes, script, *arguments = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        distributor = DeepspeedTorchDistributor(numGpus=int(processes), localMode=True, useGpu=False)
        distributor.run(script, *arguments)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
