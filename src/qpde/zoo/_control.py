"""Control: Hamilton-Jacobi-Bellman equations from the literature, the control eliminated by hand."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real
from .._boundary.lift import lift
from .._control.actions import FreeActions
from .._control.base import AbstractControl
from .._control.control import Control
from .._domain.base import as_dimension
from .._domain.box import Box
from .._domain.eta import others
from .._domain.round import Ball
from .._domain.space import Space
from .._field.base import AbstractField
from .._field.form import AbstractForm
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _CoupledValue(eqx.Module):
    """`size |x|^2 - coupling sum_i (y_i y_{i+1} + z_i z_{i+1})`, cyclic in the halves of `x = (y, z)`."""

    size: Numbers
    coupling: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        halves = x.reshape(2, -1)
        pairs = jnp.sum(halves * jnp.roll(halves, -1, axis=1))
        return self.size * jnp.sum(x * x) - self.coupling * pairs

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        halves = x.reshape(2, -1)
        near = jnp.roll(halves, -1, axis=1) + jnp.roll(halves, 1, axis=1)
        return 2.0 * self.size * x - self.coupling * near.ravel()


class _VanDerPolEquation(AbstractControl):
    """`Lap u + b . grad u - |grad_z u|^2 / (4 effort) - discount u + w`, `b = (z, (1 - y^2) z - y)`.

    The running cost `w` is that for which the value `v` is known; all terms are written as differences
    to those of `v`.
    """

    exact: _CoupledValue
    effort: Numbers
    discount: Numbers

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " m"]:
        return -u.grad[x.size // 2 :] / (2.0 * self.effort)

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " m"]) -> Float[Array, ""]:
        optimal = self.exact.grad(x)[x.size // 2 :]
        running = self.effort * jnp.dot(a, a) + jnp.dot(a, u.grad[x.size // 2 :])
        return self._free(x, u) + running + jnp.dot(optimal, optimal) / (4.0 * self.effort)

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        steered, optimal = u.grad[x.size // 2 :], self.exact.grad(x)[x.size // 2 :]
        control = jnp.dot(steered, steered) - jnp.dot(optimal, optimal)
        return self._free(x, u) - control / (4.0 * self.effort)

    def _free(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        """The terms without the action."""
        y, z = x.reshape(2, -1)
        drift = jnp.concatenate([z, (1.0 - y * y) * z - y])
        return (
            u.laplacian
            - 2.0 * self.exact.size * x.size
            + jnp.dot(drift, u.grad - self.exact.grad(x))
            - self.discount * (u.value - self.exact(x))
        )


@recorded
def van_der_pol(
    dim: int = 20,
    *,
    size: float = 1.0,
    coupling: float = 0.1,
    effort: float = 1.0,
    discount: float = 1.0,
) -> Problem:
    """Control of coupled stochastic Van der Pol oscillators, stopped at the unit sphere.

    With positions `y` and velocities `z`, `x = (y, z)`, `d = 2 n`, n >= 2,
    `Lap u + z . grad_y u + ((1 - y^2) z - y) . grad_z u + inf_a (effort |a|^2 + a . grad_z u) + w(x)
    - discount u = 0`; the infimum is `-|grad_z u|^2 / (4 effort)`. The running cost `w` makes
    `u = size |x|^2 - coupling sum_i (y_i y_{i+1} + z_i z_{i+1})` (cyclic) the value. The data are
    extended from boundary values only.

    Source: Zhou, Han and Lu, Actor-critic method for high dimensional static Hamilton-Jacobi-Bellman
    partial differential equations based on neural networks, SIAM J. Sci. Comput. 43 (2021).
    """
    if as_dimension(dim) < 4 or dim % 2:
        raise ValueError(f"van_der_pol is defined in even dimensions from 4 up, got {dim}.")
    numbers = {"size": size, "coupling": coupling, "effort": effort, "discount": discount}
    if not all(np.isfinite(number) for number in numbers.values()) or effort <= 0:
        raise ValueError(f"The settings must be finite and effort positive, got {numbers}.")
    exact = _CoupledValue(np.asarray(size, np.float64), np.asarray(coupling, np.float64))
    domain = Ball(dim)
    return Problem(
        domain=domain,
        equation=_VanDerPolEquation(
            exact, np.asarray(effort, np.float64), np.asarray(discount, np.float64)
        ),
        boundary=lift(exact, domain),
        exact=exact,
        name="van_der_pol",
    )


class _Bell(eqx.Module):
    """`exp(-|x|^2)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.exp(-jnp.sum(x * x))


class _BellEquation(AbstractControl):
    """See `control_bell`; the action is `x + a`, with which the drift is `x (x + a)`."""

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " d"]:
        p = self._slopes(x, u)
        return x - 0.5 * jnp.sign(p) * jnp.maximum(jnp.abs(p) - 1.0, 0.0)

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " d"]) -> Float[Array, ""]:
        price = jnp.abs(a - x) + jnp.square(a - x)
        return self._free(x, u) + jnp.dot(a, self._slopes(x, u)) + jnp.sum(price)

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        p = self._slopes(x, u)
        control = jnp.sum(jnp.square(jnp.maximum(jnp.abs(p) - 1.0, 0.0)))
        return self._free(x, u) + jnp.dot(x, p) - 0.25 * control

    def _slopes(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " d"]:
        return x * (u.grad + 2.0 * jnp.exp(-jnp.sum(x * x)) * x)

    def _free(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        """The terms without the action."""
        s = jnp.sum(x * x)
        v = jnp.exp(-s)
        second = u.laplacian - (4.0 * s - 2.0 * x.size) * v
        return 0.5 * second - (u.value - v)


@recorded
def control_bell(dim: int = 10) -> Problem:
    """A controlled diffusion in the unit ball with a control a coordinate and a price on using it.

    With `v = exp(-|x|^2)` and `p_i = x_i d_i(u - v)`,
    `1/2 Lap(u - v) - (u - v) + sum_i (x_i p_i + inf_a (a p_i + |a| + a^2)) = 0`, `u = 1/e` on the sphere;
    the infimum is `-max(|p_i| - 1, 0)^2 / 4`. The value is `v`.

    Source: Cohen, Hebner, Jiang and Sirignano, Neural actor-critic methods for Hamilton-Jacobi-Bellman
    PDEs (2025), problem 1.
    """
    return Problem(
        domain=Ball(dim),
        equation=_BellEquation(),
        boundary=math.exp(-1.0),
        exact=_Bell(),
        name="control_bell",
    )


class _SinesValue(eqx.Module):
    """`1 + |x|^2 prod sin(pi x_i)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return 1.0 + jnp.sum(x * x) * jnp.prod(jnp.sin(math.pi * x))


