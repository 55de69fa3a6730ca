"""Files: the same bits in a new process, clear words for files that do not fit, kills that lose nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from command import PROCESS
from safetensors.numpy import save_file

import qpde
from qpde import MLP, Ball, Problem, QLearning, Radial, Shallow, Weighted, zoo
from qpde._files import archive as _archive
from qpde._files.archive import read_archive
from qpde._runs.spec import Spec

SMALL: dict[str, Any] = {"network": Shallow(8), "batch": 64, "progress": False}
FILE = """
import jax.numpy as jnp
import qpde
problem = qpde.Problem(qpde.Box(0.0, 1.0, dim=2), lambda x, u: u.laplacian + jnp.exp(x[0]))
"""


def same_bits(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def solution():
    return qpde.solve(zoo.survival(3, discount=0.7), steps=120, **SMALL)


@pytest.fixture
def file(solution, tmp_path):
    qpde.save(solution, tmp_path / "ball.safetensors")
    return tmp_path / "ball.safetensors"


def test_everything_comes_back(solution, file):
    back = qpde.load(file)
    x = 0.5 * np.random.default_rng(0).uniform(-1, 1, (40, 3))
    assert same_bits(solution(x), back(x))
    assert same_bits(solution.residual(x), back.residual(x))
    assert solution.score == back.score
    for name in ("loss", "gradient", "truncated", "checked_step", "held_out"):
        assert same_bits(getattr(solution.history, name), getattr(back.history, name)), name
    for name in ("status", "steps", "seconds", "compile_seconds", "rule", "seed", "precision"):
        assert getattr(solution, name) == getattr(back, name)
    assert back.problem.name == "survival"


def test_a_new_process_gives_the_same_bits(tmp_path):
    """Problems of the zoo, a problem in a file, a deep network, float64, a radial law."""
    (tmp_path / "mine.py").write_text(FILE)
    mine = Spec(f"{tmp_path / 'mine.py'}:problem").build_problem()
    ball = zoo.survival(2)
    runs = {
        name: (zoo.CATALOGUE[name].build(dim=dim), {})
        for dim, names in {
            1: ["american_put"],
            2: ["two_body_allen_cahn"],
        }.items()
        for name in names
    }
    runs |= {
        "mine": (mine, {}),
        "deep": (ball, {"network": MLP([5, 4], activation=qpde.activations.sin)}),
        "double": (ball, {"precision": "float64", "measure": Radial(ball.domain, 2.0)}),
    }
    for name, (problem, options) in runs.items():
        made = qpde.solve(problem, steps=0, **SMALL | options)
        qpde.save(made, tmp_path / f"{name}.safetensors")
        with jax.enable_x64(True):
            x = np.asarray(problem.domain.sample(jr.key(1), 20))
        np.savez(tmp_path / f"{name}.npz", x=x, value=made(x))
    code = (
        "import glob, numpy as np, qpde\n"
        "for path in sorted(glob.glob('*.npz')):\n"
        "    there, made = np.load(path), qpde.load(path[:-3] + 'safetensors')\n"
        "    assert made(there['x']).tobytes() == there['value'].tobytes(), path\n"
        "    print(path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(f"{name}.npz" for name in runs)


class OwnNetwork(eqx.Module):
    a: jax.Array

    def __call__(self, x):
        return jnp.sin(jnp.sum(self.a) * x[0])


def test_what_a_file_cannot_hold_is_passed(tmp_path):
    domain = Ball(2)
    problem = Problem(domain, lambda x, u: u.laplacian + 1.0, name="mine")
    measure = Weighted(domain, lambda x: 1.0 + x[0] * x[0])
    made = qpde.solve(
        problem, network=OwnNetwork(jnp.ones(2)), measure=measure, steps=3, batch=8, progress=False
    )
    path = tmp_path / "mine.safetensors"
    qpde.save(made, path)
    with pytest.raises(
        ValueError, match=r"solution of 'mine', a problem made of functions .* Pass"
    ):
        qpde.load(path)
    with pytest.raises(ValueError, match=r"a network of your own \(OwnNetwork\)"):
        qpde.load(path, problem=problem)
    shape = OwnNetwork(jnp.zeros(2))
    with pytest.raises(ValueError, match=r"a law of your own \(Weighted\)"):
        qpde.load(path, problem=problem, network=shape)
    back = qpde.load(path, problem=problem, network=shape, measure=measure)
    x = np.array([[0.1, 0.2], [-0.3, 0.0]])
    assert same_bits(made(x), back(x))
    with pytest.raises(ValueError, match=r"does not fit the network.*float32\[2\].*float32\[3\]"):
        qpde.load(path, problem=problem, network=OwnNetwork(jnp.zeros(3)), measure=measure)


class Wave(eqx.Module):
    a: jax.Array
    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, x):
        return self.function(jnp.sum(self.a) * (1.0 + x[0]))


def test_another_network_of_the_same_shape_is_told_apart(tmp_path):
    problem = poisson()
    network = Wave(jnp.ones(2), lambda z: jnp.sin(z))
    run = {"steps": 3, "batch": 8, "progress": False, "checkpoint": tmp_path / "run"}
    made = qpde.solve(problem, network=network, **run)
    qpde.save(made, tmp_path / "a.safetensors")
    qpde.load(tmp_path / "a.safetensors", problem=problem, network=network)
    other = Wave(jnp.ones(2), lambda z: jnp.cos(z))
    with pytest.raises(
        ValueError, match="holds another network: with the one given, values differ"
    ):
        qpde.load(tmp_path / "a.safetensors", problem=problem, network=other)
    with pytest.raises(ValueError, match="was made with another network"):
        qpde.solve(problem, network=other, **run)


def test_files_can_be_read_by_others(file):
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask


def poisson(domain=None, equation=None, boundary=0.0):
    return Problem(
        domain or Ball(2), equation or (lambda x, u: u.laplacian + 1.0), boundary=boundary
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A solution of `poisson()`, in a file."""
    path = tmp_path_factory.mktemp("saved") / "a.safetensors"
    qpde.save(qpde.solve(poisson(), steps=0, **SMALL), path)
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"domain": Ball(3)}, "its dimension is 2, here 3"),
        ({"domain": Ball(2, radius=1.01)}, "the domain differs"),
        ({"equation": lambda x, u: u.laplacian + 1.001}, "the equation differs"),
        ({"equation": lambda x, u: u.laplacian + 1.0 - u.value}, "the equation differs"),
        ({"boundary": 0.1}, "the boundary values differ"),
        (
            {"boundary": lambda x: 0.1 * (1.0 - jnp.sum(x * x))},
            "the extension of the boundary values differs",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_problem_is_told_apart(saved, changes, words):
    with pytest.raises(ValueError, match=words):
        qpde.load(saved, problem=poisson(**changes))


def test_files_that_cannot_be_read(file, tmp_path, monkeypatch):
    data = file.read_bytes()
    bad = tmp_path / "bad.safetensors"

    def message():
        with pytest.raises(ValueError, match="bad.safetensors") as caught:
            qpde.load(bad)
        return str(caught.value)

    assert "There is no file" in message()
    bad.write_bytes(b"")
    assert "damaged, cut short or not a safetensors file" in message()
    for length in (7, 100, len(data) // 2, len(data) - 1):
        bad.write_bytes(data[:length])
        assert "damaged, cut short or not a safetensors file" in message()
    bad.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert "damaged: its content does not match its checksum" in message()
    save_file({"a": np.zeros(3)}, bad)
    assert "a safetensors file, but it was not written by qpde" in message()
    with monkeypatch.context() as patch:
        patch.setattr(_archive, "FORMAT", 99)
        qpde.save(qpde.load(file), bad)
    assert "written by a newer qpde (format 99, this one reads up to 2). Upgrade qpde" in message()
    qpde.solve(zoo.survival(2), steps=0, checkpoint=tmp_path / "run", **SMALL)
    (tmp_path / "run" / "checkpoint.safetensors").rename(bad)
    assert "is a qpde checkpoint, not a solution" in message()


def test_a_failed_write_leaves_the_old_file(solution, file, monkeypatch):
    before = file.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"Cannot write .*ball.safetensors: No space left on device"):
        qpde.save(solution, file)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == ["ball.safetensors"]


def test_going_on_from_a_checkpoint_gives_the_same_bits(tmp_path):
    problem = zoo.survival(2)
    options = {"steps": 350, "rule": QLearning(truncation=qpde.Truncation(damped=False)), **SMALL}
    whole = qpde.solve(problem, **options)
    run = tmp_path / "run"
    for stop in (100, 300):
        part = qpde.solve(
            problem, checkpoint=run, callback=lambda p, stop=stop: p.step >= stop, **options
        )
        assert part.steps == stop
    seen = []
    parts = qpde.solve(problem, checkpoint=run, callback=lambda p: seen.append(p.step), **options)
    assert seen == [350]
    again = qpde.solve(problem, checkpoint=run, **options)  # has nothing left to do
    for other in (parts, again):
        leaves = zip(*(jax.tree.leaves(s.trial.network) for s in (whole, other)), strict=True)
        assert all(same_bits(np.asarray(a), np.asarray(b)) for a, b in leaves)
        assert same_bits(whole.history.loss, other.history.loss)
        assert same_bits(whole.history.held_out, other.history.held_out)
        assert other.status is qpde.Status.FINISHED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1}, "seed 0, this run has 1"),
        ({"steps": 11}, "steps 10, this run has 11"),
        ({"network": Shallow(9)}, "another network"),
        ({"rule": qpde.DeepGalerkin()}, "rule q-learning, this run has deep-galerkin"),
        ({"rule": QLearning(0.2)}, "another setting of the rule"),
        ({"batch": 65}, "another batch"),
        ({"keep": qpde.Keep.LAST}, "keep HELD_OUT, this run has LAST"),
        ({"discount": 0.3}, "the equation differs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path_factory, options, words):
    run = tmp_path_factory.getbasetemp() / "refused"
    usual = SMALL | {"steps": 10, "checkpoint": run}
    qpde.solve(zoo.survival(2), **usual)
    other = zoo.survival(
        2, **{name: options.pop(name) for name in ("discount",) if name in options}
    )
    with pytest.raises(ValueError, match=words):
        qpde.solve(other, **(usual | options))


DRIVER = """
import os, sys, time
import qpde
from qpde._train import checkpoint

run, mode = sys.argv[1:]
checkpoint.INTERVAL = 0.05
fsync, writes = os.fsync, []

def slow_fsync(handle):
    writes.append(handle)
    if len(writes) == 3:
        open(run + ".writing", "w").close()
        time.sleep(600)
    fsync(handle)

if mode == "stop-in-a-write":
    os.fsync = slow_fsync
solution = qpde.solve(
    qpde.zoo.survival(2), network=qpde.Shallow(16), batch=qpde.Ramp(100, 400), steps=30_000,
    checkpoint=run, progress=False,
)
qpde.save(solution, run + ".safetensors")
"""


@pytest.mark.slow
def test_sigkill_at_any_instant_loses_nothing(tmp_path):
    """Three kills at random instants, one of them inside a write; then the end, against a run without."""
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)

    def start(run, mode="run"):
        return subprocess.Popen([sys.executable, str(driver), str(tmp_path / run), mode])

    def step():
        header, groups = read_archive(checkpoint, "checkpoint")
        return len(groups["history"]["rows"])

    def wait_for(condition, process):
        deadline = time.monotonic() + 120
        while not condition():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)

    assert start("whole").wait() == 0
    checkpoint, done = tmp_path / "killed" / "checkpoint.safetensors", 0
    rng = np.random.default_rng(7)
    for attempt in range(3):
        process = start("killed", "stop-in-a-write" if attempt == 1 else "run")
        if attempt == 1:
            wait_for((tmp_path / "killed.writing").exists, process)
        else:
            wait_for(lambda done=done: checkpoint.exists() and step() > done, process)
            time.sleep(rng.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert step() >= done
        done = step()
        assert done < 30_000
        stray = list(checkpoint.parent.glob(".checkpoint*"))
        assert len(stray) == 1 if attempt == 1 else len(stray) <= 1
    assert done > 0
    assert start("killed").wait() == 0
    assert not list(checkpoint.parent.glob(".checkpoint*"))
    whole, killed = (
        read_archive(tmp_path / f"{run}.safetensors", "solution")[1] for run in ("whole", "killed")
    )
    for group in ("network", "history"):
        assert whole[group].keys() == killed[group].keys()
        for name in whole[group]:
            assert same_bits(whole[group][name], killed[group][name]), name


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_iterate_and_resume_goes_on(tmp_path):
    run = tmp_path / "run"
    words = ["solve", "survival", "--dim", "2", "--steps", "1000000", "--out", str(run), "--json"]
    process = subprocess.Popen(
        [*PROCESS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (run / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.strip() == (
        "qpde: Interrupted from the keyboard; the best iterate so far is kept. "
        f"Go on with: qpde resume {run}"
    )
    first = json.loads(out)
    assert first["status"] == "interrupted"
    assert first["steps"] > 0
    assert qpde.load(run).score.loss == first["loss"]
    resumed = subprocess.run(
        [*PROCESS, "resume", str(run), "--budget", str(first["seconds"] + 0.5), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    second = json.loads(resumed.stdout)
    assert second["status"] == "budget"
    assert second["steps"] > first["steps"]
    assert json.loads((run / "run.json").read_text())["result"]["steps"] == second["steps"]
