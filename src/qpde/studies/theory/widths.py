"""Experiments with networks of growing width: kernel, start, drift of the kernel, distance to the limit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._compiled import compiled
from ..._limit.flow import LinearFlow
from ..._limit.kernel import TangentKernel
from ..._limit.system import System
from ..._plot.style import CYCLE, finish, new_figure
from ..._precision import x64
from ..._problem.trial import Trial
from .._columns import Columns, from_rows, where
from . import finite
from .checks import Check, fit

BETAS = (0.6, 0.75, 0.9)
_TIMES = (1.0, 2.0, 5.0, 10.0)
_STEP = 0.5
# The truncation level is N^delta, and the theory asks for delta < (1 - beta) times this number.
_DELTA = 0.25


def kernel_rate(quick: bool) -> Columns:
    """`E|A^N - A|^2` for `A`, its gradient and its Laplacian in three dimensions."""
    widths, networks = (2 ** np.arange(6, 11 if quick else 15), 24 if quick else 100)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((6, 3)) * 0.4 for _ in range(2))
    kernel = TangentKernel(finite.network(1).activation, scale=1.0)
    exact = (kernel(x, y), kernel.grad(x, y), kernel.laplacian(x, y))
    rows = []
    for width in widths:
        errors = []
        for seed in range(networks):
            found = _finite_kernel(int(width), seed, x, y)
            errors.append([np.mean(np.square(a - b)) for a, b in zip(found, exact, strict=True)])
        value, grad, laplacian = np.mean(errors, axis=0)
        rows.append({"width": width, "value": value, "grad": grad, "laplacian": laplacian})
    return from_rows(rows)


def _finite_kernel(width: int, seed: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """`A^N` of a random network with gradient and Laplacian, straight from its definition."""
    rng = np.random.default_rng([seed, width])
    c, b = rng.uniform(-1, 1, width), rng.standard_normal(width)
    w = rng.standard_normal((width, x.shape[1]))
    with x64():
        return tuple(np.asarray(v) for v in _definition(c, w, b, x, y))


@compiled
def _definition(c: Any, w: Any, b: Any, x: Any, y: Any) -> Any:
    sigmoid = jax.nn.sigmoid

    def kernel(x: Any, y: Any) -> Any:
        zx, zy = w @ x + b, w @ y + b
        slope = jax.vmap(jax.grad(sigmoid))
        return jnp.mean(sigmoid(zx) * sigmoid(zy)) + (x @ y + 1.0) * jnp.mean(
            c * c * slope(zx) * slope(zy)
        )

    def pairs(function: Any) -> Any:
        return jax.vmap(lambda a: jax.vmap(lambda b: function(a, b))(y))(x)

    laplacian = pairs(lambda a, b: jnp.trace(jax.hessian(kernel)(a, b)))
    return pairs(kernel), pairs(jax.grad(kernel)), laplacian


def start_rate(quick: bool) -> Columns:
    """`E||Q^N_0 - f||^2` in H2 for three exponents, of networks as `Shallow` draws them."""
    widths, networks = 2 ** np.arange(6, 11 if quick else 15), 100 if quick else 400
    points, weights = finite.problem().domain.nodes(finite.NODES)
    rows = []
    for width in widths:
        for index, beta in enumerate(BETAS):
            first = 10_000 * (index + 1)  # other networks for every exponent
            sizes = [
                _start(int(width), beta, first + seed, points, weights) for seed in range(networks)
            ]
            rows.append({"width": width, "beta": beta, "size": np.mean(sizes)})
    return from_rows(rows)


def _start(width: int, beta: float, seed: int, points: np.ndarray, weights: np.ndarray) -> float:
    """The squared H2 norm of `Q_0 - f` for one network; `f` is zero in this problem."""
    trial = Trial.of(finite.problem(), finite.draw(width, beta, seed), exact_boundary=True)
    with x64():
        return finite.h2_squared(np.asarray(finite.jets_at(trial, points)), weights)


def training(quick: bool) -> Columns:
    """Networks of growing width trained for a while: distance to the limit, drift of the kernel."""
    widths, networks = 2 ** np.arange(6, 11 if quick else 15), 16 if quick else 24
    betas = (0.75,) if quick else BETAS
    points, weights = finite.problem().domain.nodes(finite.NODES)
    limits = _limit_jets(points, (0.0, *_TIMES))
    rows = []
    for beta in betas:
        for width in widths:
            for seed in range(networks):
                path = finite.follow(int(width), beta, 100 + seed, (0.0, *_TIMES), _STEP)
                first = path[0].kernel
                drift = max(float(np.max(np.abs(m.kernel - first))) for m in path)
                for moment, limit in zip(path, limits, strict=True):
                    gap = moment.jets - limit
                    row = {"beta": beta, "width": width, "seed": seed, "time": moment.time}
                    row |= {"l2": finite.l2_squared(gap, weights) ** 0.5}
                    row |= {"h2": finite.h2_squared(gap, weights) ** 0.5}
                    rows.append(row | {"drift": drift, "size": moment.size})
    return from_rows(rows)


def _limit_jets(points: np.ndarray, times: tuple[float, ...]) -> list[np.ndarray]:
    """`Q`, `Q'`, `Q''` of the infinitely wide network at the points."""
    system = System(finite.problem(), finite.network(1), 80)
    flow = LinearFlow(system, 1.0)
    jets = []
    for time in times:
        trial = system.trial(flow(time) if time else np.zeros(system.phi.shape[1]))
        with x64():
            jets.append(np.asarray(finite.jets_at(trial, jnp.asarray(points))))
    return jets


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def kernel_checks(found: Columns) -> list[Check]:
    words = {"value": "`A`", "grad": "its gradient", "laplacian": "its Laplacian"}
    checks = []
    for column, word in words.items():
        rate = fit(found["width"], found[column])
        checks.append(
            Check(
                f"kernel-{column}",
                f"The mean squared error of the finite kernel falls like 1/N: {word}",
                "slope −1 in N",
                "slope of `E|A^N − A|²`, three dimensions, 36 pairs of points",
                rate.slope,
                bool(abs(rate.slope + 1.0) <= 0.1),
                "an average over N independent units",
                rate.low,
                rate.high,
            )
        )
    return checks


def start_checks(found: Columns) -> list[Check]:
    checks = []
    for beta in BETAS:
        part = where(found, beta=beta)
        rate = fit(part["width"], part["size"])
        checks.append(
            Check(
                f"start-{beta}",
                f"The network starts near `f`: `E‖Q^N_0 − f‖²` in H2, β = {beta}",
                f"slope 1 − 2β = {1 - 2 * beta:.1f}",
                "slope in N of the mean over networks that `qpde.Shallow` draws, one dimension",
                rate.slope,
                bool(abs(rate.slope - (1 - 2 * beta)) <= 0.1),
                "independent units of mean zero: an equality in N",
                rate.low,
                rate.high,
            )
        )
    return checks


def training_checks(found: Columns) -> list[Check]:
    checks = []
    for beta in np.unique(found["beta"]):
        part = where(found, beta=beta, time=_TIMES[-1])
        widths = np.unique(part["width"])
        means = {
            name: np.array([_root_mean_square(where(part, width=n)[name]) for n in widths])
            for name in ("l2", "h2", "drift", "size")
        }
        for name, word in (("l2", "L2"), ("h2", "H2")):
            rate = fit(widths, means[name])
            checks.append(
                Check(
                    f"gap-{name}-{beta:g}",
                    f"Wide networks follow the limit: `‖Q^N_t − Q_t‖` in {word} at t = "
                    f"{_TIMES[-1]:g}, β = {beta:g}",
                    "tends to 0 as N grows",
                    f"slope in N = {widths[0]:g} … {widths[-1]:g}; the root mean square over seeds falls at "
                    f"{np.sum(np.diff(means[name]) < 0)} of {len(widths) - 1} doublings",
                    rate.slope,
                    bool(rate.high < 0 and means[name][-1] < means[name][0]),
                    "the paper gives no rate",
                    rate.low,
                    rate.high,
                )
            )
        rate, bound = fit(widths, means["drift"]), _DELTA * (1 - beta) + beta - 1
        checks.append(
            Check(
                f"drift-{beta:g}",
                f"The kernel hardly moves in training: `sup |A^N_t − A^N_0|`, t ≤ {_TIMES[-1]:g}, "
                f"β = {beta:g}",
                f"slope at most δ + β − 1 = {bound:.2f}, δ = (1 − β)/4",
                "slope in N, root mean square over seeds, of the largest change on 25 pairs of points",
                rate.slope,
                bool(rate.slope <= bound + 0.1),
                f"one-sided; 2(β − 1) = {2 * (beta - 1):.1f} is what a first-order estimate gives",
                rate.low,
                rate.high,
            )
        )
        start = where(found, beta=beta, time=0.0)
        growth = np.max(means["size"]) / np.mean(start["size"])
        checks.append(
            Check(
                f"size-{beta:g}",
                f"The parameters stay bounded in the mean, β = {beta:g}",
                "bounded in N and t ≤ T",
                f"largest mean of |c| + |w| + |b| at t = {_TIMES[-1]:g} over that at the start",
                float(growth),
                bool(growth < 2.0),
                "",
            )
        )
    return checks


def draw_kernel(found: Columns) -> Any:
    """The error of the kernel against the width."""
    (ax,) = new_figure((4.8, 3.3), 1, 1)
    for column, label, colour in zip(
        ("value", "grad", "laplacian"), ("A", "grad A", "Lap A"), CYCLE, strict=False
    ):
        rate = fit(found["width"], found[column])
        ax.loglog(found["width"], found[column], "o", color=colour, ms=4, label=label)
        ax.loglog(found["width"], rate(found["width"]), color=colour, lw=1)
    ax.set_xlabel("width N")
    ax.set_ylabel("mean squared error")
    return finish(ax, "finite kernel − infinite kernel")


def draw_start(found: Columns) -> Any:
    """The size of the first network against the width."""
    (ax,) = new_figure((4.8, 3.3), 1, 1)
    for beta, colour in zip(BETAS, CYCLE, strict=False):
        part = where(found, beta=beta)
        rate = fit(part["width"], part["size"])
        ax.loglog(part["width"], part["size"], "o", color=colour, ms=4, label=f"β = {beta}")
        ax.loglog(part["width"], rate(part["width"]), color=colour, lw=1)
    ax.set_xlabel("width N")
    ax.set_ylabel("mean squared H2 norm of Q₀ − f")
    return finish(ax, "the start")


def draw_training(found: Columns) -> Any:
    """Distance to the limit and drift of the kernel against the width."""
    axes = new_figure((9.2, 3.3), 1, 2)
    for beta, colour in zip(np.unique(found["beta"]), CYCLE, strict=False):
        part = where(found, beta=beta, time=_TIMES[-1])
        widths = np.unique(part["width"])
        for ax, names in ((axes[0], ("l2", "h2")), (axes[1], ("drift",))):
            for name, style in zip(names, ("-o", "--s"), strict=False):
                means = [_root_mean_square(where(part, width=n)[name]) for n in widths]
                kind = {"l2": ", L2", "h2": ", H2", "drift": ""}[name]
                ax.loglog(
                    widths, means, style, color=colour, ms=4, lw=1, label=f"β = {beta:g}{kind}"
                )
    for ax, title in zip(
        axes, ("distance to the limit at t = 10", "drift of the kernel"), strict=True
    ):
        ax.set_xlabel("width N")
        finish(ax, title)
    return axes
