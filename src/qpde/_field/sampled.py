"""Second-order traces from a few coordinates drawn at random, for networks without closed forms.

With `i_1, ..., i_k` drawn so that every one of `d` coordinates is expected `k / d` times,

    E[ (d / k) sum_j H_(i_j i_j) ] = tr H,

and for a factor, with columns in place of coordinates, `sigma sigma' : H`. Values and gradients stay exact.
An equation that is affine in the second derivatives, as those here must be, has then an unbiased `L Q`. With
two independent estimates `r_1`, `r_2` of it

    E[r_1 r_2] = (L Q)^2,   E[grad (r_1 r_2)] = grad (L Q)^2,

while the mean of `r_1^2` is larger by the variance of `r_1`, which a network could make small in place of
`L Q`. A direction that is linear in `L Q`, as that of Q-learning is, takes their mean.

Each draw comes from one of `k` equal parts of the coordinates, so that neighbours are not drawn together.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .form import AbstractForm, Coordinates, Factor, Identity, Spatial
from .jet import Source


class Sampling(eqx.Module):
    """What is drawn at one point."""

    key: PRNGKeyArray
    draws: int = eqx.field(static=True)

    def thinned(self, form: AbstractForm, x: Float[Array, " d"]) -> AbstractForm:
        """A form with the same mean, from few coordinates; as it is where that would be no saving."""
        if isinstance(form, Factor):
            count = form.sigma.shape[1]
            if count <= self.draws:
                return form
            chosen, scale = self._drawn(count, x)
            return Factor(form.sigma[:, chosen] * jnp.sqrt(scale))
        if not isinstance(form, Identity | Spatial):
            return form
        count = x.size - isinstance(form, Spatial)
        return form if count <= self.draws else Coordinates(*self._drawn(count, x))

    def _drawn(self, count: int, x: Array) -> tuple[Array, Array]:
        part = count / self.draws
        u = jr.uniform(self.key, (self.draws,), jnp.float32)
        chosen = jnp.floor((jnp.arange(self.draws, dtype=jnp.float32) + u) * part)
        chosen = jnp.minimum(chosen.astype(jnp.int32), count - 1)
        return chosen, jnp.asarray(part, x.dtype)


class Sampled:
    """A source whose second-order traces are estimates."""

    def __init__(self, source: Source, sampling: Sampling, x: Float[Array, " d"]):
        self._source, self._sampling, self._x = source, sampling, x

    def __getattr__(self, name: str) -> Any:
        # What only some sources know, such as `towards`; fourth derivatives are refused before.
        return getattr(self._source, name)

    def value(self) -> Float[Array, ""]:
        return self._source.value()

    def grad(self) -> Float[Array, " d"]:
        return self._source.grad()

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._source.trace(self._sampling.thinned(form, self._x))

    def hessian(self) -> Float[Array, "d d"]:
        return self._source.hessian()
