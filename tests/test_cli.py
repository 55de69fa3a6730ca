"""The command: JSON keys, exit codes, messages, files."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from qpde import cli

KEYS = [
    "problem", "dim", "rule", "steps", "seed", "status", "loss", "best_batch_loss", "seconds",
    "compile_seconds", "relative_l2_error", "max_relative_error", "skill", "run",
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
    assert "already holds a run. Choose another folder or add --force" in err
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
        [sys.executable, "-m", "qpde.cli", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(json.loads(done.stdout)) == KEYS
