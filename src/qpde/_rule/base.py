"""Rules: how one step moves the parameters.

A rule has `init(trial, key) -> state` and `step(trial, state, draw, clock) -> (trial, state, info)`. It is
the only place that maps over points. What the engine must know about a rule, the rule declares.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._problem.trial import Trial
from .batch import Draw
from .schedule import Clock


class Info(eqx.Module):
    """The numbers that a step saw at the parameters it started from."""

    loss: Float[Array, ""]  # mean (L Q)^2
    error: Float[Array, ""]  # what the rule makes small: mean psi(L Q)^2, or loss plus penalty
    active: Float[Array, ""]  # share of points that are not truncated
    gradient: Float[Array, ""]  # Euclidean norm of the direction


class AbstractRule(eqx.Module):
    """How one step moves the parameters.

    A rule of one's own is a subclass with `name`, `exact_boundary`, `init` and `step`:

        >>> class SignDescent(AbstractRule):
        ...     name, exact_boundary = "sign-descent", True
        ...
        ...     def init(self, trial, key):
        ...         return ()
        ...
        ...     def step(self, trial, state, draw, clock):
        ...         gradient, loss = draw.expect(lambda batch: ...)
        ...         return trial.with_network(...), state, Info(loss, loss, jnp.ones_like(loss), ...)

    **Declarations**

    - `name`: for reports and files.
    - `exact_boundary`: whether `Q = S eta + f` (True) or the network alone is trained.
    - `precision`, `default_steps`: of a run that names neither.
    - `block`: the number of steps after which Python looks at a run.
    - `whole_batch`: whether a step takes all its points in one batch (`draw.whole`).
    - `damped`: whether points beyond a truncation level give no direction, so that a run in which all are
      beyond is stuck.
    """

    name: eqx.AbstractClassVar[str]
    exact_boundary: eqx.AbstractClassVar[bool]
    precision: ClassVar[str] = "float32"
    default_steps: ClassVar[int] = 5_000
    block: ClassVar[int] = 100
    whole_batch: ClassVar[bool] = False

    @abstractmethod
    def init(self, trial: Trial, key: PRNGKeyArray) -> PyTree:
        """The state before the first step."""

    @abstractmethod
    def step(
        self, trial: Trial, state: PyTree, draw: Draw, clock: Clock
    ) -> tuple[Trial, PyTree, Info]:
        """One step, and what it saw at the parameters it started from."""

    @property
    def damped(self) -> bool:
        """Whether a run is stuck once every point is truncated."""
        return False

    def settled(self, state: PyTree) -> bool:
        """Whether the run has come to its end; the engine asks between blocks."""
        return False

    def boundary_loss(self, trial: Trial, edge: Float[Array, "n d"]) -> Float[Array, ""]:
        """What the rule makes small beside the mean of `(L Q)^2`, at boundary points; zero by default."""
        return jnp.zeros((), edge.dtype)

    def residuals(
        self, trial: Trial, points: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """`L Q` at held-out points twice: independent estimates where a rule makes such, else the same."""
        residual = jax.vmap(trial.residual)(points)
        return residual, residual

    def held_out_loss(
        self, residual: Float[Array, " n"], weights: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """What decides between iterates, from `L Q` at points that no step has seen: its mean square."""
        return jnp.mean(weights * residual * residual)

    def batch_factor(self, state: PyTree) -> int:
        """By how much the batch is multiplied in the next block; the engine asks between blocks."""
        return 1
