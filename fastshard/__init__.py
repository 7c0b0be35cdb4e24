"""fastshard: from Parquet, Delta and Spark tables to PyTorch batches at the speed of memory."""

__version__ = "0.1.0"
