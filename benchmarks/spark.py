"""Spark: writing a cached frame, against Spark's own Parquet and MosaicML's converter; memory of an executor.

    python -m benchmarks.spark [--data FOLDER] [--rounds 5] [--rows N] [--mosaicml FOLDER] [--json FILE]

Needs pyspark, pandas<3 and Java (scripts/spark-environment.sh), in one session on local[2]. `--mosaicml` names a folder
with mosaicml-streaming (`pip install --no-deps --target FOLDER`) and what it imports; without it that bar is left out.
Prints one line per bar and ends with exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

import fastshard as fs
from benchmarks.basics import Bar
from benchmarks.measure import MIB, alternate, median, paired_ratio
from benchmarks.workloads import WORKLOADS

W1 = WORKLOADS["w1"]
# What streaming imports for data sets of other kinds: the real ones would bring other versions of torch.
STUBS = """
import sys, types
def stub(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules.setdefault(name, module)
stub("transformers")
stub("transformers.feature_extraction_utils", BatchFeature=type("BatchFeature", (dict,), {}))
stub("transformers.tokenization_utils_base", BatchEncoding=type("BatchEncoding", (dict,), {}))
stub("transformers.models")
stub("transformers.models.auto")
stub("transformers.models.auto.tokenization_auto", AutoTokenizer=object)
stub("torchvision")
stub("torchvision.datasets", VisionDataset=object, CIFAR10=object)
stub("torchvision.transforms")
stub("torchvision.transforms.functional", to_tensor=None)
"""


def session(folder: Path, paths: list[str]) -> Any:
    """A classic session on local[2] whose workers find this checkout."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(fs.__file__).parents[1]), *paths])
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def timed_anew(work: Callable[[str], Any], folder: Path) -> float:
    """Seconds that writing to a new folder takes."""
    place = str(folder / f"out-{time.monotonic_ns()}")
    start = time.perf_counter()
    work(place)
    took = time.perf_counter() - start
    shutil.rmtree(place, ignore_errors=True)
    return took


def writing(spark: Any, data: Path, folder: Path, rows: int, rounds: int, mosaicml: bool) -> list[Bar]:
    frame = spark.read.parquet(str(W1.parquet(data, rows))).repartition(2).cache()
    assert frame.count() == rows
    ours = lambda place: fs.spark.write(frame, place)  # noqa: E731
    parquet = lambda place: frame.write.parquet(place)  # noqa: E731
    for work in (ours, parquet):  # Python workers and the JVM's code are warm for both
        timed_anew(work, folder)
    times = alternate(
        {"ours": lambda: timed_anew(ours, folder), "parquet": lambda: timed_anew(parquet, folder)}, rounds
    )
    bars = [
        Bar(
            "fs.spark.write of W1: time / df.write.parquet",
            paired_ratio(times["ours"], times["parquet"]),
            1.5,
            False,
            f"{median(times['ours']):.2f} s, Parquet {median(times['parquet']):.2f} s",
        )
    ]
    if mosaicml:
        from streaming.base.converters import dataframe_to_mds

        columns = {"x": "ndarray:float32", "y": "int64"}
        took = timed_anew(
            lambda place: dataframe_to_mds(
                frame, mds_kwargs={"out": place, "columns": columns, "compression": None}
            ),
            folder,
        )
        bars.append(
            Bar(
                "dataframe_to_mds of W1: time / fs.spark.write",
                took / median(times["ours"]),
                8.0,
                True,
                f"{took:.1f} s, ours {median(times['ours']):.2f} s",
            )
        )
    frame.unpersist()
    return bars


def memory(spark: Any, folder: Path) -> Bar:
    """How much more a Python worker holds at most for one partition of 1 GB than for one of 100 MB.

    Of memory of its own: a shard is mapped when it is hashed, and its pages are the system's to take back.
    """

    def peak(rows: int) -> int:
        note = folder / f"peak-{rows}"
        highest = [0]

        def watch(batch: pa.RecordBatch) -> pa.RecordBatch:
            # What it holds now: a worker that was used before has had other peaks.
            lines = Path("/proc/self/status").read_text().splitlines()
            held = next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
            if held > highest[0]:
                highest[0] = held
                note.write_text(str(held))
            return batch

        frame = spark.range(0, rows, 1, 1).selectExpr("array_repeat(cast(id AS double), 128) AS x")
        out = str(folder / f"memory-{rows}")
        assert fs.spark.write(frame, out, transform=watch).rows == rows
        shutil.rmtree(out)
        return int(note.read_text())

    small, large = peak(100_000), peak(1_000_000)
    return Bar(
        "executor memory: a partition of 1 GB beyond one of 100 MB",
        (large - small) / MIB,
        32.0,
        False,
        f"{large / MIB:.0f} MiB, of 100 MB {small / MIB:.0f} MiB",
    )


def small_shards(spark: Any, folder: Path) -> Bar:
    """The size of a shard of 1,000 small rows over 1.1 times its payload, in KiB."""
    frame = spark.range(0, 1000, 1, 1).selectExpr(
        "array(1.0D, 2.0D, 3.0D) AS a", "true AS b", "cast(-1 AS tinyint) AS c"
    )
    result = fs.spark.write(frame, str(folder / "small"))
    payload = 1000 * (3 * 8 + 1 / 8 + 1)
    return Bar(
        "a shard of 1,000 rows: KiB beyond 1.1 x payload",
        (result.bytes - 1.1 * payload) / 1024,
        64.0,
        False,
        f"{result.bytes:,} bytes, payload {payload:,.0f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=W1.rows)
    parser.add_argument("--mosaicml", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastshard-spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data = options.data or folder
        data.mkdir(parents=True, exist_ok=True)
        paths = []
        if options.mosaicml:
            (folder / "sitecustomize.py").write_text(STUBS)
            paths = [str(folder), str(options.mosaicml)]
            exec(STUBS, {})
            sys.path.append(str(options.mosaicml))
        spark = session(folder, paths)
        try:
            # Memory first: workers keep what others had them hold.
            bars = [memory(spark, folder), small_shards(spark, folder)]
            bars += writing(spark, data, folder, options.rows, options.rounds, bool(options.mosaicml))
        finally:
            spark.stop()
    for bar in bars:
        sign = ">=" if bar.at_least else "<="
        print(
            f"{'met' if bar.met else 'MISSED':6}  {bar.name}: {bar.value:.2f} ({sign} {bar.limit:g}); {bar.detail}"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(bar) for bar in bars], indent=1))
    return int(not all(bar.met for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
