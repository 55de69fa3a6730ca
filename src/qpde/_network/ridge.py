"""`Ridge`: many fixed units that look along a few trained directions.

    S(y) = sum_j c_j sigma(z_j . t + b_j) + a_0 + a_1 . y + y' B y,   t = A' y,

with `z` and `b` drawn once and kept, so that only the directions `A` and the coefficients are trained: the
latter by least squares, because `S` is linear in them (`VariableProjection`). With `A = I` there is nothing
but least squares. A unit bends where `z . t + b = 0`; with `b = -z . t_0`, `t_0` of a random point of the
domain, all of them bend inside.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations
from .._arguments import flag, real, reals, shown, whole
from .._domain.base import AbstractDomain, drawn
from .._domain.grade import Grade
from .._field.base import SourcedField
from .._field.form import AbstractForm
from .._precision import Numbers
from ..activations import AbstractActivation
from .base import AbstractNetwork, Frame, Frozen, GradedFrame, as_width, generator


class Ridge(AbstractNetwork):
    """A layer of `width` fixed random units over `rank` trained directions (all axes, fixed, by default).

        >>> Ridge(512, scale=1.0)            # two or three dimensions: least squares
        >>> Ridge(256, rank=2, scale=2.0)    # a function of two unknown directions in many dimensions

    **Arguments**

    - `scale`: the standard deviation of the units' weights, in coordinates `t` of spread one; the larger,
      the finer what the units can follow.
    - `quadratic`: a full quadratic form beside the units, instead of a multiple of `|y|^2`.
    - `ratio`: on a box, how many times as large the root of the diffusion along an axis is at its upper end
      as at its lower one, a number an axis. Units are then as much finer where there is less diffusion; for
      prices, whose diffusion is proportional to their squares, they look along logarithms.
    """

    width: int = eqx.field(static=True)
    rank: int | None = eqx.field(static=True)
    activation: AbstractActivation
    scale: Numbers
    quadratic: bool = eqx.field(static=True)
    ratio: Numbers | None

    def __init__(
        self,
        width: int = 256,
        *,
        rank: int | None = None,
        scale: float = 1.0,
        quadratic: bool = False,
        ratio: Any = None,
        activation: Any = activations.tanh,
    ):
        self.width = as_width(width)
        self.rank = None if rank is None else whole("rank", rank, least=1)
        self.scale = real("scale", scale, above=0.0)
        self.quadratic = flag("quadratic", quadratic)
        self.ratio = None if ratio is None else np.atleast_1d(reals("ratio", ratio))
        if self.ratio is not None and np.min(self.ratio, initial=np.inf) <= 0:
            raise ValueError(f"ratio must be positive numbers, one an axis, got {shown(ratio)}.")
        self.activation = activations.as_activation(activation)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "RidgeField":
        grade = None if self.ratio is None else _graded(domain, self.ratio)
        frame = Frame.of(domain, True) if grade is None else GradedFrame(grade)
        points = np.asarray(drawn(domain, key, max(self.width, 512)))
        y = frame.all(points)
        if self.rank is None:
            directions: Any = Frozen(np.eye(domain.dim))
        else:
            if self.rank > domain.dim:
                raise ValueError(f"rank is at most the dimension, {domain.dim}, got {self.rank}.")
            random = generator(key).standard_normal((domain.dim, self.rank))
            directions = jnp.asarray(spread_one(np.linalg.qr(random)[0], y))
        field = RidgeField.empty(
            domain,
            self.width,
            directions,
            quadratic=self.quadratic,
            grade=grade,
            activation=self.activation,
        )
        return field.with_units(*units(generator(key), field, y, float(self.scale)))


def _graded(domain: AbstractDomain, ratio: np.ndarray) -> Grade:
    if not domain.fills_box or ratio.size != domain.dim:
        raise ValueError(
            f"ratio is for boxes and has a number an axis: {domain.dim} for {domain!r}, got {ratio.size}. "
            "Leave it out on other domains."
        )
    return Grade(*domain.enclosing_box, ratio)


def spread_one(directions: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The directions, each as long as makes the spread of `A' y` that of a uniform law on (-1, 1)."""
    spread = np.maximum(np.std(y @ directions, axis=0), 1e-300)
    return directions / (np.sqrt(3.0) * spread)


