"""Policy iteration: the equation of a fixed policy by Gauss-Newton, then a better policy, and so on.

A Hamilton-Jacobi-Bellman equation is `L u = best over a of bracket(x, u, a) = 0`. With the policy
`a_k(x)`, the best action for `Q_k`, fixed, it is linear: its solution `Q_{k+1}` is what the policy costs, and
the best actions for `Q_{k+1}` are better ones. A step of this rule is one of Gauss-Newton on the linear
equation. The policy is improved once the equation is solved as far as the policy is worth: when the mean
square of its residual is a small part of that of `L Q`, or after a few steps. The run ends when improvements
have stopped to change the policy.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._arguments import real, whole
from .._control.base import AbstractControl, UnderPolicy
from .._control.policy import Greedy
from .._network.base import trainable
from .._precision import Numbers
from .._problem.trial import Trial
from .._rule.base import AbstractRule, Info
from .._rule.batch import Draw
from .._rule.gauss_newton import GaussNewton, mean_square
from .._rule.schedule import Clock

# An evaluation has gone far enough when its residual has less than this part of the mean square of `L Q`.
_ENOUGH = 0.01


class _State(eqx.Module):
    """The state of Gauss-Newton, the network that the policy is of, the steps since it was improved, and by
    how much the last improvement changed it.
    """

    inner: PyTree
    policy: PyTree
    steps: Int[Array, ""]
    change: Float[Array, ""]


class PolicyIteration(AbstractRule):
    """Policy iteration for a `qpde.Control` problem: evaluation by Gauss-Newton, improvement, and again.

        >>> solve(zoo.lqr_diffusion(5), network=Shallow(128, beta=0.5), rule=PolicyIteration(), steps=40)

    Needs `precision="float64"`, its own default.

    **Arguments**

    - `evaluations`: the most Gauss-Newton steps for one policy.
    - `change`: the run ends when an improvement changes the actions by less than this part of them, in root
      mean square over the points of a step.
    """

    evaluations: int = eqx.field(static=True)
    change: Numbers
    inner: GaussNewton
    exact_boundary = True
    name = "policy-iteration"
    precision = "float64"
    default_steps = 50
    block = 1
    whole_batch = True

    def __init__(self, *, evaluations: int = 5, change: float = 1e-7):
        self.evaluations = whole("evaluations", evaluations, least=1, most=1_000)
        self.change = real("change", change, least=0.0)
        self.inner = GaussNewton()

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        if not isinstance(trial.equation, AbstractControl):
            raise ValueError(
                "Policy iteration is for control problems, whose equation is a qpde.Control; for others take "
                "rule=qpde.GaussNewton()."
            )
        params = trainable(trial.network)[0]
        # Copies: the policy's network is another one than the trained, and buffers are not shared.
        policy = jax.tree.map(jnp.array, params)
        steps, change = jnp.zeros((), jnp.int32), jnp.asarray(np.inf)
        return _State(self.inner.init(trial, key), policy, steps, change)

    def batch_factor(self, state: _State) -> int:
        return self.inner.batch_factor(state.inner)

    def settled(self, state: _State) -> bool:
        return bool(state.change < self.change)

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        control = trial.equation
        assert isinstance(control, AbstractControl)
        rest = trainable(trial.network)[1]

        def greedy(params: PyTree) -> Greedy:
            return Greedy(control, trial.with_network(eqx.combine(params, rest)))

        fixed = eqx.tree_at(lambda t: t.equation, trial, UnderPolicy(control, greedy(state.policy)))
        moved, inner, info = self.inner.step(fixed, state.inner, draw, clock)
        params = trainable(moved.network)[0]
        batch = draw.whole(2)[1]
        before = mean_square(trial, trainable(trial.network)[0], rest, batch)
        wanted = mean_square(trial, params, rest, batch)
        left = mean_square(fixed, params, rest, batch)
        steps = state.steps + 1
        improve = (left < _ENOUGH * wanted) | (steps >= self.evaluations) | (wanted < left)
        old, new = (jax.vmap(greedy(p))(batch.points) for p in (state.policy, params))
        size = jnp.sqrt(jnp.sum(batch.weights @ jnp.square(new)))
        change = jnp.sqrt(jnp.sum(batch.weights @ jnp.square(new - old)))
        change = change / jnp.where(size > 0, size, 1.0)
        policy = jax.tree.map(lambda a, b: jnp.where(improve, a, b), params, state.policy)
        state = _State(
            inner,
            policy,
            jnp.where(improve, 0, steps).astype(jnp.int32),
            jnp.where(improve, change, state.change),
        )
        info = Info(before, before, info.active, info.gradient)
        return trial.with_network(eqx.combine(params, rest)), state, info
