"""Domains: where an equation is solved, in any dimension, and all that the library asks of one.

Every domain brings the factor `eta` of the trial function `Q = S eta + f`: positive inside, at most
1, zero on the boundary, with closed-form derivatives.
"""

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .._arguments import real, reals, shown, whole
from .._compiled import compiled
from .._field.base import AbstractField
from .._precision import Numbers, key_from, x64
from .eigenvalue import Eigenvalue, ball_eigenvalue, box_eigenvalue, volume_eigenvalue
from .nodes import gauss_legendre
from .sheet import Sheet


class Fact(NamedTuple):
    """Whether a statement about a domain holds, and a clause (no full stop) that says why."""

    holds: bool
    why: str


FEW_POINTS = Fact(True, "In one dimension the boundary is a few points")
FORMULA = Fact(True, "It is a formula")


class Round(NamedTuple):
    """The set `inner < |x - centre| < outer`; where `inner` is zero, the ball."""

    centre: Numbers
    inner: Numbers
    outer: Numbers

    @property
    def is_ball(self) -> bool:
        """Whether there is no hole."""
        return float(self.inner) == 0.0


class Times(NamedTuple):
    """The time interval `[0, end]` of a domain; `backward` where data are given at its end.

    `age(t)` is the time since the data: `t`, or `end - t`.
    """

    end: Numbers
    backward: bool

    @property
    def start(self) -> float:
        """The instant at which data are given."""
        return float(self.end) if self.backward else 0.0

    @property
    def last(self) -> float:
        """The instant that is farthest from the data."""
        return 0.0 if self.backward else float(self.end)

    def age(self, t: Array) -> Array:
        """The time between the data and `t`."""
        return self.end - t if self.backward else t

    def at(self, age: Array) -> Array:
        """The instant at which so much time lies between it and the data."""
        return self.end - age if self.backward else age


