"""`docs/guarantees.md` names tests that exist, and its example runs."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()


def test_every_test_named_there_exists():
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)
    assert len(named) > 40
    for file, test in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        assert test in {getattr(node, "name", "") for node in tree.body}, f"{file} has no {test}"


def test_every_guarantee_has_a_test():
    rows = [
        row for row in PAGE.splitlines() if row.startswith("| ") and "guarantee | test" not in row
    ]
    without = [row for row in rows if "::" not in row and not row.endswith("| the same |")]
    assert without == []


@pytest.mark.slow
def test_the_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
