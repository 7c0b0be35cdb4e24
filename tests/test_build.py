"""What CMake does about native libraries that the system lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unsanitized

ROOT = Path(__file__).parents[1]


def configure(folder: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    """Configures a project that asks for the native libraries, without a network and without the system's own."""
    cmake = shutil.which(
        "cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    assert cmake is not None
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\n"
        "project(probe LANGUAGES NONE)\n"
        f'include("{ROOT}/cmake/FastshardDependencies.cmake")\n'
    )
    nowhere = "http://127.0.0.1:9"
    return subprocess.run(
        [cmake, "-S", folder, "-B", folder / "build", "-DFASTSHARD_FORCE_FETCH=ON", *definitions],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": ""},
    )


def test_without_a_network_the_message_names_the_package_to_install(tmp_path: Path) -> None:
    result = configure(tmp_path)
    assert result.returncode != 0
    assert "needs zstd" in result.stderr
    assert "apt-get install libzstd-dev" in result.stderr


def test_an_archive_with_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zstd-1.5.7.tar.gz").write_bytes(b"something else")
    result = configure(tmp_path, f"-DFASTSHARD_ARCHIVES={tmp_path}")
    assert result.returncode != 0
    assert "its SHA256 is" in result.stderr
    assert "apt-get install libzstd-dev" in result.stderr