class _SinesEquation(AbstractControl):
    """See `control_sines`; the action is `b + a`, with which the drift is `(b + a) x`."""

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " 1"]:
        return jnp.reshape(self._optimal(x) - 0.5 * self._parts(x, u)[1], (1,))

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " 1"]) -> Float[Array, ""]:
        free, p = self._parts(x, u)
        return free + a[0] * p + jnp.square(a[0] - self._optimal(x))

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        free, p = self._parts(x, u)
        return free + self._optimal(x) * p - 0.25 * p * p

    def _optimal(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return x[0] * jnp.sin(math.pi * x[2]) + x[1]

    def _parts(self, x: Float[Array, " d"], u: Jet) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The terms without the action, and `p`."""
        s, sines = jnp.sum(x * x), jnp.sin(math.pi * x)
        product = jnp.prod(sines)
        slope = math.pi * jnp.cos(math.pi * x) * others(sines)  # the gradient of the product
        along = 2.0 * s * product + s * jnp.dot(x, slope)
        bend = 2.0 * x.size * product + 4.0 * jnp.dot(x, slope) - x.size * math.pi**2 * s * product
        return 0.5 * (u.laplacian - bend) - (u.value - 1.0 - s * product), u.along(x) - along


@recorded
def control_sines(dim: int = 10) -> Problem:
    """A controlled diffusion in a box whose value oscillates.

    With `v = 1 + |x|^2 prod sin(pi x_i)`, `p = x . grad(u - v)` and `b = x_1 sin(pi x_3) + x_2`,
    `1/2 Lap(u - v) - (u - v) + b p + inf_a (a p + a^2) = 0` in (-1, 1)^d, `u = 1` on the boundary; the
    infimum is `-p^2 / 4`. The value is `v`. For d >= 3.

    Source: Cohen, Hebner, Jiang and Sirignano, Neural actor-critic methods for Hamilton-Jacobi-Bellman
    PDEs (2025), problem 5.
    """
    if as_dimension(dim) < 3:
        raise ValueError(f"control_sines is defined from dimension 3 up, got {dim}.")
    return Problem(
        domain=Box(-1.0, 1.0, dim=dim),
        equation=_SinesEquation(),
        boundary=1.0,
        exact=_SinesValue(),
        name="control_sines",
    )


# Half the number of nodes for a normal variable, how far apart they are, and what is added to a time under a
# root. The trapezoidal rule converges faster than any power, which Gauss's does not near these bumps.
_NODES, _APART, _TINY = 160, 0.06, 1e-30


def _bumpy(y: Array) -> Array:
    return jnp.sin(y - 0.5 * math.pi) + jnp.sin(1.0 / (0.3 / math.pi + y * y))


class _MeanOfBumps(AbstractField):
    """`mean_i h(x_i - 1)`, `h(y) = sin(y - pi/2) + sin(1 / (0.3/pi + y^2))`."""

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.mean(_bumpy(x - 1.0))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.vmap(jax.grad(_bumpy))(x - 1.0) / x.size

    def _bent(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.vmap(jax.grad(jax.grad(_bumpy)))(x - 1.0) / x.size

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return jnp.dot(jnp.broadcast_to(form.diagonal(x), x.shape), self._bent(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jnp.diag(self._bent(x))


class _MeanOfBumpsValue(eqx.Module):
    """`-sum_i log E exp(-h(x_i + s - 1 + noise sqrt(2 s) N) / d)`, `s` the time that is left."""

    noise: Numbers
    time: Numbers

    def __call__(self, x: Float[Array, " d"], t: Array) -> Float[Array, ""]:
        nodes = _APART * np.arange(-_NODES, _NODES + 1.0)
        weights = np.exp(-0.5 * nodes**2)
        s = self.time - t
        spread = self.noise * jnp.sqrt(2.0 * s + _TINY)
        y = (x + s - 1.0)[:, None] + spread * jnp.asarray(nodes, x.dtype)[None, :]
        weights = jnp.asarray(weights / np.sum(weights), x.dtype)
        return -jnp.sum(jnp.log(jnp.exp(-_bumpy(y) / x.size) @ weights))


def _steered(x: Float[Array, " d"], a: Float[Array, " d"]) -> Float[Array, " d"]:
    return 1.0 + 2.0 * a


class _Effort(eqx.Module):
    """`|a|^2 / noise^2`."""

    noise: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(a, a) / jnp.asarray(self.noise, x.dtype) ** 2


@recorded
def steered_bumps(
    dim: int = 10, *, noise: float = 0.2, time: float = 1.0, place: float = 0.0
) -> Problem:
    """A control problem with a horizon whose cost at the end has many bumps.

    `dX = (1 + 2 a) dt + sqrt(2) noise dW` from `place (1, ..., 1)`, on the diagonal; running cost
    `|a|^2 / noise^2`, at the end `mean_i h(X_i - 1)`, `h(y) = sin(y - pi/2) + sin(1 / (0.3/pi + y^2))`.
    The best action is `-noise^2 grad u`, so that `u_t + sum u_i + noise^2 Lap u - noise^2 |grad u|^2 = 0`,
    and `u = -sum_i log E exp(-h(x_i + s - 1 + noise sqrt(2 s) N) / d)`, `s` the time that is left: an
    integral in one dimension.

    Source: the second and third problem of Cai, Fang, Zhang and Zhou, DF-MartNet (noise 0.2 and 0.1).
    """
    spread = float(real("noise", noise, least=0.05, most=1.0))
    end, where = float(real("time", time, above=0.0)), float(real("place", place))
    control = Control(
        actions=FreeActions(as_dimension(dim)),
        drift=_steered,
        sigma=math.sqrt(2.0) * spread,
        cost=_Effort(np.asarray(spread)),
    )
    return Problem(
        Space(dim, start=where),
        control,
        time=end,
        terminal=_MeanOfBumps(),
        exact=_MeanOfBumpsValue(np.asarray(spread), np.asarray(end)),
        name="steered_bumps",
    )
