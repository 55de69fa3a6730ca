"""Round domains: balls, ellipsoids and annuli."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._field.base import AbstractField
from .._precision import Numbers
from .base import (
    FEW_POINTS,
    FORMULA,
    AbstractDomain,
    Fact,
    Round,
    as_dimension,
    as_lengths,
    as_point,
    as_positive,
    short,
)
from .eigenvalue import Eigenvalue, annulus_eigenvalue, ball_eigenvalue, log_unit_ball
from .eta import Quadric, Shell, Sphere
from .nodes import fill_shell
from .random import normal, uniform
from .sheet import Sheet


class Ball(AbstractDomain):
    """`|x - centre| < radius` in R^dim.

        >>> Ball(20)
        Ball(20)

    `eta = 1 - |x - centre|^2 / radius^2`.
    """

    midpoint: Numbers
    radius: Numbers

    def __init__(self, dim: int, *, centre: Any = 0.0, radius: float = 1.0):
        self.midpoint = as_point("centre", centre, as_dimension(dim))
        self.radius = as_positive("radius", radius)

    def __repr__(self) -> str:
        extra = [str(self.dim)]
        extra += [f"centre={short(self.midpoint)}"] if np.any(self.midpoint) else []
        extra += [f"radius={self.radius:g}"] if self.radius != 1 else []
        return f"Ball({', '.join(extra)})"

    @property
    def dim(self) -> int:
        return self.midpoint.size

    @property
    def eta(self) -> AbstractField:
        return Sphere(self.midpoint, self.radius)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return self.midpoint - self.radius, self.midpoint + self.radius

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        return self.midpoint, self.radius

    @property
    def inradius(self) -> float:
        return float(self.radius)

    @property
    def log_volume(self) -> float:
        return log_unit_ball(self.dim) + self.dim * math.log(self.radius)

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        return Eigenvalue(ball_eigenvalue(self.dim, float(self.radius)), "exact for a ball")

    @property
    def convex(self) -> bool:
        return True

    @property
    def round(self) -> Round | None:
        return Round(self.midpoint, np.asarray(0.0), self.radius)

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        return _around(self)

    @property
    def smooth_boundary(self) -> Fact | None:
        return _smooth("A sphere", self.dim)

    @property
    def sloped_eta(self) -> Fact | None:
        return FORMULA

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.radius - _norm(x - self.midpoint)

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.radius * unit_ball(key, n, self.dim, dtype)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.radius * _unit_sphere(key, n, self.dim, dtype)

    def spread(self, count: int, seed: int) -> np.ndarray:
        return self.midpoint + self.radius * fill_shell(self.dim, count, seed, hole=0.0)


class Ellipsoid(AbstractDomain):
    """`sum_i ((x - centre)_i / axes_i)^2 < 1`, with the semi-axes along the coordinates.

    >>> Ellipsoid([1.0, 2.0, 0.5])
    Ellipsoid([1, 2, 0.5])
    """

    axes: Numbers
    midpoint: Numbers

    def __init__(self, axes: Any, *, centre: Any = 0.0):
        self.axes = as_lengths("axes", axes)
        self.midpoint = as_point("centre", centre, self.axes.size)

    def __repr__(self) -> str:
        centre = f", centre={short(self.midpoint)}" if np.any(self.midpoint) else ""
        return f"Ellipsoid({short(self.axes)}{centre})"

    @property
    def dim(self) -> int:
        return self.axes.size

    @property
    def eta(self) -> AbstractField:
        return Quadric(self.midpoint, self.axes)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return self.midpoint - self.axes, self.midpoint + self.axes

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        return self.midpoint, np.asarray(np.max(self.axes))

    @property
    def inradius(self) -> float:
        return float(np.min(self.axes))

    @property
    def log_volume(self) -> float:
        return log_unit_ball(self.dim) + float(np.sum(np.log(self.axes)))

    @property
    def convex(self) -> bool:
        return True

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        return _around(self)

    @property
    def smooth_boundary(self) -> Fact | None:
        return _smooth("An ellipsoid", self.dim)

    @property
    def sloped_eta(self) -> Fact | None:
        return FORMULA

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.eta.value(x) > 0

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        # Along any unit vector e, the quadric grows from rho^2 = |y|^2, y = (x - centre) / axes,
        # by at most 2 s g + s^2 / min(axes)^2 with g = |y / axes|; it cannot reach 1 before this s.
        y = (x - self.midpoint) / self.axes
        gap = 1.0 - jnp.sum(y * y)
        g = _norm(y / self.axes)
        inner = jnp.maximum(g * g + gap / jnp.min(jnp.asarray(self.axes)) ** 2, 0.0)
        return gap / (g + jnp.sqrt(inner))

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.axes[None] * unit_ball(key, n, self.dim, dtype)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        # A point y of the unit sphere carries the surface element |y / axes| of the ellipsoid (up
        # to a constant): accept with that probability, relative to its largest value.
        # Points that were refused are drawn again, all in one go, until none is left.
        smallest = jnp.min(jnp.asarray(self.axes))

        def draw(state: tuple[PRNGKeyArray, Array, Array]) -> tuple[PRNGKeyArray, Array, Array]:
            key, points, done = state
            key, point_key, accept_key = jr.split(key, 3)
            y = _unit_sphere(point_key, n, self.dim, dtype)
            element = jnp.sqrt(jnp.sum(jnp.square(y / self.axes[None]), axis=1))
            accepted = uniform(accept_key, (n,), dtype) < smallest * element
            return key, jnp.where(done[:, None], points, y), done | accepted

        start = (key, jnp.zeros((n, self.dim), dtype), jnp.zeros((n,), bool))
        _, points, _ = jax.lax.while_loop(lambda state: ~jnp.all(state[2]), draw, start)
        return self.midpoint[None] + self.axes[None] * points

    def spread(self, count: int, seed: int) -> np.ndarray:
        return self.midpoint + self.axes * fill_shell(self.dim, count, seed, hole=0.0)


class Annulus(AbstractDomain):
    """`inner < |x - centre| < outer` in R^dim.

        >>> Annulus(3, inner=1.0, outer=2.0)
        Annulus(3, inner=1, outer=2)

    `eta` has a constant Laplacian and the maximum 1; in d = 1 it is
    `4 (r - inner)(outer - r) / (outer - inner)^2`.
    """

    midpoint: Numbers
    inner: Numbers
    outer: Numbers

    def __init__(self, dim: int, *, inner: float, outer: float, centre: Any = 0.0):
        self.midpoint = as_point("centre", centre, as_dimension(dim))
        self.inner, self.outer = as_positive("inner", inner), as_positive("outer", outer)
        if inner >= outer:
            raise ValueError(f"An annulus needs inner < outer, got {inner} and {outer}.")

    def __repr__(self) -> str:
        centre = f", centre={short(self.midpoint)}" if np.any(self.midpoint) else ""
        return f"Annulus({self.dim}, inner={self.inner:g}, outer={self.outer:g}{centre})"

    @property
    def dim(self) -> int:
        return self.midpoint.size

    @property
    def eta(self) -> AbstractField:
        return Shell(self.midpoint, self.inner, self.outer)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return self.midpoint - self.outer, self.midpoint + self.outer

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        return self.midpoint, self.outer

    @property
    def inradius(self) -> float:
        return 0.5 * float(self.outer - self.inner)

    @property
    def log_volume(self) -> float:
        hole = self.dim * math.log(self.inner / self.outer)
        full = log_unit_ball(self.dim) + self.dim * math.log(self.outer)
        return full + math.log(-math.expm1(hole))

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        value = annulus_eigenvalue(self.dim, float(self.inner), float(self.outer))
        return max(super().first_eigenvalue, Eigenvalue(value, "radial equation of the annulus"))

    @property
    def round(self) -> Round | None:
        return Round(self.midpoint, self.inner, self.outer)

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        # Between the spheres the two values of a ray are interpolated linearly in the radius.
        inner, outer, size = self.inner, self.outer, np.ones(self.dim)
        width = outer - inner
        return (
            Sheet(self.centre, inner * size, outer / width, -inner / width, 0.0),
            Sheet(self.centre, outer * size, -inner / width, outer / width, 0.0),
        )

    @property
    def smooth_boundary(self) -> Fact | None:
        return _smooth("A pair of spheres", self.dim)

    @property
    def sloped_eta(self) -> Fact | None:
        return FORMULA

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        r = _norm(x - self.midpoint)
        return jnp.minimum(r - self.inner, self.outer - r)

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        angle, radius = jr.split(key)
        # (r / outer)^d is uniform on (hole, 1), hole = (inner / outer)^d.
        hole = (self.inner / self.outer) ** self.dim
        u = hole + (1.0 - hole) * uniform(radius, (n, 1), dtype)
        return self.midpoint[None] + self.outer * u ** (1.0 / self.dim) * _unit_sphere(
            angle, n, self.dim, dtype
        )

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        angle, side = jr.split(key)
        ratio = (self.inner / self.outer) ** (self.dim - 1)
        within = jr.bernoulli(side, jnp.asarray(ratio / (1.0 + ratio), dtype), (n, 1))
        r = jnp.where(within, self.inner, self.outer)
        return self.midpoint[None] + r * _unit_sphere(angle, n, self.dim, dtype)

    def spread(self, count: int, seed: int) -> np.ndarray:
        hole = float(self.inner / self.outer)
        return self.midpoint + self.outer * fill_shell(self.dim, count, seed, hole=hole)

    def sample_layers(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Points half of which have a uniform radius, with weights below 2.

        In ten dimensions one uniform point in a thousand lies near the inner sphere, where solutions have
        a layer.
        """
        points, centre = self.sample(key, n, dtype), self.midpoint[None]
        r = jnp.sqrt(jnp.sum((points - centre) ** 2, axis=1))
        width = self.outer - self.inner
        even = self.inner + width * jr.uniform(jr.fold_in(key, 1), (n,), r.dtype)
        moved = jnp.where(jnp.arange(n) % 2 == 0, even, r)
        points = centre + (points - centre) * (moved / r)[:, None]
        # Density of a uniform radius over that of a uniform point, at radius `moved`.
        hole = (self.inner / self.outer) ** self.dim
        ratio = (1.0 - hole) * self.outer / (self.dim * width)
        ratio = ratio * (self.outer / moved) ** (self.dim - 1)
        return points, 2.0 / (1.0 + ratio)


