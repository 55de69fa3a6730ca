"""Closed loops: what a policy costs, by random walks that follow it.

With the policy fixed, the equation of a control problem is linear, and its solution at a point is the
policy's mean cost from there: `feynman_kac` estimates it, with an interval. No policy is better than the
best one, so that its cost is a bound for the value from one side.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._arguments import a_function, a_seed, shown, whole
from .._compiled import compiled
from .._control.base import AbstractControl, UnderPolicy
from .._control.parts import expect_shape, shape_of
from .._control.policy import Greedy
from .._domain.base import AbstractDomain, drawn
from .._equation.generator import Generator
from .._equation.operator import Operator
from .._field.jet import Jet, Quadratic
from .._field.slips import check_signature
from .._motion.euler import Diffusion
from .._precision import cast, key_from, keys_from, like, x64
from .._problem.points import as_rows
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._problem.trial import Trial
from .estimate import Estimate
from .feynman_kac import feynman_kac

# Steps of a drawn path, at most, and the length of each as a part of the longest that walks take.
_STEPS, _FINE = 4_000, 0.5
# Points at which a policy is looked at.
_LOOKS = 256


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The mean cost of a policy from some starts, with intervals, and a few paths.

    `cost` is the estimate, `low` and `high` the ends of the interval, of the given `confidence` by itself at
    each start. `value` is `Q` there, None for a problem without a solution; `gap` is `cost - value`. Where
    costs are minimised the value of the problem is at most the policy's cost, so that `high` is an upper
    bound for it (`low` a lower one where a reward is maximised), with a confidence of `(1 + confidence) / 2`.
    `estimate` has all that the walks tell. `paths` are a few closed loops from the first start, `times`
    their times; a path ends where it leaves the domain.
    """

    start: np.ndarray
    value: np.ndarray | None
    estimate: Estimate
    maximised: bool
    times: tuple[np.ndarray, ...]
    paths: tuple[np.ndarray, ...]

    @property
    def cost(self) -> np.ndarray:
        """The mean cost (or reward) of the policy."""
        return self.estimate.value

    @property
    def low(self) -> np.ndarray:
        """The lower ends of the intervals."""
        return self.estimate.low

    @property
    def high(self) -> np.ndarray:
        """The upper ends of the intervals."""
        return self.estimate.high

    @property
    def confidence(self) -> float:
        """The confidence of each interval by itself."""
        return self.estimate.confidence

    @property
    def gap(self) -> np.ndarray | None:
        """`cost - value`: how much more the policy costs than `Q` promises."""
        return None if self.value is None else self.cost - self.value

    def __repr__(self) -> str:
        cost, low, high = (np.atleast_1d(part) for part in (self.cost, self.low, self.high))
        word = "reward" if self.maximised else "cost"
        side, ends = (">=", low) if self.maximised else ("<=", high)
        sure = 50.0 * (1.0 + self.confidence)
        lines = [f"Simulated {word} of a policy from {cost.size:,} starts"]
        for i in range(min(cost.size, 3)):
            line = f"  {cost[i]:.6g}, {100 * self.confidence:g} % interval [{low[i]:.6g}, {high[i]:.6g}]"
            if self.value is not None:
                q = np.atleast_1d(self.value)[i]
                line += f"; Q = {q:.6g}, gap {cost[i] - q:.2g}"
            lines.append(f"{line}; the value is {side} {ends[i]:.6g} ({sure:g} %)")
        return "\n".join([*lines, *(f"  {line}" for line in repr(self.estimate).splitlines())])


@x64()
def simulate(
    solution: Solution | Problem,
    start: Any,
    *,
    policy: Callable[..., Any] | None = None,
    accuracy: float | None = None,
    walks: int | None = None,
    confidence: float = 0.95,
    paths: int = 8,
    seed: int = 0,
    progress: bool = True,
) -> Simulation:
    """Run the closed loop of a control problem: what its policy costs, with an interval.

        >>> loop = simulate(solve(zoo.lqr_matrices(6)), np.zeros(6))
        >>> loop.cost, loop.low, loop.high, loop.gap

    **Arguments**

    - `solution`: a solution of a problem whose equation is a `qpde.Control`; or the problem, with a policy.
    - `start`: one point `(d,)` or several `(n, d)`.
    - `policy`: a function from a point `(d,)` to an action `(m,)`; by default the solution's own. It need
      not be the best one.
    - `accuracy`, `walks`, `confidence`, `seed`, `progress`: as in `qpde.feynman_kac`, which does the walks,
      with the network as control variate where that helps.
    - `paths`: how many closed loops are kept for a figure (`qpde.plot.paths`).

    The cost is that of an ideal loop, which acts at every instant: its bias comes from time steps and is
    told by `loop.estimate`.
    """
    if not isinstance(solution, Solution | Problem):
        raise ValueError(
            f"simulate takes a qpde.Solution or a qpde.Problem, got {shown(solution)}."
        )
    problem = solution.problem if isinstance(solution, Solution) else solution
    control = problem.equation
    if not isinstance(control, AbstractControl):
        raise ValueError(
            "simulate is for control problems, whose equation is a qpde.Control. For values of a linear "
            "problem take qpde.feynman_kac."
        )
    if problem.domain.times is not None:
        raise ValueError(
            "simulate is for stationary control problems; this one has a horizon. Its actions are "
            "solution.policy(x, t)."
        )
    count = whole("paths", paths, most=1_000)
    under = UnderPolicy(control, _policy(solution, control, policy))
    fixed = eqx.tree_at(lambda p: (p.equation, p.exact), problem, (under, None), is_leaf=_is_leaf)
    what: Solution | Problem = fixed
    if isinstance(solution, Solution):
        network, exact = solution.trial.network, solution.trial.exact_boundary
        trial = Trial.of(fixed, network, exact_boundary=exact)
        what = dataclasses.replace(solution, problem=fixed, trial=trial)
    options: dict[str, Any] = {"confidence": confidence, "seed": seed, "progress": progress}
    estimate = feynman_kac(what, start, accuracy=accuracy, walks=walks, **options)
    first = as_rows(start, problem.dim)[0]
    times, drawn = _drawn(fixed, first, count, seed)
    value = solution(np.asarray(start, np.float64)) if isinstance(solution, Solution) else None
    return Simulation(
        start=np.asarray(start, np.float64),
        value=value,
        estimate=estimate,
        maximised=control.maximises,
        times=times,
        paths=drawn,
    )


