"""`Stopping`: when to take a payoff that can be taken once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import a_function, real, reals, shown
from .._field.slips import expect_scalar
from .._precision import Numbers, like, x64
from .motion import Frame, Gaussian, LogNormal


class Stopping(eqx.Module):
    """A payoff that may be taken once, at one of some dates or at any time, from a state that moves.

        >>> problem = Stopping(
        ...     payoff=lambda x: jnp.maximum(jnp.max(x) - 100.0, 0.0),
        ...     motion=LogNormal(drift=0.05 - 0.10, sigma=0.2),
        ...     start=np.full(5, 100.0),
        ...     discount=0.05,
        ...     dates=np.linspace(0.0, 3.0, 10),
        ... )
        >>> solution = solve_stopping(problem)
        >>> print(bracket(solution, problem.start))

    The value `u(x, t)` is the largest mean of `e^(-discount tau) payoff(X_tau)` over stopping times `tau`
    from the state `x` at the time `t` on. Between dates it solves
    `u_t + drift . grad u + 1/2 tr(sigma sigma' Hess u) - discount u = 0` (with the drift and sigma of `X`),
    at a date it is the larger one of that and the payoff. Who has not stopped before the last date stops
    there.

    **Arguments**

    - `payoff`: a function from a state `(d,)` to a number. It may have kinks.
    - `motion`: `LogNormal(drift=, sigma=)` or `Gaussian(drift=, sigma=)`.
    - `start`: the state `(d,)` at which the value is wanted, or several `(n, d)`.
    - `discount`: the rate at which payoffs are discounted, a number.
    - `dates`: rising times, not negative, at which one may stop.
    - `time`: in their place, the end of the time in which one may stop at any instant.
    """

    payoff: Callable[..., Any]
    motion: Gaussian | LogNormal
    starts: Numbers
    discount: Numbers
    dates: Numbers | None
    time: Numbers
    frame: Frame
    single: bool = eqx.field(static=True)

    @x64()
    def __init__(
        self,
        *,
        payoff: Any,
        motion: Any,
        start: Any,
        discount: Any = 0.0,
        dates: Any = None,
        time: Any = None,
    ):
        self.payoff = a_function("payoff", payoff, "a function of one state (d,)")
        if not isinstance(motion, Gaussian | LogNormal):
            raise ValueError(
                "motion must be qpde.LogNormal(drift=, sigma=) or qpde.Gaussian(drift=, sigma=), got "
                f"{shown(motion)}."
            )
        self.motion = motion
        starts = reals("start", start, "a state (d,) or several (n, d)")
        if starts.ndim not in (1, 2) or starts.size == 0:
            raise ValueError(f"start must be a state (d,) or several (n, d), got {shown(start)}.")
        self.single, self.starts = starts.ndim == 1, np.atleast_2d(starts)
        self.frame = Frame.of(motion, self.starts)
        self.discount = real("discount", discount)
        self.dates, self.time = _times(dates, time)
        point = jax.ShapeDtypeStruct((self.dim,), jnp.float64)
        expect_scalar("The payoff", self.payoff, point, "It takes one state (d,), not a batch.")
        found = np.asarray(jax.vmap(self.pays)(jnp.asarray(self.starts)))
        if not np.all(np.isfinite(found)):
            raise ValueError("The payoff is not finite at a start.")

    @property
    def dim(self) -> int:
        """The dimension of the state."""
        return self.starts.shape[1]

    @property
    def start(self) -> np.ndarray:
        """The start as it was given."""
        return self.starts[0] if self.single else self.starts

    def pays(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The payoff at a state."""
        return like(x, self.payoff(x))

    def __repr__(self) -> str:
        if self.dates is None:
            when = f"at any time up to {self.time:g}"
        else:
            when = f"at {len(self.dates)} dates up to {self.time:g}"
        return (
            f"Stopping {when}: {self.motion!r} in dimension {self.dim}, discount {self.discount:g}"
        )


def _times(dates: Any, time: Any) -> tuple[np.ndarray | None, np.ndarray]:
    """The dates, None where one may stop at any time, and the last time."""
    if (dates is None) == (time is None):
        raise ValueError(
            "Give dates=, the times at which one may stop, or time=, the end: one of the two."
        )
    if dates is None:
        return None, real("time", time, above=0.0)
    found = reals("dates", dates, "rising times")
    if found.ndim != 1 or found.size == 0 or found[0] < 0 or np.any(np.diff(found) <= 0):
        raise ValueError(f"dates must be rising times, not negative, got {shown(dates)}.")
    if found[-1] <= 0:
        raise ValueError("The last date must be after the time 0, which is now.")
    return found, np.asarray(found[-1])
