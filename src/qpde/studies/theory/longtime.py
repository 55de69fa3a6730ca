"""Experiments with the infinitely wide network: spectrum, path, kernel, fixed point."""

from typing import Any

import numpy as np
import scipy.linalg

from ... import zoo
from ..._limit.flow import LinearFlow
from ..._limit.solve import solve_limit
from ..._limit.system import AbstractSample, System
from ..._monotone.monotonicity import monotonicity
from ..._network.shallow import Shallow
from ..._plot.style import COMPUTED, CYCLE, EXACT, finish, new_figure
from ..._problem.problem import Problem
from .._columns import Columns, from_rows, where
from . import finite
from .checks import Check

_DIMS = (1, 2, 20)
_ROUNDING = 1e-13


def _exact(system: AbstractSample, problem: Problem) -> np.ndarray:
    assert problem.exact is not None  # the zoo's have one
    return system.values(problem.exact)


def spectrum(quick: bool) -> Columns:
    """Leading eigenvalues of the discretised `L B` in three dimensions."""
    rows = []
    for dim in _DIMS:
        problem = zoo.survival(dim, discount=0.1 if dim == 1 else 0.2)
        count = 80 if dim == 1 else 256 if quick else 1_024
        network = (
            finite.network(1) if dim == 1 else Shallow(1, activation=finite.network(1).activation)
        )
        values = LinearFlow(System(problem, network, count), 1.0).values
        for index, value in enumerate(values[: 10 if dim == 1 else 200], start=1):
            rows.append({"dim": dim, "index": index, "real": value.real, "imaginary": value.imag})
    return from_rows(rows)


def slow_end(quick: bool) -> Columns:
    """Error against training time: the limit, and networks of finite width."""
    system = System(finite.problem(), finite.network(1), 80)
    flow, exact = LinearFlow(system, 1.0), _exact(system, system.problem)
    rows = []
    for time in np.logspace(-1, 10, 56):
        gap = system.f + system.phi @ flow(time) - exact
        rows.append({"width": np.inf, "time": time, "error": _relative(gap, exact, system.weights)})
    times = np.logspace(-1, 2 if quick else 4, 16 if quick else 26)
    other = System(finite.problem(), finite.network(1), finite.NODES)
    exact = _exact(other, other.problem)
    for width in (64, 512) if quick else (64, 256, 1_024, 4_096):
        for moment in finite.follow(width, 0.75, 3, tuple(times), 4.0):
            gap = moment.jets[0] - exact
            error = _relative(gap, exact, other.weights)
            rows.append({"width": width, "time": moment.time, "error": error})
    return from_rows(rows)


def path(quick: bool) -> Columns:
    """The limit's path: its error, `L Q`, and the integrals that the convergence theorem bounds."""
    system = System(finite.problem(), finite.network(1), 80)
    flow, exact = LinearFlow(system, 1.0), _exact(system, system.problem)
    times = np.concatenate([[0.0], np.logspace(-4, 10, 400 if quick else 4_000)])
    weights, phi = system.weights, system.phi
    start = phi.T @ (weights * system.start.constant)
    constant = monotonicity(system.problem).constant
    assert constant is not None  # proved for this problem
    bound = float(start @ start) / (2.0 * constant)
    bump = weights * np.cos(0.5 * np.pi * system.points[:, 0])
    rows, error, moved = [], 0.0, 0.0
    before = None
    for time in times:
        q = flow(time) if time else np.zeros(phi.shape[1])
        residual = system.residual(q)
        inside = phi.T @ (weights * residual)  # B L Q = phi inside
        now = (
            float(weights @ np.square(system.f + phi @ q - exact)),
            float(weights @ np.square(phi @ inside)),
        )
        if before is not None:
            length = time - before[0]
            error += 0.5 * length * (now[0] + before[1])
            moved += 0.5 * length * (now[1] + before[2])
        before = (time, *now)
        row = {"time": time, "error": now[0], "mean_error": error / time if time else now[0]}
        row |= {"moved": moved, "bound": bound, "energy": float(inside @ inside)}
        row |= {"residual": float(weights @ np.square(residual)) ** 0.5}
        rows.append(row | {"weak": abs(float(bump @ residual))})
    return from_rows(rows)


