"""`Distance`: a network of the distance from a point, and of time where there is one.

    S(x, t) = N(|x - c|^2, t)

with a network `N` of two variables: fixed units that bend inside, as in `_network/ridge.py`. A problem that
looks the same in every direction from `c` has a solution of this kind, which two variables describe to many
digits in any dimension. With `q = |x - c|^2` and `y = x - c`,

    grad S = 2 N_q y,   a : Hess S = 2 N_q tr a + 4 N_qq y' a y     (a in space).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations
from .._arguments import real
from .._domain.base import AbstractDomain, drawn
from .._domain.box import Box
from .._field.base import SourcedField
from .._field.form import AbstractForm
from .._precision import Numbers
from ..activations import AbstractActivation
from .base import AbstractNetwork, Frame, Frozen, as_width, generator
from .ridge import RidgeField, spread_one, units

_POINTS = 2_048


class Distance(AbstractNetwork):
    """A network of the distance from the centre of the domain (the start in the whole space), and of time.

        >>> solve(zoo.absorbed_heat(10), network=Distance(256), rule=VariableProjection(), batch=2_000)

    For problems that look the same in every direction: of others it finds no solution.

    **Arguments**

    - `width`: the number of fixed units.
    - `scale`: the standard deviation of the units' weights, in coordinates of spread one.
    """

    width: int = eqx.field(static=True)
    scale: Numbers
    activation: AbstractActivation

    def __init__(self, width: int = 256, *, scale: float = 1.0, activation: Any = activations.tanh):
        self.width = as_width(width)
        self.scale = real("scale", scale, above=0.0)
        self.activation = activations.as_activation(activation)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "DistanceField":
        if domain.pivot is None:
            raise ValueError(
                f"Distance is for domains that look the same in every direction from a point, such as balls, "
                f"annuli and the whole space with one diffusion in all directions; got {domain!r}. Take "
                "qpde.Shallow(256) or qpde.MLP([64, 64])."
            )
        points = np.asarray(drawn(domain, jr.fold_in(key, 1), max(self.width, _POINTS)))
        field = DistanceField.empty(domain, self.width, points, activation=self.activation)
        return field.with_units(
            *units(generator(key), field.inner, field.y(points), float(self.scale))
        )


class DistanceField(SourcedField):
    """The network of `Distance` with its parameters; all derivatives are closed forms."""

    inner: RidgeField
    centre: Frozen  # in space
    in_time: bool = eqx.field(static=True)

    @classmethod
    def empty(
        cls,
        domain: AbstractDomain,
        width: int,
        points: np.ndarray,
        *,
        activation: AbstractActivation = activations.tanh,
    ) -> "DistanceField":
        """The network that is zero, for distances and times as those of the points."""
        in_time = domain.times is not None
        centre = np.asarray(domain.pivot, np.float64)
        small = _small(points, centre, in_time)
        box = Box(np.min(small, axis=0), np.max(small, axis=0))
        y = Frame.of(box, True).all(small)
        axes = np.linalg.eigh(np.cov(y, rowvar=False).reshape(box.dim, box.dim))[1]
        directions = Frozen(spread_one(axes, y - np.mean(y, axis=0)))
        inner = RidgeField.empty(box, width, directions, quadratic=True, activation=activation)
        return cls(inner, Frozen(centre), in_time)

    @property
    def width(self) -> int:
        """The number of units."""
        return self.inner.width

    @property
    def activation(self) -> AbstractActivation:
        """That of the units."""
        return self.inner.activation

    def y(self, points: np.ndarray) -> np.ndarray:
        """The coordinates of the inner network at points."""
        small = _small(points, np.asarray(self.centre.array), self.in_time)
        return self.inner.frame.all(small)

    def with_units(self, z: np.ndarray, b: np.ndarray) -> "DistanceField":
        """The same network with other units."""
        return eqx.tree_at(lambda f: f.inner, self, self.inner.with_units(z, b))

    def judged_by(self) -> Callable[..., Any] | None:
        return None if activations.known_smooth(self.activation) else self.value

    def output_layer(self) -> tuple[Any, ...]:
        return self.inner.output_layer()

    def at(self, x: Float[Array, " d"]) -> "DistanceAt":
        return DistanceAt(self, x)


def _small(points: np.ndarray, centre: np.ndarray, in_time: bool) -> np.ndarray:
    """`|x - c|^2`, and the time."""
    squares = np.sum((points[:, : centre.size] - centre) ** 2, axis=1, keepdims=True)
    return np.concatenate([squares, points[:, -1:]], axis=1) if in_time else squares


class DistanceAt:
    """A network of the distance at one point."""

    def __init__(self, field: DistanceField, x: Float[Array, " d"]):
        centre = field.centre.array
        y = x[: centre.size] - jnp.asarray(centre, x.dtype)
        small = jnp.sum(y * y, keepdims=True)
        self._rows = jnp.zeros((1 + field.in_time, x.size), x.dtype).at[0, : y.size].set(2.0 * y)
        self._bend = jnp.zeros_like(x).at[: y.size].set(2.0)  # the second derivatives of |y|^2
        if field.in_time:
            small = jnp.append(small, x[-1])
            self._rows = self._rows.at[1, -1].set(1.0)
        self._inner = field.inner.at(small)

    def value(self) -> Float[Array, ""]:
        return self._inner.value()

    def grad(self) -> Float[Array, " d"]:
        return self._inner.grad() @ self._rows

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        small = jax.vmap(form.apply)(self._rows) @ self._rows.T
        bent = jnp.dot(form.diagonal(self._bend), self._bend)
        return jnp.sum(self._inner.hessian() * small) + self._inner.grad()[0] * bent

    def hessian(self) -> Float[Array, "d d"]:
        whole = self._rows.T @ self._inner.hessian() @ self._rows
        return whole + self._inner.grad()[0] * jnp.diag(self._bend)
