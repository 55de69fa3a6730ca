"""Sampling laws `mu`.

`measure.sample(key, n, dtype)` gives points and weights; the mean of `weight * g(point)` is `E_mu[g]`.
Uniform points, importance weights and quadrature are the same thing to the rest of the library.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import a_function, an_instance, real, shown
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.round import unit_ball
from .._field.slips import check_signature, expect_scalar
from .._precision import Numbers, key_from, like, number, x64


class AbstractMeasure(eqx.Module):
    """A probability on a domain."""

    domain: eqx.AbstractVar[AbstractDomain]

    @abstractmethod
    def sample(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """`n` points and their weights, in a given precision."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r})"


class Uniform(AbstractMeasure):
    """The uniform law on the domain."""

    domain: AbstractDomain

    def __check_init__(self) -> None:
        _check_domain(self.domain)

    def sample(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        points = _inside(self.domain, key, n, dtype)
        return points, jnp.ones((n,), points.dtype)


class Radial(AbstractMeasure):
    """On a ball: uniform direction, radius `R U^(1/k)`. More weight at the centre for `k < d`.

    Of an evolution problem the points are such at every instant: `Radial(problem.domain, 2)`. In many
    dimensions hardly any uniform point is near the centre, and values there want this law.

    `k = d` is the uniform law. The Laplacian stays monotone for `2 <= k <= 2 d - 2` only; the
    uniform radius `k = 1`, common in other codes, makes it unbounded below and is refused (in
    d = 1 it is the uniform law, and the only choice).
    """

    domain: AbstractDomain
    k: Numbers

    def __init__(self, ball: AbstractDomain, k: float):
        shape = ball.spatial.round if isinstance(ball, AbstractDomain) else None
        if shape is None or not shape.is_ball:
            raise ValueError(f"A radial law lives on a qpde.Ball, got {ball!r}.")
        dim = ball.spatial.dim
        low, high = (1, 1) if dim == 1 else (2, 2 * dim - 2)
        if not low <= real("k", k) <= high:
            raise ValueError(
                f"A radial law U^(1/k) in dimension {dim} needs {low} <= k <= {high}, got "
                f"{k}: outside, the Laplacian is not known to be monotone under it, and for "
                f"k < 2 it is not. k = {dim} is the uniform law."
            )
        self.domain, self.k = ball, number(k)

    def __repr__(self) -> str:
        return f"Radial({self.domain!r}, k={self.k:g})"

    def sample(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        ball = self.domain.spatial
        unit = unit_ball(key, n, ball.dim, dtype, self.k)
        centre, radius = ball.enclosing_ball
        points = centre[None] + radius * unit
        if self.domain.times is not None:
            instants = self.domain.sample(jr.fold_in(key, 1), n, dtype)[:, -1:]
            points = jnp.concatenate([points, instants], axis=1)
        return points, jnp.ones((n,), unit.dtype)


class Weighted(AbstractMeasure):
    """A law with a given density, not necessarily normalised, by importance weights.

    Points are uniform, weights are the density divided by its mean, which is found once, from
    2^17 points (so to a relative error of 0.003 times
    the density's coefficient of variation).

        >>> Weighted(Ball(3), lambda x: jnp.exp(-jnp.sum(x * x)))
    """

    domain: AbstractDomain
    density: Callable[..., Any]
    mean: Numbers

    @x64()
    def __init__(self, domain: AbstractDomain, density: Callable[..., Any]):
        self.domain = _check_domain(domain)
        self.density = a_function("density", density, "a function from a point (d,) to a number")
        check_signature("The density", density, "one point (x)", 1)
        point = jax.ShapeDtypeStruct((domain.dim,), jnp.float64)
        expect_scalar("The density", density, point, "It takes one point (d,), not a batch.")
        parts = [_densities(density, domain, key_from(0, i)) for i in range(16)]
        values = np.concatenate([np.asarray(part) for part in parts])
        if not np.all(np.isfinite(values)) or np.any(values < 0) or not np.any(values > 0):
            raise ValueError("A density must be finite and not negative, and positive somewhere.")
        self.mean = np.asarray(np.mean(values))

    def sample(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        points = _inside(self.domain, key, n, dtype)
        return points, jax.vmap(lambda x: like(x, self.density(x)))(points) / self.mean


def _check_domain(domain: Any) -> AbstractDomain:
    return an_instance("domain", domain, AbstractDomain, "qpde.Ball(20)")


def law_on(domain: AbstractDomain, measure: AbstractMeasure | None) -> AbstractMeasure:
    """The law of points on a domain: uniform where none is given, refused where it lives elsewhere."""
    if measure is None:
        return Uniform(domain)
    if not isinstance(measure, AbstractMeasure):
        raise ValueError(f"measure must be one such as qpde.Uniform(domain), got {shown(measure)}.")
    if not eqx.tree_equal(measure.domain, domain):
        raise ValueError(f"The measure lives on {measure.domain!r}, the problem on {domain!r}.")
    return measure


def _inside(
    domain: AbstractDomain, key: PRNGKeyArray, n: int, dtype: DTypeLike
) -> Float[Array, "n d"]:
    """Uniform points in a given precision, also of a domain whose sampler has another."""
    return domain.sample(key, n, dtype).astype(dtype)


@compiled
def _densities(density: Callable[..., Any], domain: AbstractDomain, key: PRNGKeyArray) -> Array:
    return jax.vmap(lambda x: like(x, density(x)))(domain.sample(key, 2**13))


@compiled
def drawn_by(
    measure: AbstractMeasure, key: PRNGKeyArray, count: int
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """Points and weights, by a program of their own."""
    return measure.sample(key, count)
