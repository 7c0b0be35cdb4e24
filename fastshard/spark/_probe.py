"""One small task before the job: do executors have this fastshard, and do they and the driver see one directory?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import fastshard
from fastshard._storage import remove_if_there, storage_errors
from fastshard._store import Store
from fastshard.errors import InvalidError, MissingDependencyError, StorageError
from fastshard.spark._places import is_store

__all__ = ["Probe", "probe"]

_INSTALL = (
    "install the same release where the executors run: on Databricks as a library of the cluster, or by "
    '"%pip install fastshard=={version}" at the top of the notebook (serverless: in the environment panel); on EMR by '
    "a bootstrap action; on plain Spark in the Python that spark.pyspark.python names, or by spark.archives. "
    "fs.convert(df, dest) needs nothing there: it collects the rows on this machine"
)
_DESTINATIONS = (
    "choose a place that all machines have: a volume (/Volumes/CATALOG/SCHEMA/VOLUME/...), /dbfs/..., or a directory "
    "that is mounted everywhere under the same path, or a folder of an object store (s3://, gs://, abfss://); a local "
    "directory works where Spark runs on this machine alone. fs.convert(df, dest) collects the rows and writes here"
)

_ACCESS = (
    "executors find their own credentials, as pyarrow.fs or fsspec do: the machine's role, or environment variables "
    "(spark.executorEnv.NAME)"
)


_Task: TypeAlias = Callable[[Iterator[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Probe:
    """What the executor found.

    Attributes:
        renames: Files can be renamed in the directory, and the driver sees it.
    """

    renames: bool


def probe(session: Any, directory: str, *, package: str = "fastshard") -> Probe:
    """Run the task.

    Args:
        session: The frame's SparkSession.
        directory: Where shards are to go, a path or the URL of a store; nothing is left in it.
        package: What the executors must have; another name in tests.

    Raises:
        MissingDependencyError: They do not have it.
        InvalidError: They have another version, or see another directory.
        StorageError: They may not write there.
    """
    nonce = os.urandom(16).hex()
    question = os.path.join(directory, f".tmp-{nonce[:12]}-driver")
    answer = os.path.join(directory, f".tmp-{nonce[:12]}-executor")
    if is_store(directory):
        return _probe_store(session, Store(directory), directory, nonce, package)
    try:
        with storage_errors("write a file for the executors to find", question), open(question, "w") as file:
            file.write(nonce)
        function = _probe_function(package, question, answer)
        frame = session.range(0, 1, 1, 1).mapInArrow(function, "report string")
        found = json.loads(frame.collect()[0][0])
        _check_package(found, package)
        _check_directory(found, directory, nonce)
        written, renamed = _content(answer), _content(answer + "-renamed")
        if "write_error" in found:
            raise StorageError(
                f"{directory}: an executor ({found['host']}) may not write there: {found['write_error']}"
            )
        if nonce[::-1] not in (written, renamed):
            raise InvalidError(
                f"{directory}: what an executor ({found['host']}) wrote there did not arrive here; {_DESTINATIONS}"
            )
        return Probe(renames=renamed is not None)
    finally:
        for path in (question, answer, answer + "-renamed"):
            with suppress(OSError):
                remove_if_there(path)


def _probe_store(session: Any, store: Store, url: str, nonce: str, package: str) -> Probe:
    question, answer = f".tmp-{nonce[:12]}-driver", f".tmp-{nonce[:12]}-executor"
    try:
        store.write(question, nonce.encode())
        frame = session.range(0, 1, 1, 1).mapInArrow(
            _store_probe_function(package, url, question, answer), "report string"
        )
        found = json.loads(frame.collect()[0][0])
        _check_package(found, package)
        if "error" in found:
            raise StorageError(
                f"{store.name}: an executor ({found['host']}) failed there: {found['error']}; {_ACCESS}"
            )
        _check_directory(found, store.name, nonce)
        if store.read(answer) != nonce[::-1].encode():
            raise InvalidError(
                f"{store.name}: what an executor ({found['host']}) wrote there did not arrive here; {_DESTINATIONS}"
            )
        return Probe(renames=False)
    finally:
        for name in (question, answer):
            with suppress(OSError):
                store.delete(name)


def _probe_function(package: str, question: str, answer: str) -> _Task:
    """The task where driver and executor are to see one directory."""

    def exchange(found: dict[str, str]) -> None:
        import os

        try:
            with open(question) as file:
                nonce = file.read()
        except OSError as error:
            found["read_error"] = str(error)
            return
        found["nonce"] = nonce
        try:
            with open(answer, "w") as file:
                file.write(nonce[::-1])
        except OSError as error:
            found["write_error"] = str(error)
        try:
            os.rename(answer, answer + "-renamed")
        except OSError as error:
            found["rename_error"] = str(error)

    return _task(package, exchange)


def _store_probe_function(package: str, url: str, question: str, answer: str) -> _Task:
    """The same for an object store, which fastshard reaches, if it is there."""

    def exchange(found: dict[str, str]) -> None:
        import importlib

        try:
            store = importlib.import_module(package + "._store").Store(url)
            nonce = store.read(question)
            if nonce is None:
                found["read_error"] = "it is not there"
            else:
                found["nonce"] = nonce.decode()
                store.write(answer, nonce[::-1])
        except Exception as error:
            found["error"] = str(error)

    return _task(package, exchange)


def _task(package: str, exchange: Callable[[dict[str, str]], None]) -> _Task:
    """Reports who the executor is, what it has, and what `exchange` adds.

    Pickled by value, as functions within functions are, both run where fastshard is not installed: they import nothing
    of this module.
    """

    def probe_executor(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import json
        import socket
        import sys

        import pyarrow

        for _ in batches:
            pass
        found = {"host": socket.gethostname(), "python": sys.version.split()[0], "executable": sys.executable}
        try:
            found["version"] = importlib.import_module(package).__version__
        except ImportError as error:
            found["import_error"] = str(error)
        exchange(found)
        yield pyarrow.RecordBatch.from_pydict({"report": [json.dumps(found)]})

    return probe_executor


def _content(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def _check_package(found: dict[str, str], package: str) -> None:
    ours = fastshard.__version__
    install = _INSTALL.format(version=ours)
    where = f"Python {found['python']} at {found['executable']} on {found['host']}"
    if "version" not in found:
        raise MissingDependencyError(
            f"the executors cannot import {package} ({found.get('import_error')}; {where}); {install}"
        )
    if found["version"] != ours:
        raise InvalidError(
            f"the executors have fastshard {found['version']} ({where}), and here it is {ours} "
            f"(Python {sys.version.split()[0]}); {install}"
        )


def _check_directory(found: dict[str, str], directory: str, nonce: str) -> None:
    if found.get("nonce") != nonce:
        problem = found.get("read_error", "another content")
        raise InvalidError(
            f"{directory}: an executor ({found['host']}) does not find there what the driver wrote ({problem}); "
            f"{_DESTINATIONS}"
        )
