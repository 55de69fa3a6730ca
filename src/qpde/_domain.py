"""Domains: where an equation is solved, in any dimension. Boxes are here, round ones in `_round`.

Every domain brings the factor `eta` of the trial function `Q = S eta + f`: positive inside, at most
1, zero on the boundary, with closed-form derivatives.
"""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ._eta import Faces
from ._field import AbstractField
from ._form import Numbers
from ._random import uniform


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
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        """Lower and upper corner of the smallest box around the domain."""

    @property
    @abstractmethod
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
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
        at the boundary, zero on it, negative outside.
        """

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
    def centre(self) -> Numbers:
        """The middle of the enclosing box."""
        lower, upper = self.enclosing_box
        return 0.5 * (lower + upper)


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

    lower: Numbers
    upper: Numbers

    def __init__(self, lower: Any, upper: Any, *, dim: int | None = None):
        low, high = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
        size = max(low.size, high.size) if dim is None else as_dimension(dim)
        self.lower, self.upper = as_point("lower", low, size), as_point("upper", high, size)
        if not np.all(self.lower < self.upper):
            raise ValueError(f"A box needs lower < upper in every coordinate, got {self!r}.")

    def __repr__(self) -> str:
        return f"Box({short(self.lower)}, {short(self.upper)})"

    @property
    def dim(self) -> int:
        return self.lower.size

    @property
    def eta(self) -> AbstractField:
        return Faces(self.centre, 0.5 * (self.upper - self.lower), -(-self.dim // 8))

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return self.lower, self.upper

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        return self.centre, np.asarray(0.5 * np.linalg.norm(self.upper - self.lower))

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
        return self.lower[None] + width * uniform(key, (n, self.dim))

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        inside, face, side = jr.split(key, 3)
        # The faces across axis i have area volume / width_i each.
        i = jr.categorical(face, -jnp.log(self.upper - self.lower), shape=(n,))
        ends = jnp.where(
            jr.bernoulli(side, shape=(n,)), jnp.asarray(self.lower)[i], jnp.asarray(self.upper)[i]
        )
        return self.sample(inside, n).at[jnp.arange(n), i].set(ends)


class Interval(AbstractDomain):
    """`lower < x < upper` on the line; points have shape `(1,)`.

    >>> Interval(-1.0, 1.0)
    Interval(-1, 1)
    """

    box: Box

    def __init__(self, lower: float, upper: float):
        low, high = as_point("lower", lower, 1), as_point("upper", upper, 1)
        if low[0] >= high[0]:
            raise ValueError(f"An interval needs lower < upper, got {lower} and {upper}.")
        self.box = Box(low, high)

    def __repr__(self) -> str:
        (lower,), (upper,) = self.enclosing_box
        return f"Interval({lower:g}, {upper:g})"

    @property
    def dim(self) -> int:
        return 1

    @property
    def eta(self) -> AbstractField:
        return self.box.eta

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return self.box.enclosing_box

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        return self.box.enclosing_ball

    @property
    def inradius(self) -> float:
        return self.box.inradius

    @property
    def log_volume(self) -> float:
        return self.box.log_volume

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        return self.box.contains(x)

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.box.distance(x)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.box.sample(key, n)

    def sample_boundary(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        return self.box.sample_boundary(key, n)


def as_dimension(dim: Any) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise ValueError(f"A dimension is a whole number from 1 up, got {dim!r}.")
    return int(dim)


def as_positive(name: str, value: Any) -> np.ndarray:
    number = np.asarray(value, np.float64)
    if number.shape != () or not np.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}.")
    return number


def as_lengths(name: str, value: Any) -> np.ndarray:
    lengths = np.asarray(value, np.float64)
    if lengths.ndim != 1 or lengths.size == 0 or not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise ValueError(f"{name} must be a list of positive numbers, one a dimension.")
    return lengths


def as_point(name: str, value: Any, dim: int) -> np.ndarray:
    point = np.asarray(value, np.float64)
    if point.shape not in ((), (1,), (dim,)) or not np.all(np.isfinite(point)):
        raise ValueError(
            f"{name} must be a finite number or a list of {dim} of them, got shape {point.shape}."
        )
    return np.array(np.broadcast_to(point, (dim,)))


def short(values: np.ndarray) -> str:
    """A list for people: equal entries once, long lists cut."""
    if values.size > 3 and np.all(values == values[0]):
        return f"[{values[0]:g}] * {values.size}"
    shown = ", ".join(f"{value:g}" for value in values[:6])
    return f"[{shown}{', ...' if values.size > 6 else ''}]"
