"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastshard

# Child processes find the package where this one does, whatever their working directory is.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(fastshard.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# A shell lets what it runs in the background ignore SIGINT, and child processes would go on with that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Folders whose tests run many processes, or wait, around native code that other folders test in one process; and files
# that call the same native code millions of times.
UNSANITIZED = {
    "cli",
    "converting",
    "delta",
    "pipeline",
    "ray",
    "reading",
    "spark",
    "torch",
    "trainers",
    "test_order_scale.py",
    "test_order_statistics.py",
}
# What of these folders AddressSanitizer sees all the same: tables of any types, read in every way, by every engine and
# as others write them. What threads there are ThreadSanitizer sees in tests/stream, without torch's.
SANITIZED = {
    "test_foreign_properties.py",
    "test_projection.py",
    "test_read_engines.py",
    "test_reading_properties.py",
    "test_row_reads.py",
    "test_stream_properties.py",
    "test_verify_modes.py",
}
if os.environ.get("FASTSHARD_SANITIZER") == "tsan":
    SANITIZED = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name not in SANITIZED and {item.path.name, item.path.parent.name} & UNSANITIZED:
            item.add_marker(pytest.mark.unsanitized)


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where the system has such: property tests sync thousands of files."""
    if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(prefix="fastshard-test-", dir="/dev/shm") as path:
            yield Path(path)
    else:
        yield tmp_path_factory.mktemp("memory")
