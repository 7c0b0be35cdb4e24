"""`index.json`: read with every value checked, written the same for the same contents."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastshard as fs
from fastshard._index import ColumnStats, parse_index, read_index
from fastshard.errors import CorruptError, NotFoundError, UnsupportedError


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("index") / "data"
    fs.write([{"x": i, "s": "é" * i} for i in range(5)], path, metadata={"note": "☃", "n": [1, None]})
    loaded: dict[str, Any] = json.loads((path / "index.json").read_text())
    del loaded["checksum"]  # of bytes that the tests change
    return loaded


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_read_and_written_again_it_is_the_same_bytes(tmp_path: Path) -> None:
    fs.write([{"x": 1}], tmp_path / "a", metadata={"z": 1, "a": {"b": [1.5, "é"]}})
    data = (tmp_path / "a" / "index.json").read_bytes()
    assert read_index(tmp_path / "a").to_json() == data
    fs.write([{"x": 1}], tmp_path / "b", metadata={"z": 1, "a": {"b": [1.5, "é"]}})
    assert (tmp_path / "b" / "index.json").read_bytes() == data


def test_it_is_read_without_pyarrow_and_numpy(tmp_path: Path) -> None:
    fs.write([{"x": 1}], tmp_path / "a")
    code = (
        "import sys; from fastshard._index import read_index; index = read_index(sys.argv[1]);"
        "assert index.rows == 1; assert not {'pyarrow', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True, timeout=60)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_any_flipped_byte_is_seen(tmp_path: Path, mask: int) -> None:
    fs.write([{"x": 1}], tmp_path / "a", metadata={"note": "free text"})
    data = (tmp_path / "a" / "index.json").read_bytes()
    good = parse_index(data)
    unseen = []
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        try:
            index = parse_index(flipped)
        except (CorruptError, UnsupportedError):
            continue
        assert index == good, at
        unseen.append(at)
    # Only what makes another word of "checksum" takes its member away; all others still are what they were.
    name = data.index(b'"checksum"')
    assert all(name < at < name + len('"checksum"') - 1 for at in unseen)


def test_a_changed_file_names_its_checksum_and_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "a"
    fs.write([{"x": 1}], path, metadata={"note": "free text"})
    data = (path / "index.json").read_bytes()
    (path / "index.json").write_bytes(data.replace(b"free text", b"tree fext"))
    with pytest.raises(CorruptError, match=r"a/index\.json: .*changed.*checksum.*restore it"):
        fs.open(path)
    document = json.loads(data.replace(b"free text", b"my own text"))
    del document["checksum"]  # edited on purpose
    (path / "index.json").write_text(json.dumps(document))
    assert fs.open(path).index.metadata == {"note": "my own text"}


def test_the_readable_schema_and_the_one_that_counts_name_the_same_columns(tmp_path: Path) -> None:
    fs.write([{"x": 1}], tmp_path / "a")
    fs.write([{"y": 1}], tmp_path / "b")
    document, other = (json.loads((tmp_path / name / "index.json").read_text()) for name in "ab")
    del document["checksum"]
    (tmp_path / "a" / "index.json").write_text(json.dumps({**document, "schema_ipc": other["schema_ipc"]}))
    with pytest.raises(CorruptError, match=r"index\.json: .*\['y'\]"):
        fs.open(tmp_path / "a")


def test_members_that_nobody_knows_are_ignored(document: dict[str, Any]) -> None:
    assert parse_index(encode({**document, "later": {"more": 1}})) == parse_index(encode(document))


def test_it_is_frozen_and_pickles(document: dict[str, Any]) -> None:
    index = parse_index(encode(document))
    assert pickle.loads(pickle.dumps(index)) == index
    with pytest.raises(AttributeError):
        index.rows = 7  # type: ignore[misc]


def test_a_newer_version_is_refused_by_name(document: dict[str, Any]) -> None:
    # Whatever a newer version looks like otherwise: the version is seen first.
    with pytest.raises(UnsupportedError, match=r"here/index\.json: format version 2, .* upgrade fastshard"):
        parse_index(encode({"format": "fastshard", "version": 2}), "here/index.json")


def set_to(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = path.split("/")
        for name in parents:
            document = document[name]
        if value is DELETE:
            del document[last]
        else:
            document[last] = value

    return change


DELETE = object()
MEMBERS = [
    *(
        "format",
        "version",
        "generation",
        "rows",
        "shards",
        "blocks",
        "bytes",
        "raw_bytes",
        "fingerprint",
        "schema",
    ),
    *(
        "schema_ipc",
        "shard_table",
        "block_table",
        "columns",
        "order",
        "settings",
        "provenance",
        "metadata",
        "previous",
    ),
    *("shard_table/path", "shard_table/bytes", "shard_table/hash", "order/window", "order/unit_blocks"),
    *("columns/x", "columns/x/null_count", "columns/x/child_null_count"),
]
WRONG: list[tuple[str, Any]] = [
    *((name, DELETE) for name in MEMBERS),
    *(
        (name, wrong)
        for name in MEMBERS
        for wrong in (None, -1, 1.5, True, "x", [], [1], {"a": 1})
        if name != "format"
    ),
    ("format", "parquet"),
    ("version", 0),
    ("generation", 0),
    ("rows", 2**63),
    ("rows", 0),
    ("shards", 0),
    ("shards", 6),
    ("blocks", 0),
    ("fingerprint", "0" * 31),
    ("fingerprint", "A" * 32),
    ("schema", [{"name": "x", "type": "int64", "nullable": 1}]),
    ("schema", [{"name": "x", "type": "int64", "nullable": True}] * 2),
    (
        "schema",
        [{"name": "", "type": "int64", "nullable": True}, {"name": "s", "type": "string", "nullable": True}],
    ),
    ("schema_ipc", "not base64!"),
    ("schema_ipc", "é"),
    *(
        ("shard_table/path", path)
        for path in ("", "/etc/passwd", "../x", "a/../../x", "a\\b", "a\0b", "\ud800")
    ),
    *(("previous", [path]) for path in ("", "/etc/passwd", "../x")),
    ("order/window", 6),
    ("order/window", 0),
    ("order/unit_blocks", 3),
    ("order/unit_blocks", 0),
    ("columns", {"x": {"null_count": 0, "child_null_count": 0}}),
    ("columns/x/null_count", 6),
    ("columns/s/min_length", 12),
    ("columns/s/min_length", None),
    ("columns/s/max_length", "5"),
]
# Values of the wrong sort for most members that happen to be right for these.
RIGHT = {
    ("settings", "{'a': 1}"),
    ("provenance", "{'a': 1}"),
    ("metadata", "{'a': 1}"),
    ("previous", "[]"),
    ("shard_table/path", "'x'"),
}


@pytest.mark.parametrize(("path", "value"), [case for case in WRONG if (case[0], repr(case[1])) not in RIGHT])
def test_a_wrong_member_is_named(document: dict[str, Any], path: str, value: Any) -> None:
    changed = copy.deepcopy(document)
    set_to(path, value)(changed)
    with pytest.raises(CorruptError) as caught:
        parse_index(encode(changed), "here/index.json")
    text = str(caught.value)
    assert text.startswith("here/index.json")
    assert any(part in text for part in (*path.split("/"), "rows"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b'{"format": "fastshard", "version": 1, "version": 1}',
        b'{"format": "fastshard", "version": NaN}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_index_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptError, match=r"here/index\.json"):
        parse_index(data, "here/index.json")


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bytes_are_refused_or_make_another_index(
    document: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(encode(document))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        index = parse_index(bytes(raw))
    except (CorruptError, UnsupportedError):
        return
    assert index.rows >= index.shards >= 0
    index.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(document=JSON, member=st.sampled_from(MEMBERS), value=JSON)
def test_any_json_is_refused_or_read(document: Any, member: str, value: Any) -> None:
    with pytest.raises(CorruptError):
        parse_index(json.dumps(document).encode())


def test_no_data_set_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, text in (
        ("nothing", "no such directory"),
        ("file", "this is a file"),
        ("empty", "no data set here"),
    ):
        with pytest.raises(NotFoundError, match=text) as caught:
            read_index(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_statistics_of_two_parts_are_those_of_the_whole() -> None:
    one, two = ColumnStats(1, 2, None, None), ColumnStats(3, 4, 5, 6)
    assert one.merge(two) == two.merge(one) == ColumnStats(4, 6, 5, 6)
    assert ColumnStats(0, 0, 1, 9).merge(two) == ColumnStats(3, 4, 1, 9)
