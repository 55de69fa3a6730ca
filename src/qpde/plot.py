"""Figures of a solution. Each function takes an axes, or makes one, and returns it.

ax = qpde.plot.radial(solution)
ax.figure.savefig("radial.pdf")
"""

from typing import Any

import jax
import numpy as np

from ._domain import Interval
from ._round import Annulus, Ball
from ._solution import Solution

_COMPUTED, _EXACT, _QUIET = "#1f5fa8", "#111111", "#9aa5b1"


def history(solution: Solution, ax: Any = None) -> Any:
    """The loss during training: every minibatch, and the held-out points."""
    ax = _axes(ax)
    past = solution.history
    steps = np.arange(len(past.loss))
    ax.plot(
        steps, past.loss, color=_QUIET, lw=0.6, label="minibatch", rasterized=len(steps) > 5_000
    )
    ax.plot(past.checked_step, past.held_out, color=_COMPUTED, lw=1.6, label="held-out points")
    ax.set_yscale("log")
    ax.set(xlabel="step", ylabel=r"mean of $(\mathcal{L} Q)^2$", title=_title(solution))
    ax.legend(frameon=False)
    return ax


def radial(solution: Solution, ax: Any = None, *, points: int = 2_000, seed: int = 0) -> Any:
    """`Q` against the distance from the centre at random points, with the exact curve if known."""
    domain = solution.problem.domain
    if not isinstance(domain, Ball | Annulus | Interval):
        raise ValueError(f"A radial plot needs a ball or an annulus, got {domain!r}.")
    ax = _axes(ax)
    rng = np.random.default_rng(seed)
    inner = float(domain.inner) if isinstance(domain, Annulus) else 0.0
    _, outer = domain.enclosing_ball
    normal = rng.standard_normal((points, domain.dim))
    unit = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    r = inner + (outer - inner) * rng.random(points)
    x = domain.centre + r[:, None] * unit
    ax.plot(
        r, solution(x), ".", ms=3, color=_COMPUTED, alpha=0.5, label="computed", rasterized=True
    )
    if solution.problem.exact is not None:
        order = np.argsort(r)
        with jax.enable_x64(True):
            exact = np.asarray(jax.vmap(solution.problem.exact)(x[order]))
            turned = np.asarray(jax.vmap(solution.problem.exact)(2 * domain.centre - x[order]))
        # A line where the exact solution depends on the radius alone, else dots.
        radial = np.allclose(exact, turned, atol=1e-9 * np.abs(exact).max())
        smooth = np.abs(np.diff(exact)).max() < 0.1 * np.ptp(exact)
        style = {"lw": 1.2} if radial and smooth else {"ls": "", "marker": ".", "ms": 1.5}
        ax.plot(r[order], exact, color=_EXACT, label="exact", **style)
    centred = np.any(domain.centre)
    ax.set(xlabel=r"$|x - c|$" if centred else r"$|x|$", ylabel="u", title=_title(solution))
    ax.legend(frameon=False)
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _title(solution: Solution) -> str:
    return f"{solution.problem.name}, d = {solution.problem.dim}, {solution.rule}"