def kernel(quick: bool) -> Columns:
    """Eigenvalues of `B`, and the part of three functions that lies outside its leading eigenfunctions."""
    system = System(finite.problem(), finite.network(1), 80)
    x, weights = system.points[:, 0], system.weights
    rows = []
    targets = {
        "bump": np.cos(0.5 * np.pi * x),
        "wave": np.sin(2 * np.pi * x),
        "corner": (1 - np.abs(x)) * (1 + np.abs(x)) * np.abs(x) ** 2.5,
    }
    for rank in range(1, system.phi.shape[1] + 1):
        basis = system.phi[:, :rank] / np.sqrt(system.eigenvalues[:rank])[None]
        row = {"rank": rank, "eigenvalue": system.eigenvalues[rank - 1]}
        for name, target in targets.items():
            rest = target - basis @ (basis.T @ (weights * target))
            row[name] = _relative(rest, target, weights)
        rows.append(row)
    return from_rows(rows)


def definite(quick: bool) -> Columns:
    """The extreme eigenvalues of matrices `B(x_i, x_j)`, and how far `B` stretches functions.

    The ratio `||B v||^2 / ||v||_B^2` is taken for functions `v` with a jump, and `norm` is the largest
    eigenvalue of `B` by the same quadrature; `other` is that by another one.
    """
    rows, rng = [], np.random.default_rng(0)
    for dim, counts in ((1, (2, 4, 6)), (2, (10, 20)), (20, (50, 100, 200))):
        problem, activation = zoo.survival(dim), finite.network(1).activation
        system = System(problem, Shallow(1, activation=activation), 80 if dim == 1 else 256)
        x, weights = problem.domain.nodes(61 if dim == 1 else 600, seed=1)
        b = _matrix(system, x)
        v = np.sign(x @ rng.standard_normal((dim, 200)) + 0.3 * rng.standard_normal(200)[None])
        moved = b @ (weights[:, None] * v)
        ratio = (weights @ moved**2) / np.sum(weights[:, None] * v * moved, axis=0)
        root = np.sqrt(weights)
        norm = scipy.linalg.eigvalsh(root[:, None] * b * root[None])[-1]
        for count in counts:
            few = _matrix(system, problem.domain.nodes(count, seed=2)[0])
            # To unit diagonal, lest a point near the boundary, where eta is small, look like rounding.
            side = 1.0 / np.sqrt(np.diag(few))
            size = scipy.linalg.eigvalsh(side[:, None] * few * side[None])
            row = {"dim": dim, "points": count, "smallest": size[0], "largest": size[-1]}
            row |= {"norm": norm, "other": system.eigenvalues[0], "ratio": ratio.max()}
            rows.append(row)
    return from_rows(rows)


def _matrix(system: System, x: np.ndarray) -> np.ndarray:
    """`B(x_i, x_j)`; the frame of a unit ball is the identity."""
    eta = 1.0 - np.sum(x * x, axis=1)
    return eta[:, None] * system.kernel.values(x, x).value * eta[None]


def fixed_point(quick: bool) -> Columns:
    """Error of the solutions of `solve_limit` at infinite time, and that of the best constant network."""
    cases = [(1, 0.1, 80), (2, 0.2, 256), (20, 0.2, 256 if quick else 500)]
    if not quick:
        cases += [(20, 0.2, 1_000), (20, 0.2, 2_000)]
    rows = []
    for dim, discount, count in cases:
        problem = zoo.survival(dim, discount=discount)
        network = (
            finite.network(1) if dim == 1 else Shallow(1, activation=finite.network(1).activation)
        )
        solution = solve_limit(problem, nodes=count, network=network, progress=False)
        score, limit = solution.score, solution.limit
        error, skill = score.relative_l2_error, score.skill
        assert error is not None  # the zoo knows the answer
        assert skill is not None
        assert limit is not None
        row = {"dim": dim, "nodes": count, "error": error, "constant": error / skill}
        row |= {"residual": score.loss**0.5, "regularisation": limit.regularisation}
        rows.append(row)
    return from_rows(rows)


def _relative(gap: np.ndarray, exact: np.ndarray, weights: np.ndarray) -> float:
    return float(np.sqrt(weights @ np.square(gap) / (weights @ np.square(exact))))


