"""Equations with a choice in them: what every one of them answers."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._field.evolution import EvolutionJet
from .._field.jet import Jet

# Other actions that the best one is compared with.
RIVALS = 64


class AbstractControl(eqx.Module):
    """A Hamilton-Jacobi-Bellman equation: `best over a of bracket(x, u, a) = 0`.

    It is an equation, a callable `(x, u)`, that also knows the choice. One of one's own, with the control
    eliminated by hand, has three members:

        >>> class Steered(AbstractControl):
        ...     def action(self, x, u):
        ...         return -0.5 * u.grad
        ...
        ...     def bracket(self, x, u, a):
        ...         return u.laplacian + jnp.dot(a, u.grad) + jnp.dot(a, a) - u.value
        ...
        ...     def __call__(self, x, u):
        ...         return u.laplacian - 0.25 * jnp.dot(u.grad, u.grad) - u.value
    """

    @abstractmethod
    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " m"]:
        """The best action at `x`, where the value is `u`."""

    @abstractmethod
    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " m"]) -> Float[Array, ""]:
        """What is optimised: affine in `u`, the equation of the policy that takes `a` at `x`."""

    @abstractmethod
    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        """The bracket at the best action."""

    @property
    def maximises(self) -> bool:
        """Whether the best action has the largest bracket; by default the smallest."""
        return False

    def rivals(self, a: Float[Array, " m"], key: PRNGKeyArray) -> Float[Array, "k m"]:
        """Other actions, with which a problem compares the best one when it is built.

        By default every action is allowed, and these are moved from it by all sizes.
        """
        sizes = 10.0 ** jnp.linspace(-3.0, 1.0, RIVALS)[:, None]
        size = 1.0 + jnp.max(jnp.abs(a))
        return a[None, :] + sizes * size * jr.normal(key, (RIVALS, a.size), a.dtype)

    def irregular(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        """Positive where there is no best action at a jet; zero by default."""
        return jnp.zeros((), x.dtype)

    def spreads(self, x: Float[Array, " d"]) -> bool:
        """Whether the bracket's second derivatives depend on the action; by default they may."""
        return True


class InTime(AbstractControl):
    """A control problem with a horizon, as an equation of the points `z = (x, t)` of space-time.

    `u_t + best of bracket = 0` with terminal data (`sign` 1), `best of bracket - u_t = 0` with initial ones
    (`sign` -1).
    """

    control: AbstractControl
    sign: float = eqx.field(static=True)

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " m"]:
        return self.control.action(x[:-1], EvolutionJet(u, x))

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " m"]) -> Float[Array, ""]:
        jet = EvolutionJet(u, x)
        return self.control.bracket(x[:-1], jet, a) + self.sign * jet.dt

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        jet = EvolutionJet(u, x)
        return self.control(x[:-1], jet) + self.sign * jet.dt

    @property
    def maximises(self) -> bool:
        return self.control.maximises

    def rivals(self, a: Float[Array, " m"], key: PRNGKeyArray) -> Float[Array, "k m"]:
        return self.control.rivals(a, key)

    def irregular(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return self.control.irregular(x[:-1], EvolutionJet(u, x))

    def spreads(self, x: Float[Array, " d"]) -> bool:
        return self.control.spreads(x[:-1])


class UnderPolicy(eqx.Module):
    """The linear equation of a fixed policy: its solution is what the policy costs."""

    control: AbstractControl
    policy: Callable[..., Any]

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return self.control.bracket(x, u, self.policy(x))
