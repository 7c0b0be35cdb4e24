"""However a loader ends and whatever reads for it: nothing hangs, and what it took comes back.

Each ending of the table below is met by each way of reading. Afterwards the threads of the process, its descriptors and
its native memory are what they were before the loader was made.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mirror import mounted

import fastshard as fs
from fastshard import _core
from fastshard.errors import CorruptError, InvalidError

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

ROWS = 2000
PATIENCE = 60.0  # seconds: no ending takes one of them, and a machine may be busy


def as_it_is(batch: fs.Batch) -> fs.Batch:
    return batch


def load(path: Path, **options: Any) -> fs.ShardLoader:
    return fs.ShardLoader(path, batch_size=16, shuffle=True, verify="once", threads=2, prefetch=4, **options)


def load_several(path: Path) -> fs.ShardLoader:
    """Two data sets are gathered from threads of Python."""
    reader = fs.open(path)
    together = fs.concat([reader.select(np.arange(1000)), reader.select(np.arange(1000, ROWS))])
    return fs.ShardLoader(together, batch_size=16, shuffle=True, verify="once", threads=2, prefetch=4)


# What makes batches, and how the samples are compressed.
WAYS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "mmap": (lambda path: load(path, engine="mmap"), "none"),
    "mmap-lz4": (lambda path: load(path, engine="mmap"), "lz4"),
    "uring": (lambda path: load(path, engine="uring"), "none"),
    "threads": (lambda path: load(path, engine="threads"), "lz4"),
    "transformed": (lambda path: load(path, engine="threads", transform=as_it_is), "none"),
    "several": (load_several, "none"),
    "dataset": (
        lambda path: fs.ShardDataset(path, batch_size=16, batched=True, shuffle=True, verify="once"),
        "lz4",
    ),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """2,000 samples in several shards of small blocks, by their compression."""
    folder = tmp_path_factory.mktemp("endings")
    columns = {"id": np.arange(ROWS), "text": [f"sample {i} " * (i % 9) for i in range(ROWS)]}
    for compression in ("none", "lz4"):
        path = folder / compression
        fs.write(columns, path, compression=compression, block_bytes=2048, shard_bytes=8192)
        assert fs.open(path).index.shards > 1
    return {path.name: path for path in folder.iterdir()}


Make = Callable[[], Any]


def ids_of(batches: Any) -> list[int]:
    return sorted(id for batch in batches for id in batch["id"].tolist())


def finished(make: Make, path: Path) -> None:
    assert ids_of(make()) == list(range(ROWS))


def failed(make: Make, path: Path) -> None:
    """Every shard has a byte that is not what it was."""
    for shard in path.glob("shard-*.arrow"):
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 0xFF
        shard.write_bytes(content)
    with pytest.raises(CorruptError, match=r"shard-\d+"):
        ids_of(make())


def abandoned(make: Make, path: Path) -> None:
    iterator = iter(make())
    next(iterator)


def abandoned_in_a_cycle(make: Make, path: Path) -> None:
    iterator = iter(make())
    held = [next(iterator), iterator]
    held.append(held)


def closed(make: Make, path: Path) -> None:
    """It ends there, says so in its state, and is good for another iteration."""
    with make() as loader:
        iterator = iter(loader)
        first = next(iterator)
        loader.close()
        taken = 1 + sum(1 for _ in iterator)  # what a transform had at hand may still come
        assert taken < 20
        assert loader.state_dict()["position"] == taken * 16
        assert len(first["id"]) == 16
        assert ids_of(loader) == list(range(ROWS))


def interrupted(make: Make, path: Path) -> None:
    """Ctrl-C, wherever the consumer is."""
    loader = make()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    deadline = time.monotonic() + PATIENCE
    timer.start()

    def consume() -> None:
        while time.monotonic() < deadline:
            for _ in loader:
                pass

    with pytest.raises(KeyboardInterrupt):
        consume()
    timer.join()


def forked(make: Make, path: Path) -> None:
    """The child may not go on with the iterator, but with the loader; the parent goes on."""
    loader = make()
    iterator = iter(loader)
    first = next(iterator)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(int(PATIENCE))
            try:
                next(iterator)
                status = 2
            except InvalidError as error:
                status = 0 if "fork" in str(error) else 3
            del iterator
            gc.collect()
            if ids_of(loader) != list(range(ROWS)):
                status = 4
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert ids_of([first, *iterator]) == list(range(ROWS))


def two_at_once(make: Make, path: Path) -> None:
    pairs = list(zip(make(), make(), strict=True))
    for place in (0, 1):
        assert ids_of(pair[place] for pair in pairs) == list(range(ROWS))


def in_another_thread(make: Make, path: Path) -> None:
    """One thread makes the loader, another begins to iterate, a third goes on."""
    loader, found = make(), []

    def run(function: Callable[[], Any]) -> None:
        thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    iterator = iter(loader)
    run(lambda: next(iterator))
    run(lambda: list(iterator))
    first, rest = found
    assert ids_of([first, *rest]) == list(range(ROWS))


ENDINGS = [
    finished,
    failed,
    abandoned,
    abandoned_in_a_cycle,
    closed,
    interrupted,
    forked,
    two_at_once,
    in_another_thread,
]
TABLE = [
    pytest.param(ending, way, id=f"{ending.__name__}-{way}")
    for way in WAYS
    for ending in ENDINGS
    if not (ending is closed and way == "dataset")  # has no close()
]


def held() -> tuple[list[str], dict[str, str], int]:
    """What this process has: names of threads, descriptors and what they are of, bytes of native memory."""
    gc.collect()
    threads = [
        Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")
    ]
    return sorted(threads), descriptors(), _core.memory_taken()


def settled() -> tuple[list[str], dict[str, str], int]:
    """The same when nothing of it is about to begin or to go."""
    before = held()
    for _ in range(100):
        time.sleep(0.02)
        before, last = held(), before
        if before == last:
            break
    return before


def descriptors() -> dict[str, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def assert_back(before: tuple[list[str], dict[str, str], int]) -> None:
    """A thread that has ended is in /proc a moment longer."""
    deadline = time.monotonic() + PATIENCE
    while (now := held()) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert now == before


@pytest.fixture
def own_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def forked_before() -> None:
    """NumPy's OpenBLAS ends threads of its own at a fork."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.usefixtures("own_interrupts")
