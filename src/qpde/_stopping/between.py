"""What one loses who may stop at dates only, and not between them.

Let `tau` be any stopping time, `tau'` the next date, at most `h` later, and `m_s(x) = E[X_s | X_0 = x]`. For
a convex payoff Jensen's inequality gives

    E[e^(-r s) payoff(X_s) | x] >= e^(-r s) payoff(m_s(x)),

so that waiting from `tau` to `tau'` loses at most `lost = sup over x and s <= h of
payoff(x) - e^(-r s) payoff(m_s(x))`, and for `r >= 0` the value of stopping at any time is at most the value
of stopping at dates and `lost`. For a put with strike `K` it is `K (1 - e^(-r h))`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiled import compiled
from .problem import Stopping

# Where the supremum is searched for: deviations of the state at the end, states, and parts of steps.
_NEAR, _FAR, _STATES, _PARTS = 8.0, 16.0, 4_000, 4


def lost_between(problem: Stopping, times: np.ndarray) -> tuple[float, tuple[str, ...]]:
    """The largest loss that was found, and what is assumed of it; refused where there is none."""
    if problem.discount < 0:
        raise ValueError(
            "With a negative discount there is no bound from above for stopping at any time. Give dates=."
        )
    rng, end = np.random.default_rng(0), float(times[-1])
    noise = rng.normal(size=(_STATES, problem.dim))
    noise *= (rng.uniform(size=_STATES) / np.linalg.norm(noise, axis=1))[:, None]
    rooted = np.sqrt(end * problem.dim) * noise
    if not _convex(problem, _NEAR * rooted):
        raise ValueError(
            "The bound from above for stopping at any time needs a convex payoff, and this one is not "
            "convex. Give dates=, the times at which one may stop."
        )
    # A later and longer step counts for less: e^(-discount t) times what it loses. Lengths are rounded up.
    steps, worth = np.diff(times), np.exp(-float(problem.discount) * times[:-1])
    rounded = np.max(steps) * 1.05 ** np.ceil(np.log(steps / np.max(steps)) / np.log(1.05) - 1e-9)
    most = 0.0
    for h in np.unique(rounded):
        counts = float(np.max(worth[rounded == h]))
        near, far = (
            counts * float(np.max(np.asarray(_losses(problem, np.asarray(h), reach * rooted))))
            for reach in (_NEAR, _FAR)
        )
        _refuse_growth(near, far)
        most = max(most, near, far)
    return most, (
        f"the payoff is convex (at {_STATES // 2:,} random midpoints)",
        f"it loses at most {most:.3g} between dates (the largest loss at {2 * _STATES:,} states)",
    )


def _refuse_growth(near: float, far: float) -> None:
    if far > 1.5 * max(near, 0.0) + 1e-12:
        raise ValueError(
            "What is lost between dates grows with the state, and there is no bound from above "
            "for stopping at any time. Give dates=, the times at which one may stop."
        )


@compiled(brief=True)
def _losses(problem: Stopping, h: Any, positions: Any) -> Array:
    frame = problem.frame
    # The mean of the state grows by the drift, which for prices is their rate.
    rate = frame.speed + 0.5 * jnp.sum(jnp.square(frame.factor), 1) * frame.prices

    def one(b: Array) -> Array:
        x = frame.place(0.0, b)
        parts = h * jnp.arange(1, _PARTS + 1) / _PARTS

        def loss(s: Any) -> Array:
            mean = x * jnp.exp(rate * s) if frame.prices else x + rate * s
            return problem.pays(x) - jnp.exp(-problem.discount * s) * problem.pays(mean)

        return jnp.max(jax.vmap(loss)(parts))

    return jax.vmap(one)(jnp.asarray(positions))


def _convex(problem: Stopping, positions: np.ndarray) -> bool:
    """Whether no midpoint is above its chord."""
    states = np.asarray(_states(problem, positions)).reshape(2, -1, problem.dim)
    ends, middle = (np.asarray(_pays(problem, part)) for part in (states, states.mean(axis=0)))
    chord = ends.mean(axis=0)
    return bool(np.all(middle <= chord + 1e-9 * (1e-300 + np.abs(chord) + np.abs(middle))))


@compiled(brief=True)
def _states(problem: Stopping, positions: Any) -> Array:
    return jax.vmap(lambda b: problem.frame.place(0.0, b))(jnp.asarray(positions))


@compiled(brief=True)
def _pays(problem: Stopping, states: Any) -> Array:
    found = jax.vmap(problem.pays)(jnp.asarray(states).reshape(-1, problem.dim))
    return found.reshape(states.shape[:-1])
