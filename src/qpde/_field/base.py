"""Fields: functions of one point that know their derivatives.

Networks, the boundary factor `eta` and the extension `f` of the boundary data are fields. A jet asks
them through `value`, `grad`, `trace` and `hessian`; each answers in closed form where it has one.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arguments import a_function, reals
from .._precision import Numbers, like, number
from .form import AbstractForm, Coordinates, Factor, Identity, Matrix, Spatial
from .jet import At, Source
from .slips import check_signature

# Second derivatives by autodiff are taken in this many directions at a time: enough to fill the
# machine's vector units, few enough that memory does not grow with the dimension.
_DIRECTIONS = 16


class AbstractField(eqx.Module):
    """A twice differentiable function of one point.

    One of one's own has `value`, `grad`, `trace` and `hessian` in closed form; a function without closed
    forms needs no field, because automatic differentiation serves it.

        >>> class Plane(AbstractField):
        ...     slope: np.ndarray
        ...
        ...     def value(self, x):
        ...         return jnp.dot(self.slope, x)
        ...
        ...     def grad(self, x):
        ...         return jnp.asarray(self.slope, x.dtype)
        ...
        ...     def trace(self, x, form):
        ...         return jnp.zeros((), x.dtype)
        ...
        ...     def hessian(self, x):
        ...         return jnp.zeros((x.size, x.size), x.dtype)

    Its arrays are cast to the precision of a run before they are used.
    """

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

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The Laplacian of the Laplacian at `x`; by default the latter is differentiated twice."""
        return Autodiff(self._laplacian).trace(x, Identity())

    def laplacian_grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient of the Laplacian at `x`; by default by automatic differentiation."""
        return jax.grad(self._laplacian)(x)

    def hessian_parts(self, x: Float[Array, " d"]) -> list[tuple[Any, AbstractForm]]:
        """The Hessian at `x` as a sum of scaled forms, which need not be d x d; by default the matrix."""
        return [(1.0, Matrix(self.hessian(x)))]

    def _laplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.trace(x, Identity())

    def at(self, x: Float[Array, " d"]) -> Source:
        """The source that answers a jet at `x`. A field whose answers share work has one of its own."""
        return At(self, x)

    def judged_by(self) -> Callable[..., Any] | None:
        """The function whose program tells how smooth the field is; None where its formula is smooth."""
        return self.value

    @property
    def has_closed_forms(self) -> bool:
        """Whether some derivative is a formula that could be wrong, not automatic differentiation."""
        return True

    def judged_on(self) -> list[tuple[Any, Any]] | None:
        """The boxes on which that function is ever evaluated; None for the whole domain."""
        return None


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

    number: Numbers = eqx.field(converter=number)

    def judged_by(self) -> None:
        return None

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.number, x.dtype)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.zeros_like(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jnp.zeros((x.size, x.size), x.dtype)

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)


class Autodiff(AbstractField):
    """Any JAX function of one point, differentiated automatically."""

    function: Callable[..., Any]

    def judged_by(self) -> Callable[..., Any]:
        return self.function

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return like(x, self.function(x))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.grad(self.value)(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        def slope(v: Float[Array, " d"]) -> Float[Array, " d"]:
            return jax.jvp(jax.grad(self.value), (x,), (v,))[1]

        def axis(i: Any) -> Float[Array, ""]:
            return slope(jnp.zeros_like(x).at[i].set(1))[i]

        if isinstance(form, Identity | Spatial):
            return _total(axis, jnp.arange(x.size - isinstance(form, Spatial)))
        if isinstance(form, Coordinates):
            return form.scale * _total(axis, form.chosen)
        if isinstance(form, Factor):
            return _total(lambda v: jnp.dot(v, slope(v)), form.sigma.T.astype(x.dtype))
        return form.contract(self.hessian(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
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
    expected = "a number, a field or a function of one point"
    if callable(thing):
        check_signature("The function", a_function("A field", thing, expected), "one point (x)", 1)
        return Autodiff(thing)
    value = reals("A field", thing, expected)
    if value.shape != ():
        raise ValueError(f"A field must be {expected}, got an array of shape {value.shape}.")
    return Constant(value)


def by_value(field: AbstractField) -> AbstractField:
    """The field, differentiated automatically unless all its closed forms are this library's.

    Nobody has checked that the closed forms of a field or an activation of one's own are derivatives, and
    what is said of an error must not rest on it.
    """
    return field if not field.has_closed_forms or _is_ours(field) else Autodiff(field.value)


def _is_ours(module: eqx.Module) -> bool:
    """Whether an object and all that it is made of are of classes of this library."""
    if type(module).__module__.partition(".")[0] != __name__.partition(".")[0]:
        return False
    parts = (getattr(module, one.name) for one in dataclasses.fields(module))
    return all(_is_ours(part) for part in parts if isinstance(part, eqx.Module))
