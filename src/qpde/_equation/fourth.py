"""Equations of fourth order: what the coefficient of `Lap^2 u` depends on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._field.jet import Equation, Jet, Quadratic
from .._field.linearise import asks, linearise
from .._program.interval import roughness_over
from .._program.program import SMOOTH, dependencies


class _Bent(eqx.Module):
    """The answers of a quadratic, and any number for `Lap^2 u`."""

    plain: Quadratic
    bent: Array

    def value(self) -> Array:
        return self.plain.value()

    def grad(self) -> Array:
        return self.plain.grad()

    def trace(self, form: Any) -> Array:
        return self.plain.trace(form)

    def hessian(self) -> Array:
        return self.plain.hessian()

    def bilaplacian(self) -> Array:
        return self.bent


class _Parts(eqx.Module):
    """All coefficients as one function of a point, a jet with its `Lap^2 u`, and a direction."""

    equation: Equation

    def __call__(
        self, x: Any, v: Any, slope: Any, curvature: Any, bend: Any, bent: Any, w: Any
    ) -> tuple[Array, Array, Array, Array]:
        source = _Bent(Quadratic(v, slope, curvature, bend), bent)
        at = linearise(self.equation, x, Jet(source, x))
        return at.bilaplacian, at.quadratic(w[None])[0], at.grad, at.value


class _Whole(eqx.Module):
    """The equation itself as a function of a point and a jet with its `Lap^2 u`."""

    equation: Equation

    def __call__(self, x: Any, v: Any, slope: Any, curvature: Any, bend: Any, bent: Any) -> Array:
        source = _Bent(Quadratic(v, slope, curvature, bend), bent)
        return jnp.asarray(self.equation(x, Jet(source, x)))


def fourth_order(equation: Equation, boxes: list[tuple[Any, Any]]) -> tuple[int, set[int]]:
    """The order of an equation and, where it is 4, what its coefficients depend on, over boxes of jets.

    0 stands for the point, where the coefficient of `Lap^2 u` depends on it; every other number for a part of
    the jet that some coefficient depends on, so that the equation is not linear.
    """
    asked: list[str] = []
    jet = [lower for lower, _ in boxes]

    def look(x: Any, *rest: Any) -> Array:
        record, result = asks(equation, x, Jet(Quadratic(*rest), x))
        asked.extend(record.asked)
        return result

    jax.eval_shape(look, *jet)
    if "bilaplacian" not in asked:
        return 2, set()
    leading, *others = dependencies(_Parts(equation), *jet, jet[1], jet[0])
    # The last argument is a direction, which is no part of the jet.
    parts = set().union(leading, *others) - {0, 6}
    # Derivatives do not see steps, nor what is said to have none: there the equation is not linear.
    (levels,) = roughness_over(_Whole(equation), *boxes, boxes[1])
    parts |= {number for number, level in levels.items() if number > 0 and level != SMOOTH}
    return 4, parts | (leading & {0})
