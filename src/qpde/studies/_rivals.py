"""DeepXDE on four problems of the zoo, the way its own examples train: Adam, then L-BFGS.

The network has three hidden layers of 50 tanh units, in float64; the points are fixed (the default). Boundary
values are exact, by an output transform, where the domain has a simple one; otherwise DeepXDE's Dirichlet
condition holds them at boundary points. Each optimiser takes 5,000 steps in two dimensions; 1,000 in more,
where every step takes d second derivatives one by one.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from ._peers import import_deepxde, silence

_RATE, _DOMAIN, _BOUNDARY = 1e-3, 1_000, 400
_LAYERS = (50, 50, 50)


class Rival(NamedTuple):
    """The values of DeepXDE at the points, with its seconds and steps."""

    values: np.ndarray
    seconds: float
    steps: int
    words: str


def _laplacian(dde: Any, x: Any, u: Any, dim: int) -> Any:
    return sum(dde.grad.hessian(u, x, i=i, j=i) for i in range(dim))


def _survival(dde: Any, torch: Any, dim: int) -> tuple[Any, Any, list[Any], Any]:
    ball = (
        dde.geometry.Hypersphere([0.0] * dim, 1.0)
        if dim > 2
        else dde.geometry.Disk([0.0, 0.0], 1.0)
    )

    def equation(x: Any, u: Any) -> Any:
        return 1.0 - 0.2 * u + 0.5 * _laplacian(dde, x, u, dim)

    return ball, equation, [], lambda x, s: s * (1.0 - torch.sum(x * x, dim=1, keepdim=True))


def _cosines(dde: Any, torch: Any, dim: int) -> tuple[Any, Any, list[Any], Any]:
    cube = dde.geometry.Hypercube([0.0] * dim, [1.0] * dim)

    def equation(x: Any, u: Any) -> Any:
        source = np.pi**2 * torch.sum(torch.cos(np.pi * x), dim=1, keepdim=True)
        return _laplacian(dde, x, u, dim) + source

    def data(x: Any) -> Any:
        return np.sum(np.cos(np.pi * x), axis=1, keepdims=True)

    conditions = [dde.icbc.DirichletBC(cube, data, lambda _, on: on)]
    return cube, equation, conditions, None


def _committor(dde: Any, torch: Any, dim: int) -> tuple[Any, Any, list[Any], Any]:
    centre = [0.0] * dim
    shell = dde.geometry.Hypersphere(centre, 2.0) - dde.geometry.Hypersphere(centre, 1.0)

    def transform(x: Any, s: Any) -> Any:
        r2 = torch.sum(x * x, dim=1, keepdim=True)
        return s * (r2 - 1.0) * (4.0 - r2) + (r2 - 1.0) / 3.0

    return shell, lambda x, u: _laplacian(dde, x, u, dim), [], transform


PROBLEMS = {
    ("survival", 2): _survival,
    ("survival", 10): _survival,
    ("cube_cosines", 5): _cosines,
    ("committor", 10): _committor,
}


def run(problem: str, dim: int, *, points: np.ndarray) -> Rival:
    """Train DeepXDE on a problem and evaluate it."""
    dde, torch = import_deepxde()
    before = torch.get_default_dtype()
    try:
        with silence():
            return _run(dde, torch, problem, dim, points)
    finally:
        torch.set_default_dtype(before)
        dde.config.set_default_float("float32")


def _run(dde: Any, torch: Any, problem: str, dim: int, points: np.ndarray) -> Rival:
    dde.config.set_default_float("float64")
    dde.config.set_random_seed(0)
    geometry, equation, conditions, transform = PROBLEMS[problem, dim](dde, torch, dim)
    sizes: dict[str, Any] = {"num_domain": _DOMAIN, "train_distribution": "pseudo"}
    sizes |= {"num_boundary": _BOUNDARY} if conditions else {}
    data = dde.data.PDE(geometry, equation, conditions, **sizes)
    net = dde.nn.FNN([dim, *_LAYERS, 1], "tanh", "Glorot normal")
    if transform is not None:
        net.apply_output_transform(transform)
    model = dde.Model(data, net)
    steps = 5_000 if dim <= 2 else 1_000
    began = time.perf_counter()
    model.compile("adam", lr=_RATE, verbose=0)
    model.train(iterations=steps, display_every=steps, verbose=0)
    dde.optimizers.config.set_LBFGS_options(maxiter=steps)
    model.compile("L-BFGS", verbose=0)
    model.train(display_every=steps, verbose=0)
    seconds = time.perf_counter() - began
    values = np.asarray(model.predict(points.astype(np.float64)))[:, 0]
    return Rival(values, seconds, int(model.train_state.step), "adam, then l-bfgs")
