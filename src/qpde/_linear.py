"""Linear equations: `A : Hess u + b . grad u - c u + r`, found out from samples, and their diffusion.

An equation is a program; whether it is affine in `u` is decided by comparing its coefficients at random
jets and random points. A violation that no sample shows is not seen.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._form import Numbers
from ._jet import Coefficients, Equation, Jet, Quadratic, linearise
from ._problem import Problem

_POINTS, _DIRECTIONS = 64, 32
# Sizes of the jets at which the coefficients must agree.
_SIZES = np.array([0.0, 0.1, 1.0, 10.0, 100.0])
# Coefficients that differ by less, relative to the largest, are the same.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Linear:
    """What samples say about the operator `A : Hess + b . grad - c` of an equation.

    `scalar` is `s` where `A = s I` with one number `s`, else None; `killing` is `c` where that is one
    number, else None. `isotropic`: `A = s(x) I`. `constant`: `A` is the same everywhere. `definite`: no
    direction without diffusion. `trace` and `drift` are the largest `tr A` and `|b|`.
    """

    scalar: float | None
    killing: float | None
    isotropic: bool
    constant: bool
    definite: bool
    trace: float
    drift: float
    matrix: np.ndarray | None  # the constant A, unless isotropic


class Affine(eqx.Module):
    """The coefficients of a linear equation at one point, oriented so that `A >= 0`."""

    equation: Equation
    orientation: Numbers

    def at(self, x: Float[Array, " d"]) -> Coefficients:
        """First-order expansion at the jet of zero; its residual is `r`."""
        return linearise(self.equation, x, Jet(_zero(x), x))

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`r(x)`, the operator applied to zero."""
        return self.orientation * self.at(x).residual

    def drift(self, at: Coefficients) -> Float[Array, " d"]:
        """`b`."""
        return self.orientation * at.grad

    def killing(self, at: Coefficients) -> Float[Array, ""]:
        """`c`."""
        return -self.orientation * at.value


def _zero(x: Float[Array, " d"]) -> Quadratic:
    zero = jnp.zeros((), x.dtype)
    return Quadratic(zero, jnp.zeros_like(x), zero, jnp.zeros_like(x))


def examine(problem: Problem) -> Linear:
    """Look at the coefficients of an equation; raise `ValueError` unless it is affine with `c >= 0`."""
    value, grad, second = coefficients(problem, _SIZES)
    with jax.enable_x64(True):
        _refuse_nonlinear(value, grad, second)
        killing, drift, second = -value[:, 0], grad[:, 0], second[:, 0]
        _refuse_growth(killing)
        scale = np.max(np.abs(second))
        isotropic = bool(np.max(np.ptp(second, axis=1)) <= _ROUNDING * scale)
        constant = bool(np.max(np.ptp(second, axis=0)) <= _ROUNDING * scale)
        diagonal = second[:, _DIRECTIONS:]
        matrix, definite = None, True
        if not isotropic:
            matrices = np.asarray(_matrices(problem, jr.key(0, impl="threefry2x32")))
            low = np.linalg.eigvalsh(matrices)[:, 0]
            definite = bool(np.all(low > 1e-8 * scale))
            matrix = matrices[0] if constant else None
    still = np.max(np.abs(drift)) <= _ROUNDING * scale
    return Linear(
        scalar=float(diagonal[0, 0]) if isotropic and constant and still else None,
        killing=(
            float(killing[0])
            if np.ptp(killing) <= _ROUNDING * max(scale, np.max(np.abs(killing)))
            else None
        ),
        isotropic=isotropic,
        constant=constant,
        definite=definite,
        trace=float(np.max(diagonal.sum(axis=1))),
        drift=float(np.max(np.linalg.norm(drift, axis=1))),
        matrix=matrix,
    )


def coefficients(problem: Problem, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`-c` (p, s), `b` (p, s, d) and `A` along directions and axes (p, s, k), at random points and jets.

    There is one jet of every size, the same at all points.
    """
    rng, count, dim = np.random.default_rng(0), len(sizes), problem.dim
    jets = Quadratic(
        sizes * rng.standard_normal(count),
        sizes[:, None] * rng.standard_normal((count, dim)),
        sizes * rng.standard_normal(count),
        sizes[:, None] * rng.standard_normal((count, dim)),
    )
    directions = rng.standard_normal((_DIRECTIONS, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    with jax.enable_x64(True):
        value, grad, second = _sample(problem, jets, directions, jr.key(0, impl="threefry2x32"))
        return np.asarray(value), np.asarray(grad), np.asarray(second)


@eqx.filter_jit
def _sample(
    problem: Problem, jets: Quadratic, directions: Any, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    """`-c`, `b` and `A` along directions and axes, by point and jet."""

    def one(x: Array, jet: Quadratic) -> tuple[Array, Array, Array]:
        at = linearise(problem.equation, x, Jet(jet, x))
        second = jnp.concatenate([at.quadratic(directions), at.diagonal(x.size)])
        return at.value, at.grad, second

    points = problem.domain.sample(key, _POINTS)
    parts = jax.vmap(lambda x: jax.vmap(lambda jet: one(x, jet))(jets))(points)
    return jax.tree.map(lambda part: problem.orientation * part, parts)


@eqx.filter_jit
def _matrices(problem: Problem, key: PRNGKeyArray) -> Array:
    def one(x: Array) -> Array:
        at = linearise(problem.equation, x, Jet(_zero(x), x))
        return problem.orientation * at.matrix(x.size)

    return jax.vmap(one)(problem.domain.sample(key, _POINTS))


def _refuse_nonlinear(*parts: np.ndarray) -> None:
    for part, what in zip(parts, ("u", "its gradient", "its second derivatives"), strict=True):
        size = np.max(np.abs(part[:, :1])) if np.all(np.isfinite(part)) else np.nan
        spread = np.max(np.abs(part - part[:, :1]))
        if not spread <= _ROUNDING * max(size, 1e-300):
            raise ValueError(
                f"This equation is not linear: its derivative with respect to {what} changes with u. "
                "A mean over random walks represents the solutions of equations that are affine in "
                "u and its derivatives only, because the walks must not depend on the unknown. For "
                "an error bound of a nonlinear problem use qpde.certify(solution)."
            )


def _refuse_growth(killing: np.ndarray) -> None:
    if np.min(killing) < -_ROUNDING * max(np.max(np.abs(killing)), 1.0):
        raise ValueError(
            f"This equation multiplies u by {-np.min(killing):.3g} > 0 somewhere, c = "
            f"{np.min(killing):.3g} < 0 in A : Hess u + b . grad u - c u + r = 0. Walks would then "
            "grow in weight, and their mean need not exist. Only c >= 0 is supported; check the sign "
            "of the term in u."
        )
