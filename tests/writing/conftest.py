"""Folders and runs that the writing tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where the system has such: property tests sync thousands of files."""
    if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(prefix="fastshard-test-", dir="/dev/shm") as path:
            yield Path(path)
    else:
        yield tmp_path_factory.mktemp("memory")
