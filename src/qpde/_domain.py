"""Domains: where an equation is solved, in any dimension.

Every domain brings the factor `eta` of the trial function `Q = S eta + f`: positive inside, at most 1,
zero on the boundary, with closed-form derivatives.
"""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ._eta import Faces, Quadric, Shell
from ._field import AbstractField


class AbstractDomain(eqx.Module):
    """A bounded open set of R^d.

    `contains` and `distance` take one point; the samplers return `(n, d)` points.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """The dimension `d`."""

    @property
    @abstractmethod
    def eta(self) -> AbstractField:
        """The factor that vanishes on the boundary, `0 < eta <= 1` inside."""

    @property
    @abstractmethod
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner of the smallest box around the domain."""

    @property
    @abstractmethod
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        """Centre and radius of a ball around the domain."""

    @property
    @abstractmethod
    def inradius(self) -> float:
        """The largest distance of a point to the boundary."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of the volume, which itself may under- or overflow."""

    @abstractmethod
    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        """Whether `x` lies inside (the boundary does not)."""

    @abstractmethod
    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """A lower bound for the distance of an inner point to the boundary; asymptotically exact
        at the boundary, zero on it, negative outside."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """Uniform points inside."""

    @abstractmethod
    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """Uniform points on the boundary, by surface area."""

    @property
    def volume(self) -> float:
        """The volume; zero or infinite where float64 cannot hold it (see `log_volume`)."""
        return math.exp(self.log_volume) if self.log_volume < 709 else math.inf

    @property
    def centre(self) -> np.ndarray:
        """The middle of the enclosing box."""
        lower, upper = self.enclosing_box
        return 0.5 * (lower + upper)


class Ball(AbstractDomain):
    """`|x - centre| < radius` in R^dim.

        >>> Ball(20)
        Ball(20)

    `eta = 1 - |x - centre|^2 / radius^2`.
    """

    midpoint: np.ndarray
    radius: np.ndarray

    def __init__(self, dim: int, *, centre: Any = 0.0, radius: float = 1.0):
        self.midpoint = _point("centre", centre, _dimension(dim))
        self.radius = _positive("radius", radius)

    def __repr__(self) -> str:
        extra = [str(self.dim)]
        extra += [f"centre={_short(self.midpoint)}"] if np.any(self.midpoint) else []
        extra += [f"radius={self.radius:g}"] if self.radius != 1 else []
        return f"Ball({', '.join(extra)})"

    @property
    def dim(self) -> int:
        return self.midpoint.size

    @property
    def eta(self) -> AbstractField:
        return Quadric(self.midpoint, self.radius * np.ones(self.dim))

    @property
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.midpoint - self.radius, self.midpoint + self.radius

    @property
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        return self.midpoint, float(self.radius)

    @property
    def inradius(self) -> float:
        return float(self.radius)

    @property
    def log_volume(self) -> float:
        return _logunit_ball(self.dim) + self.dim * math.log(self.radius)

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.distance(x) > 0

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.radius - _norm(x - self.midpoint)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.radius * unit_ball(key, n, self.dim)

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.radius * _unit_sphere(key, n, self.dim)


class Interval(AbstractDomain):
    """`lower < x < upper` on the line; points have shape `(1,)`.

        >>> Interval(-1.0, 1.0)
        Interval(-1, 1)
    """

    ball: Ball

    def __init__(self, lower: float, upper: float):
        low, high = _point("lower", lower, 1), _point("upper", upper, 1)
        if low[0] >= high[0]:
            raise ValueError(f"An interval needs lower < upper, got {lower} and {upper}.")
        self.ball = Ball(1, centre=0.5 * (low + high), radius=0.5 * float(high[0] - low[0]))

    def __repr__(self) -> str:
        (lower,), (upper,) = self.enclosing_box
        return f"Interval({lower:g}, {upper:g})"

    @property
    def dim(self) -> int:
        return 1

    @property
    def eta(self) -> AbstractField:
        return self.ball.eta

    @property
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.ball.enclosing_box

    @property
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        return self.ball.enclosing_ball

    @property
    def inradius(self) -> float:
        return self.ball.inradius

    @property
    def log_volume(self) -> float:
        return self.ball.log_volume

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.ball.contains(x)

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.ball.distance(x)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.ball.sample(key, n)

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.ball.sample_boundary(key, n)


class Ellipsoid(AbstractDomain):
    """`sum_i ((x - centre)_i / axes_i)^2 < 1`, with the semi-axes along the coordinates.

        >>> Ellipsoid([1.0, 2.0, 0.5])
        Ellipsoid([1, 2, 0.5])
    """

    axes: np.ndarray
    midpoint: np.ndarray

    def __init__(self, axes: Any, *, centre: Any = 0.0):
        self.axes = _lengths("axes", axes)
        self.midpoint = _point("centre", centre, self.axes.size)

    def __repr__(self) -> str:
        centre = f", centre={_short(self.midpoint)}" if np.any(self.midpoint) else ""
        return f"Ellipsoid({_short(self.axes)}{centre})"

    @property
    def dim(self) -> int:
        return self.axes.size

    @property
    def eta(self) -> AbstractField:
        return Quadric(self.midpoint, self.axes)

    @property
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.midpoint - self.axes, self.midpoint + self.axes

    @property
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        return self.midpoint, float(np.max(self.axes))

    @property
    def inradius(self) -> float:
        return float(np.min(self.axes))

    @property
    def log_volume(self) -> float:
        return _logunit_ball(self.dim) + float(np.sum(np.log(self.axes)))

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

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.midpoint[None] + self.axes[None] * unit_ball(key, n, self.dim)

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        # A point y of the unit sphere carries the surface element |y / axes| of the ellipsoid (up
        # to a constant): accept with that probability, relative to its largest value.
        smallest = jnp.min(jnp.asarray(self.axes))

        def draw(key: PRNGKeyArray) -> tuple[PRNGKeyArray, Array, Array]:
            key, point, accept = jr.split(key, 3)
            y = _unit_sphere(point, 1, self.dim)[0]
            return key, y, jr.uniform(accept) < smallest * _norm(y / self.axes)

        def one(key: PRNGKeyArray) -> Float[Array, " d"]:
            return jax.lax.while_loop(lambda s: ~s[2], lambda s: draw(s[0]), draw(key))[1]

        return self.midpoint[None] + self.axes[None] * jax.vmap(one)(jr.split(key, n))


class Annulus(AbstractDomain):
    """`inner < |x - centre| < outer` in R^dim.

        >>> Annulus(3, inner=1.0, outer=2.0)
        Annulus(3, inner=1, outer=2)

    `eta = 4 (r - inner)(outer - r) / (outer - inner)^2`.
    """

    midpoint: np.ndarray
    inner: np.ndarray
    outer: np.ndarray

    def __init__(self, dim: int, *, inner: float, outer: float, centre: Any = 0.0):
        self.midpoint = _point("centre", centre, _dimension(dim))
        self.inner, self.outer = _positive("inner", inner), _positive("outer", outer)
        if inner >= outer:
            raise ValueError(f"An annulus needs inner < outer, got {inner} and {outer}.")

    def __repr__(self) -> str:
        centre = f", centre={_short(self.midpoint)}" if np.any(self.midpoint) else ""
        return f"Annulus({self.dim}, inner={self.inner:g}, outer={self.outer:g}{centre})"

    @property
    def dim(self) -> int:
        return self.midpoint.size

    @property
    def eta(self) -> AbstractField:
        return Shell(self.midpoint, self.inner, self.outer)

    @property
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.midpoint - self.outer, self.midpoint + self.outer

    @property
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        return self.midpoint, float(self.outer)

    @property
    def inradius(self) -> float:
        return 0.5 * float(self.outer - self.inner)

    @property
    def log_volume(self) -> float:
        hole = self.dim * math.log(self.inner / self.outer)
        full = _logunit_ball(self.dim) + self.dim * math.log(self.outer)
        return full + math.log(-math.expm1(hole))

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.distance(x) > 0

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        r = _norm(x - self.midpoint)
        return jnp.minimum(r - self.inner, self.outer - r)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        angle, radius = jr.split(key)
        # (r / outer)^d is uniform on (hole, 1), hole = (inner / outer)^d.
        hole = (self.inner / self.outer) ** self.dim
        u = hole + (1.0 - hole) * jr.uniform(radius, (n, 1), minval=_TINY)
        return self.midpoint[None] + self.outer * u ** (1.0 / self.dim) * _unit_sphere(
            angle, n, self.dim
        )

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        angle, side = jr.split(key)
        ratio = (self.inner / self.outer) ** (self.dim - 1)
        within = jr.bernoulli(side, ratio / (1.0 + ratio), (n, 1))
        r = jnp.where(within, self.inner, self.outer)
        return self.midpoint[None] + r * _unit_sphere(angle, n, self.dim)


class Box(AbstractDomain):
    """`lower < x < upper`, coordinate by coordinate.

        >>> Box(0.0, [1.0, 2.0])
        Box([0, 0], [1, 2])

    With `y` the coordinates scaled to (-1, 1), `eta = prod_i (1 - y_i^(2 m))`, `m = ceil(d / 8)`. The
    product of parabolas (`m = 1`) has rms `(8/15)^(d/2)`, which is 2e-14 at d = 100; raising the
    exponent with the dimension keeps the rms between 0.04 and 0.74 for every d. It is a polynomial,
    so smooth up to the boundary. On open faces its gradient is not zero; on the edges, where two
    faces meet, it is: no function that vanishes on two faces has a gradient there. A solution
    whose second derivatives blow up at the edges is approached by `S eta`, never equal to it.
    """

    lower: np.ndarray
    upper: np.ndarray

    def __init__(self, lower: Any, upper: Any, *, dim: int | None = None):
        low, high = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        size = max(low.size, high.size) if dim is None else _dimension(dim)
        self.lower, self.upper = _point("lower", low, size), _point("upper", high, size)
        if not np.all(self.lower < self.upper):
            raise ValueError(f"A box needs lower < upper in every coordinate, got {self!r}.")

    def __repr__(self) -> str:
        return f"Box({_short(self.lower)}, {_short(self.upper)})"

    @property
    def dim(self) -> int:
        return self.lower.size

    @property
    def eta(self) -> AbstractField:
        return Faces(self.centre, 0.5 * (self.upper - self.lower), -(-self.dim // 8))

    @property
    def enclosing_box(self) -> tuple[np.ndarray, np.ndarray]:
        return self.lower, self.upper

    @property
    def enclosing_ball(self) -> tuple[np.ndarray, float]:
        return self.centre, 0.5 * float(np.linalg.norm(self.upper - self.lower))

    @property
    def inradius(self) -> float:
        return 0.5 * float(np.min(self.upper - self.lower))

    @property
    def log_volume(self) -> float:
        return float(np.sum(np.log(self.upper - self.lower)))

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.distance(x) > 0

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.minimum(jnp.min(x - self.lower), jnp.min(self.upper - x))

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        width = (self.upper - self.lower)[None]
        return self.lower[None] + width * jr.uniform(key, (n, self.dim), minval=_TINY)

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        inside, face, side = jr.split(key, 3)
        # The faces across axis i have area volume / width_i each.
        i = jr.categorical(face, -jnp.log(self.upper - self.lower), shape=(n,))
        ends = jnp.where(
            jr.bernoulli(side, shape=(n,)), jnp.asarray(self.lower)[i], jnp.asarray(self.upper)[i]
        )
        return self.sample(inside, n).at[jnp.arange(n), i].set(ends)


# Uniform numbers start here rather than at 0, so that no sample falls on a face or a centre.
_TINY = 1e-7


def _norm(x: Float[Array, " d"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(x * x))


def _unit_sphere(key: PRNGKeyArray, n: int, dim: int) -> Float[Array, "n d"]:
    normal = jr.normal(key, (n, dim))
    return normal * jax.lax.rsqrt(jnp.sum(normal * normal, axis=1, keepdims=True))


def unit_ball(key: PRNGKeyArray, n: int, dim: int, power: Any = None) -> Array:
    angle, radius = jr.split(key)
    u = jr.uniform(radius, (n, 1), minval=_TINY)
    return u ** (1.0 / (dim if power is None else power)) * _unit_sphere(angle, n, dim)


def _logunit_ball(dim: int) -> float:
    return 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim + 1.0)


def _dimension(dim: Any) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise ValueError(f"A dimension is a whole number from 1 up, got {dim!r}.")
    return int(dim)


def _positive(name: str, value: Any) -> np.ndarray:
    number = np.asarray(value, np.float64)
    if number.shape != () or not np.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}.")
    return number


def _lengths(name: str, value: Any) -> np.ndarray:
    lengths = np.asarray(value, np.float64)
    if lengths.ndim != 1 or lengths.size == 0 or not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise ValueError(f"{name} must be a list of positive numbers, one a dimension.")
    return lengths


def _point(name: str, value: Any, dim: int) -> np.ndarray:
    point = np.asarray(value, np.float64)
    if point.shape not in ((), (1,), (dim,)) or not np.all(np.isfinite(point)):
        raise ValueError(
            f"{name} must be a finite number or a list of {dim} of them, got shape {point.shape}."
        )
    return np.array(np.broadcast_to(point, (dim,)))


def _short(values: np.ndarray) -> str:
    """A list for people: equal entries once, long lists cut."""
    if values.size > 3 and np.all(values == values[0]):
        return f"[{values[0]:g}] * {values.size}"
    shown = ", ".join(f"{value:g}" for value in values[:6])
    return f"[{shown}{', ...' if values.size > 6 else ''}]"
