"""How the walks of a problem are done: on spheres where they can be, else in time steps."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.space import STEPS
from .._equation.generator import Generator
from .._equation.operator import Operator
from .._field.base import AbstractField, Constant
from .._field.form import Identity
from .._motion.euler import Diffusion
from .._motion.in_time import Leap, MovingSpheres, Steps
from .._motion.spheres import Spheres
from .._precision import Numbers, cast, key_from
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._problem.trial import Trial
from .._program.program import dependencies
from .._trust.peak import unseen_source
from .tally import WalkPlan

# The shell in which a walk on spheres stops: in inradii, and at most this part of the distance at its start.
_SHELL, _NEAR = 1e-6, 1e-3
# Euler-Maruyama is done with time steps multiplied by these; the values are those of the second.
_LEVELS = (1.0, 0.25)
_SAMPLE = 4_096
# How much of what smooth boundary values miss changes between the place in the shell where a walk stops and
# the boundary. Kinks are rounded off over 1e-2 inradii, the shell is 1e-6 wide, and walks from there land
# further away than t with a probability of 1e-6 / t: about 2e-3.
_ROUGH = 0.01


class Base(eqx.Module):
    """What is added to the mean over the walks: `Q`, the boundary function, or nothing."""

    function: Trial | AbstractField | None

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(()) if self.function is None else self.function.value(x)


class ResidualPayoff(eqx.Module):
    """`L Q` or `r` along the walk, and `f - Q` or `f` at its end, divided by the operator's `scale`."""

    operator: Operator
    trial: Trial | None
    boundary: AbstractField
    scale: Numbers
    ends: bool = eqx.field(static=True)

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        g = self.operator.source(x) if self.trial is None else self.trial.residual(x)
        return g / self.scale

    def end(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """On the boundary: a walk that stopped next to it is moved there, lest `f` be another inside."""
        x = _onto(self.operator.domain, x)
        f = self.boundary.value(x)
        return f if self.trial is None else f - self.trial.value(x)

    @property
    def constant(self) -> bool:
        """Whether there is nothing to see: one source and one end everywhere, and nothing that kills."""
        x = np.asarray(self.operator.domain.centre, np.float64)
        if any(set().union(*dependencies(part, x)) for part in (self.source, self.boundary.value)):
            return False
        source, end = (float(_one(part, x)) for part in (self.source, self.boundary.value))
        kills = "c" in self.operator.varies or self.operator.constant(self.operator.killing) != 0
        return not kills or source == end == 0

    def range_of_ends(self) -> tuple[float, float]:
        """The smallest and largest `f` at random points of the boundary; zeros where a walk's end is none."""
        if self.trial is not None or not self.ends:
            return 0.0, 0.0
        found = np.asarray(_ends(self.boundary, self.operator.domain, key_from(4)))
        return float(np.min(found)), float(np.max(found))


@compiled(brief=True)
def _one(function: Any, x: Any) -> Array:
    return function(x)


@compiled(brief=True)
def _ends(boundary: AbstractField, domain: AbstractDomain, key: PRNGKeyArray) -> Array:
    return jax.vmap(boundary.value)(domain.sample_boundary(key, 2 * _SAMPLE))


def _onto(domain: AbstractDomain, x: Float[Array, " d"]) -> Float[Array, " d"]:
    """The boundary point next to a point that is hardly away from it."""
    distance, normal = jax.value_and_grad(domain.distance)(x)
    square = jnp.sum(normal * normal)
    return x - distance * normal / jnp.where(square > 0, square, 1.0)


def make_plan(
    solution: Solution | Problem, problem: Problem, generator: Generator, distance: np.ndarray
) -> WalkPlan:
    """Walks on spheres where they can be done; `distance` is that of every start to the boundary."""
    trials: list[Trial | None] = [None]
    if isinstance(solution, Solution):
        trials.append(cast(solution.trial.by_values(), "float64"))
    if problem.domain.follows_paths:
        return _path_plan(trials, problem, generator, len(distance))
    if not generator.on_spheres:
        return _euler_plan(trials, problem, generator, distance)
    return _sphere_plan(trials, problem, generator, distance)


def _path_plan(
    trials: list[Trial | None], problem: Problem, generator: Generator, count: int
) -> WalkPlan:
    """In the whole space: one exact step to the data where that can be done."""
    paths: Any = problem.domain  # which follows paths: others have another plan
    rate, times = float(problem.rate), paths.times
    exact = paths.law.exact and generator.killing is not None
    if exact:
        scheme: Any = Leap(paths.law, times, np.asarray((generator.killing or 0.0) / rate))
        method, levels, source = (
            "exact steps to the data",
            (1.0,),
            "none: the steps have the exact law",
        )
    else:
        scheme = Steps(paths.law, times, generator.operator, np.asarray(rate))
        what = "a discount that varies" if paths.law.exact else "Euler-Maruyama"
        method, levels = f"steps in time ({what})", _LEVELS
        source = (
            f"{STEPS} steps in time, and {STEPS / _LEVELS[1]:.0f} for the values: root mean square of the "
            "difference over the points, less its noise, plus one standard error (an estimate)"
        )
    none = np.zeros(count)
    return WalkPlan(
        scheme=scheme,
        **_payoffs(trials, problem, generator, scale=rate),
        method=method,
        levels=levels,
        resolution=none,
        coarsest=0.0,
        bias=tuple(none for _ in trials) if exact else None,
        bias_source=source,
        inradius=1.0,
    )


def _euler_plan(
    trials: list[Trial | None], problem: Problem, generator: Generator, distance: np.ndarray
) -> WalkPlan:
    rate = float(problem.rate) or 1.0  # zero where there is no time
    scheme = Diffusion(problem.domain, generator, rate)
    shared = _payoffs(trials, problem, generator, scale=rate)
    if scheme.too_coarse:
        shared["blind"] = "the drift turns faster than time steps can follow"
    source = (
        f"time steps of at most {float(scheme.longest):.2g}, and a quarter of them for the values: root "
        "mean square of the difference over points at like distances from the boundary, less its noise, "
        "plus one standard error (an estimate)"
    )
    if not generator.proved:
        source += "; that c >= 0 was only seen at random points"
    return WalkPlan(
        scheme=scheme,
        **shared,
        method="Euler-Maruyama",
        levels=_LEVELS,
        resolution=scheme.resolution(distance),
        coarsest=float(scheme.coarsest),
        bias=None,
        bias_source=source,
        inradius=problem.domain.in_space.inradius,
    )


def _sphere_plan(
    trials: list[Trial | None], problem: Problem, generator: Generator, distance: np.ndarray
) -> WalkPlan:
    domain = problem.domain.in_space
    shell, rate = _SHELL * domain.inradius, float(problem.rate) or 1.0
    scale, killing = 2.0 * (generator.scalar or 0.0), generator.killing or 0.0
    resolution = np.minimum(shell, _NEAR * distance)
    # In the shell u is replaced by Q, or by f, with an error of at most sup |L Q|, or |L f|, times
    # the mean time to the boundary, which is proportional to the width of so thin a shell.
    alone = Trial.of(problem, Constant(0.0), exact_boundary=True).by_values()  # Q = f
    exact = [trial is not None and trial.exact_boundary for trial in trials]
    times = problem.domain.times
    # Up to a horizon weights may grow.
    growth = math.exp(max(-killing, 0.0) / rate * float(times.end)) if times is not None else 1.0
    bounds, how = [], ""
    for trial, is_exact in zip(trials, exact, strict=True):
        start = trial if trial is not None and is_exact else alone
        most = growth * float(_largest_residual(problem.domain, start, shell))
        longest = float(_longest(domain, shell))
        how = "exact, from an eta of constant Laplacian"
        if not np.isfinite(longest):
            longest, how = shell * domain.width, "at most shell times width, for a convex domain"
            if not domain.convex:
                how = "an estimate, shell times width: a bound if the domain is convex, which is not known"
        within = most / scale * longest * (resolution / shell)
        bounds.append(within + _ROUGH * problem.miss)
    source = (
        f"stopping {shell:.1e} from the boundary, or a thousandth of the start's distance: largest "
        f"|L {'Q' if exact[-1] else 'f'}| on {2 * _SAMPLE:,} points times the mean time to the "
        f"boundary ({how})"
    )
    if problem.smoothed:
        source += f"; and {_ROUGH:g} of what smooth boundary values miss, an estimate"
    if times is None:
        scheme: Any = Spheres(domain, max(killing, 0.0) / scale)
    else:
        scheme = MovingSpheres(domain, times, 0.5 * scale / rate, killing / rate)
    return WalkPlan(
        scheme=scheme,
        **_payoffs(trials, problem, generator, scale=scale if times is None else rate),
        method="walk on spheres" if times is None else "walk on moving spheres",
        levels=(1.0,),
        resolution=resolution,
        coarsest=0.0,  # they are cheap, and the bound of the bias counts on it
        bias=tuple(bounds),
        bias_source=source,
        inradius=domain.inradius,
    )


def _payoffs(
    trials: list[Trial | None], problem: Problem, generator: Generator, scale: float
) -> dict[str, Any]:
    """Payoffs and bases without a network and, where there is one, with it.

    Walks end at the boundary values that were given, whatever smooth ones the network was trained with.
    """
    payoffs = tuple(
        ResidualPayoff(
            generator.operator,
            trial,
            problem.data,
            np.asarray(scale),
            not (trial is not None and trial.exact_boundary) or problem.smoothed or problem.carried,
        )
        for trial in trials
    )
    return {
        "payoffs": payoffs,
        "bases": tuple(Base(trial) for trial in trials),
        "ends": tuple(payoff.range_of_ends() for payoff in payoffs),
        "blind": unseen_source(generator.operator),
        # What a network leaves is never known to be constant.
        "constant": tuple(payoff.trial is None and payoff.constant for payoff in payoffs),
    }


def _inwards(domain: AbstractDomain, z: Array, width: Any) -> Array:
    """The point next to a boundary point that lies so far inside."""
    # The gradient of the distance on the boundary itself; a kink there has the centre's side.
    n = jax.grad(domain.distance)(z + 1e-9 * (jnp.asarray(domain.centre) - z))
    return z + width * n * jax.lax.rsqrt(jnp.sum(n * n))


@compiled(brief=True)
def _largest_residual(whole: AbstractDomain, trial: Trial, width: Any) -> Array:
    """The largest `|L Q|` found inside and in the shell; infinite where it is not finite."""
    domain = whole.in_space
    inside_key, edge_key = jr.split(key_from(1))
    inner = whole.sample(inside_key, _SAMPLE)
    edge = domain.sample_boundary(edge_key, _SAMPLE)
    near = jax.vmap(lambda z: _inwards(domain, z, width))(edge)
    if whole.times is not None:
        near = jnp.concatenate([near, inner[:, -1:]], axis=1)
    found = jnp.abs(jax.vmap(trial.residual)(jnp.concatenate([inner, near])))
    return jnp.max(jnp.where(jnp.isfinite(found), found, jnp.inf))


@compiled(brief=True)
def _longest(domain: AbstractDomain, width: Any) -> Array:
    """The longest mean time of `1/2 Lap` in the shell; infinite where `eta` does not tell."""
    eta = domain.eta
    inside_key, edge_key = jr.split(key_from(1))
    inner = domain.sample(inside_key, _SAMPLE)
    near = jax.vmap(lambda z: _inwards(domain, z, width))(domain.sample_boundary(edge_key, _SAMPLE))
    laplacians = jax.vmap(lambda x: eta.trace(x, Identity()))(inner)
    constant = jnp.ptp(laplacians) <= 1e-9 * jnp.max(jnp.abs(laplacians))
    longest = 2.0 * jnp.max(jax.vmap(eta.value)(near)) / jnp.abs(laplacians[0])
    return jnp.where(constant, longest, jnp.inf)
