"""Jets: the unknown at one point, as an equation asks for it.

An equation is a callable `(x, u)`. It never differentiates; it asks the jet `u` for what it needs:

    lambda x, u: 1 - 0.2 * u.value + 0.5 * u.laplacian

Each ask is answered when it is made, by a *source*, and remembered; what is never asked costs
nothing. A source is any object with `value()`, `grad()`, `trace(form)` and `hessian()`. Second
derivatives are asked for through a *form* `H -> a : H`, so that no d x d array exists unless the
equation itself brings one.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._precision import Numbers
from .form import AbstractForm, Factor, Identity, Matrix

Equation = Callable[[Any, Any], Any]


@runtime_checkable
class Source(Protocol):
    """What answers a jet's asks at one point."""

    def value(self) -> Float[Array, ""]: ...
    def grad(self) -> Float[Array, " d"]: ...
    def trace(self, form: AbstractForm) -> Float[Array, ""]: ...
    def hessian(self) -> Float[Array, "d d"]: ...


class UnknownAsk(AttributeError, ValueError):
    """An equation asked for something that a jet does not have: wrong use, like other `ValueError`s."""


def _mark(operand: Any) -> Any:
    """What an answer is remembered by: the array, or its numbers where these may be written over."""
    if isinstance(operand, jax.Array):
        return id(operand)
    if isinstance(operand, np.ndarray):
        return operand.shape, operand.dtype.str, operand.tobytes()
    return object()


class Jet:
    """The unknown `u` at one point `x`, asked for its value and derivatives.

    | ask | answer |
    |---|---|
    | `u.value` | u(x) |
    | `u.grad` | gradient, shape `(d,)` |
    | `u.laplacian` | sum of the second derivatives |
    | `u.hessian` | full Hessian, shape `(d, d)` |
    | `u.along(v)` | v . grad u |
    | `u.second(v)` | v' Hess u v |
    | `u.trace(a)` | a : Hess u for a `(d, d)` matrix |
    | `u.generator(drift, sigma)` | drift . grad u + 1/2 tr(sigma sigma' Hess u) |
    | `u.bilaplacian` | the Laplacian of the Laplacian |
    """

    def __init__(self, source: Source, x: Float[Array, " d"]):
        self._source = source
        self._dim, self._dtype = x.size, x.dtype
        self._answers: dict[Any, tuple[Any, Any]] = {}

    def _ask(self, key: Any, answer: Callable[[], Any], owner: Any = None) -> Any:
        # `owner` is the object whose id is in the key: kept, so that its id is not reused.
        if key not in self._answers:
            # In the precision of the point, whatever the numbers of a field or a function are.
            self._answers[key] = (jnp.asarray(answer()).astype(self._dtype), owner)
        return self._answers[key][0]

    def contract(self, form: AbstractForm) -> Float[Array, ""]:
        """`a : Hess u` for a form. The product and sum rules ask with this."""
        key = "laplacian" if isinstance(form, Identity) else id(form)
        return self._ask(key, lambda: self._source.trace(form), form)

    @property
    def value(self) -> Float[Array, ""]:
        """u(x)."""
        return self._ask("value", self._source.value)

    @property
    def grad(self) -> Float[Array, " d"]:
        """The gradient, shape `(d,)`."""
        return self._ask("grad", self._source.grad)

    @property
    def laplacian(self) -> Float[Array, ""]:
        """The sum of the second derivatives."""
        return self.contract(Identity())

    @property
    def hessian(self) -> Float[Array, "d d"]:
        """The full Hessian, shape `(d, d)`."""
        return self._ask("hessian", self._source.hessian)

    @property
    def bilaplacian(self) -> Float[Array, ""]:
        """The Laplacian of the Laplacian."""
        return self._ask("bilaplacian", self._fourth("bilaplacian"))

    @property
    def laplacian_grad(self) -> Float[Array, " d"]:
        """The gradient of the Laplacian: what the product rule asks for, no ask of an equation."""
        return self._ask("laplacian_grad", self._fourth("laplacian_grad"))

    def hessian_parts(self) -> "list[tuple[Any, AbstractForm]]":
        """The Hessian as a sum of scaled forms, for the product rule."""
        parts = getattr(self._source, "hessian_parts", None)
        return [(1.0, Matrix(self.hessian))] if parts is None else parts()

    def _fourth(self, name: str) -> Callable[[], Any]:
        answer = getattr(self._source, name, None)
        if answer is None:
            raise UnknownAsk(
                f"u.{name} is not known here: {type(self._source).__name__} answers derivatives up to "
                "second order only."
            )
        return answer

    def along(self, v: Any) -> Float[Array, ""]:
        """`v . grad u` for a vector `v`."""
        return jnp.dot(self._vector("u.along(v)", v), self.grad)

    def second(self, v: Any) -> Float[Array, ""]:
        """`v' Hess u v` for a vector `v`."""
        sigma = self._vector("u.second(v)", v)[:, None]
        return self._ask(("second", _mark(v)), lambda: self._source.trace(Factor(sigma)), v)

    def trace(self, a: Any) -> Float[Array, ""]:
        """`a : Hess u` for a `(d, d)` matrix."""
        matrix = self._array(a)
        if matrix.shape != (self._dim, self._dim):
            raise ValueError(
                f"u.trace(a) takes a matrix of shape {(self._dim, self._dim)}, got {matrix.shape}."
            )
        return self._ask(("trace", _mark(a)), lambda: self._source.trace(Matrix(matrix)), a)

    def generator(self, drift: Any, sigma: Any) -> Float[Array, ""]:
        """`drift . grad u + 1/2 tr(sigma sigma' Hess u)`; a number `sigma` means `sigma I`."""
        factor = self._array(sigma)
        if factor.ndim == 0:
            second = factor * factor * self.laplacian
        elif factor.ndim == 2 and factor.shape[0] == self._dim:
            ask = ("generator", _mark(sigma))
            second = self._ask(ask, lambda: self._source.trace(Factor(factor)), sigma)
        else:
            raise ValueError(
                f"u.generator(drift, sigma) takes a number or a ({self._dim}, k) matrix for sigma, "
                f"got shape {factor.shape}. For a diagonal diffusion pass jnp.diag(sigma)."
            )
        return jnp.dot(self._vector("u.generator(drift, sigma)", drift), self.grad) + 0.5 * second

    def _array(self, operand: Any) -> Array:
        """Numbers in the precision of the point; a copy of those that may be written over."""
        # JAX keeps a NumPy array that a program closes over, not its numbers.
        fixed = operand.copy() if isinstance(operand, np.ndarray) else operand
        return jnp.asarray(fixed, self._dtype)

    def _vector(self, ask: str, v: Any) -> Float[Array, " d"]:
        vector = self._array(v)
        if vector.shape != (self._dim,):
            raise ValueError(
                f"{ask} takes a vector of shape ({self._dim},), got shape {vector.shape}."
            )
        return vector

    def __getattr__(self, name: str) -> Any:
        raise UnknownAsk(
            f"A jet has no {name!r}. An equation can ask for u.value, u.grad, u.laplacian, "
            "u.hessian, u.along(v), u.second(v), u.trace(a), u.generator(drift, sigma) and u.bilaplacian."
        )


