"""Writes a data set on a cluster of two executors while Spark runs a second copy of a task, as it does with slow ones.

    python speculation.py FOLDER

A master and two workers of Spark's own kind, each worker under an address of its own: Spark runs a copy only on another
host. Prints, as JSON, which attempts came to the last rows of which partition, and what was written.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import fastshard as fs

ROWS = 4000
SLOW = 2  # the partition whose first attempt waits for another one
PATIENCE = 120.0


class Twins:
    """A transform that notes who comes to the end of a partition, and lets the first attempt at one wait for a second.

    Both go on from there together, so both write all their shards.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition, attempt = context.partitionId(), context.attemptNumber()
        if (batch.column(0).to_pylist()[-1] + 1) % (ROWS // 4) == 0:
            self._note(partition, attempt)
            if partition == SLOW and attempt == 0:
                deadline = time.monotonic() + PATIENCE
                while not os.path.exists(self._name(partition, 1)) and time.monotonic() < deadline:
                    time.sleep(0.05)
        return batch

    def _name(self, partition: int, attempt: int) -> str:
        return os.path.join(self._folder, f"ended-{partition}-{attempt}")

    def _note(self, partition: int, attempt: int) -> None:
        Path(self._name(partition, attempt)).touch()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Gives the master's URL."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.2", "127.0.0.3"):
        worker = [f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "512m"]
        commands.append([*worker, "--webui-port", "0", master])
    processes = []
    try:
        with open(folder / "cluster.log", "wb") as log:
            for command in commands:
                processes.append(
                    subprocess.Popen(
                        [str(home / "bin" / "spark-class"), *command], env=environment, stdout=log, stderr=log
                    )
                )
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


def session(master: str, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def main(folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    warnings.simplefilter("ignore")
    with cluster(folder) as master:
        spark = session(master, folder)
        try:
            from speculation import Twins as Importable  # executors find it under this name

            frame = spark.range(0, ROWS, 1, 4)
            result = fs.spark.write(
                frame,
                folder / "out",
                transform=Importable(folder),
                shard_bytes=2048,
                block_bytes=1024,
            )
            time.sleep(1)  # the attempt that lost may go on for a while
        finally:
            spark.stop()
    ended = sorted(path.name.removeprefix("ended-") for path in folder.glob("ended-*"))
    print(json.dumps({"ended": ended, "rows": result.rows, "shards": result.shards}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
