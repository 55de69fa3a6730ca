"""Rules: how one step moves the parameters. Q-learning, deep Galerkin and penalty side by side.

A rule has `init(trial, key) -> state` and `step(trial, state, draw, clock) -> (trial, state, info)`. It is
the only place that maps over points.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._arguments import Nothing, an_instance, flag, no_others, real, shown
from .._network.base import trainable
from .._network.shallow import ShallowField
from .._precision import Numbers
from .._problem.trial import Trial
from .base import AbstractRule, Info
from .batch import Batch, Draw
from .estimates import as_draws, check_network, estimated, held_out
from .schedule import AbstractSchedule, Clock, Cosine, Fixed, as_schedule

# One optimiser object for the whole process: its functions are compared by identity, so every run
# that uses it shares one compiled step. Its rate 1 is multiplied by the rule's schedule.
ADAM = optax.adam(1.0)


class Flow(eqx.Module):
    """The plain flow of the theory as an optimiser: `theta <- theta - alpha N^(2 beta - 1) G`.

    It takes the place of an Optax optimiser, `QLearning(optimiser=Flow(1.0))`, and reads the width
    and `beta` from the `Shallow` network.
    """

    alpha: Numbers

    def __init__(self, alpha: Any):
        self.alpha = real("alpha", alpha, above=0.0)

    def init(self, params: PyTree) -> tuple[()]:
        return ()

    def update(
        self, updates: PyTree, state: tuple[()], params: PyTree = None, *, network: Any, **_: Any
    ) -> tuple[PyTree, tuple[()]]:
        if not isinstance(network, ShallowField):
            raise ValueError("qpde.Flow is defined for the Shallow network, which has N and beta.")
        rate = self.alpha * float(network.width) ** (2.0 * network.beta.array - 1.0)
        return jax.tree.map(lambda g: (-rate * g).astype(g.dtype), updates), state


class Truncation(eqx.Module):
    """The paper's smooth truncation of `L Q` (its Definition of psi^N).

    `psi(r) = r` up to the level `K`, then `sign(r) (K + w sqrt(pi)/2 erf((|r| - K) / w))`, with `w = 1` in
    the paper. The step uses `psi psi'` (`damped=True`, the paper) or `psi` (`damped=False`). `psi psi'`
    vanishes for `|r| > K + 3 w`: under Adam such runs end with every point truncated.

    With `uniform=True` the width of the bend is the level, `w = K`: `psi psi'` is then Lipschitz with the
    constant 1.17 whatever the width of the network, as the paper's assumption asks for and its example does
    not keep (its constant grows like `0.86 K`).

    `level` defaults to `N^((1 - beta)/4)` of the `Shallow` network.
    """

    level: Numbers | None
    damped: bool = eqx.field(static=True)
    uniform: bool = eqx.field(static=True)

    def __init__(self, level: float | None = None, *, damped: bool = True, uniform: bool = False):
        if level is not None and not real("level", level) >= 1:
            raise ValueError(
                f"The truncation level must be at least 1, got {level}: below, psi exceeds twice "
                "its level."
            )
        self.level = None if level is None else np.asarray(level, np.float64)
        self.damped, self.uniform = flag("damped", damped), flag("uniform", uniform)

    def level_for(self, trial: Trial) -> Any:
        """`K` for a given network."""
        if self.level is not None:
            return jnp.asarray(self.level)
        network = trial.network
        if not isinstance(network, ShallowField):
            raise ValueError("Truncation(level=K) needs a level for a network without beta.")
        return jnp.asarray(float(network.width) ** (0.25 * (1.0 - network.beta.array)))

    def psi(self, r: Float[Array, "*s"], level: Any) -> Float[Array, "*s"]:
        """The truncated residual."""
        width = self._width(level)
        beyond = jnp.maximum(jnp.abs(r) - level, 0.0) / width
        tail = jnp.sign(r) * (level + 0.5 * math.sqrt(math.pi) * width * jax.lax.erf(beyond))
        return jnp.where(beyond > 0, tail, r)

    def force(self, r: Float[Array, "*s"], level: Any) -> Float[Array, "*s"]:
        """What multiplies the gradient of `Q` in the step: `psi psi'` or `psi`."""
        if not self.damped:
            return self.psi(r, level)
        beyond = jnp.maximum(jnp.abs(r) - level, 0.0) / self._width(level)
        return self.psi(r, level) * jnp.exp(-beyond * beyond)

    def _width(self, level: Any) -> Any:
        """Over how many units `psi` bends."""
        return level if self.uniform else 1.0


class _State(eqx.Module):
    """The optimiser's state, and the truncation level where there is one."""

    optimiser: PyTree
    level: Any = None