def spectrum_checks(found: Columns) -> list[Check]:
    checks = []
    for dim in _DIMS:
        part = where(found, dim=dim)
        worst = float(part["real"].max())
        checks.append(
            Check(
                f"spectrum-{dim}",
                f"The flow contracts: eigenvalues of `L B` in the left half plane, d = {dim}",
                "negative real parts, accumulating at 0: no spectral gap",
                f"largest real part of the {len(part['real'])} leading ones; they fall from "
                f"{abs(part['real'][0]):.2g} to {abs(part['real'][-1]):.2g}",
                worst,
                worst < 0,
                "why training is slow at the end: each decade of error needs a new decade of time, or more",
            )
        )
    return checks


def slow_checks(found: Columns) -> list[Check]:
    part = where(found, width=np.inf)
    checks = []
    for time, target in ((1e2, 1e-2), (1e4, 5e-4), (1e6, 5e-5)):
        error = float(np.interp(np.log(time), np.log(part["time"]), part["error"]))
        checks.append(
            Check(
                f"time-{time:.0e}",
                f"The infinitely wide network after time {time:.0e}",
                "converges",
                "relative L2 error, one dimension, discount 0.1",
                error,
                error <= target,
                f"at most {target:g} is asked for",
            )
        )
    return checks


def path_checks(found: Columns) -> list[Check]:
    time, average = found["time"][1:], found["mean_error"][1:]
    late = time > 1.0
    bound, moved = float(found["bound"][0]), found["moved"]
    energy = found["energy"]
    bounded = found["residual"]
    return [
        Check(
            "time-average",
            "The mean over time of the squared error tends to 0",
            "`(1/t) ∫ ‖Q_s − u‖² ds → 0`",
            f"its last value, at t = {time[-1]:.0e}, over its first; it never rises",
            float(average[-1] / average[0]),
            bool(np.all(np.diff(average[late]) <= 0) and average[-1] < 1e-6 * average[0]),
            "",
        ),
        Check(
            "moved",
            "The squared speed has a finite integral",
            "`∫ ‖B L Q_s‖² ds ≤ ‖L f‖_B² / (2 α γ_L)` for every t",
            f"the integral up to t = {time[-1]:.0e}; the bound is {bound:.5f}",
            float(moved[-1]),
            bool(np.all(moved <= bound)),
            "holds along the whole path; γ_L is the certified constant of `monotonicity`",
        ),
        Check(
            "energy",
            "The distance in the norm of B falls all the time",
            "`‖L Q_t‖_B` does not grow",
            "its last value over its first",
            float(np.sqrt(energy[-1] / energy[0])),
            bool(np.all(np.diff(energy) <= 1e-12 * energy[0])),
            "",
        ),
        Check(
            "weak",
            "`L Q_t` tends to 0 weakly, being bounded",
            "weak convergence if and only if bounded",
            "largest `‖L Q_t‖` on the path; its mean against cos(πx/2) ends at "
            f"{found['weak'][-1]:.1e}",
            float(bounded.max()),
            bool(
                bounded.max() <= 1.01 * bounded[0] and found["weak"][-1] < 1e-3 * found["weak"][0]
            ),
            "",
        ),
    ]


def definite_checks(found: Columns) -> list[Check]:
    share = found["smallest"] / found["largest"]
    hardest = int(np.argmin(share))
    part, apart = found["ratio"] / found["norm"], np.abs(found["other"] / found["norm"] - 1.0)
    return [
        Check(
            "positive",
            "`B` is strictly positive definite",
            "matrices `B(x_i, x_j)` of different points, scaled to unit diagonal, have positive eigenvalues",
            f"the smallest eigenvalue over the largest, the worst of {len(share)} matrices "
            f"(d = {found['dim'][hardest]:g}, {found['points'][hardest]:g} points)",
            float(share[hardest]),
            bool(share[hardest] > _ROUNDING),
            f"rounding is below {_ROUNDING:g}; more points in one dimension reach it",
        ),
        Check(
            "norms",
            "`‖B v‖² ≤ λ ‖v‖_B²`",
            "λ is the largest eigenvalue",
            "largest ratio over λ, of 200 functions with a jump in each of d = 1, 2 and 20; λ by the same "
            "quadrature",
            float(part.max()),
            bool(part.max() <= 1.0 + _ROUNDING),
            f"by quadratures at other points λ differs by up to {apart.max():.1%}",
        ),
    ]


