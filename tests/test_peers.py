"""The benchmark's peers do what they claim. Skipped where the extra `bench` is not installed."""

import importlib
import importlib.util
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from qpde.studies import _peers

GAMMA = 0.2


# Looked for, not imported: a bare `import deepxde` writes a settings file into the home directory.
def needs(*packages):
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"needs {', '.join(absent)}")


needs_torch, needs_deepxde = needs("torch"), needs("torch", "deepxde")


@pytest.fixture(autouse=True)
def one_thread():
    """Small steps on a busy machine: threads that wait for each other take most of the time."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    torch = _peers._torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def survival(theta, x, width, dim):
    """Q and L Q in float64, derivatives in x by hand; nothing shared with the peers."""
    c, w, b = np.split(theta, [width, width + width * dim])
    w = w.reshape(width, dim)
    s = 1 / (1 + np.exp(-(x @ w.T + b)))
    s1, s2 = s * (1 - s), s * (1 - s) * (1 - 2 * s)
    factor, eta = width**-0.99, 1 - np.sum(x * x, axis=1)
    value, grad = factor * s @ c, factor * (s1 * c) @ w
    laplacian = factor * s2 @ (c * np.sum(w * w, axis=1))
    q = value * eta
    lap_q = eta * laplacian - 4 * np.sum(x * grad, axis=1) - 2 * dim * value
    return q, 1 - GAMMA * q + 0.5 * lap_q


def differences(function, theta, h=1e-5):
    """Central differences: the error is h^2 = 1e-10, the rounding 1e-16/h = 1e-11."""
    steps = h * np.eye(theta.size)
    return np.stack([(function(theta + e) - function(theta - e)) / (2 * h) for e in steps], -1)


@needs_torch
@pytest.mark.parametrize("dgm", [False, True])
@pytest.mark.parametrize("dim", [1, 3])
def test_the_authors_gradient_is_the_formula(dim, dgm):
    """Q-learning: E[L Q grad(-Q)]; DGM: the gradient of E[(L Q)^2]. Float32 against float64."""
    width = 5
    peer = _peers._AuthorsStep(dim, width, 40, discount=GAMMA, dgm=dgm, seed=1)
    points = peer.sample()
    peer.backward(points)
    found = np.concatenate([p.grad.numpy().ravel() for p in peer.parameters])
    theta = np.concatenate([p.detach().numpy().ravel() for p in peer.parameters]).astype(float)
    x = points.numpy().astype(float)
    residual = survival(theta, x, width, dim)[1]
    if dgm:
        formula = differences(lambda t: np.mean(survival(t, x, width, dim)[1] ** 2), theta)
    else:
        formula = -residual @ differences(lambda t: survival(t, x, width, dim)[0], theta) / len(x)
    assert np.abs(found - formula).max() < 1e-5 * np.abs(formula).max()
    assert peer.loss == pytest.approx(np.mean(residual**2), rel=1e-5)


def test_the_reference_agrees_with_differences():
    """The Laplacian written out above, against differences in x."""
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=5 * 5), rng.uniform(-0.5, 0.5, size=(1, 3))
    q, residual = survival(theta, x, 5, 3)

    def at(y):
        return survival(theta, y, 5, 3)[0]

    h = 1e-4
    lap = sum(at(x + e) - 2 * q + at(x - e) for e in h * np.eye(3)) / h**2
    np.testing.assert_allclose(1 - GAMMA * q + 0.5 * lap, residual, atol=1e-6)


@needs_torch
@pytest.mark.parametrize("dgm", [False, True])
def test_the_authors_step_trains_on_fresh_points(dgm):
    peer = _peers._AuthorsStep(2, 32, 500, discount=GAMMA, dgm=dgm, seed=0)
    first, again = peer.sample(), peer.sample()
    assert first.shape == (500, 2)
    assert not np.allclose(first, again)
    peer()
    start = peer.loss
    for _ in range(200):
        peer()
    assert peer.loss < 0.1 * start


@needs_torch
def test_points_are_uniform_in_the_ball():
    """|x|^d is uniform on (0, 1): a Kolmogorov test; the seed is fixed, so it cannot alarm by chance."""
    from scipy.stats import kstest

    x = _peers._AuthorsStep(5, 4, 4_000, discount=GAMMA, dgm=False, seed=2).sample().numpy()
    assert kstest(np.linalg.norm(x, axis=1) ** 5, "uniform").pvalue > 1e-3
    assert np.abs(x.mean(0)).max() < 0.03  # five standard deviations


def deepxde_loss(peer):
    return peer.model.outputs_losses_train(peer.data.train_x, None, None)[1].detach().sum().item()


@needs_deepxde
@pytest.mark.parametrize("dim", [1, 2])
def test_deepxde_trains_on_fresh_points(dim):
    peer = _peers._DeepXDEStep(dim, 32, 500, discount=GAMMA, seed=0)

    start, seen = deepxde_loss(peer), [peer.data.train_x]
    for _ in range(200):
        peer()
        seen.append(peer.data.train_x)
    assert deepxde_loss(peer) < 0.1 * start
    assert all(x.shape == (500, dim) and x.dtype == np.float32 for x in seen)
    assert all(np.linalg.norm(x, axis=1).max() <= 1 + 1e-6 for x in seen)
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(seen))


@needs_deepxde
def test_deepxde_steps_are_those_of_its_own_loop():
    """The same weights, to the bit, as `model.train` with its resampler."""
    ours, theirs = (_peers._DeepXDEStep(2, 8, 50, discount=GAMMA, seed=3) for _ in range(2))
    theirs.data.train_x_all = ours.data.train_x_all
    theirs.data.train_x = ours.data.train_x
    state = np.random.get_state()
    try:
        np.random.seed(0)
        for _ in range(5):
            ours()
        np.random.seed(0)
        resampler = _peers._deepxde().callbacks.PDEPointResampler(period=1)
        theirs.model.train(iterations=5, callbacks=[resampler], verbose=0)
    finally:
        np.random.set_state(state)
    for a, b in zip(ours.model.net.parameters(), theirs.model.net.parameters(), strict=True):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


@needs_deepxde
def test_deepxde_solves_the_same_problem():
    """Its loss is the mean of (L Q)^2 of this very equation: Q and L Q from the trained weights."""
    dim, width = 3, 8
    peer = _peers._DeepXDEStep(dim, width, 60, discount=GAMMA, seed=4)
    hidden, outer = peer.model.net.linears  # the output bias is zero before the first step
    parts = (outer.weight * width**0.99, hidden.weight, hidden.bias)
    theta = np.concatenate([p.detach().numpy().ravel() for p in parts]).astype(float)
    residual = survival(theta, peer.data.train_x, width, dim)[1]
    assert deepxde_loss(peer) == pytest.approx(np.mean(residual**2), rel=1e-5)


@needs_deepxde
def test_the_peers_disturb_nobody(tmp_path):
    """In a new process: nothing printed or left in the home directory, torch's state as before."""
    code = """
import os, numpy, torch
def world():
    torch_state = torch.get_rng_state().numpy().tobytes()
    return (torch_state, torch.get_default_dtype(), torch.get_default_device(),
            torch.get_num_threads(), os.environ.get("DDE_BACKEND"))
before = world()
from qpde.studies import _peers
assert set(_peers.versions()) == {"torch", "deepxde", "torch threads"}
steps = [_peers.authors(2, 4, 8, discount=0.2, dgm=dgm, seed=0) for dgm in (False, True)]
steps.append(_peers.deepxde(2, 4, 8, discount=0.2, seed=0))
for step in steps:
    assert step() is None
assert world() == before
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "DDE_BACKEND"} | {"HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / ".deepxde").exists()


@pytest.mark.parametrize("missing", ["torch", pytest.param("deepxde", marks=needs_torch)])
def test_a_missing_extra_is_named(monkeypatch, missing):
    real = importlib.import_module

    def without(name, package=None):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(
        ValueError, match="^The peers need the extra: pip install 'qpde\\[bench\\]'.$"
    ):
        _peers.deepxde(2, 4, 8, discount=GAMMA, seed=0)
