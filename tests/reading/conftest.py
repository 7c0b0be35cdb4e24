"""What the reading tests share: the tables and folders of the writing tests."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "writing"))  # for arrow_tables


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where the system has such: property tests sync thousands of files."""
    if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(prefix="fastshard-test-", dir="/dev/shm") as path:
            yield Path(path)
    else:
        yield tmp_path_factory.mktemp("memory")
