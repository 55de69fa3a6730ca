"""The shape of the package: who may import whom, what importing does."""

import ast
import subprocess
import sys
from pathlib import Path

import qpde

SOURCE = Path(qpde.__file__).parent

# A file imports only from rows above and from files to its left.
ROWS = [
    *("_status", "_interrupt", "_cache", "_archive", "_form", "_jet", "_schedule", "activations"),
    *("_random",),
    *("_field", "_eta", "_domain", "_round"),
    *("_network", "_kernel", "_kernel_field", "_nodes", "_measure", "_fit", "_coons", "_lift"),
    *("_problem", "_fingerprint", "_trial", "_progress"),
    *("zoo", "_rule", "_solution"),
    *("_aligned", "_tangent", "_second_order", "_implicit", "_loop", "_checkpoint"),
    *("_train", "presets"),
    *("_program", "_enclosure", "_operator", "_limit_system", "_limit", "_polish", "_solve"),
    *("_poincare", "_witness", "_monotonicity"),
    *("_residual", "_certificate"),
    *("_linear", "_pool", "_walk", "_diffusion", "_estimate", "_feynman_kac"),
    *(
        "_leap",
        "_finding",
        "_domain_findings",
        "_network_findings",
        "_equation_findings",
        "_explain",
    ),
    *("_spec", "_store", "_table", "_style", "plot", "_page", "_run_page"),
    *("_options", "_commands", "studies", "cli", "__init__"),
]


def imports(path, level=1):
    """The modules of the package that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == level:
            if node.module:
                yield node.module.split(".")[0]
            else:
                yield from (alias.name for alias in node.names)


def test_files_import_only_from_above_and_from_the_left():
    files = sorted(path.stem for path in SOURCE.glob("*.py"))
    folders = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    assert sorted(files + folders) == sorted(ROWS)
    for position, name in enumerate(ROWS):
        for other in imports(SOURCE / f"{name}.py") if name in files else ():
            assert ROWS.index(other) < position, f"{name} imports {other}"
    for path in SOURCE.glob("*/**/*.py"):
        folder, *_, _ = path.relative_to(SOURCE).parts
        for other in imports(path, level=len(path.relative_to(SOURCE).parts)):
            assert ROWS.index(other) < ROWS.index(folder), f"{path} imports {other}"


def test_files_are_short():
    long = {p.name: len(p.read_text().splitlines()) for p in SOURCE.rglob("*.py")}
    assert max(long.values()) <= 450, long


def test_importing_prints_nothing_changes_nothing_and_is_quick():
    """The limit is 3 s on two idle cores; 8 here, because tests run beside each other."""
    code = (
        "import time, jax; before = dict(jax.config.values); start = time.perf_counter();"
        "import qpde; seconds = time.perf_counter() - start;"
        "assert dict(jax.config.values) == before;"
        "import sys; assert 'matplotlib' not in sys.modules and 'typer' not in sys.modules;"
        "assert seconds < 8, seconds"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_public_names_are_documented():
    for name, value in vars(qpde).items():
        if not name.startswith("_") and callable(value):
            assert value.__doc__, name


def test_no_words_that_do_not_belong():
    """No print outside the commands."""
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                assert path.stem in ("cli", "commands", "_commands"), (
                    f"print in {path.name}:{node.lineno}"
                )
