"""Actor and critic: a network for the value, another one for the actions, both by first-order steps.

The critic `Q` takes Q-learning steps for the equation of the actor's policy `a(x)`, along
`E[bracket(x, Q, a(x)) grad_theta Q]`; the actor descends `E[bracket(x, Q, a(x))]` (ascends, where a reward is
maximised) in its own parameters, `Q` held fixed. No best action is ever computed: this is for actions without
a closed form. `solution.policy` searches for the best action of the critic all the same.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._arguments import whole
from .._control.actions import BoxActions, FiniteActions
from .._control.base import UnderPolicy
from .._control.control import Control
from .._field.jet import Jet
from .._network.base import Frame, trainable
from .._problem.trial import Trial
from .._rule.base import AbstractRule, Info
from .._rule.batch import Batch, Draw
from .._rule.first_order import ADAM
from .._rule.schedule import AbstractSchedule, Clock, Cosine, as_schedule


class Actor(eqx.Module):
    """A hidden layer from a point to an action, squashed into the box of actions where there is one."""

    inner: Float[Array, "d w"]
    bias: Float[Array, " w"]
    outer: Float[Array, "w m"]
    offset: Float[Array, " m"]

    @classmethod
    def drawn(cls, dim: int, width: int, count: int, key: PRNGKeyArray, dtype: Any) -> "Actor":
        """Random hidden weights; no action, or the middle of the box, to begin with."""
        first, second = jax.random.split(key)
        inner = jax.random.normal(first, (dim, width), dtype) / jnp.sqrt(jnp.asarray(dim, dtype))
        bias = jax.random.normal(second, (width,), dtype)
        return cls(inner, bias, jnp.zeros((width, count), dtype), jnp.zeros(count, dtype))

    def __call__(self, y: Float[Array, " d"]) -> Float[Array, " m"]:
        return jnp.tanh(y @ self.inner + self.bias) @ self.outer + self.offset


class _Policy(eqx.Module):
    """The actor as a policy."""

    actor: Actor
    frame: Frame
    control: Control

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " m"]:
        raw, actions = self.actor(self.frame(x)), self.control.actions
        if not isinstance(actions, BoxActions):
            return raw
        low, high = jnp.asarray(actions.low, raw.dtype), jnp.asarray(actions.high, raw.dtype)
        return low + (high - low) * jax.nn.sigmoid(raw)


class _State(eqx.Module):
    """The actor, and both optimisers' states."""

    actor: Actor
    critic: PyTree
    optimiser: PyTree


class ActorCritic(AbstractRule):
    """Q-learning for the value, gradient steps on the Hamiltonian for a network of actions.

        >>> solve(problem, rule=ActorCritic(0.01), steps=5_000)

    For a `qpde.Control` with free actions or a box of them, and a network with a frame (`Shallow`, `MLP`).

    **Arguments**

    - `rate`, `actor_rate`: learning rates of Adam, numbers or schedules.
    - `width`: hidden units of the actor.
    """

    rate: AbstractSchedule
    actor_rate: AbstractSchedule
    width: int = eqx.field(static=True)
    exact_boundary = True
    name = "actor-critic"

    def __init__(self, rate: Any = None, *, actor_rate: Any = None, width: int = 64):
        self.rate = Cosine(0.01, 0.0) if rate is None else as_schedule(rate)
        self.actor_rate = Cosine(0.01, 0.0) if actor_rate is None else as_schedule(actor_rate)
        self.width = whole("width", width, least=1, most=1_000_000)

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        control, frame = trial.equation, getattr(trial.network, "frame", None)
        if not isinstance(control, Control) or isinstance(control.actions, FiniteActions):
            raise ValueError(
                "The rule actor-critic is for a stationary qpde.Control with FreeActions or BoxActions; of "
                "finitely many actions the best is found by trying, and with a horizon it is searched for at "
                "every point: rule=qpde.QLearning()."
            )
        if not isinstance(frame, Frame):
            raise ValueError("The rule actor-critic needs a network of qpde: Shallow or MLP.")
        params = trainable(trial.network)[0]
        dtype = jax.tree.leaves(params)[0].dtype
        dim = frame.centre.array.size
        actor = Actor.drawn(dim, self.width, control.actions.count, key, dtype)
        return _State(actor, ADAM.init(params), ADAM.init(actor))  # pyright: ignore

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        params, rest = trainable(trial.network)
        control: Any = trial.equation
        frame: Any = trial.network.frame  # pyright: ignore[reportAttributeAccessIssue]
        sign = -1.0 if control.maximises else 1.0

        def policy(actor: Actor) -> _Policy:
            return _Policy(actor, frame, control)

        fixed = eqx.tree_at(lambda t: t.equation, trial, UnderPolicy(control, policy(state.actor)))

        def part(batch: Batch) -> tuple[PyTree, PyTree, Array]:
            def values(params: PyTree) -> tuple[Array, Array]:
                moved = fixed.with_network(eqx.combine(params, rest))
                return jax.vmap(moved.value_and_residual)(batch.points)

            def height(actor: Actor) -> Array:
                chosen = policy(actor)

                def one(x: Array) -> Array:
                    jet: Jet = trial.jet(x)
                    return sign * control.bracket(x, jet, chosen(x))

                return jnp.dot(batch.weights, jax.vmap(one)(batch.points))

            _, pullback, residual = jax.vjp(values, params, has_aux=True)
            (critic,) = pullback(-batch.weights * residual)
            own = jax.vmap(trial.residual)(batch.points)
            return critic, jax.grad(height)(state.actor), jnp.dot(batch.weights, own * own)

        critic, actor, loss = draw.expect(part)
        updates, first = ADAM.update(critic, state.critic, params)  # pyright: ignore
        moves, second = ADAM.update(actor, state.optimiser, state.actor)  # pyright: ignore
        rates = self.rate(clock), self.actor_rate(clock)
        params = jax.tree.map(lambda p, u: p + (rates[0] * u).astype(p.dtype), params, updates)
        acting = jax.tree.map(lambda p, u: p + (rates[1] * u).astype(p.dtype), state.actor, moves)
        moved = trial.with_network(eqx.combine(params, rest))
        info = Info(loss, loss, jnp.ones_like(loss), optax.tree.norm(critic))
        return moved, _State(acting, first, second), info
