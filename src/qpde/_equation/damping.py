"""`-dF/du` over the whole domain and all jets, with every branch of a maximum followed."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._domain.base import AbstractDomain
from .._field.jet import Equation, Jet, Quadratic
from .._precision import Numbers
from .._program.rewrite import operations, rewritten


def every_jet(domain: AbstractDomain) -> list[tuple[Any, Any]]:
    """The domain's box, and all jets: value, slope, curvature and direction of a `Quadratic`."""
    dim = domain.dim
    everything = [(np.full(shape, -np.inf), np.full(shape, np.inf)) for shape in ((), dim, (), dim)]
    lower, upper = (np.asarray(end) for end in domain.enclosing_box)
    return [(lower, upper), *everything]


class Whole(eqx.Module):
    """The equation itself as a function of a point and a jet."""

    equation: Equation

    def __call__(self, x: Any, *jet: Any) -> Array:
        return jnp.asarray(self.equation(x, Jet(Quadratic(*jet), x)))


class Damping(eqx.Module):
    """`-dF/du` as a function of a point, a jet, and a share in (0, 1) for every choice in the program.

    `max(a, b)` is followed as `b + share (a - b)`: for every share, because the slope of a maximum lies
    between those of its operands, and in this order, which keeps the interval of two constant slopes.
    """

    equation: Equation
    orientation: Numbers

    def choices(self, *arguments: Any) -> int:
        """How many choices the program makes."""
        program = jax.make_jaxpr(Whole(self.equation))(*arguments)
        return sum(1 for _ in operations(program.jaxpr, _CHOICES))

    def __call__(self, x: Any, v: Any, *rest: Any) -> Array:
        *jet, shares = rest

        def rule(number: int, equation: Any, values: list[Any]) -> Any:
            return _CHOICES[equation.primitive.name](equation, shares[number], *values)

        def whole(value: Any) -> Array:
            return rewritten(Whole(self.equation), (x, value, *jet), _CHOICES, rule)

        return -self.orientation * jax.jvp(whole, (v,), (jnp.ones_like(v),))[1]


def _between(equation: Any, share: Any, a: Any, b: Any) -> Array:
    return b + share * (a - b)


# Continuous choices; one share for all entries of a largest of many would not do: these are not followed.
_CHOICES: dict[str, Callable[..., Array]] = {
    "max": _between,
    "min": _between,
    "abs": lambda equation, share, a: a - 2.0 * share * a,
}
