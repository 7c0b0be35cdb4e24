"""How shards are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastshard.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WriteOptions", "parse_compression"]

_CODECS = ("none", "lz4", "zstd")
_ZSTD_DEFAULT = 1
_ZSTD_MAX = 22


def parse_compression(value: str | tuple[str, int] | None) -> tuple[str, int | None]:
    """The codec and level that `compression=` names.

    Raises:
        InvalidError: It names none.
    """
    hint = (
        f'compression={value!r}: expected "none", "lz4", "zstd", "zstd:LEVEL" or ("zstd", LEVEL), '
        f"LEVEL from 1 to {_ZSTD_MAX}"
    )
    name: Any = value
    level: Any = None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        name, level = value
    elif isinstance(value, str) and ":" in value:
        name, _, text = value.partition(":")
        level = int(text) if text.isascii() and text.isdigit() else text
    elif value is None:
        name = "none"
    if name not in _CODECS:
        raise InvalidError(hint)
    if name == "zstd" and level is None:
        level = _ZSTD_DEFAULT
    if level is not None:
        valid = isinstance(level, int) and not isinstance(level, bool) and 1 <= level <= _ZSTD_MAX
        if name != "zstd" or not valid:
            raise InvalidError(hint)
    return name, level


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How shards are laid out; validated on construction.

    Attributes:
        compression: `"none"`, `"lz4"`, `"zstd"`, `"zstd:LEVEL"` or `("zstd", LEVEL)`. The default is none: only
            uncompressed buffers are read without a copy, straight from the mapping, and training reads a data set
            many times. Compression pays where the drive or the network is what limits.
        block_bytes: Size that a block's body aims at, before compression.
        shard_bytes: Size that a shard's file aims at.
        offset_limit: The largest 32-bit offset that a block may need; smaller in tests.
    """

    compression: str | tuple[str, int] | None = "none"
    block_bytes: int = 1 << 20
    shard_bytes: int = 256 << 20
    offset_limit: int = 2**31 - 1

    def __post_init__(self) -> None:
        parse_compression(self.compression)
        for name in ("block_bytes", "shard_bytes", "offset_limit"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**62:
                raise InvalidError(f"{name}={value!r}: expected a positive number of bytes")

    @property
    def codec(self) -> str:
        """`"none"`, `"lz4"` or `"zstd"`."""
        return parse_compression(self.compression)[0]

    @property
    def level(self) -> int | None:
        """The compression level, where the codec has one."""
        return parse_compression(self.compression)[1]

    def settings(self) -> dict[str, Any]:
        """What `index.json` keeps of them."""
        return {
            "compression": self.codec,
            "level": self.level,
            "block_bytes": self.block_bytes,
            "shard_bytes": self.shard_bytes,
        }

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> WriteOptions:
        """The options that a data set was written with, to append to it in kind; what is missing is the default."""
        level = settings.get("level")
        codec = settings.get("compression", "none")
        defaults = cls()
        return cls(
            compression=codec if level is None else (codec, level),
            block_bytes=settings.get("block_bytes", defaults.block_bytes),
            shard_bytes=settings.get("shard_bytes", defaults.shard_bytes),
        )

    def ipc(self) -> pa.ipc.IpcWriteOptions:
        """pyarrow's options of the same meaning."""
        import pyarrow as pa

        compression = None if self.codec == "none" else pa.Codec(self.codec, self.level)
        return pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5, compression=compression)
