"""`fastshard info`: what the index says of a data set. Reads no sample."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fastshard._text import count, fields, shorten, size, table
from fastshard.cli._options import echo_json, json_option, path_argument

if TYPE_CHECKING:
    from fastshard._index import ColumnStats, DatasetIndex, FieldText
    from fastshard.views import View

__all__ = ["command"]

_PROVENANCE = {"fastshard": "written by version"}
_TENSOR = re.compile(r"extension<arrow\.fixed_shape_tensor\[value_type=(\w+), shape=\[([\d,]*)\][^<>]*\]>")
_VALUE_LIMIT = 100  # columns of a terminal that one value of the provenance or the metadata may take


@click.command("info", short_help="Show schema, sizes, statistics and provenance.")
@path_argument
@click.option("--shards", "with_shards", is_flag=True, help="List each shard too.")
@json_option
def command(path: str, with_shards: bool, as_json: bool) -> None:
    """Show what a data set holds: its schema, rows, shards, sizes, statistics and where it comes from.

    Only the index is read, so this is quick for any size of data. Where PATH names a part of the data set, it also says
    how many samples that is and in which shards they lie.

    \b
    Examples:
      fastshard info train/
      fastshard info train/ --shards
      fastshard info train/ --json | jq .rows
      fastshard info "train/?split=val&seed=1"
    """
    from fastshard._index import read_index

    view = _open_view(path)
    path = path if view is None else view.root.recipe.where
    index = read_index(path)
    shards = _read_shards(path, index) if with_shards else None
    if shards is not None and view is not None:
        for shard, selected in zip(shards, view.geometry.shard_rows.tolist(), strict=True):
            shard["selected"] = selected
    if as_json:
        document = _document(path, index, shards)
        echo_json(document if view is None else {**document, **_view_document(view)})
        return
    click.echo(_summary(path, index, view))
    click.echo()
    click.echo(_columns(index))
    if shards is not None:
        click.echo()
        click.echo(_shards_table(shards))


def _open_view(path: str) -> View | None:
    """The part of a data set that `path` names, or None where it names the whole."""
    from fastshard.views import View, open_spec, selects

    if not selects(path):
        return None
    view = open_spec(path)
    assert isinstance(view, View)
    return view


def _view_document(view: View) -> dict[str, Any]:
    return {
        "rows": view.rows,
        "view": {
            "steps": [str(step) for step in view.steps],
            "of_rows": view.root.rows,
            "in_shards": _touched(view),
            "digest": view.digest,
            "fingerprint": view.fingerprint,
        },
    }


def _touched(view: View) -> int:
    return int((view.geometry.shard_rows > 0).sum())


def _shards_table(shards: list[dict[str, Any]]) -> str:
    header = ["shard", "rows", "selected", "blocks", "size", "hash"]
    rows = [
        [
            s["path"],
            count(s["rows"]),
            count(s.get("selected", 0)),
            count(s["blocks"]),
            size(s["bytes"]),
            s["hash"],
        ]
        for s in shards
    ]
    if not any("selected" in shard for shard in shards):
        for row in (header, *rows):
            del row[2]
    return table(header, rows, right=range(1, len(header) - 1))


def _ratio(index: DatasetIndex) -> float | None:
    """Size in memory over size on disk; above 1 where compression saves room."""
    return index.raw_bytes / index.bytes if index.bytes else None


def _summary(path: str, index: DatasetIndex, view: View | None) -> str:
    settings = index.settings
    level = settings.get("level")
    compression = str(settings.get("compression", "unknown")) + (
        f" (level {level})" if level is not None else ""
    )
    ratio = _ratio(index)
    sizes = size(index.bytes)
    if ratio is not None:
        sizes += f" in files, {size(index.raw_bytes)} in memory (ratio {ratio:.2f})"
    pairs = [
        ("data set", os.path.abspath(path)),
        *(() if view is None else _view_pairs(view)),
        ("samples", count(index.rows)),
        ("shards", f"{count(index.shards)} ({count(index.blocks, 'block')})"),
        ("size", sizes),
        ("per sample", size(index.raw_bytes / index.rows) if index.rows else "-"),
        ("compression", compression),
        ("fingerprint", index.fingerprint),
        ("generation", count(index.generation)),
        *_flatten("", {_PROVENANCE.get(name, name): value for name, value in index.provenance.items()}),
        *_flatten("metadata", index.metadata),
    ]
    return fields([(name, shorten(value, _VALUE_LIMIT)) for name, value in pairs])


def _view_pairs(view: View) -> list[tuple[str, str]]:
    share = f" ({view.rows / view.root.rows:.2%})" if view.root.rows else ""
    return [
        ("view", "&".join(map(str, view.steps))),
        ("view samples", f"{count(view.rows)}{share} in {count(_touched(view), 'shard')}"),
        ("view fingerprint", view.fingerprint),
    ]


def _flatten(prefix: str, document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The members of a JSON object as pairs; what is nested stays JSON."""
    pairs = []
    for name, value in document.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        pairs.append((f"{prefix} {shorten(name, 40)}".strip(), text))
    return pairs


