"""One Spark session for the process: classic, or Connect where FASTSHARD_SPARK=connect."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONNECT = os.environ.get("FASTSHARD_SPARK", "classic") == "connect"
# Where the tests' own helpers are: executors import what the driver pickles by name.
HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session, on local[2] with up to three attempts at a task (classic) or one (Connect)."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, os.environ["PYTHONPATH"]])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    with warnings.catch_warnings(), _stderr_to(folder / "jvm.log"):
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder
        builder = builder.remote("local[2]") if CONNECT else builder.master("local[2,3]")
        for key, value in options.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


class _stderr_to:
    """Sends what this process and its children write to file descriptor 2 into a file: the JVM chatters."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._saved = os.dup(2)
        with open(self._path, "wb") as log:
            os.dup2(log.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._saved, 2)
        os.close(self._saved)


@pytest.fixture
def classic() -> None:
    """For tests that need what Connect does not have."""
    if CONNECT:
        pytest.skip("classic Spark only")


@pytest.fixture
def spark4(spark: Any) -> None:
    """For tests of what Spark 3.5 does not have."""
    if int(spark.version.partition(".")[0]) < 4:
        pytest.skip("Spark 4 only")
