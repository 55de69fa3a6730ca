"""Numbers that change during a run: learning rates and batch sizes.

A schedule is called with a `Clock`. It is made of arithmetic only, so the same object works on NumPy
numbers outside and on JAX arrays inside the compiled step.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._arguments import reals, shown
from .._precision import Numbers


class Clock(NamedTuple):
    """Step `step` of `total`, counted from 0."""

    step: Any
    total: Any


def _number(value: Any) -> np.ndarray:
    number = reals("A number of a schedule", value, "a number, not negative")
    if number.shape != () or number < 0:
        raise ValueError(f"A schedule takes numbers that are not negative, got {shown(value)}.")
    return number


class AbstractSchedule(eqx.Module):
    """A number for every step of a run.

    One of one's own is a subclass with `__call__`, or any function of the step:

        >>> solve(problem, steps=1_000, batch=lambda t: 500 + t)

    `monotone` says that the largest number is the first or the last one.
    """

    monotone: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, clock: Clock) -> Any:
        """The number at `clock.step`."""


class Fixed(AbstractSchedule):
    """The same number at every step."""

    number: Numbers = eqx.field(converter=_number)
    monotone = True

    def __call__(self, clock: Clock) -> Any:
        return self.number


class Ramp(AbstractSchedule):
    """From `first` to `last` in a straight line: `first + (last - first) t / T`.

    As a batch size, `Ramp(2_000, 10_000)` is the paper's growing number of points.
    """

    first: Numbers = eqx.field(converter=_number)
    last: Numbers = eqx.field(converter=_number)
    monotone = True

    def __call__(self, clock: Clock) -> Any:
        return self.first + (self.last - self.first) * (clock.step / clock.total)


class Decay(AbstractSchedule):
    """`first / (1 + t / time)`; the paper's learning rate is `Decay(0.5, 200)`."""

    first: Numbers = eqx.field(converter=_number)
    time: Numbers = eqx.field(converter=_number)

    def __check_init__(self) -> None:
        if isinstance(self.time, np.ndarray) and self.time <= 0:
            raise ValueError("Decay takes a positive time.")

    def __call__(self, clock: Clock) -> Any:
        return self.first / (1.0 + clock.step / self.time)


class Cosine(AbstractSchedule):
    """`first` at the start, falling along half a cosine to `last` at the end."""

    first: Numbers = eqx.field(converter=_number)
    last: Numbers = eqx.field(converter=_number)

    def __call__(self, clock: Clock) -> Any:
        wave = 0.5 * (1.0 + jnp.cos(np.pi * (clock.step / clock.total)))
        return self.last + (self.first - self.last) * wave


class Callback(AbstractSchedule):
    """Any function of the step, for example an Optax schedule."""

    function: Callable[[Any], Any]

    def __call__(self, clock: Clock) -> Any:
        return self.function(clock.step)


def as_schedule(thing: Any) -> AbstractSchedule:
    """A schedule from a number, a schedule, or a function of the step."""
    if isinstance(thing, AbstractSchedule):
        return thing
    return Callback(thing) if callable(thing) else Fixed(thing)
