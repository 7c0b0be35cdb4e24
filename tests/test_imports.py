"""Who may know whom, in C++ and in Python, and how little `import fastshard` brings."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastshard

pytestmark = pytest.mark.unsanitized

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fastshard"

# Each part of csrc/ may include itself and what is named here: base <- {ipc, io, order} <- pipeline <- bindings.
CPP_LAYERS = {
    "base": set(),
    "ipc": {"base"},
    "io": {"base"},
    "order": {"base"},
    "pipeline": {"base", "ipc", "io", "order"},
    "bindings": {"base", "ipc", "io", "order", "pipeline"},
}

HEAVY = (
    "torch",
    "pandas",
    "pyspark",
    "polars",
    "duckdb",
    "datasets",
    "ray",
    "deltalake",
    "fsspec",
    "sklearn",
    "matplotlib",
)
# What may import torch when it is imported itself; everything else asks for it when it is used.
NEEDS_TORCH = {
    "fastshard.dataset",
    "fastshard.torch",
    "fastshard.loader",
    "fastshard._handover",
    "fastshard._shared_room",
}
# What must work without pyarrow: the package itself, the index as JSON, and listing the commands.
NO_PYARROW = re.compile(r"fastshard(\.__main__|\.errors|\._index|\._optional|\.cli(\..*)?)?")
# The side that reads data sets, which knows nothing of the side that makes them.
READING = {
    "fastshard.reader",
    "fastshard.batch",
    "fastshard.dataset",
    "fastshard.torch",
    "fastshard.loader",
    "fastshard.distributed",
    "fastshard.state",
}
WRITING = re.compile(r"fastshard\.(writer|conversion|cache|foreign|_commit|converters(\..*)?)")


def cpp_files() -> list[Path]:
    return sorted(path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".h", ".cpp"})


def test_each_cpp_part_includes_only_parts_below_it() -> None:
    wrong = []
    for path in cpp_files():
        part = path.relative_to(ROOT / "csrc").parts[0]
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
            target = Path(included).parts[0]
            if not (ROOT / "csrc" / included).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {included} is not rooted at csrc/")
            elif target not in CPP_LAYERS[part] | {part}:
                wrong.append(f"{path.relative_to(ROOT)}: {part} must not include {target} ({included})")
    assert not wrong


def test_only_the_bindings_know_python() -> None:
    pattern = re.compile(r"^\s*#\s*include\s+<(Python\.h|pybind11/|numpy/)", re.MULTILINE)
    known = {
        path.relative_to(ROOT / "csrc").parts[0] for path in cpp_files() if pattern.search(path.read_text())
    }
    assert known == {"bindings"}


def test_each_cpp_header_guards_itself() -> None:
    assert not [
        path for path in cpp_files() if path.suffix == ".h" and "#pragma once" not in path.read_text()
    ]


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), str(path))
    return found


def imports(node: ast.AST, *, everywhere: bool) -> Iterator[str]:
    """Absolute names of what is imported; only what runs with the module itself, unless `everywhere`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: a relative import"
            assert child.module is not None
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        elif everywhere or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(child, everywhere=everywhere)


MODULES = modules()


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_heavy_packages_only_where_it_must(name: str) -> None:
    allowed = {"torch"} if name in NEEDS_TORCH else set()
    packages = {imported.split(".")[0] for imported in imports(MODULES[name], everywhere=False)}
    assert not (packages & set(HEAVY)) - allowed
    if NO_PYARROW.fullmatch(name):
        assert "pyarrow" not in packages


@pytest.mark.parametrize("name", sorted(READING & MODULES.keys()))
def test_reading_does_not_know_writing(name: str) -> None:
    assert not [
        imported for imported in imports(MODULES[name], everywhere=True) if WRITING.fullmatch(imported)
    ]


def test_the_command_line_is_on_top() -> None:
    users = {
        name
        for name, tree in MODULES.items()
        if any(imported.startswith("fastshard.cli") for imported in imports(tree, everywhere=True))
    }
    assert all(name == "fastshard.__main__" or name.startswith("fastshard.cli") for name in users)


def test_only_one_module_asks_torch_for_rank_and_world_size() -> None:
    users = {
        name
        for name, tree in MODULES.items()
        if any(imported.startswith("torch.distributed") for imported in imports(tree, everywhere=True))
        or "torch.distributed." in ast.unparse(tree)
    }
    assert users <= {"fastshard.distributed"}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {
        name: {
            imported
            for imported in imports(tree, everywhere=False)
            if imported in MODULES and imported != name
        }
        for name, tree in MODULES.items()
    }
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for imported in sorted(graph[name]):
                visit(imported, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_import_is_light() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import fastshard; took = time.perf_counter() - start;"
        "dir(fastshard); fastshard.Error; print(took, *sorted(sys.modules))"
    )
    times = []
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        took, *loaded = result.stdout.split()
        assert not set(loaded) & {*HEAVY, "pyarrow", "numpy", "tqdm", "click"}
        times.append(float(took))
    assert min(times) < 0.150


def test_public_names_agree() -> None:
    block = next(
        node
        for node in MODULES["fastshard"].body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    shown = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "`import X as X` tells a type checker that the name is public"
            shown[alias.name] = node.module
    submodules = {name for name, module in shown.items() if module == "fastshard"}
    assert {name: module for name, module in shown.items() if name not in submodules} == fastshard._PUBLIC
    assert submodules == set(fastshard._SUBMODULES)
    assert sorted(fastshard.__all__) == sorted({*shown, "__version__"})
    assert set(fastshard.__all__) <= set(dir(fastshard))


@pytest.mark.parametrize("name", fastshard.__all__)
def test_public_name_resolves(name: str) -> None:
    value = getattr(fastshard, name)
    if name in fastshard._PUBLIC:
        assert value is getattr(importlib.import_module(fastshard._PUBLIC[name]), name)
        assert value.__doc__


def test_no_module_hides_a_public_name() -> None:
    hidden = [name for name in fastshard._PUBLIC if importlib.util.find_spec(f"fastshard.{name}") is not None]
    assert not hidden


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'fastshard' has no attribute 'nonsense'"):
        fastshard.nonsense  # noqa: B018


def test_star_import_brings_what_is_public() -> None:
    names: dict[str, object] = {}
    exec("from fastshard import *", names)
    assert set(fastshard.__all__) <= set(names)