def _smooth(surface: str, dim: int) -> Fact:
    return FEW_POINTS if dim == 1 else Fact(True, f"{surface} is smooth of every order")


def _around(domain: AbstractDomain) -> tuple[Sheet, ...]:
    """The ellipsoid that touches the enclosing box; its values fade like `rho^4` towards the centre."""
    lower, upper = domain.enclosing_box
    return (Sheet(domain.centre, 0.5 * (upper - lower), 0.0, 0.0, 1.0),)


def _norm(x: Float[Array, " d"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(x * x))


@partial(jax.jit, static_argnums=(1, 2, 3))
def _unit_sphere(key: PRNGKeyArray, n: int, dim: int, dtype: DTypeLike) -> Float[Array, "n d"]:
    return _directions(uniform(key, (n, dim), dtype))


def _directions(u: Float[Array, "n d"]) -> Float[Array, "n d"]:
    z = normal(u)
    return z * jax.lax.rsqrt(jnp.sum(z * z, axis=1, keepdims=True))


@partial(jax.jit, static_argnums=(1, 2, 3))
def unit_ball(
    key: PRNGKeyArray, n: int, dim: int, dtype: DTypeLike, power: Any = None
) -> Float[Array, "n d"]:
    u = uniform(key, (n * (dim + 1),), dtype)
    angle, radius = u[: n * dim].reshape(n, dim), u[n * dim :, None]
    return radius ** (1.0 / (dim if power is None else power)) * _directions(angle)
