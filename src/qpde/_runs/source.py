"""Problems in Python files of the user's: which files they consist of, and how they are run.

A file is run only where its user asks for it: `_runs/trust.py` decides that before anything here runs one.
"""

import ast
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from pathlib import Path
from types import ModuleType

from .._problem.problem import Problem

_PACKAGE = Path(__file__).parents[1]


def split_name(text: str) -> tuple[Path, str] | None:
    """`path.py:name` as its two parts; None for a problem that is no file's."""
    file, colon, name = text.rpartition(":")
    return (Path(file), name) if colon and file.endswith(".py") else None


def source_files(path: Path) -> dict[str, str]:
    """The SHA-256 of a file, and of all files beside it that it imports, by names relative to its folder.

    Nothing is run: import statements are read, also those inside functions and those of the imported files.
    """
    root, found, left = path.parent, dict[str, str](), [path]
    while left:
        file = left.pop()
        name = file.relative_to(root).as_posix()
        if name in found:
            continue
        content = _content(file)
        found[name] = hashlib.sha256(content).hexdigest()
        if file.suffix == ".py":
            left += [one for module in _imports(content, file, root) for one in _files(module)]
    return dict(sorted(found.items()))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise OSError(f"Cannot read {file}: {error.strerror}.") from None


def _imports(content: bytes, file: Path, root: Path) -> Iterator[Path]:
    """The places, without suffix, where a file's imports would look first."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return  # it cannot be run either
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names, base = [alias.name for alias in node.names], root
        elif isinstance(node, ast.ImportFrom):
            stem = node.module or ""
            names = [stem, *(f"{stem}.{alias.name}".strip(".") for alias in node.names)]
            base = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
        else:
            continue
        for name in filter(None, names):
            parts = name.split(".")
            for i in range(1, len(parts) + 1):
                place = base.joinpath(*parts[:i])
                if place.is_relative_to(root):
                    yield place


def _files(place: Path) -> list[Path]:
    """The files that an import of this place could run."""
    names = [f"{place}{suffix}" for suffix in all_suffixes()]
    names += [str(place / f"__init__{suffix}") for suffix in all_suffixes()]
    return [Path(name) for name in names if os.path.isfile(name)]


def run_file(path: Path, name: str) -> Problem:
    """Run a Python file, and return the problem that it defines under a name, with the files it came from."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    path = path.resolve()
    files, before = source_files(path), set(sys.modules)
    module = ModuleType(f"qpde_user_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file may import its neighbours
    content = _content(path)
    if hashlib.sha256(content).hexdigest() != files[path.name]:
        raise ValueError(f"{path} changed while it was read. Try again.")
    with _no_bytecode():
        exec(compile(content, str(path), "exec"), vars(module))
    found = vars(module).get(name)
    if not isinstance(found, Problem):
        problems = [key for key, value in vars(module).items() if isinstance(value, Problem)]
        raise ValueError(
            f"{path} has no qpde.Problem named {name!r}. It has: {', '.join(problems) or 'none'}."
        )
    files |= _loaded(set(sys.modules) - before, path.parent)
    recipe = {"problem": f"{path}:{name}", "source": dict(sorted(files.items()))}
    return found if found.recipe else found.with_recipe(json.dumps(recipe))


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Python reads source files alone: bytecode that lies beside them may come from somewhere else."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    with tempfile.TemporaryDirectory() as empty:
        sys.pycache_prefix, sys.dont_write_bytecode = empty, True
        try:
            yield
        finally:
            sys.pycache_prefix, sys.dont_write_bytecode = before


def _loaded(names: set[str], root: Path) -> dict[str, str]:
    """The files below a folder that were loaded in a way that no import statement shows."""
    found = {}
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None:
            continue
        path = Path(file).resolve()
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if path.is_relative_to(root) and not installed and not path.is_relative_to(_PACKAGE):
            found[path.relative_to(root).as_posix()] = hashlib.sha256(_content(path)).hexdigest()
    return found