def _is_leaf(leaf: Any) -> bool:
    return leaf is None


def _policy(solution: Solution | Problem, control: AbstractControl, given: Any) -> Any:
    if given is not None:
        check_signature(
            "The policy", a_function("policy", given, "a function of one point"), "one point (x)", 1
        )
        problem = solution.problem if isinstance(solution, Solution) else solution
        x = np.zeros(problem.dim)
        zero = np.zeros(())

        def best(x: Array) -> Array:
            return control.action(x, Jet(Quadratic(zero, x, zero, x), x))

        # A number is the action of one component.
        found = shape_of("The policy", given, x) or (1,)
        expect_shape("What the policy returns", found, jax.eval_shape(best, x).shape)
        points = np.asarray(drawn(problem.domain, key_from(0x9011C7), _LOOKS))
        good = np.all(np.isfinite(np.asarray(_actions(_Given(given), points))), axis=1)
        if not np.all(good):
            raise ValueError(
                "The policy is not finite everywhere, for example at x = "
                f"{np.array2string(points[~good][0], precision=4, threshold=6)}."
            )
        return _Given(given)
    if isinstance(solution, Problem):
        raise ValueError("A problem alone has no policy: give policy=lambda x: ..., or a solution.")
    return Greedy(control, cast(solution.trial.by_values(), "float64"))


@compiled(brief=True)
def _actions(policy: Any, points: Any) -> Array:
    return jax.vmap(policy)(points)


class _Given(eqx.Module):
    """A user's policy, in the precision of its point."""

    function: Callable[..., Any]

    def __call__(self, x: Array) -> Array:
        return jnp.atleast_1d(like(x, self.function(x)))


def _drawn(
    problem: Problem, start: np.ndarray, count: int, seed: int
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Times and places of a few paths from a start, each up to where it leaves."""
    if count == 0:
        return (), ()
    scheme = Diffusion(problem.domain, Generator.of(problem.operator))
    h = _FINE * float(scheme.longest)
    (key,) = keys_from(a_seed(seed), 1)
    begin = np.broadcast_to(start, (count, start.size))
    noise = 1.0 if scheme.factor is None else np.asarray(scheme.factor)
    places, inside = (
        np.asarray(part)
        for part in _loops(problem.domain, problem.operator, begin, noise, h, jr.fold_in(key, 1))
    )
    ends = [int(np.argmin(alive)) if not alive.all() else len(alive) for alive in inside.T]
    times = tuple(h * np.arange(end + 1) for end in ends)
    return times, tuple(places[: end + 1, i] for i, end in enumerate(ends))


@compiled
def _loops(
    domain: AbstractDomain, operator: Operator, start: Any, factor: Any, h: Any, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """Places after every step, the start first, and whether each path was inside before it."""

    def one(x: Array, key: Array) -> tuple[Array, Array]:
        second, drift, _ = operator.coefficients(x)
        if "A" not in operator.varies and second.ndim == 2:
            spread = factor @ jr.normal(key, x.shape)
        elif second.ndim == 0:
            spread = jnp.sqrt(2.0 * jnp.maximum(second, 0.0)) * jr.normal(key, x.shape)
        else:
            values, vectors = jnp.linalg.eigh(2.0 * second)
            spread = vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * jr.normal(key, x.shape))
        alive = domain.distance(x) > 0
        return jnp.where(alive, x + h * drift + jnp.sqrt(h) * spread, x), alive

    def step(x: Array, i: Array) -> tuple[Array, tuple[Array, Array]]:
        keys = jr.split(jr.fold_in(key, i), len(x))
        moved, alive = jax.vmap(one)(x, keys)
        return moved, (moved, alive)

    start = jnp.asarray(start)
    _, (places, inside) = jax.lax.scan(step, start, jnp.arange(_STEPS))
    return jnp.concatenate([start[None], places]), inside
