"""`docs/architecture.md` names files and functions that exist, and no room is missing from it."""

import ast
import re
from pathlib import Path

import qpde

SOURCE = Path(qpde.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()


def test_every_file_and_function_named_there_exists():
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", PAGE)
    assert len(named) > 30
    for file, symbol in named:
        if file.startswith("tests/"):
            assert (Path(__file__).parents[1] / file).is_file(), file
            continue
        tree = ast.parse((SOURCE / file).read_text())
        defined = {node.name for node in tree.body if hasattr(node, "name")}
        assert not symbol or symbol in defined, f"{file} has no {symbol}"


def test_every_room_stands_in_the_table():
    table = PAGE[PAGE.index("## The rooms") : PAGE.index("## One `qpde.solve")]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {
        name.rstrip("/").removesuffix(".py") for row in rows for name in re.findall("`(.+?)`", row)
    }
    files = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert named == files | folders
