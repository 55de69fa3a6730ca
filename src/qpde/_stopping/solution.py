"""What waiting is worth, date by date, and the rule that follows from it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real
from .._compiled import compiled
from .._precision import Numbers, by_chunks, x64
from .._problem.points import as_rows
from .problem import Stopping
from .units import Units

_CHUNK = 2_048


class Rest(eqx.Module):
    """Units of the state and the payoff, for what the others leave at a date: their means are not known."""

    directions: Numbers  # (q, d + 1)
    shifts: Numbers  # (q,)
    middle: Numbers  # (N, d), of levels at the dates
    spread: Numbers  # (N, d)
    scale: Numbers  # of payoffs
    ordered: bool = eqx.field(static=True)  # coordinates in rising order

    def values(self, i: Any, level: Float[Array, " d"], payoff: Array) -> Float[Array, " q"]:
        """The units at the date `i`."""
        z = (level - self.middle[i]) / self.spread[i]
        z = jnp.append(jnp.sort(z) if self.ordered else z, payoff / self.scale)
        return jnp.concatenate([jnp.ones(1), z, jnp.tanh(self.directions @ z + self.shifts)])


class Waiting(eqx.Module):
    """What waiting is worth: networks between the dates, `i` the last date at or before the time."""

    problem: Stopping
    times: Numbers  # (N + 1,), the first is 0
    units: Units  # of the dates 1 to N
    outer: Numbers  # (N, u)
    rest: Rest
    rests: Numbers  # (N, q)
    least: Numbers  # payoffs are not below, as far as samples tell

    def known(self, i: Any, t: Any, b: Float[Array, " d"]) -> Float[Array, ""]:
        """The mean of the network of the date `i + 1`, at `t` from the position `b`; not discounted."""
        frame = self.problem.frame
        units = jax.tree.map(lambda leaf: jnp.asarray(leaf)[i], self.units)
        after = jnp.asarray(self.times)[i + 1] - t
        means = units.means(frame, frame.level(t, b) + frame.speed * after, after)
        return jnp.dot(jnp.asarray(self.outer)[i], means)

    def at_date(self, i: Any, b: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """At the date `i`: the payoff, what waiting is worth, and the part of it whose law is known."""
        times, frame = jnp.asarray(self.times), self.problem.frame
        j = jnp.minimum(i, len(times) - 2)
        payoff = self.problem.pays(frame.place(times[i], b))
        known = self.known(j, times[j], b)
        units = self.rest.values(j, frame.level(times[i], b), payoff)
        discount = jnp.exp(-self.problem.discount * (times[j + 1] - times[j]))
        worth = discount * known + jnp.dot(jnp.asarray(self.rests)[j], units)
        return payoff, jnp.where(i == len(times) - 1, -jnp.inf, worth), known

    def value(self, i: Any, t: Any, b: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at the time `t` of `[times[i], times[i + 1])`; at a date the better of both."""
        times = jnp.asarray(self.times)
        later = jnp.exp(-self.problem.discount * (times[i + 1] - t)) * self.known(i, t, b)
        payoff, worth, _ = self.at_date(i, b)
        return jnp.where(
            t > times[i], later, jnp.where(self.allowed(i), jnp.maximum(payoff, worth), worth)
        )

    def allowed(self, i: Any) -> Any:
        """Whether one may stop at `times[i]`: not at 0 if that is no date."""
        first = self.problem.dates is None or self.problem.dates[0] == 0
        return (i > 0) | first

    def stops(self, i: Any, payoff: Array, worth: Array) -> Array:
        """The rule: stop where the payoff is no less than what waiting is worth.

        Not for the smallest payoff, while it costs nothing to wait for it.
        """
        last = i == len(self.times) - 1
        good = (payoff >= worth) & (payoff > self.least)
        return (good & self.allowed(i)) | last


@dataclasses.dataclass(frozen=True)
class StoppingSolution:
    """The value of a stopping problem as a function of the state and the time, and the rule when to stop.

    `solution(x)` is the value now, `solution(x, t)` that at a time; `solution.gradient(x, t)` its derivatives
    in the state, `solution.stops(x, t)` whether the rule stops there (at a date). `misfit` is how far the
    network of each date is off the value that it was fitted to, in the root mean square. None of these is a
    bound: `qpde.bracket` gives bounds.
    """

    problem: Stopping
    waiting: Waiting
    misfit: np.ndarray
    seconds: float

    @property
    def times(self) -> np.ndarray:
        """The dates, and 0."""
        return np.asarray(self.waiting.times)

    def __call__(self, points: Any, t: Any = 0.0) -> np.ndarray:
        return self._asked(_values, points, t)

    def gradient(self, points: Any, t: Any = 0.0) -> np.ndarray:
        """The derivatives of the value in the state, `(n, d)`."""
        return self._asked(_gradients, points, t)

    def stops(self, points: Any, t: Any = 0.0) -> np.ndarray:
        """Whether the rule stops in these states; never between dates."""
        return self._asked(_stops, points, t)

    def __repr__(self) -> str:
        found = ", ".join(f"{value:.6g}" for value in self(self.problem.starts)[:5])
        return (
            f"{self.problem!r}\n  value at the start about {found}; {self.outer} units a date, misfit "
            f"{np.max(self.misfit):.2g} at most, {self.seconds:.1f} s\n  qpde.bracket(solution, points) "
            "gives bounds"
        )

    @property
    def outer(self) -> int:
        """The number of units of a date."""
        return self.waiting.outer.shape[1]

    @x64()
    def _asked(self, program: Any, points: Any, t: Any) -> np.ndarray:
        end = float(self.times[-1])
        time = float(real("t", t, least=0.0, most=end))
        rows = as_rows(points, self.problem.dim)
        if self.problem.frame.prices and np.any(rows <= 0):
            raise ValueError("States of this problem are prices, which are positive.")
        i = int(np.searchsorted(self.times, time * (1 + 1e-12), side="right")) - 1
        i = min(i, len(self.times) - 1)
        time = float(self.times[i]) if np.isclose(time, self.times[i], rtol=1e-12) else time
        found = by_chunks(
            lambda x: program(self.waiting, np.asarray(i), np.asarray(time), x), rows, _CHUNK
        )
        return np.asarray(found[0] if np.ndim(points) == 1 else found)


def _value_at(waiting: Waiting, i: Any, t: Any, x: Array) -> Array:
    b = waiting.problem.frame.position(t, x)
    last = len(waiting.times) - 1
    return jnp.where(
        i == last, waiting.problem.pays(x), waiting.value(jnp.minimum(i, last - 1), t, b)
    )


@compiled(brief=True)
def _values(waiting: Waiting, i: Any, t: Any, x: Array) -> Array:
    return jax.vmap(lambda x: _value_at(waiting, i, t, x))(x)


@compiled(brief=True)
def _gradients(waiting: Waiting, i: Any, t: Any, x: Array) -> Array:
    return jax.vmap(jax.grad(lambda x: _value_at(waiting, i, t, x)))(x)


@compiled(brief=True)
def _stops(waiting: Waiting, i: Any, t: Any, x: Array) -> Array:
    def one(x: Array) -> Array:
        payoff, worth, _ = waiting.at_date(i, waiting.problem.frame.position(t, x))
        return waiting.stops(i, payoff, worth) & (t == jnp.asarray(waiting.times)[i])

    return jax.vmap(one)(x)