class AbstractDomain(eqx.Module):
    """A bounded open set of R^d.

    `contains` and `distance` take one point; the samplers return `(n, d)` points.

    A domain of one's own writes the eight abstract members. Every other member has a default that
    holds for any bounded open set, or says that nothing is known; a domain that knows better overrides it.
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
    def inradius(self) -> float:
        """The largest distance of a point to the boundary: the length by which steps are measured."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of the volume, which itself may under- or overflow.

        It has no default, because bounds need it from both sides: a volume that is too small would
        break the bound of Faber and Krahn, one that is too large the sums over cells of a rigorous bound.
        """

    @abstractmethod
    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """A positive lower bound for the distance of an inner point to the boundary; asymptotically
        exact at the boundary, zero on it, negative outside.
        """

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        """Uniform points inside, in a given precision (as `jax.random` takes it)."""

    @abstractmethod
    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        """Uniform points on the boundary, by surface area, in a given precision."""

    def contains(self, x: Float[Array, " d"]) -> Bool[Array, ""]:
        """Whether `x` lies inside (the boundary does not): where the distance is positive."""
        return self.distance(x) > 0

    @property
    def enclosing_ball(self) -> tuple[Numbers, Numbers]:
        """Centre and radius of a ball around the domain; by default the one around the enclosing box."""
        lower, upper = self.enclosing_box
        return self.centre, np.asarray(0.5 * np.linalg.norm(upper - lower))

    @property
    def volume(self) -> float:
        """The volume; zero or infinite where float64 cannot hold it (see `log_volume`)."""
        return math.exp(self.log_volume) if self.log_volume < 709 else math.inf

    @property
    def centre(self) -> Numbers:
        """The middle of the enclosing box."""
        lower, upper = self.enclosing_box
        return 0.5 * (lower + upper)

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        """A lower bound for the smallest Dirichlet eigenvalue of `-Lap`.

        By default the best of three: those of the enclosing box and ball, because a larger domain has
        a smaller eigenvalue, and that of the ball of equal volume, by Faber and Krahn.
        """
        radius = float(self.enclosing_ball[1])
        volume = volume_eigenvalue(self.dim, self.log_volume)
        return max(
            Eigenvalue(box_eigenvalue(*self.enclosing_box), "enclosing box"),
            Eigenvalue(ball_eigenvalue(self.dim, radius), "enclosing ball"),
            Eigenvalue(volume, "Faber-Krahn, ball of equal volume"),
        )

    @property
    def convex(self) -> bool:
        """Whether the domain is known to be convex."""
        return False

    @property
    def width(self) -> float:
        """An upper bound for the width of the domain across each of its tangent planes.

        In a convex domain, Brownian motion that starts at the distance `s` from the boundary leaves it
        after a mean time of at most `s width`: it leaves no later than the slab between the tangent
        plane at the nearest boundary point and a parallel plane on the far side. By default the
        diameter of the enclosing ball.
        """
        return 2.0 * float(self.enclosing_ball[1])

    @property
    def fills_box(self) -> bool:
        """Whether the domain is known to be the whole inside of its enclosing box.

        Boundary values are then carried inside from face to face, and each coordinate by itself is
        worth a bound of the exit time.
        """
        return False

    @property
    def round(self) -> Round | None:
        """Centre and radii of a domain that every rotation about its centre maps to itself."""
        return None

    @property
    def spatial(self) -> "AbstractDomain":
        """The domain in space: itself, or that of a domain in space and time."""
        return self

    @property
    def pivot(self) -> Numbers | None:
        """The point in space about which every rotation leaves the law of points as it is."""
        return None if self.round is None else self.round.centre

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        """Surfaces that make up the boundary, from which rays carry boundary values inside.

        Empty where the domain offers none; `lift` then refuses it, unless it fills its box.
        """
        return ()

    @property
    def frame_box(self) -> tuple[Numbers, Numbers]:
        """The box that networks scale to (-1, 1); by default the enclosing one."""
        return self.enclosing_box

    @property
    def is_whole_space(self) -> bool:
        """Whether the domain has no boundary: the whole space, which needs time and a start."""
        return False

    @property
    def follows_paths(self) -> bool:
        """Whether points are those of a diffusion's paths in the whole space, not uniform ones."""
        return False

    @property
    def times(self) -> Times | None:
        """The time interval of a domain in space and time, whose last coordinate is time."""
        return None

    @property
    def in_space(self) -> "AbstractDomain":
        """The domain in space at every instant; where there is no time, the domain itself."""
        return self

    @property
    def smooth_boundary(self) -> Fact | None:
        """Whether the boundary is smooth of every order, with the reason; None where nobody knows."""
        return None

    @property
    def sloped_eta(self) -> Fact | None:
        """Whether `eta` has a slope everywhere on the boundary, with the reason.

        A domain that answers vouches for `eta`: a formula that is smooth, positive inside and zero on
        the boundary. None where `eta` is to be judged by its values and its program.
        """
        return None

    def nodes(self, count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """`count` points inside the domain, `(count, d)`, and weights for means over it, of sum 1.

        On an interval (a convex domain of one dimension) the rule is that of Gauss and Legendre, exact
        for polynomials of degree `2 count - 1`. Elsewhere the points are those of `spread`.
        """
        if self.dim == 1 and self.convex:
            return gauss_legendre(*self.enclosing_box, count)
        return self.spread(count, seed), np.full(count, 1.0 / count)

    def spread(self, count: int, seed: int) -> np.ndarray:
        """`(count, d)` points that fill the domain evenly; by default random ones of its sampler."""
        with x64():
            return np.asarray(self.sample(key_from(seed), count), np.float64)

    def sample_layers(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """Points inside, more of them in layers where functions may be large, and their weights.

        The mean of `weight * g(point)` is the mean of `g` over the domain. By default the points are
        uniform, of weight 1.
        """
        points = self.sample(key, n, dtype)
        return points, jnp.ones((n,), points.dtype)


# Beyond, not even a point fits into memory many times over.
_MOST_DIMENSIONS = 10_000_000


def as_dimension(dim: Any) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        raise ValueError(f"A dimension is a whole number from 1 up, got {shown(dim)}.")
    return whole("A dimension", dim, least=1, most=_MOST_DIMENSIONS)


def as_positive(name: str, value: Any) -> np.ndarray:
    return real(name, value, above=0.0)


def as_lengths(name: str, value: Any) -> np.ndarray:
    lengths = reals(name, value, "a list of positive numbers, one a dimension")
    if lengths.ndim != 1 or lengths.size == 0 or not np.all(lengths > 0):
        raise ValueError(f"{name} must be a list of positive numbers, one a dimension.")
    return lengths


def as_point(name: str, value: Any, dim: int) -> np.ndarray:
    point = reals(name, value, f"a finite number or a list of {dim} of them")
    if point.shape not in ((), (1,), (dim,)):
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


@compiled
def drawn(domain: AbstractDomain, key: PRNGKeyArray, count: int) -> Float[Array, "n d"]:
    """Points inside, by a program of their own.

    Random numbers take longer to compile than what is mostly done with them: a program that draws and
    evaluates is compiled for every equation, this one once.
    """
    return domain.sample(key, count)


@compiled
def drawn_on_boundary(domain: AbstractDomain, key: PRNGKeyArray, count: int) -> Float[Array, "n d"]:
    """Points on the boundary, by a program of their own."""
    return domain.sample_boundary(key, count)
