"""pyspark.ml.connect: Spark's own trainer, on what Spark reads back from a data set of ours.

    python train_ml_connect.py FOLDER

Here Spark reads, and its TorchDistributor trains, so our order, loaders and states take no part: it is for those who
have a data set and want Spark's estimators. To train a network of your own, see train_distributor.py.
"""

from __future__ import annotations

import json

from common import parser


def main() -> None:
    args = parser(__doc__).parse_args()
    from pyspark.ml.connect.classification import LogisticRegression
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    builder = SparkSession.builder.remote(f"local[{args.processes}]").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    table = spark.read.format("fastshard").load(str((args.folder / "train").absolute()))
    table = table.select(
        "id",
        sf.col("x").cast("array<double>").alias("features"),
        (sf.col("y") > 0).cast("int").alias("label"),
    )
    estimator = LogisticRegression(
        maxIter=50, learningRate=0.1, batchSize=args.global_batch, numTrainWorkers=args.processes
    )
    model = estimator.fit(table.select("features", "label"))
    scored = model.transform(table.toPandas())
    right = (scored["prediction"] == scored["label"]).mean()
    result = {"right": float(right), "ids": sorted(scored["id"].tolist())}
    (args.folder / "scored.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