def kernel_checks(found: Columns) -> list[Check]:
    eigenvalues = found["eigenvalue"]
    worst = max(float(found[name][-1]) for name in ("bump", "wave"))
    return [
        Check(
            "dense",
            "The image of `B` is dense among functions with zero boundary values",
            "any such function can be approximated",
            f"relative error of cos(πx/2) and sin(2πx) with {len(eigenvalues)} eigenfunctions, the worse",
            worst,
            bool(worst < 1e-4),
            "a function with a corner is approached much more slowly",
        ),
    ]


def fixed_checks(found: Columns) -> list[Check]:
    checks = []
    for dim, asked in ((1, 1e-6), (20, None)):
        part = where(found, dim=dim)
        error, constant = float(part["error"][-1]), float(part["constant"][-1])
        checks.append(
            Check(
                f"fixed-{dim}",
                f"A fixed point solves the equation, d = {dim}",
                "`B L Q = 0` only where `L Q = 0`",
                f"relative L2 error of `solve_limit` at infinite time, {part['nodes'][-1]:g} nodes",
                error,
                error < (asked or constant),
                f"the best constant network has {constant:.1e}",
            )
        )
    return checks


def draw_slow(found: Columns) -> Any:
    """Error against time on log axes."""
    (ax,) = new_figure((4.8, 3.3), 1, 1)
    for width, colour in zip(np.unique(found["width"]), (*CYCLE[1:5], EXACT), strict=False):
        part = where(found, width=width)
        label = "infinite" if np.isinf(width) else f"N = {width:,.0f}"
        ax.loglog(
            part["time"],
            part["error"],
            color=COMPUTED if np.isinf(width) else colour,
            lw=1.2,
            label=label,
        )
    ax.set_xlabel("training time")
    ax.set_ylabel("relative L2 error")
    return finish(ax, "one dimension, plain flow")


def draw_spectrum(found: Columns) -> Any:
    """Eigenvalues by rank."""
    (ax,) = new_figure((4.8, 3.3), 1, 1)
    for dim, colour in zip(_DIMS, CYCLE, strict=False):
        part = where(found, dim=dim)
        ax.loglog(
            part["index"], np.abs(part["real"]), ".-", color=colour, lw=0.8, label=f"d = {dim}"
        )
    ax.set_xlabel("rank")
    ax.set_ylabel("−eigenvalue of L B")
    return finish(ax, "no spectral gap")


def draw_path(found: Columns) -> Any:
    """The time average, and the integral beside its bound."""
    axes = new_figure((9.2, 3.3), 1, 2)
    time = found["time"][1:]
    axes[0].loglog(time, found["error"][1:], color=CYCLE[1], lw=1, label="‖Q_t − u‖²")
    axes[0].loglog(
        time, found["mean_error"][1:], color=COMPUTED, lw=1.2, label="its mean over time"
    )
    axes[1].semilogx(time, found["moved"][1:], color=COMPUTED, lw=1.2, label="∫ ‖B L Q‖² ds")
    axes[1].semilogx(time, found["bound"][1:], color=EXACT, lw=1, ls="--", label="bound")
    for ax, title in zip(axes, ("squared error", "squared speed, integrated"), strict=True):
        ax.set_xlabel("training time")
        finish(ax, title)
    return axes


def draw_kernel(found: Columns) -> Any:
    """Eigenvalues of `B`, and the rest of functions outside its leading eigenfunctions."""
    (ax,) = new_figure((4.8, 3.3), 1, 1)
    ax.semilogy(
        found["rank"], found["eigenvalue"], "o-", color=EXACT, ms=3, lw=1, label="eigenvalue of B"
    )
    labels = {"bump": "cos(πx/2)", "wave": "sin(2πx)", "corner": "one with a corner"}
    for (name, label), colour in zip(labels.items(), CYCLE, strict=False):
        ax.semilogy(found["rank"], found[name], color=colour, lw=1, label=f"rest of {label}")
    ax.set_xlabel("eigenfunctions")
    return finish(ax, "the image of B")