class QLearning(AbstractRule):
    """The method: move along `E[ F(L Q) grad_theta Q ]`, `L Q` being a number (Algorithm 1).

    Only `Q` is differentiated in the parameters, so a step costs one evaluation of `L Q` and one
    backward pass of `Q`.

    **Arguments**

    - `rate`: learning rate, a number or a schedule. It multiplies the optimiser's update.
    - `optimiser`: any Optax optimiser that needs the gradient only, with its own rate (`rate` then
      multiplies it and is 1 by default), or `qpde.Flow`.
    - `truncation`: off by default.
    - `draws`: for `MLP` and networks of one's own in thousands of dimensions, where the exact Laplacian costs
      `d` directions. So many coordinates, an even number such as 16, are drawn at every point instead; the
      direction stays right on average (see `_field/sampled.py`). `L Q` at the end is exact.
    """

    optimiser: Any
    rate: AbstractSchedule
    truncation: Truncation | None
    draws: int | None = eqx.field(static=True)
    exact_boundary = True
    name = "q-learning"

    def __init__(
        self,
        rate: Any = None,
        *,
        optimiser: Any = None,
        truncation: Truncation | None = None,
        draws: int | None = None,
        **unknown: Nothing,
    ):
        no_others("QLearning", unknown, "rate, optimiser, truncation and draws")
        self.optimiser, self.rate = _optimiser(optimiser, rate)
        if truncation is not None:
            an_instance("truncation", truncation, Truncation, "qpde.Truncation(3.0)")
        self.truncation, self.draws = truncation, as_draws(draws)
        if self.draws is not None and truncation is not None:
            raise ValueError(
                "draws and truncation do not go together: a truncated estimate of L Q is biased. Give one."
            )

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        check_network(trial, self.draws)
        level = None if self.truncation is None else self.truncation.level_for(trial)
        return _State(self.optimiser.init(trainable(trial.network)[0]), level)

    @property
    def damped(self) -> bool:
        return self.truncation is not None and self.truncation.damped

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        params, rest = trainable(trial.network)

        def forward(params: PyTree, batch: Batch) -> tuple[Array, tuple[Array, Array]]:
            moved = trial.with_network(eqx.combine(params, rest))
            if self.draws is None:
                value, residual = jax.vmap(moved.value_and_residual)(batch.points)
                return value, (residual, residual * residual)
            value, first, second = estimated(moved, batch, self.draws)
            return value, (0.5 * (first + second), first * second)

        def part(batch: Batch) -> tuple[PyTree, Any]:
            # `L Q` rides along as an auxiliary output: computed with Q, never differentiated.
            _, pullback, (residual, square) = jax.vjp(
                lambda p: forward(p, batch), params, has_aux=True
            )
            psi, force, inside = residual, residual, jnp.ones_like(residual)
            if self.truncation is not None:
                psi = self.truncation.psi(residual, state.level)
                force = self.truncation.force(residual, state.level)
                inside = (jnp.abs(residual) <= state.level).astype(residual.dtype)
            # The direction is E[F(L Q) grad(-Q)]: -Q, because theta moves against it.
            (gradient,) = pullback(-batch.weights * force)
            error = square if self.truncation is None else psi * psi
            means = jnp.stack([square, error]) @ batch.weights
            return gradient, (*means, jnp.dot(inside, batch.equal))

        gradient, (loss, error, active) = draw.expect(part)
        return _descend(self, trial, state, gradient, clock, loss, error, active)

    def residuals(
        self, trial: Trial, points: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if self.draws is None:
            return super().residuals(trial, points)
        return held_out(trial, points, self.draws)


class DeepGalerkin(AbstractRule):
    """The baseline: descend the gradient of `E[(L Q)^2]`, taken through `L`, on `Q = S eta + f`.

    `draws` is as in `QLearning`: the square is then a product of two independent estimates.
    """

    optimiser: Any
    rate: AbstractSchedule
    draws: int | None = eqx.field(static=True)
    exact_boundary = True
    name = "deep-galerkin"

    def __init__(
        self,
        rate: Any = None,
        *,
        optimiser: Any = None,
        draws: int | None = None,
        **unknown: Nothing,
    ):
        no_others("DeepGalerkin", unknown, "rate, optimiser and draws")
        self.optimiser, self.rate = _optimiser(optimiser, rate)
        self.draws = as_draws(draws)

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        check_network(trial, self.draws)
        return _State(self.optimiser.init(trainable(trial.network)[0]))

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        return _descend_loss(self, trial, state, draw, clock, lambda trial, batch: 0.0)

    def residuals(
        self, trial: Trial, points: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if self.draws is None:
            return super().residuals(trial, points)
        return held_out(trial, points, self.draws)


class Penalty(AbstractRule):
    """The PINN baseline: a bare network, `E[(L S)^2] + weight E_boundary[(S - f)^2]`.

    One boundary point is drawn for every four inside.
    """

    weight: Numbers
    optimiser: Any
    rate: AbstractSchedule
    exact_boundary = False
    name = "penalty"

    def __init__(
        self, weight: float = 100.0, *, rate: Any = None, optimiser: Any = None, **unknown: Nothing
    ):
        no_others("Penalty", unknown, "weight, rate and optimiser")
        self.weight = real("The penalty's weight", weight, above=0.0)
        self.optimiser, self.rate = _optimiser(optimiser, rate)

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        return _State(self.optimiser.init(trainable(trial.network)[0]))

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        def boundary(trial: Trial, batch: Batch) -> Float[Array, ""]:
            edge = draw.measure.domain.sample_boundary(batch.key, -(-draw.chunk // 4), draw.dtype)
            return self.boundary_loss(trial, edge)

        return _descend_loss(self, trial, state, draw, clock, boundary)

    def boundary_loss(self, trial: Trial, edge: Float[Array, "n d"]) -> Float[Array, ""]:
        gap = jax.vmap(trial.value)(edge) - jax.vmap(trial.boundary.value)(edge)
        return self.weight * jnp.mean(gap * gap)


def _optimiser(optimiser: Any, rate: Any) -> tuple[Any, AbstractSchedule]:
    """The optimiser and what multiplies its update; Adam, falling from 0.1 to 0, by default."""
    if optimiser is None:
        return ADAM, Cosine(0.1, 0.0) if rate is None else as_schedule(rate)
    if inspect.isclass(optimiser) or not all(hasattr(optimiser, n) for n in ("init", "update")):
        raise ValueError(
            "optimiser must be an Optax optimiser such as optax.adam(0.01), or qpde.Flow(1.0), got "
            f"{shown(optimiser)}."
        )
    if isinstance(optimiser, optax.GradientTransformationExtraArgs) and _searches(optimiser):
        raise ValueError(
            "This optimiser needs the value of the loss while it searches along a line (optax.lbfgs and "
            "its like); a rule gives it the gradient only. Use one that needs the gradient only, such as "
            "optax.adam(0.01), or a second-order rule: rule=qpde.GaussNewton()."
        )
    return optimiser, Fixed(1.0) if rate is None else as_schedule(rate)


def _searches(optimiser: Any) -> bool:
    """Whether an optimiser of Optax asks for more than the gradient."""
    try:
        # Abstractly: nothing is compiled.
        jax.eval_shape(lambda p: optimiser.update(p, optimiser.init(p), p), np.zeros(1, np.float32))
    except (TypeError, ValueError):
        return True
    return False


def _descend_loss(
    rule: Any,
    trial: Trial,
    state: _State,
    draw: Draw,
    clock: Clock,
    extra: Callable[[Trial, Batch], Any],
) -> tuple[Trial, _State, Info]:
    """One step down the gradient of `E[(L Q)^2] + extra`."""
    params, rest = trainable(trial.network)

    def part(batch: Batch) -> tuple[PyTree, Any, Any]:
        def objective(params: PyTree) -> tuple[Any, Any]:
            moved = trial.with_network(eqx.combine(params, rest))
            if getattr(rule, "draws", None) is None:
                first = second = jax.vmap(moved.residual)(batch.points)
            else:
                _, first, second = estimated(moved, batch, rule.draws)
            loss = jnp.dot(batch.weights, first * second)
            return loss + jnp.sum(batch.equal) * extra(moved, batch), loss

        (total, loss), gradient = jax.value_and_grad(objective, has_aux=True)(params)
        return gradient, total, loss

    gradient, total, loss = draw.expect(part)
    return _descend(rule, trial, state, gradient, clock, loss, total, jnp.ones_like(loss))


def _descend(
    rule: Any,
    trial: Trial,
    state: _State,
    gradient: PyTree,
    clock: Clock,
    loss: Array,
    error: Array,
    active: Array,
) -> tuple[Trial, _State, Info]:
    """Let the optimiser move the parameters against `gradient`."""
    params, rest = trainable(trial.network)
    extra = {"network": trial.network} if isinstance(rule.optimiser, Flow) else {}
    updates, optimiser_state = rule.optimiser.update(gradient, state.optimiser, params, **extra)
    rate = rule.rate(clock)
    params = jax.tree.map(lambda p, u: p + (rate * u).astype(p.dtype), params, updates)
    moved = trial.with_network(eqx.combine(params, rest))
    info = Info(loss, error, active, optax.tree.norm(gradient))
    return moved, _State(optimiser_state, state.level), info
