"""The command: JSON keys, exit codes, messages, files."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from command import PROCESS
from typer.testing import CliRunner

from qpde import load
from qpde._runs.spec import Spec
from qpde.cli import main as cli

KEYS = [
    "problem", "dim", "rule", "steps", "seed", "status", "verdict", "loss", "best_batch_loss", "seconds",
    "compile_seconds", "relative_l2_error", "max_relative_error", "skill", "run", "verdict_text",
    "verdict_reasons", "verdict_advice",
]  # fmt: skip


def qpde(monkeypatch, capsys, *words):
    """Run `main` in this process: exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["qpde", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def test_json_is_one_object_with_the_promised_keys(monkeypatch, capsys):
    code, out, _ = qpde(
        monkeypatch, capsys, "solve", "survival", "--dim", 2, "--steps", 150, "--json"
    )
    assert code == 0
    result = json.loads(out)
    assert list(result) == KEYS
    assert result["dim"] == 2
    assert result["status"] == "finished"
    assert result["run"] is None
    assert 0 < result["relative_l2_error"] < 1


def test_run_folder(monkeypatch, capsys, tmp_path):
    words = ("solve", "survival", "--dim", 2, "--steps", 150, "--set", "discount=0.5", "--seed", 3)
    code, out, _ = qpde(monkeypatch, capsys, *words, "--out", tmp_path / "run")
    assert code == 0
    assert "relative L2 error" in out
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["spec"]["settings"] == {"discount": 0.5}
    assert record["result"]["seed"] == 3
    assert record["versions"]["jax"]
    lines = (tmp_path / "run" / "history.csv").read_text().splitlines()
    assert lines[0] == "step,loss,gradient,truncated,held_out"
    assert len(lines) == 152  # a header, 150 steps, and the held-out loss after the last
    assert {"history.png", "radial.png"} <= {p.name for p in (tmp_path / "run").iterdir()}
    code, _, err = qpde(monkeypatch, capsys, *words, "--out", tmp_path / "run")
    assert code == 2
    assert (
        "already holds a run. Choose another folder, add --force to replace it, or go on with: qpde"
        in err
    )
    code, _, _ = qpde(monkeypatch, capsys, *words, "--out", tmp_path / "run", "--force", "--quiet")
    assert code == 0


def test_a_problem_of_the_users_own(monkeypatch, capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import qpde\n"
        "problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + 1, name='mine')\n"
    )
    code, out, _ = qpde(monkeypatch, capsys, "solve", f"{file}:problem", "--steps", 20, "--json")
    result = json.loads(out)
    assert code == 0
    assert result["problem"] == "mine"
    assert result["relative_l2_error"] is None
    code, _, err = qpde(monkeypatch, capsys, "solve", f"{file}:other")
    assert code == 2
    assert "has no qpde.Problem named 'other'. It has: problem." in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["solve", "survivel"], "There is no problem named 'survivel'. Did you mean survival?"),
        (["solve", "survival", "--dim", "0"], "dimension is a whole number from 1 up, got 0"),
        (["solve", "survival", "--dim", "-3"], "dimension is a whole number from 1 up, got -3"),
        (["solve", "survival", "--dim", "two"], "'--dim': Input should be a valid integer"),
        (["solve", "survival", "--rule", "deep"], "no rule named 'deep'. Did you mean deep-galer"),
        (["solve", "survival", "--steps", "-5"], "steps must be a whole number, not negative"),
        (["solve", "survival", "--preset", "papers"], "Did you mean paper?"),
        (["solve", "survival", "--set", "discount"], "--set takes name=number"),
        (["solve", "survival", "--set", "discount=x"], "'x' is not a number"),
        (["solve", "survival", "--set", "rate=1"], "no setting 'rate'. It has: discount."),
        (["solve", "survival", "--budget", "-1"], "budget must be a positive number of seconds"),
        (["solve", "nothing.py:problem"], "There is no file nothing.py"),
        (["solve"], "Missing argument"),
    ],
)
def test_wrong_use_gets_one_message_and_exit_code_2(monkeypatch, capsys, words, message):
    code, out, err = qpde(monkeypatch, capsys, *words)
    assert code == 2
    assert out == ""
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_a_users_own_error_keeps_its_traceback(monkeypatch, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("raise ValueError('mine')\n")
    monkeypatch.setattr(sys, "argv", ["qpde", "solve", f"{file}:problem"])
    with pytest.raises(ValueError, match="mine"):
        cli.main()


def test_help_shows_examples():
    runner = CliRunner()
    for words in (["--help"], ["solve", "--help"], ["zoo", "--help"]):
        result = runner.invoke(cli.app, words)
        assert result.exit_code == 0
    assert "qpde solve survival --dim 20" in runner.invoke(cli.app, ["solve", "--help"]).output
    assert "survival" in runner.invoke(cli.app, ["zoo"]).output


def test_silent_where_there_is_no_terminal():
    """In a process of its own: JSON on standard output, nothing on standard error."""
    words = ["solve", "survival", "--dim", "1", "--steps", "50", "--json"]
    done = subprocess.run(
        [*PROCESS, *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(json.loads(done.stdout)) == KEYS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a problem in the unit disc, by the command itself."""
    folder = tmp_path_factory.mktemp("runs") / "disc"
    words = ["solve", "survival", "--dim", "2", "--steps", "100", "--out", str(folder), "--quiet"]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    return folder


def test_evaluate_reads_and_writes_csv_and_npy(monkeypatch, capsys, tmp_path, run):
    x = np.array([[0.1, 0.2], [-0.5, 0.25], [0.0, 0.0]])
    solution = load(run)
    (tmp_path / "p.csv").write_text("x,y\n" + "\n".join(f"{a!r},{b!r}" for a, b in x.tolist()))
    np.save(tmp_path / "p.npy", x)
    code, out, err = qpde(monkeypatch, capsys, "evaluate", run, tmp_path / "p.csv")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "value"
    assert np.array_equal(np.array(lines[1:], np.float32), solution(x))
    words = ("evaluate", run, tmp_path / "p.npy", "--gradient", "--out")
    for name in ("v.npy", "v.csv"):
        assert qpde(monkeypatch, capsys, *words, tmp_path / name)[:2] == (0, "")
    expected = np.column_stack([solution(x), solution.grad(x)])
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
    table = np.loadtxt(tmp_path / "v.csv", delimiter=",", skiprows=1, dtype=np.float32)
    assert np.array_equal(table, expected)
    code, _, err = qpde(monkeypatch, capsys, *words, tmp_path / "v.csv")
    assert (code, err) == (
        2,
        f"qpde: {tmp_path / 'v.csv'} exists. Choose another name or add --force.\n",
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "0.1,0.2,0.3\n", "have shape (2,) or (n, 2), got (1, 3)"),
        ("b.csv", "0.1,nan\n0.1,0.2\n", "1 of the points contain NaN"),
        ("c.csv", "x,y\n", "holds no points"),
        (
            "j.csv",
            "0.1,O.2\n0.3,0.4\n",
            "line 1: not a row of numbers with commas between: 0.1,O.2",
        ),
        ("k.csv", "0.1;0.2\n", "line 1: not a row of numbers with commas between: 0.1;0.2"),
        ("l.csv", "0.1 0.2\n", "line 1: not a row of numbers with commas between: 0.1 0.2"),
        ("m.csv", "inf,0.2\n", "1 of the points contain NaN or infinity"),
        ("d.csv", "0.1,0.2\n0.3\n", "line 2: 1 columns where the first point has 2"),
        (
            "e.csv",
            "0.1,0.2\n0.3,abc\n",
            "line 2: not a row of numbers with commas between: 0.3,abc",
        ),
        ("f.csv", b"\xff\xfe\x00", "is not a text file"),
        ("g.npy", b"not an array", "is damaged or not an NPY file"),
        ("h.txt", "0.1,0.2\n", "Points come as .csv or .npy, got h.txt"),
        ("i.csv", None, "There is no file"),
    ],
)
def test_points_that_cannot_be_used(monkeypatch, capsys, tmp_path, run, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    code, out, err = qpde(monkeypatch, capsys, "evaluate", run, path)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_points_outside_are_counted_and_still_evaluated(monkeypatch, capsys, tmp_path, run):
    (tmp_path / "p.csv").write_text("0.1,0.2\n0.9,0.9\n2,0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        words = ("evaluate", run, tmp_path / "p.csv", "--gradient")
        code, out, err = qpde(monkeypatch, capsys, *words)
    assert code == 0
    assert err == "qpde: 2 of 3 points lie outside Ball(2); the values there mean nothing.\n"
    assert len(out.splitlines()) == 4


def test_files_that_are_no_solution(monkeypatch, capsys, tmp_path, run):
    points = tmp_path / "p.csv"
    points.write_text("0.1,0.2\n")
    data = (run / "solution.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[: len(data) // 2])
    for path, message in [
        (tmp_path / "cut.safetensors", "is damaged, cut short or not a safetensors file"),
        (points, "is damaged, cut short or not a safetensors file"),
        (tmp_path / "none", "There is no file"),
        (tmp_path, "There is no file"),
        (run / "checkpoint.safetensors", "is a qpde checkpoint, not a solution"),
    ]:
        code, out, err = qpde(monkeypatch, capsys, "evaluate", path, points)
        assert (code, out) == (2, "")
        assert message in err


def test_plot_writes_the_figures_that_suit(monkeypatch, capsys, tmp_path, run):
    code, out, _ = qpde(
        monkeypatch, capsys, "plot", run, "--format", "svg", "--out", tmp_path / "figures"
    )
    assert code == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"history.svg", "radial.svg", "slice.svg", "scatter.svg"} <= names
    assert sorted(out.split()) == sorted(str(tmp_path / "figures" / name) for name in names)
    code, _, err = qpde(monkeypatch, capsys, "plot", run, "--only", "histogram")
    assert code == 2
    assert "No figure 'histogram' suits this solution. It has: history" in err
    code, _, err = qpde(monkeypatch, capsys, "plot", run, "--format", "bmp")
    assert (code, err) == (2, "qpde: --format is png, svg or pdf, got 'bmp'.\n")


def test_compare_puts_rules_side_by_side(monkeypatch, capsys, tmp_path):
    words = ("compare", "survival", "--dim", 2, "--steps", 20, "--out", tmp_path / "c")
    code, out, _ = qpde(monkeypatch, capsys, *words, "--json")
    assert code == 0
    result = json.loads(out)
    assert [row["rule"] for row in result["rules"]] == ["q-learning", "deep-galerkin", "penalty"]
    assert all(list(row) == KEYS for row in result["rules"])
    assert json.loads((tmp_path / "c" / "compare.json").read_text()) == result
    assert (tmp_path / "c" / "compare.csv").read_text().count("\n") == 4
    assert (tmp_path / "c" / "compare.png").read_bytes()[:4] == b"\x89PNG"
    code, _, err = qpde(monkeypatch, capsys, *words)
    assert code == 2
    assert "already holds a comparison. Choose another folder or add --force" in err
    code, _, err = qpde(monkeypatch, capsys, "compare", "survival", "--rules", "q-learning,dgm")
    assert code == 2
    assert "There is no rule named 'dgm'" in err


def test_a_folder_that_cannot_be_written(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    words = ("solve", "survival", "--dim", 1, "--steps", 10)
    code, _, err = qpde(monkeypatch, capsys, *words, "--out", tmp_path / "file" / "run")
    assert (code, err) == (
        2,
        f"qpde: Cannot write to {tmp_path / 'file' / 'run'}: Not a directory.\n",
    )


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_there(monkeypatch, capsys, tmp_path):
    """The disk fills up after the first checkpoint: that one stays, and resume goes on from it."""
    run, real, writes = tmp_path / "run", os.fsync, []

    def fsync(handle):
        writes.append(handle)
        if len(writes) > 4:  # a file and its folder each
            raise OSError(28, "No space left on device")
        real(handle)

    words = ("solve", "survival", "--dim", 1, "--steps", 150, "--quiet")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        code, out, err = qpde(patch, capsys, *words, "--out", run)
    assert (code, out) == (2, "")
    path = run / "checkpoint.safetensors"
    assert err == f"qpde: Cannot write {path}: No space left on device.\n"
    assert sorted(p.name for p in run.iterdir()) == ["checkpoint.safetensors", "run.json"]
    assert qpde(monkeypatch, capsys, "resume", run, "--quiet")[0] == 0
    assert load(run).steps == 150
    assert not list(run.glob(".*"))  # nothing half written is left


def test_a_wrong_option_does_not_touch_an_old_run(monkeypatch, capsys, run):
    before = sorted((p.name, p.stat().st_mtime_ns) for p in run.iterdir())
    words = ("solve", "survival", "--dim", 2, "--out", run, "--force", "--steps", -1)
    assert qpde(monkeypatch, capsys, *words)[0] == 2
    assert sorted((p.name, p.stat().st_mtime_ns) for p in run.iterdir()) == before


def test_a_run_that_used_up_its_budget_gets_another():
    """Where the stages are chosen, no budget means the usual one: it is added to what was used."""
    assert Spec("survival", dim=2).next_budget(31.0) == 61.0
    assert Spec("survival", dim=2, steps=100).next_budget(31.0) is None
    assert Spec("survival", dim=2, preset="paper").next_budget(31.0) is None


def test_resume_says_what_it_cannot_do(monkeypatch, capsys, tmp_path, run):
    code, out, err = qpde(monkeypatch, capsys, "resume", run, "--json")
    assert (code, err) == (0, f"qpde: {run} is finished; nothing to do.\n")
    assert json.loads(out)["status"] == "finished"
    code, _, err = qpde(monkeypatch, capsys, "resume", tmp_path)
    assert (code, err) == (2, f"qpde: {tmp_path} is not a run folder: it has no run.json.\n")
    (tmp_path / "run.json").write_text("{")
    code, _, err = qpde(monkeypatch, capsys, "resume", tmp_path)
    assert code == 2
    assert "is damaged or not ours" in err


OWN = {
    "vector": ("lambda x, u: u.grad", "The equation must return a scalar of shape (), got (2,)"),
    "missing": ("lambda x, u: u.third", "A jet has no 'third'. An equation can ask for u.value"),
}


@pytest.mark.parametrize("name", OWN)
def test_wrong_equations_in_a_file(monkeypatch, capsys, tmp_path, name):
    equation, message = OWN[name]
    file = tmp_path / "mine.py"
    file.write_text(f"import qpde\nproblem = qpde.Problem(qpde.Ball(2), {equation})\n")
    code, _, err = qpde(monkeypatch, capsys, "solve", f"{file}:problem")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_boundary_function_of_the_wrong_shape(monkeypatch, capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import qpde\nproblem = qpde.Problem(\n"
        "    qpde.Ball(2), lambda x, u: u.laplacian, boundary=lambda x: x\n)\n"
    )
    code, _, err = qpde(monkeypatch, capsys, "solve", f"{file}:problem")
    assert code == 2
    assert "The boundary function must return a scalar of shape (), got (2,)" in err


def test_files_of_others_are_not_deleted(monkeypatch, capsys, tmp_path):
    (tmp_path / "history.csv").write_text("mine")
    words = ("solve", "survival", "--dim", 1, "--steps", 5, "--out", tmp_path)
    code, _, err = qpde(monkeypatch, capsys, *words)
    assert code == 2
    assert "already holds history.csv. Choose another folder, or add --force" in err
    assert (tmp_path / "history.csv").read_text() == "mine"


@pytest.mark.slow
def test_ctrl_c_before_training(tmp_path):
    """While it compiles: one line, exit code 130, and a folder that resume can go on from."""
    words = ["solve", "survival", "--dim", "7", "--steps", "100000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "qpde.cli", *words, "--json"], stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "run.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.startswith("qpde: ")
    assert "nterrupted" in err
    assert len(err.splitlines()) == 1
