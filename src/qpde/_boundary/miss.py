"""What a smooth function misses of boundary values, looked for where it is largest."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.random import directions
from .._field.base import AbstractField, Constant
from .._field.form import AbstractForm
from .._field.jet import Source
from .._precision import Numbers, key_from, like, number

# Boundary points that are looked at, those from which a search starts, and its rounds.
_POINTS, _STARTS, _ROUNDS = 8_192, 128, 40
_CHUNK = 2_048


class Approximation(AbstractField):
    """A smooth field whose boundary values are those of `data` up to `miss`.

    `proved`: the miss is a bound. Otherwise it is the largest that a search over the boundary found.
    `exact`: it is of the size of rounding.
    """

    field: AbstractField
    data: Callable[..., Any]
    miss: Numbers = eqx.field(converter=number)
    proved: bool = eqx.field(static=True)
    how: str = eqx.field(static=True)
    exact: bool = eqx.field(static=True, default=False)

    def __repr__(self) -> str:
        word = "at most" if self.proved else "as far as a search found,"
        return f"{self.how}; on the boundary off by {word} {float(self.miss):.2g}"

    def judged_by(self) -> Callable[..., Any] | None:
        return self.field.judged_by()

    def at(self, x: Float[Array, " d"]) -> Source:
        return self.field.at(x)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.field.value(x)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.field.grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return self.field.trace(x, form)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return self.field.hessian(x)


def largest_miss(
    data: Callable[..., Any], field: AbstractField, domain: AbstractDomain, seed: int = 0
) -> tuple[float, np.ndarray]:
    """The largest `|data - field|` that a search over the boundary finds, and where.

    From the worst of 8,192 random points it climbs along the boundary: up the slope and in random
    directions, by steps from the inradius down to a millionth of it. It finds, and never rules out.
    """
    parts = [
        [np.asarray(v) for v in _sampled(data, field, domain, key_from(seed, 0x1155, i))]
        for i in range(_POINTS // _CHUNK)
    ]
    points, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    worst = np.argsort(sizes)[-_STARTS:]
    steps = domain.inradius * np.geomspace(1.0, 1e-6, _ROUNDS)
    near = np.asarray(1e-9 * domain.inradius)
    random = np.asarray(directions(key_from(seed, 0x1156), (len(worst), len(steps), domain.dim)))
    best, reached = _climb(data, field, domain, points[worst], steps, near, random)
    top = int(np.argmax(np.asarray(reached)))
    return float(np.asarray(reached)[top]), np.asarray(best)[top]


def largest_value(data: Callable[..., Any], domain: AbstractDomain, seed: int = 0) -> float:
    """The largest size of the boundary values at random points."""
    sampled = _sampled(data, Constant(0.0), domain, key_from(seed, 0x1155, 0))
    return float(np.max(np.asarray(sampled[1])))


def largest_inside(data: Callable[..., Any], domain: AbstractDomain, seed: int = 0) -> float:
    """The largest finite size of the function at random points inside, 0 where it has none."""
    sizes = np.asarray(_sampled_inside(data, domain, key_from(seed, 0x1157)))
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


@compiled
def _sampled_inside(
    data: Callable[..., Any], domain: AbstractDomain, key: PRNGKeyArray
) -> Float[Array, " n"]:
    return jax.vmap(lambda x: jnp.abs(like(x, data(x))))(domain.sample(key, _CHUNK))


def _gap(data: Callable[..., Any], field: AbstractField, x: Array) -> Array:
    return jnp.abs(like(x, data(x)) - field.value(x))


@compiled
def _sampled(
    data: Callable[..., Any], field: AbstractField, domain: AbstractDomain, key: PRNGKeyArray
) -> tuple[Array, Array]:
    points = domain.sample_boundary(key, _CHUNK)
    return points, jax.vmap(lambda x: _gap(data, field, x))(points)


@compiled
def _climb(
    data: Callable[..., Any],
    field: AbstractField,
    domain: AbstractDomain,
    starts: Any,
    steps: Any,
    near: Any,
    random: Any,
) -> tuple[Array, Array]:
    """The places that are reached from every start, and `|data - field|` there."""
    lower, upper = domain.enclosing_box

    def onto(x: Array) -> Array:
        """A point of the boundary near `x`, by steps along the slope of the distance."""
        x = jnp.clip(x, lower, upper)
        for _ in range(3):
            distance, normal = jax.value_and_grad(domain.distance)(x)
            square = jnp.sum(normal * normal)
            x = jnp.where(square > 0, x - distance * normal / jnp.where(square > 0, square, 1.0), x)
        return jnp.clip(x, lower, upper)

    def one(x: Array, random: Array) -> tuple[Array, Array]:
        def round_of(carry: tuple[Array, Array], given: tuple[Array, Array]) -> Any:
            x, best = carry
            step, chance = given
            slope = jax.grad(lambda y: _gap(data, field, y))(x)
            for direction in (slope, chance):
                size = jnp.sqrt(jnp.sum(direction * direction))
                moved = onto(x + step * direction / jnp.where(size > 0, size, 1.0))
                there = _gap(data, field, moved)
                # A point that the steps did not bring back to the boundary does not count.
                better = (jnp.abs(domain.distance(moved)) <= near) & (there > best)
                x, best = jnp.where(better, moved, x), jnp.where(better, there, best)
            return (x, best), None

        (x, best), _ = jax.lax.scan(round_of, (x, _gap(data, field, x)), (steps, random))
        return x, best

    return jax.vmap(one)(starts, random)
