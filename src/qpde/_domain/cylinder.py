"""Space-time as a domain: where an evolution equation holds, with the coordinates `z = (x, t)`."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import an_instance, flag, real
from .._field.base import AbstractField
from .._field.form import AbstractForm, without_time
from .._precision import Numbers
from .base import AbstractDomain, Fact, Times
from .eigenvalue import Eigenvalue
from .random import uniform


class Growing(AbstractField):
    """`eta(x) s / T`, where `s` is the time since the data: zero on the parabolic boundary."""

    factor: AbstractField
    end: Numbers
    backward: bool = eqx.field(static=True)

    def judged_by(self) -> None:
        """The domain below vouches for its `eta`, see `Cylinder.sloped_eta`."""
        return

    def _tau(self, z: Float[Array, " d"]) -> tuple[Array, Array]:
        """`s / T` and its derivative in `t`."""
        slope = jnp.asarray((-1.0 if self.backward else 1.0) / self.end, z.dtype)
        return (1.0 + slope * z[-1] if self.backward else slope * z[-1]), slope

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.factor.value(x[:-1]) * self._tau(x)[0]

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        tau, slope = self._tau(x)
        along = jnp.reshape(slope * self.factor.value(x[:-1]), (1,))
        return jnp.concatenate([tau * self.factor.grad(x[:-1]), along])

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        tau, slope = self._tau(x)
        inner, beside = without_time(form, x[:-1])
        mixed = 2.0 * slope * jnp.dot(beside, self.factor.grad(x[:-1]))
        return tau * self.factor.trace(x[:-1], inner) + mixed

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        tau, slope = self._tau(x)
        mixed = slope * self.factor.grad(x[:-1])
        whole = jnp.pad(tau * self.factor.hessian(x[:-1]), ((0, 1), (0, 1)))
        return whole.at[:-1, -1].set(mixed).at[-1, :-1].set(mixed)


class Cylinder(AbstractDomain):
    """`domain x (0, end]`, the space-time of an evolution problem, with the coordinates `(x, t)`.

        >>> Cylinder(Ball(10), 0.5)
        Cylinder(Ball(10), 0.5)

    Its boundary is the *parabolic* one: the side, and the slice `t = 0` on which initial data are given
    (`t = end` with `backward=True`, for terminal data). On the opposite slice nothing is given, and
    `eta = eta_domain(x) t / end` is not zero there. `Problem(..., time=end)` builds it.
    """

    base: AbstractDomain
    end: Numbers
    backward: bool = eqx.field(static=True)

    def __init__(self, domain: AbstractDomain, end: float, *, backward: bool = False):
        self.base = an_instance("domain", domain, AbstractDomain, "qpde.Ball(20)")
        if self.base.times is not None:
            raise ValueError("A cylinder stands on a domain in space, not on another cylinder.")
        self.end = real("time", end, above=0.0)
        self.backward = flag("backward", backward)

    def __repr__(self) -> str:
        back = ", backward=True" if self.backward else ""
        return f"Cylinder({self.base!r}, {self.end:g}{back})"

    @property
    def times(self) -> Times | None:
        return Times(self.end, self.backward)

    @property
    def in_space(self) -> AbstractDomain:
        return self.base

    @property
    def dim(self) -> int:
        return self.base.dim + 1

    @property
    def eta(self) -> AbstractField:
        return Growing(self.base.eta, self.end, self.backward)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        lower, upper = self.base.enclosing_box
        numpy: Any = np if isinstance(self.end, np.ndarray) else jnp  # inside a program
        return numpy.append(lower, 0.0), numpy.append(upper, self.end)

    @property
    def inradius(self) -> float:
        return min(self.base.inradius, float(self.end))

    @property
    def log_volume(self) -> float:
        return self.base.log_volume + math.log(self.end)

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        """Of the Laplacian in space, at every instant."""
        return self.base.first_eigenvalue

    @property
    def spatial(self) -> AbstractDomain:
        return self.base

    @property
    def pivot(self) -> Numbers | None:
        return self.base.pivot

    @property
    def smooth_boundary(self) -> Fact | None:
        return Fact(False, "a cylinder has an edge where its side meets the slice of the data")

    @property
    def sloped_eta(self) -> Fact | None:
        if self.base.sloped_eta is None:
            return None
        return Fact(
            False,
            "eta(x) t / T is smooth, positive inside and zero where data are given, but its slope is zero "
            "where the side meets the slice of the data",
        )

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """To the parabolic boundary; negative outside, also beyond the last slice."""
        age = self.end - x[-1] if self.backward else x[-1]
        near = jnp.minimum(self.base.distance(x[:-1]), age)
        return jnp.where(age <= self.end, near, self.end - age)

    def _instants(self, key: PRNGKeyArray, n: int, dtype: DTypeLike) -> Float[Array, "n 1"]:
        return self.end * uniform(key, (n, 1), dtype)

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        space, time = jr.split(key)
        x = self.base.sample(space, n, dtype)
        return jnp.concatenate([x, self._instants(time, n, x.dtype)], axis=1)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        """Every second point on the side, uniform there; the others on the slice of the data."""
        space, side, time = jr.split(key, 3)
        x, edge = self.base.sample(space, n, dtype), self.base.sample_boundary(side, n, dtype)
        on_side = (jnp.arange(n) % 2 == 0)[:, None]
        start = jnp.asarray(self.end if self.backward else 0.0 * self.end, x.dtype)
        t = jnp.where(on_side, self._instants(time, n, x.dtype), start)
        return jnp.concatenate([jnp.where(on_side, edge, x), t], axis=1)

    def sample_layers(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        space, time = jr.split(key)
        x, weights = self.base.sample_layers(space, n, dtype)
        return jnp.concatenate([x, self._instants(time, n, x.dtype)], axis=1), weights

    def spread(self, count: int, seed: int) -> np.ndarray:
        order = np.random.default_rng(seed).permutation(count)
        t = float(self.end) * (order + 0.5) / count
        return np.concatenate([self.base.spread(count, seed), t[:, None]], axis=1)
