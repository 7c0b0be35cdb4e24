"""An object store on this machine: moto's S3, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow import fs as pafs

SECRET = "hush-hush"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield ObjectStore(port)
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


class ObjectStore:
    """One bucket, and its URLs with all that a client has to know."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.filesystem: Any = pafs.S3FileSystem(
            access_key="me",
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.filesystem.create_dir("data")

    def url(self, name: str, scheme: str = "s3") -> str:
        where = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"{scheme}://me:{SECRET}@data/{name}?{where}"

    def names(self, name: str) -> set[str]:
        selector = pafs.FileSelector(f"data/{name}", allow_not_found=True)
        return {info.base_name for info in self.filesystem.get_file_info(selector)}

    def break_file(self, path: str) -> None:
        """Change one byte in the middle."""
        with self.filesystem.open_input_file(f"data/{path}") as file:
            data = bytearray(file.read())
        data[len(data) // 2] ^= 1
        with self.filesystem.open_output_stream(f"data/{path}") as file:
            file.write(bytes(data))