def _columns(index: DatasetIndex) -> str:
    header = ["column", "type", "nulls", "inner nulls", "length"]
    rows = []
    for field in index.schema:
        stats = index.columns[field.name]
        kind = _TENSOR.sub(_short_tensor, field.type) + ("" if field.nullable else " not null")
        nulls = [count(stats.null_count), count(stats.child_null_count)]
        rows.append([shorten(field.name, 40), shorten(kind, 80), *nulls, _length(stats)])
    if not any(stats.child_null_count for stats in index.columns.values()):
        for row in (header, *rows):
            del row[3]
    return table(header, rows, right=(2, 3) if len(header) == 5 else (2,))


def _short_tensor(match: re.Match[str]) -> str:
    return f"tensor<{match[1]}>[{match[2].replace(',', ', ')}]"


def _length(stats: ColumnStats) -> str:
    if stats.min_length is None or stats.max_length is None:
        return ""
    if stats.min_length == stats.max_length:
        return count(stats.min_length)
    return f"{count(stats.min_length)} to {count(stats.max_length)}"


def _read_shards(path: str, index: DatasetIndex) -> list[dict[str, Any]]:
    from fastshard._tables import read_tables

    with read_tables(path, index) as (entries, _):
        return [
            {
                "path": entry.path,
                "rows": entry.rows,
                "blocks": entry.blocks,
                "block_rows": entry.block_rows,
                "bytes": entry.bytes,
                "raw_bytes": entry.raw_bytes,
                "hash": entry.hash.hex(),
            }
            for entry in entries
        ]


def _column_document(field: FieldText, stats: ColumnStats) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "nullable": field.nullable,
        "null_count": stats.null_count,
        "child_null_count": stats.child_null_count,
        "min_length": stats.min_length,
        "max_length": stats.max_length,
    }


def _document(path: str, index: DatasetIndex, shards: list[dict[str, Any]] | None) -> dict[str, Any]:
    ratio = _ratio(index)
    document = {
        "path": os.path.abspath(path),
        "format_version": index.version,
        "generation": index.generation,
        "fingerprint": index.fingerprint,
        "rows": index.rows,
        "shards": index.shards,
        "blocks": index.blocks,
        "bytes": index.bytes,
        "raw_bytes": index.raw_bytes,
        "ratio": None if ratio is None else round(ratio, 4),
        "columns": [_column_document(field, index.columns[field.name]) for field in index.schema],
        "order": {"window": index.window, "unit_blocks": index.unit_blocks},
        "settings": dict(index.settings),
        "provenance": dict(index.provenance),
        "metadata": dict(index.metadata),
    }
    if shards is not None:
        document["shard_files"] = shards
    return document
