"""Sources that are not on this machine: whatever pyarrow.fs and fsspec open."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from outputs import files_of, stored

import fastshard as fs
from fastshard.converters import _parquet_reader
from fastshard.converters._paths import has_magic, locate, public_name

fsspec = pytest.importorskip("fsspec")

Convert = Callable[..., pa.Table]

TABLE = pa.table({"x": range(1000), "s": [f"{i}" for i in range(1000)]})


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory, empty before and after."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    yield filesystem
    filesystem.store.clear()


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_files_that_fsspec_opens(convert: Convert, memory: Any) -> None:
    for part in (10, 2):
        memory.pipe(f"/data/part-{part}.parquet", parquet(TABLE.slice(part * 10, 10), row_group_size=3))
    memory.pipe("/data/_SUCCESS", b"")
    wanted = [*range(20, 30), *range(100, 110)]
    for source in (
        "memory://data",
        "memory://data/",
        "memory:///data",
        "memory://data/*.parquet",
        "memory://**/*.parquet",
        ["memory://data/part-2.parquet", "memory://data/part-10.parquet"],
    ):
        assert convert(source)["x"].to_pylist() == wanted
    found = convert("memory://data", filter=pc.field("x") > 25, columns=["s"], shuffle_seed=1)
    assert sorted(found["s"].to_pylist()) == sorted(map(str, [*range(26, 30), *range(100, 110)]))


def test_a_hive_tree(convert: Convert, memory: Any) -> None:
    for year in (2023, 2024):
        memory.pipe(f"/data/year={year}/f.parquet", parquet(TABLE.slice(0, 1)))
    for source in ("memory://data", "memory://data/year=*", "memory://data/*/f.parquet"):
        assert convert(source, columns=["year", "x"]).to_pylist() == [
            {"year": 2023, "x": 0},
            {"year": 2024, "x": 0},
        ]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files(convert: Convert, memory: Any, kind: str) -> None:
    sink = io.BytesIO()
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with make(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, 100)
    memory.pipe("/data/a.arrow", sink.getvalue())
    assert convert("memory://data").equals(TABLE)
    # Under another name: fsspec gives all who open a file in memory one object with one place to read at.
    memory.pipe("/data/b.arrow", sink.getvalue())
    assert convert("memory://data", shuffle_seed=1).num_rows == 2000


def test_what_only_this_process_has_is_read_by_it(convert: Convert, memory: Any) -> None:
    for part in range(5):
        memory.pipe(f"/data/{part}.parquet", parquet(TABLE))
    assert convert("memory://data", workers=4, shard_bytes=1000).num_rows == 5000


def test_delta_tables_elsewhere(memory: Any, tmp_path: Path) -> None:
    """Files of theirs are refused; the table itself is opened by deltalake, which does not know this scheme."""
    memory.pipe("/table/_delta_log/0.json", b"{}")
    memory.pipe("/table/f.parquet", parquet(TABLE))
    with pytest.raises(fs.errors.SourceError, match=r'fs\.Delta\("memory://table"\)'):
        fs.convert("memory://table/*.parquet", tmp_path / "out")
    with pytest.raises(fs.errors.SourceError, match="memory://table: the Delta table cannot be read"):
        fs.convert("memory://table", tmp_path / "out")


def test_errors_name_the_url(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/data/bad.parquet", b"PAR1 nothing more")
    with pytest.raises(fs.errors.SourceError, match=r"memory://data/bad\.parquet: cannot be read"):
        fs.convert("memory://data", tmp_path / "out")
    with pytest.raises(fs.errors.NotFoundError, match=r"memory://nowhere: no such file"):
        fs.convert("memory://nowhere", tmp_path / "out")
    with pytest.raises(fs.errors.InvalidError, match=r"neither pyarrow\.fs nor fsspec"):
        fs.convert("nonsense://x", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_read_that_fails_midway_is_an_error(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe(
        "/data/a.parquet",
        parquet(pa.table({"x": np.random.default_rng(0).random(500_000)}), row_group_size=100_000),
    )
    from fsspec.implementations.memory import MemoryFile

    original, calls = MemoryFile.read, 0

    def read(self: Any, *arguments: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise RuntimeError("503 Slow Down")
        return bytes(original(self, *arguments))

    monkeypatch.setattr(MemoryFile, "read", read)
    with pytest.raises(fs.errors.SourceError, match=r"memory://data/a\.parquet.*503 Slow Down"):
        fs.convert("memory://data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_large_remote_row_group_is_not_fetched_as_a_whole(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_parquet_reader, "_PREFETCH_BYTES", 1 << 20)
    monkeypatch.setattr(_parquet_reader, "_BUFFER_REMOTE", 1 << 16)
    table = pa.table({"x": np.random.default_rng(0).random(1_000_000)})
    memory.pipe("/data/a.parquet", parquet(table, use_dictionary=False, row_group_size=1_000_000))
    from fsspec.implementations.memory import MemoryFile

    original, largest = MemoryFile.read, 0

    def read(self: Any, *arguments: Any) -> bytes:
        nonlocal largest
        data = bytes(original(self, *arguments))
        largest = max(largest, len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read", read)
    fs.convert("memory://data", tmp_path / "out")
    assert stored(tmp_path / "out").equals(table)
    assert largest <= 2 << 20


# A server of HTTP


class RangeHandler(SimpleHTTPRequestHandler):
    """Serves files, and parts of them."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if match is None or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        first, last = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def end_headers(self) -> None:
        self.send_header("ETag", f'"{self.headers.get("X", "")}{self.path}"')
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (RangeHandler,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    pytest.importorskip("aiohttp")
    folder = tmp_path / "web" / "data"
    folder.mkdir(parents=True)
    for part in (10, 2):
        pq.write_table(TABLE.slice(part * 10, 10), folder / f"part-{part}.parquet", row_group_size=4)
    with serving(tmp_path / "web") as found:
        yield found


def test_files_on_a_web_server(convert: Convert, web: tuple[str, list[str]]) -> None:
    url, asked = web
    assert convert(f"{url}/data/part-2.parquet")["x"].to_pylist() == list(range(20, 30))
    assert asked
    wanted = [*range(20, 30), *range(100, 110)]
    urls = [f"{url}/data/part-2.parquet", f"{url}/data/part-10.parquet?token=secret"]
    assert convert(urls)["x"].to_pylist() == wanted
    assert convert(f"{url}/data/")["x"].to_pylist() == wanted
    assert convert(f"{url}/data/part-*.parquet")["x"].to_pylist() == wanted


def test_workers_open_urls_themselves(web: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = web
    for workers in (1, 2):
        fs.convert(f"{url}/data/", tmp_path / f"{workers}", workers=workers, shard_bytes=40)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_what_the_server_does_not_have(web: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = web
    with pytest.raises(fs.errors.Error, match=r"http://127\.0\.0\.1:\d+/data/nothing\.parquet"):
        fs.convert(f"{url}/data/nothing.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_cached_urls_are_told_by_size_and_tag(web: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = web
    first = fs.cached(f"{url}/data/part-2.parquet", tmp_path / "cache")
    assert fs.cached(f"{url}/data/part-2.parquet", tmp_path / "cache") == first
    pq.write_table(TABLE.slice(0, 500), tmp_path / "web" / "data" / "part-2.parquet")
    second = fs.cached(f"{url}/data/part-2.parquet", tmp_path / "cache")
    assert second != first
    assert stored(second).num_rows == 500


# Names


def test_secrets_of_a_url_are_kept_nowhere(memory: Any, web: tuple[str, list[str]], tmp_path: Path) -> None:
    url, _ = web
    fs.convert(f"{url}/data/part-2.parquet?signature=secret", tmp_path / "out")
    assert not [name for name, data in files_of(tmp_path / "out").items() if b"secret" in data]
    assert public_name("s3://user:secret@bucket/key?region=secret") == "s3://bucket/key"
    assert public_name("/a?b@c") == "/a?b@c"


@pytest.mark.parametrize(
    ("text", "magic"),
    [
        ("a/b", False), ("a/*.parquet", True), ("a?b", True), ("a[1]", True), ("s3://bucket/a/*.parquet", True),
        ("s3://bucket/a?region=*", False), ("http://[::1]:80/a", False), ("https://host/a[0-9]", True),
    ],
)  # fmt: skip
def test_what_is_a_pattern(text: str, magic: bool) -> None:
    assert has_magic(text) == magic


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://bucket/a/b*.parquet?region=us-east-1", "bucket/a/b*.parquet"),
        ("gs://bucket/a/part-[0-9].parquet", "bucket/a/part-[0-9].parquet"),
        ("file:///a%20b/c", "/a b/c"),
    ],
)
def test_urls_that_pyarrow_opens(url: str, path: str) -> None:
    place = locate(url)
    assert place.path == path
    assert place.portable
    assert place.local == url.startswith("file:")
    assert type(place.filesystem).__module__ in ("pyarrow._fs", "pyarrow._s3fs", "pyarrow._gcsfs")
    assert place.name == url.partition("?")[0]


def test_a_file_url_is_a_local_file(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    pq.write_table(TABLE, tmp_path / "a b" / "f.parquet")
    for name in ("f.parquet", "", "*.parquet"):
        assert convert(f"file://{tmp_path}/a%20b/{name}").equals(TABLE)
    assert os.path.isdir(locate(f"file://{tmp_path}/a%20b").path)
