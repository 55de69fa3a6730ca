"""Policies: the best action at each point, as a function of the point."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._field.base import Autodiff
from .._field.jet import Jet
from .base import AbstractControl


class Greedy(eqx.Module):
    """The best actions for a given value: `x -> action(x, value.jet(x))`.

    `value` is anything with `jet(x)`, such as a trial function.
    """

    control: AbstractControl
    value: Any

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " m"]:
        return self.control.action(x, self.value.jet(x))


class Known(eqx.Module):
    """A function of one point that answers jets by automatic differentiation."""

    function: Any

    def jet(self, x: Float[Array, " d"]) -> Jet:
        return Jet(Autodiff(self.function).at(x), x)
