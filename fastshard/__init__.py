"""fastshard: from Parquet, Delta and Spark tables to PyTorch batches at the speed of memory.

Public names resolve on first use, so that `import fastshard` stays light: no pyarrow, no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastshard import errors as errors
    from fastshard import lightning as lightning
    from fastshard import ray as ray
    from fastshard import spark as spark
    from fastshard._commit import vacuum as vacuum
    from fastshard.batch import Batch as Batch
    from fastshard.batch import Ragged as Ragged
    from fastshard.cache import cached as cached
    from fastshard.combining import concat as concat
    from fastshard.conversion import convert as convert
    from fastshard.dataset import ShardDataset as ShardDataset
    from fastshard.delta import Delta as Delta
    from fastshard.errors import Error as Error
    from fastshard.foreign import index as index
    from fastshard.loader import ShardLoader as ShardLoader
    from fastshard.mixing import mix as mix
    from fastshard.reader import ShardReader as ShardReader
    from fastshard.reader import open as open
    from fastshard.views import View as View
    from fastshard.writer import ShardWriter as ShardWriter
    from fastshard.writer import write as write

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Delta",
    "Error",
    "Ragged",
    "ShardDataset",
    "ShardLoader",
    "ShardReader",
    "ShardWriter",
    "View",
    "__version__",
    "cached",
    "concat",
    "convert",
    "errors",
    "index",
    "lightning",
    "mix",
    "open",
    "ray",
    "spark",
    "vacuum",
    "write",
]

# Public name -> the module that defines it. No module may bear the name of a public function: importing it
# would replace the function in this package.
_PUBLIC = {
    "Batch": "fastshard.batch",
    "Delta": "fastshard.delta",
    "Error": "fastshard.errors",
    "Ragged": "fastshard.batch",
    "ShardDataset": "fastshard.dataset",
    "ShardLoader": "fastshard.loader",
    "ShardReader": "fastshard.reader",
    "ShardWriter": "fastshard.writer",
    "View": "fastshard.views",
    "cached": "fastshard.cache",
    "concat": "fastshard.combining",
    "convert": "fastshard.conversion",
    "index": "fastshard.foreign",
    "mix": "fastshard.mixing",
    "open": "fastshard.reader",
    "vacuum": "fastshard._commit",
    "write": "fastshard.writer",
}
# Submodules that are reached as attributes without an import of their own.
_SUBMODULES = ("errors", "lightning", "ray", "spark")

if not TYPE_CHECKING:  # a type checker sees the imports above, and refuses what is not there

    def __getattr__(name: str) -> Any:
        module = _PUBLIC.get(name)
        if module is not None:
            value = getattr(import_module(module), name)
        elif name in _SUBMODULES:
            value = import_module(f"fastshard.{name}")
        else:
            raise AttributeError(f"module 'fastshard' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
