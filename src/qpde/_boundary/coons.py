"""Boundary values of a box carried inside: Coons' patch in any dimension."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, Factor, Identity
from .._precision import Numbers

# Coordinates of boundary points that a box evaluates at a time, a bound on memory.
_COORDINATES = 16_384


class Coons(AbstractField):
    """`sum_(i<k) w_ik (P_i + P_k - P_i P_k) g` (see `lift`).

    On a face only the pairs with its axis have weight, and each of them is `g` there. For a smooth
    function `G` that is `g` on the boundary, `f - G = -sum w_ik D_i D_k h_ik` with `h_ik` smooth (the
    divided difference of `G` at 0, 1, u along both axes). The factors `w_ik D_i D_k` are smooth
    where no three faces meet; there they are homogeneous of degree 2 in `D`, hence with bounded
    second derivatives. The rounding of `g` enters these over the square of the third smallest `D`.
    """

    g: Callable[..., Any]
    lower: Numbers
    upper: Numbers

    def judged_by(self) -> Callable[..., Any] | None:
        return self.g if len(self.lower) > 1 else None  # two numbers have no kinks

    def judged_on(self) -> list[tuple[Any, Any]]:
        return faces(self.lower, self.upper)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        ends = jnp.stack([jnp.asarray(end, x.dtype) for end in (self.lower, self.upper)])
        u = (x - ends[0]) / (ends[1] - ends[0])
        hats = jnp.stack([1.0 - u, u])
        axes = jnp.arange(x.size)

        def total(*columns: Array) -> Array:
            """The sum of `weight g(x with x_i = first, x_k = second)`."""

            def term(row: tuple[Array, ...]) -> Array:
                i, k, first, second, weight = row
                y = jnp.where(axes == i, first, jnp.where(axes == k, second, x))
                return weight * jnp.asarray(self.g(y), x.dtype)

            rows = tuple(column.ravel() for column in jnp.broadcast_arrays(*columns))
            if rows[0].size * x.size <= _COORDINATES:
                return jnp.sum(jax.vmap(term)(rows))
            return jnp.sum(jax.lax.map(term, rows, batch_size=max(1, _COORDINATES // x.size)))

        if x.size == 1:
            return total(axes, axes, ends, ends, hats)
        i, k, pair = _pair_weights(u)
        single = jnp.zeros_like(x).at[i].add(pair).at[k].add(pair)
        corner = pair[None, None] * hats[:, None, i] * hats[None, :, k]
        faces = total(axes, axes, ends, ends, single[None] * hats)
        return faces - total(i, k, ends[:, None, i], ends[None, :, k], corner)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return Autodiff(self.value).grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if isinstance(form, Identity):
            directions = np.eye(x.size)
        elif isinstance(form, Factor):
            directions = form.sigma.T
        else:
            return Autodiff(self.value).trace(x, form)

        def along(v: Float[Array, " d"]) -> Array:
            def slope(y: Array) -> Array:
                return jax.jvp(self.value, (y,), (v,))[1]

            return jax.jvp(slope, (x,), (v,))[1]

        # Forward mode keeps no intermediate values, one direction at a time is enough work.
        return jnp.sum(jax.lax.map(along, jnp.asarray(directions, x.dtype)))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return Autodiff(self.value).hessian(x)


def faces(lower: Any, upper: Any) -> list[tuple[Any, Any]]:
    """The faces of a box, as boxes."""
    axes = np.eye(len(lower), dtype=bool)
    onto_lower = [(lower, np.where(axis, lower, upper)) for axis in axes]
    return onto_lower + [(np.where(axis, upper, lower), upper) for axis in axes]


def _pair_weights(u: Float[Array, " d"]) -> tuple[Array, Array, Array]:
    """Axes `i`, `k` and weights `1 / (D_i D_k)` over their sum, for every pair.

    The pairs are in the order of `D`, and all weights are multiplied by its two smallest entries.
    These then stand in no denominator: nothing is singular where only two faces meet.
    """
    distance = u * (1.0 - u) + jnp.finfo(u.dtype).eps
    order = jnp.argsort(jax.lax.stop_gradient(distance))
    sort = distance[order]
    i, k = np.triu_indices(u.size, 1)
    near = jnp.concatenate([sort[1:2], sort[:1], sort[0] * sort[1] / sort[2:]])
    weight = jnp.where(k == 1, 1.0, near[i] / sort[k])
    return order[i], order[k], weight / jnp.sum(weight)