@pytest.mark.parametrize(("ending", "way"), TABLE)
def test_what_a_loader_took_comes_back(
    paths: dict[str, Path], tmp_path: Path, ending: Callable[[Make, Path], None], way: str
) -> None:
    if way == "uring" and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)
    make, compression = WAYS[way]
    path = paths[compression]
    if ending is failed:
        path = Path(shutil.copytree(path, tmp_path / "damaged"))
    next(iter(make(path)))  # what the first use of torch and of the engine leaves is theirs
    before = settled()
    ending(lambda: make(path), path)
    assert_back(before)


SLOW = """
import os, sys
import fastshard as fs
loader = fs.ShardLoader(sys.argv[1], batch_size=100, engine=sys.argv[2], verify="never", prefetch=2, threads=1)
try:
    for batch in loader:
        print("batch", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("engine", ["mmap", "threads"])
def test_ctrl_c_while_storage_is_slow(tmp_path: Path, engine: str) -> None:
    """The consumer waits for a read that takes a second."""
    fs.write(
        {"x": np.zeros((400, 1024), np.float32)}, tmp_path / "d", compression="none", shard_bytes=1 << 20
    )
    with mounted(tmp_path / "d", tmp_path / "mounted", seconds=1.0) as mount:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, str(mount.path), engine], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "batch\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
            assert "interrupted" in out
            assert "fs-" not in out
        finally:
            process.kill()
            process.wait()


def test_ctrl_c_while_storage_does_not_answer(tmp_path: Path) -> None:
    """The reads take half a minute; what waits for them is left behind."""
    fs.write(
        {"x": np.zeros((400, 1024), np.float32)}, tmp_path / "d", compression="none", shard_bytes=1 << 20
    )
    with mounted(tmp_path / "d", tmp_path / "mounted", seconds=30.0) as mount:
        process = subprocess.Popen(
            [sys.executable, "-c", "print('begin', flush=True)" + SLOW, str(mount.path), "threads"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begin\n"
            waited = time.monotonic() + PATIENCE
            while (
                not any("fs-pread" in name for name in threads_of(process.pid)) and time.monotonic() < waited
            ):
                time.sleep(0.05)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            out, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
            assert "interrupted" in out
            assert time.monotonic() - begun < 20
        finally:
            process.kill()
            process.wait()


def threads_of(pid: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.append((task / "comm").read_text().strip())
    return found


BEFORE_EXIT = """
import os, sys
import fastshard as fs
sys.path.insert(0, sys.argv[1])
from test_endings import WAYS
if __name__ == "__main__":
    iterator = iter(WAYS[sys.argv[2]][0](sys.argv[3]))
    next(iterator)
    child = os.fork() if sys.argv[4] == "fork" else None
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sum(len(batch["id"]) for batch in iterator) == 2000 - 16
    else:
        print("exits", flush=True)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fork", ["alone", "fork"])
def test_the_interpreter_ends_with_batches_in_flight(paths: dict[str, Path], way: str, fork: str) -> None:
    """Also that of a child, while the parent goes on."""
    if way == "uring" and (refusal := _core.uring_refusal()) is not None:
        pytest.skip(refusal)
    arguments = [str(Path(__file__).parent), way, str(paths[WAYS[way][1]]), fork]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEFORE_EXIT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "exits\n"
        begin = time.monotonic()
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, "")
        assert time.monotonic() - begin < 5
    finally:
        process.kill()
        process.wait()
