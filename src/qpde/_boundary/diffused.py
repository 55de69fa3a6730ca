"""Data with kinks, rounded off as the diffusion itself would do it.

With the time `s` since the data, the larger of two numbers `a` and `b` becomes

    b + E max(d + w N, 0),       d = a - b,   w^2 = 2 s grad d' A grad d,   N standard normal,

and so do `min`, `abs`, `clamp` and the largest or smallest of many (two by two, with one width). At the
instant of the data nothing is rounded: values are exact. Where `d` is linear and `A` constant this is the
semigroup itself. Elsewhere `L f` is what that misses, and it is bounded as `s` goes to zero: the curvature
`phi(d / w) / w`, which is not, is that of the semigroup. Reactions with kinks are rounded off by a fixed
width, because the field need not be their flow: it is only to be smooth and near.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from .._compiled import compiled
from .._diffusion.law import AbstractLaw
from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm
from .._precision import Numbers
from .._program.rewrite import operations
from .soften import KINKED, ROUNDED, choose, gaps, softened

# Added under roots, so that they have derivatives.
_TINY = 1e-30
# The width by which the kinks of a reaction are rounded off, as a part of the size of the data.
_REACTION = 0.03


class Diffused(AbstractField):
    """The data at the points `(x, t)`, with every kink rounded off by the noise since the data."""

    data: Callable[..., Any]
    law: AbstractLaw
    end: Numbers
    choices: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    backward: bool = eqx.field(static=True)

    def judged_by(self) -> None:
        """It is smooth at all times before the data, where the noise moves what has a kink."""
        return

    def widths(self, z: Float[Array, " d"]) -> list[Array]:
        """The deviation of what vanishes at every kink."""
        x, s = z[:-1], self.end - z[-1] if self.backward else z[-1]
        found = []
        for name, slope in zip(
            self.names, jax.jacrev(lambda y: gaps(self.data, y))(x), strict=True
        ):
            square = self.law.quadratic(x, z[-1], slope)
            if name.startswith("reduce"):
                square = 2.0 * jnp.mean(square)  # of the difference of two
            scale = 2.0 if name == "abs" else 1.0  # which `softened` halves
            found.append(scale * jnp.sqrt(2.0 * s * square + _TINY))
        return found

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return softened(self.data, x[:-1], self.choices, self.widths(x), _mean_size)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return Autodiff(self.value).grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return Autodiff(self.value).trace(x, form)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return Autodiff(self.value).hessian(x)


def _mean_size(t: Array, width: Any) -> Array:
    """`E |t + width N|`."""
    a = t / width
    return t * (2.0 * ndtr(a) - 1.0) + width * math.sqrt(2.0 / math.pi) * jnp.exp(-0.5 * a * a)


def diffused(
    data: AbstractField, law: AbstractLaw, box: tuple[Any, Any], end: Any, backward: bool
) -> Diffused | None:
    """The field; None where the program has other kinks than those that are rounded off."""
    choices = choose(data.value, box)
    program = jax.make_jaxpr(data.value)(jnp.asarray(box[0], float))
    names = tuple(equation.primitive.name for equation in operations(program.jaxpr, KINKED))
    rough = [name for name, choice in zip(names, choices, strict=True) if choice == ROUNDED]
    if not rough or "sqrt" in rough:
        return None
    return Diffused(data.value, law, end, choices, names, backward)


class Softened(eqx.Module):
    """A function of one number with its kinks rounded off."""

    function: Callable[..., Array]
    widths: Numbers
    choices: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, value: Array) -> Array:
        return softened(self.function, value, self.choices, jnp.asarray(self.widths, value.dtype))


def without_kinks(function: Callable[..., Array], middle: float) -> Callable[..., Array]:
    """A reaction whose kinks, if it has any, are rounded off; `middle` is a value of the solution's size."""
    whole = np.asarray(-np.inf), np.asarray(np.inf)
    choices = choose(function, whole)
    if ROUNDED not in choices:
        return function
    steep = np.asarray(_steepness(function, np.asarray(middle)))
    return Softened(function, _REACTION * max(abs(middle), 1e-300) * steep, choices)


@compiled(brief=True)
def _steepness(function: Callable[..., Array], middle: Any) -> Array:
    """How quickly what vanishes at every kink changes."""

    def along(value: Array) -> list[Array]:
        return jax.jvp(lambda y: gaps(function, y), (value,), (jnp.ones_like(value),))[1]

    return jnp.stack([jnp.max(jnp.abs(part)) for part in along(jnp.asarray(middle))])