def units(
    rng: np.random.Generator, field: "RidgeField", y: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases of units that bend inside the domain, whose points in the frame `y` are."""
    rank, width = field.rank, field.width
    z = scale / np.sqrt(rank) * rng.standard_normal((rank, width))
    return z, -np.sum(z * (y[:width] @ np.asarray(field.directions)).T, axis=0)


class Quadratic(eqx.Module):
    """`a_0 + a_1 . y + y' B y`, with `B` symmetric, or a multiple of the identity where `curvature` is one
    number; otherwise that holds the upper triangle, off the diagonal twice the entries of `B`.
    """

    constant: Float[Array, ""]
    slope: Float[Array, " d"]
    curvature: Float[Array, "..."]

    @classmethod
    def zero(cls, dim: int, full: bool) -> "Quadratic":
        shape = (dim * (dim + 1) // 2,) if full else ()
        return cls(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(shape))

    def matrix(self) -> Float[Array, "d d"]:
        """`B`."""
        dim, b = self.slope.size, self.curvature
        if b.ndim == 0:
            return b * jnp.eye(dim, dtype=b.dtype)
        upper = jnp.zeros((dim, dim), b.dtype).at[np.triu_indices(dim)].set(b)
        return 0.5 * (upper + upper.T)

    def apply(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """`B y`."""
        return self.curvature * y if self.curvature.ndim == 0 else self.matrix() @ y


class RidgeField(SourcedField):
    """The network of `Ridge` with its parameters; all derivatives are closed forms."""

    c: Float[Array, " n"]
    a: Any  # the directions, (d, k): trained, or `Frozen`
    z: Frozen
    b: Frozen
    polynomial: Quadratic
    frame: Frame | GradedFrame
    activation: AbstractActivation

    @classmethod
    def empty(
        cls,
        domain: AbstractDomain,
        width: int,
        directions: Any,
        *,
        quadratic: bool,
        grade: Grade | None = None,
        activation: AbstractActivation = activations.tanh,
    ) -> "RidgeField":
        """The network that is zero, with units that are constant."""
        rank = (directions.array if isinstance(directions, Frozen) else directions).shape[1]
        return cls(
            c=jnp.zeros(width),
            a=directions,
            z=Frozen(np.zeros((rank, width))),
            b=Frozen(np.zeros(width)),
            polynomial=Quadratic.zero(domain.dim, quadratic),
            frame=Frame.of(domain, True) if grade is None else GradedFrame(grade),
            activation=activation,
        )

    @property
    def width(self) -> int:
        """The number of units."""
        return self.c.shape[0]

    @property
    def rank(self) -> int:
        """The number of directions."""
        return self.directions.shape[1]

    @property
    def directions(self) -> Any:
        """The directions, a column each, in the coordinates of the frame."""
        return self.a.array if isinstance(self.a, Frozen) else self.a

    def with_units(self, z: np.ndarray, b: np.ndarray) -> "RidgeField":
        """The same network with other units."""
        return eqx.tree_at(lambda f: (f.z, f.b), self, (Frozen(z), Frozen(b)))

    def judged_by(self) -> Callable[..., Any] | None:
        return None if activations.known_smooth(self.activation) else self.value

    def output_layer(self) -> tuple[Any, ...]:
        p = self.polynomial
        return self.c, p.constant, p.slope, p.curvature

    def at(self, x: Float[Array, " d"]) -> "RidgeAt":
        return RidgeAt(self, x)


class RidgeAt:
    """A ridge network at one point."""

    def __init__(self, field: RidgeField, x: Float[Array, " d"]):
        self._c, self._z, self._p = field.c, field.z.array, field.polynomial
        self._y, self._slope, self._bend = field.frame.derivatives(x)
        self._a = field.directions
        t = self._y @ self._a
        # Derivatives that nobody asks for are removed by the compiler.
        self._s, self._s1, self._s2 = field.activation.derivatives(t @ self._z + field.b.array, 2)

    def value(self) -> Float[Array, ""]:
        p, y = self._p, self._y
        polynomial = p.constant + jnp.dot(p.slope, y) + jnp.dot(y, p.apply(y))
        return jnp.dot(self._s, self._c) + polynomial

    def grad(self) -> Float[Array, " d"]:
        return self._slope * self._in_frame()

    def _in_frame(self) -> Float[Array, " d"]:
        """The gradient in the coordinates of the frame."""
        p = self._p
        hidden = self._a @ (self._z @ (self._c * self._s1))
        return hidden + p.slope + 2.0 * p.apply(self._y)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        slopes = self._a * self._slope[:, None]
        small = jax.vmap(form.apply, in_axes=1)(slopes) @ slopes  # A' form A
        total = jnp.dot(self._s2 * jnp.sum((small @ self._z) * self._z, axis=0), self._c)
        p = self._p
        if p.curvature.ndim == 0:
            diagonal = form.diagonal(self._y) * (self._slope * self._slope)
            total += 2.0 * p.curvature * jnp.sum(diagonal)
        else:
            total += 2.0 * form.contract(p.matrix() * jnp.outer(self._slope, self._slope))
        if self._bend is None:
            return total
        return total + jnp.dot(form.diagonal(self._y), self._bend * self._in_frame())

    def hessian(self) -> Float[Array, "d d"]:
        slopes = self._a * self._slope[:, None]
        inner = (self._z * (self._c * self._s2)[None, :]) @ self._z.T
        total = slopes @ inner @ slopes.T
        total += 2.0 * self._p.matrix() * jnp.outer(self._slope, self._slope)
        return total if self._bend is None else total + jnp.diag(self._bend * self._in_frame())
