"""The shape of the package: who may import whom, what importing does."""

import ast
import inspect
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import qpde

SOURCE = Path(qpde.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# Rooms from the top of the house to the bottom; a room imports only from rooms above it and from itself.
# Inside a room the only rule is that imports make no circle, which Python itself enforces.
ROOMS = [
    *(
        "_status",
        "_text",
        "_arguments",
        "_precision",
        "_compiled",
        "_machines",
        "_program",
        "activations",
        "_field",
        "_diffusion",
        "_domain",
        "_network",
        "_equation",
        "_control",
    ),
    *(
        "_boundary",
        "_problem",
        "_stopping",
        "zoo",
        "_files",
        "_tangent",
        "_rule",
        "_control_rules",
        "_train",
        "presets",
        "_limit",
        "_monotone",
    ),
    *(
        "_trust",
        "_motion",
        "_walks",
        "_solve",
        "_plot",
        "plot",
        "_runs",
        "_report",
        "studies",
        "cli",
        "__init__",
    ),
]


def imported_rooms(path):
    """The rooms that a file imports from, with line numbers, also inside functions."""
    depth = len(path.relative_to(SOURCE).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((name.split(".")[0], node.lineno) for name in names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            assert node.module.split(".")[0] != "qpde", f"{path}:{node.lineno}: import relatively"


def test_rooms_import_only_from_rooms_above():
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found == set(ROOMS), "a room is missing from the list, or no longer there"
    wrong = []
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for other, line in imported_rooms(path):
            if ROOMS.index(other) >= ROOMS.index(room):
                wrong.append(f"{path.relative_to(SOURCE)}:{line}: {room} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_rooms_are_small():
    """A dozen files are seen at a glance."""
    rooms = {room: len(list((SOURCE / room).glob("[a-z_]*.py"))) - 1 for room in ROOMS}
    assert max(rooms.values()) <= 12, rooms


def test_files_are_short():
    lines = {str(p.relative_to(SOURCE)): len(p.read_text().splitlines()) for p in FILES}
    assert {file: count for file, count in lines.items() if count > 450} == {}


def test_importing_prints_nothing_changes_nothing_and_is_quick():
    """The limit is 3 s of one idle core; 8 here, because tests run beside each other."""
    code = (
        "import time, jax; before = dict(jax.config.values); start = time.process_time();"
        "import qpde; seconds = time.process_time() - start;"
        "assert dict(jax.config.values) == before;"
        "import sys; assert 'matplotlib' not in sys.modules and 'typer' not in sys.modules;"
        "assert seconds < 8, seconds"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Parts for networks and rules of one's own; docs/extending.md shows them at work.
WITHOUT_EXAMPLE = {"as_field", "trainable"}


def test_public_names_are_documented():
    """By a sentence of their own: a dataclass without one has its signature for a docstring."""
    for name in qpde.__all__:
        value = getattr(qpde, name)
        text = vars(value)["__doc__"] if isinstance(value, type) else value.__doc__
        first = (text or "").split("\n\n")[0].strip()
        assert first.endswith((".", ":")), f"{name}: {first}"
        assert not first.startswith(f"{name}("), f"{name} has no docstring of its own"
        if inspect.isfunction(value) and name not in WITHOUT_EXAMPLE:
            assert ">>> " in (text or ""), f"{name} shows no example"


def found_in(path):
    """What does not belong into a file of the package, with line numbers."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            if path.parent.name != "cli":
                yield node.lineno, "print outside the commands"
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield node.lineno, "an import of everything"
        elif isinstance(node, ast.ExceptHandler):
            caught = "everything" if node.type is None else ast.unparse(node.type)
            quiet = all(isinstance(line, ast.Pass | ast.Continue) for line in node.body)
            if caught == "everything" or (quiet and caught in ("Exception", "BaseException")):
                yield node.lineno, f"{caught} caught quietly"
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.search(r"\b(TODO|FIXME|XXX|HACK)\b", token.string):
            yield token.start[0], "something left to do"


def test_no_print_nothing_left_to_do_and_no_error_swallowed(tmp_path):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {what}"
        for path in FILES
        for line, what in found_in(path)
    ]
    assert wrong == []
    (tmp_path / "bad.py").write_text(
        "from os import *\ntry:\n    print(1)  # TODO\nexcept Exception:\n    pass\n"
        "try:\n    pass\nexcept:\n    raise\n"
    )
    assert sorted(line for line, _ in found_in(tmp_path / "bad.py")) == [1, 3, 3, 4, 8]
