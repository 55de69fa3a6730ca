"""Boundary values with kinks, made smooth: rounded off a little on the boundary and widely inside."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.grade import Grade
from .._equation.roughness import rough_on
from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm
from .._precision import Numbers, key_from
from .._program.spans import Unbounded
from .miss import Approximation, largest_miss
from .soften import ROUNDED, choose, deviation, gaps, softened

# How quickly the width grows with the distance to the boundary: about as it does.
_GROWTH = 0.5
# Boundary points and directions from which the slopes at kinks are taken.
_POINTS, _DIRECTIONS = 256, 8


class Rounded(AbstractField):
    """`g` with its kinks rounded off (see `soften`), by widths that grow with the distance to the boundary.

    At a point of distance `t` inradii the width of a kink is about `smoothing + t` times the change of its
    operands over an inradius: `L f` then grows towards a kink on the boundary no quicker than that of
    the solution, and is square integrable up to a logarithm of the smoothing.
    """

    g: Callable[..., Any]
    domain: AbstractDomain
    slopes: Numbers  # change of the operands of every kink over an inradius
    smoothing: Numbers
    grade: Grade | None  # the coordinates in which a box has its distances
    choices: tuple[int, ...] = eqx.field(static=True)

    def judged_by(self) -> Callable[..., Any]:
        # Where the domain vouches for its eta, the width is smooth and positive: one width tells of all.
        vouched = self.domain.fills_box or self.domain.sloped_eta is not None
        return self.with_one_width if vouched else self.value

    def with_one_width(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`g` rounded off by the same width everywhere, that of the boundary."""
        return softened(self.g, x, self.choices, jnp.asarray(self.smoothing * self.slopes, x.dtype))

    def width(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """At most `smoothing` on the boundary, smooth and growing inwards, positive in the whole box."""
        if not self.domain.fills_box:
            inwards = _GROWTH * self.domain.eta.value(x)
            return jnp.sqrt(self.smoothing**2 + inwards * inwards)
        lower, upper = self.domain.enclosing_box
        u = (x - lower) / (upper - lower) if self.grade is None else self.grade(x)
        across = self.smoothing + 4.0 * _GROWTH * u * (1.0 - u)
        # A smooth minimum over the axes: (sum w^-4)^(-1/4).
        share = jnp.square(self.smoothing / across)
        return self.smoothing * jax.lax.rsqrt(jnp.sqrt(jnp.sum(share * share)))

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        widths = (self.width(x) * self.slopes).astype(x.dtype)
        return softened(self.g, x, self.choices, widths)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return Autodiff(self.value).grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return _once(Autodiff(self.value).trace(x, form))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return _once(Autodiff(self.value).hessian(x))


def _once(value: Array) -> Array:
    """The value, computed once: the compiler would put the long formula into every entry of a Jacobian."""
    return jax.lax.optimization_barrier(value)


def round_off(
    g: Callable[..., Any], domain: AbstractDomain, smoothing: float, grade: Grade | None = None
) -> Approximation | None:
    """`g` rounded off, with a bound for what that misses; None where its program does not become smooth.

    Where the diffusion varies much along the axes of a box, as `grade` says, widths are taken in its
    coordinates: they grow quickly away from a face at which there is little, as layers of the solution do.
    """
    box = domain.enclosing_box
    choices = choose(g, box)
    if ROUNDED not in choices:
        return None
    steep = np.nan_to_num(
        np.asarray(_slopes(g, domain, grade, key_from(0))), posinf=0.0
    )  # roots at zero
    slopes = np.sqrt(np.mean(steep**2, axis=0))
    inradius = domain.inradius if grade is None else 0.5
    field = Rounded(g, domain, slopes * inradius, np.asarray(smoothing), grade, choices)
    if rough_on(field.judged_by(), box):
        return None
    how = "boundary values with kinks rounded off"
    try:
        miss = deviation(g, box, choices, list(smoothing * field.slopes))
        return Approximation(field, g, miss, proved=True, how=how)
    except Unbounded:
        miss, _ = largest_miss(g, field, domain)
        return Approximation(field, g, miss, proved=False, how=how)


@compiled(brief=True)
def _slopes(
    g: Callable[..., Any], domain: AbstractDomain, grade: Grade | None, key: PRNGKeyArray
) -> Array:
    """The size of the gradients of what vanishes at every kink: root mean squares at boundary points.

    From derivatives along normal directions, whose mean square is that of the gradient, in the coordinates
    of the grade; of arrays the largest entry.
    """
    points = domain.sample_boundary(key, _POINTS)
    random = jr.normal(jr.fold_in(key, 1), (_DIRECTIONS, domain.dim))

    def at(x: Array) -> Array:
        def along(v: Array) -> list[Array]:
            return jax.jvp(lambda y: gaps(g, y), (x,), (v,))[1]

        directions = random if grade is None else random / grade.slope(x)[None, :]
        squares = [jnp.mean(jnp.square(part), axis=0) for part in jax.vmap(along)(directions)]
        return jnp.sqrt(jnp.stack([jnp.max(square) for square in squares]))

    return jax.vmap(at)(points)
