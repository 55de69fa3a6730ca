"""Loading runs no code: seven ways in, a payload behind each, and whom one trusts."""

import json
import py_compile
import shutil
from pathlib import Path

import pytest
from command import command

import qpde
from qpde._runs.source import source_files

PROBLEM = """
import qpde
from helper import K
from pathlib import Path
Path(__file__).with_name("ran").write_text("")
problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + K, name="mine")
"""
POINTS = "0.1,0.2\n"
ENTRIES = [
    ["load"],
    ["evaluate", "RUN", "POINTS"],
    ["plot", "RUN", "--only", "history"],
    ["report", "RUN"],
    ["certify", "RUN", "--heuristic"],
    ["resume", "RUN"],
    ["repeat", "RUN"],
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a problem, its neighbour and a run, all made by this user."""
    base = tmp_path_factory.mktemp("made")
    (base / "mine.py").write_text(PROBLEM)
    (base / "helper.py").write_text("K = 1.0\n")
    (base / "points.csv").write_text(POINTS)
    words = ("--steps", 3, "--out", base / "run", "--quiet")
    done = command("solve", f"{base / 'mine.py'}:problem", *words)
    assert (base / "run" / "solution.safetensors").exists(), done.err
    (base / "ran").unlink()
    return base


@pytest.fixture
def own(made, tmp_path):
    """A copy of that folder: the same run, somewhere else."""
    shutil.copytree(made, tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def foreign(own, monkeypatch):
    """The same folder as another user gets it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(own.parent / "another user"))
    return own


def enter(entry, base, *more):
    """The message of an entry point, empty where it worked."""
    if entry[0] == "load":
        try:
            qpde.load(base / "run", trust="--trust" in more)
        except ValueError as error:
            return str(error)
        return ""
    places = {"RUN": base / "run", "POINTS": base / "points.csv"}
    done = command(*(places.get(word, word) for word in entry), *more)
    return done.err if done.code == 2 else ""


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[0])
def test_no_entry_runs_a_strangers_code(foreign, entry):
    message = enter(entry, foreign)
    assert "Loading runs no code" in message
    assert "mine.py" in message
    assert not (foreign / "ran").exists()


def test_a_word_of_trust_runs_it_and_ones_own_needs_none(own, monkeypatch):
    assert enter(["load"], own) == ""
    assert (own / "ran").exists()
    (own / "ran").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(own.parent / "another user"))
    assert enter(["load"], own, "--trust") == ""
    assert (own / "ran").exists()


def test_a_problem_that_is_passed_needs_no_trust(foreign):
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + 1.0)
    assert qpde.load(foreign / "run", problem=problem).steps == 3
    assert not (foreign / "ran").exists()


@pytest.mark.parametrize("file", ["mine.py", "helper.py"])
def test_a_copied_id_with_other_code_is_foreign_and_trust_refuses_it(own, file):
    """Also where only a neighbour differs."""
    (own / file).write_text((own / file).read_text() + "# one line more\n")
    assert f"{file} is not as it was" in enter(["load"], own)
    assert "was made with other code" in enter(["load"], own, "--trust")
    assert not (own / "ran").exists()


def test_a_new_neighbour_that_an_import_would_find_counts(own):
    shutil.rmtree(own / "__pycache__", ignore_errors=True)
    (own / "qpde.py").write_text("raise SystemExit('payload')\n")
    assert "qpde.py is not as it was" in enter(["load"], own)


def test_the_same_code_under_another_id_is_foreign(own):
    """Whoever wrote the file, this user has not made that run."""
    from qpde._files.archive import read_archive, write_archive

    path = own / "run" / "solution.safetensors"
    header, groups = read_archive(path, "solution")
    write_archive(own / "run" / "other.safetensors", "solution", header | {"run": "0" * 32}, groups)
    with pytest.raises(qpde.Untrusted, match="you have not run here"):
        qpde.load(own / "run" / "other.safetensors")
    assert not (own / "ran").exists()


def test_bytecode_beside_a_file_is_not_run(own):
    """A neighbour's bytecode that claims to be its source: Python would believe it without a look."""
    (own / "evil.py").write_text("K = 7.0\nopen(__file__ + '.payload', 'w').close()\n")
    target = own / "__pycache__" / Path(py_compile.__cached__).name.replace("py_compile", "helper")
    target.parent.mkdir(exist_ok=True)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(own / "evil.py", target, str(own / "helper.py"), invalidation_mode=unchecked)
    import sys

    sys.modules.pop("helper", None)
    assert enter(["load"], own) == ""
    assert not list(own.glob("*.payload"))


def test_paths_are_relative_and_no_file_of_a_run_names_a_folder_of_this_machine(own, made):
    record = json.loads((own / "run" / "run.json").read_text())
    assert record["spec"]["problem"] == "../mine.py:problem"
    assert command("report", own / "run").code == 0
    assert command("certify", own / "run", "--heuristic").code == 0
    for path in (own / "run").iterdir():
        content = path.read_bytes()
        for folder in (made, own):
            assert str(folder).encode() not in content, path.name


def test_neighbours_are_found_without_running_anything(tmp_path):
    (tmp_path / "a.py").write_text("import b, pkg.deep\ndef f():\n    from c import x\n")
    (tmp_path / "b.py").write_text("raise SystemExit\n")
    (tmp_path / "c.py").write_text("import a, d as e\n")
    (tmp_path / "d.py").write_text("not python\n")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from . import near\n")
    (tmp_path / "pkg" / "deep.py").write_text("")
    (tmp_path / "pkg" / "near.py").write_text("")
    names = ["a.py", "b.py", "c.py", "d.py", "pkg/__init__.py", "pkg/deep.py", "pkg/near.py"]
    assert list(source_files(tmp_path / "a.py")) == names
