"""Fields: functions of one point that know their derivatives.

Networks, the boundary factor `eta` and the extension `f` of the boundary data are fields. A jet asks
them through `value`, `grad`, `trace` and `hessian`; each answers in closed form where it has one.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._form import AbstractForm, Factor, Identity, Numbers
from ._jet import At, Source, widely

# Second derivatives by autodiff are taken in this many directions at a time: enough to fill the
# machine's vector units, few enough that memory does not grow with the dimension.
_DIRECTIONS = 16


class AbstractField(eqx.Module):
    """A twice differentiable function of one point."""

    @abstractmethod
    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at `x`."""

    @abstractmethod
    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient at `x`."""

    @abstractmethod
    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        """`a : Hess` at `x` for a second-order form; the Laplacian for `Identity()`."""

    @abstractmethod
    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """The full Hessian at `x`."""

    def at(self, x: Float[Array, " d"]) -> Source:
        """What answers a jet at `x`. A field whose answers share work gives its own."""
        return At(self, x)


class SourcedField(AbstractField):
    """A field whose answers at a point share work: only `at` is its own."""

    @abstractmethod
    def at(self, x: Float[Array, " d"]) -> Source:
        """What answers a jet at `x`."""

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.at(x).value()

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.at(x).grad()

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return self.at(x).trace(form)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return self.at(x).hessian()


class Constant(AbstractField):
    """The same number everywhere."""

    number: Numbers = eqx.field(converter=lambda v: np.asarray(v, np.float64))

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.number, x.dtype)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.zeros_like(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jnp.zeros((x.size, x.size), x.dtype)


class Autodiff(AbstractField):
    """Any JAX function of one point, differentiated automatically."""

    function: Callable[..., Any]

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return widely(self.function, x)

    # Derivatives are taken with x64 for the reason that `widely` gives: they trace the function too.

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        with jax.enable_x64(True):
            return jax.grad(self.value)(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        with jax.enable_x64(True):
            return self._trace(x, form)

    def _trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        def slope(v: Float[Array, " d"]) -> Float[Array, " d"]:
            return jax.jvp(jax.grad(self.value), (x,), (v,))[1]

        def axis(i: Any) -> Float[Array, ""]:
            return slope(jnp.zeros_like(x).at[i].set(1))[i]

        if isinstance(form, Identity):
            return _total(axis, jnp.arange(x.size))
        if isinstance(form, Factor):
            return _total(lambda v: jnp.dot(v, slope(v)), form.sigma.T.astype(x.dtype))
        return form.contract(self.hessian(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        with jax.enable_x64(True):
            return jax.hessian(self.value)(x)


def _total(term: Callable[[Any], Float[Array, ""]], directions: Array) -> Float[Array, ""]:
    """The sum of `term` over the rows of `directions`, a few at a time."""
    if directions.shape[0] <= _DIRECTIONS:
        return jnp.sum(jax.vmap(term)(directions))
    return jnp.sum(jax.lax.map(term, directions, batch_size=_DIRECTIONS))


def as_field(thing: Any) -> AbstractField:
    """A field from a number, a field, or a function of one point."""
    if isinstance(thing, AbstractField):
        return thing
    if callable(thing):
        return Autodiff(thing)
    return Constant(thing)