class At:
    """Answers from a field (see `_field`) at the point `x`."""

    def __init__(self, field: Any, x: Float[Array, " d"]):
        self._field, self._x = field, x

    def value(self) -> Float[Array, ""]:
        return self._field.value(self._x)

    def grad(self) -> Float[Array, " d"]:
        return self._field.grad(self._x)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._field.trace(self._x, form)

    def hessian(self) -> Float[Array, "d d"]:
        return self._field.hessian(self._x)

    def bilaplacian(self) -> Float[Array, ""]:
        return self._field.bilaplacian(self._x)

    def laplacian_grad(self) -> Float[Array, " d"]:
        return self._field.laplacian_grad(self._x)

    def hessian_parts(self) -> list[tuple[Any, AbstractForm]]:
        return self._field.hessian_parts(self._x)


class Product:
    """Answers for `p q` by the product rule. `cross`, if given, is a cheaper way to `grad p . grad q`."""

    def __init__(self, p: Jet, q: Jet, cross: Callable[[], Float[Array, ""]] | None = None):
        self._p, self._q, self._cross = p, q, cross

    def value(self) -> Float[Array, ""]:
        return self._p.value * self._q.value

    def grad(self) -> Float[Array, " d"]:
        return self._p.value * self._q.grad + self._q.value * self._p.grad

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        p, q = self._p, self._q
        if self._cross is not None and isinstance(form, Identity):
            cross = self._cross()
        else:
            cross = jnp.dot(form.apply(p.grad), q.grad)
        return p.value * q.contract(form) + 2.0 * cross + q.value * p.contract(form)

    def hessian(self) -> Float[Array, "d d"]:
        p, q = self._p, self._q
        cross = jnp.outer(p.grad, q.grad)
        return p.value * q.hessian + cross + cross.T + q.value * p.hessian

    def bilaplacian(self) -> Float[Array, ""]:
        p, q = self._p, self._q
        mixed = jnp.dot(p.grad, q.laplacian_grad) + jnp.dot(q.grad, p.laplacian_grad)
        for scale, form in p.hessian_parts():
            mixed = mixed + scale * q.contract(form)
        ends = p.value * q.bilaplacian + q.value * p.bilaplacian
        return ends + 2.0 * p.laplacian * q.laplacian + 4.0 * mixed


class Sum:
    """Answers for `p + q`."""

    def __init__(self, p: Jet, q: Jet):
        self._p, self._q = p, q

    def value(self) -> Float[Array, ""]:
        return self._p.value + self._q.value

    def grad(self) -> Float[Array, " d"]:
        return self._p.grad + self._q.grad

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._p.contract(form) + self._q.contract(form)

    def hessian(self) -> Float[Array, "d d"]:
        return self._p.hessian + self._q.hessian

    def bilaplacian(self) -> Float[Array, ""]:
        return self._p.bilaplacian + self._q.bilaplacian


class Quadratic(eqx.Module):
    """Answers for a function with given value, gradient and Hessian `curvature I + v v'`."""

    constant: Numbers
    slope: Numbers
    curvature: Numbers
    v: Numbers

    def value(self) -> Float[Array, ""]:
        return jnp.asarray(self.constant)

    def grad(self) -> Float[Array, " d"]:
        return jnp.asarray(self.slope)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        v = jnp.asarray(self.v)
        return self.curvature * jnp.sum(form.diagonal(v)) + form.quadratic(v)

    def hessian(self) -> Float[Array, "d d"]:
        identity = jnp.eye(self.v.size, dtype=self.v.dtype)
        return self.curvature * identity + jnp.outer(self.v, self.v)

    def bilaplacian(self) -> Float[Array, ""]:
        return jnp.zeros_like(jnp.asarray(self.constant))
