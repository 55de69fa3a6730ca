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
from jaxtyping import Array, Float

from ._form import AbstractForm, Factor, Identity, Matrix, Numbers

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
    """

    def __init__(self, source: Source, x: Float[Array, " d"]):
        self._source = source
        self._dim, self._dtype = x.size, x.dtype
        self._answers: dict[Any, tuple[Any, Any]] = {}

    def _ask(self, key: Any, answer: Callable[[], Any], owner: Any = None) -> Any:
        # `owner` is the object whose id is in the key: kept, so that its id is not reused.
        if key not in self._answers:
            # Equations are traced with x64 (see `widely`); the answers are not.
            with jax.enable_x64(self._dtype == jnp.float64):
                self._answers[key] = (answer(), owner)
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

    def along(self, v: Any) -> Float[Array, ""]:
        """`v . grad u` for a vector `v`."""
        return jnp.dot(self._vector("u.along(v)", v), self.grad)

    def second(self, v: Any) -> Float[Array, ""]:
        """`v' Hess u v` for a vector `v`."""
        sigma = self._vector("u.second(v)", v)[:, None]
        return self._ask(("second", id(v)), lambda: self._source.trace(Factor(sigma)), v)

    def trace(self, a: Any) -> Float[Array, ""]:
        """`a : Hess u` for a `(d, d)` matrix."""
        matrix = jnp.asarray(a, self._dtype)
        if matrix.shape != (self._dim, self._dim):
            raise ValueError(
                f"u.trace(a) takes a matrix of shape {(self._dim, self._dim)}, got {matrix.shape}."
            )
        return self._ask(("trace", id(a)), lambda: self._source.trace(Matrix(matrix)), a)

    def generator(self, drift: Any, sigma: Any) -> Float[Array, ""]:
        """`drift . grad u + 1/2 tr(sigma sigma' Hess u)`; a number `sigma` means `sigma I`."""
        factor = jnp.asarray(sigma, self._dtype)
        if factor.ndim == 0:
            second = factor * factor * self.laplacian
        elif factor.ndim == 2 and factor.shape[0] == self._dim:
            ask = ("generator", id(sigma))
            second = self._ask(ask, lambda: self._source.trace(Factor(factor)), sigma)
        else:
            raise ValueError(
                f"u.generator(drift, sigma) takes a number or a ({self._dim}, k) matrix for sigma, "
                f"got shape {factor.shape}. For a diagonal diffusion pass jnp.diag(sigma)."
            )
        return jnp.dot(self._vector("u.generator(drift, sigma)", drift), self.grad) + 0.5 * second

    def _vector(self, ask: str, v: Any) -> Float[Array, " d"]:
        vector = jnp.asarray(v, self._dtype)
        if vector.shape != (self._dim,):
            raise ValueError(
                f"{ask} takes a vector of shape ({self._dim},), got shape {vector.shape}."
            )
        return vector

    def __getattr__(self, name: str) -> Any:
        raise UnknownAsk(
            f"A jet has no {name!r}. An equation can ask for u.value, u.grad, u.laplacian, "
            "u.hessian, u.along(v), u.second(v), u.trace(a) and u.generator(drift, sigma)."
        )


def widely(function: Callable[..., Any], x: Float[Array, " d"], *rest: Any) -> Float[Array, ""]:
    """A user's function at `x`, traced with x64 whatever the precision of `x`, as a number like `x`.

    JAX (0.10.2) remembers the first form in which it saw a NumPy array, float32 or float64, and hands it
    to later programs of either kind. A function that closes over NumPy arrays must therefore always
    be traced in the same mode. Python numbers and the jet keep the precision of `x`.
    """
    with jax.enable_x64(True):
        return jnp.asarray(function(x, *rest)).astype(x.dtype)


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
        diagonal = form.diagonal(self.v.size)
        return self.curvature * jnp.sum(diagonal) + form.quadratic(jnp.asarray(self.v))

    def hessian(self) -> Float[Array, "d d"]:
        return self.curvature * jnp.eye(self.v.size) + jnp.outer(self.v, self.v)


class Perturbed:
    """Answers of a base jet plus free variables, one for each different ask.

    Without variables it records: `forms` holds the second-order forms asked for, in order, and
    `asked` the kinds of ask. With variables, differentiating an equation in them gives its
    coefficients at the base jet. The base answers carry the dependence of a form on the jet
    itself, as in `u.second(u.grad)`.
    """

    def __init__(self, base: Jet, variables: "Variables | None" = None):
        self._base, self._variables = base, variables
        self.forms: list[AbstractForm] = []
        self.asked: list[str] = []

    def _record(self, ask: str) -> None:
        if ask not in self.asked:
            self.asked.append(ask)

    def value(self) -> Float[Array, ""]:
        self._record("value")
        free = self._variables
        return self._base.value if free is None else self._base.value + free.value

    def grad(self) -> Float[Array, " d"]:
        self._record("grad")
        free = self._variables
        return self._base.grad if free is None else self._base.grad + free.grad

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        self._record("laplacian" if isinstance(form, Identity) else "trace")
        self.forms.append(form)
        free, base = self._variables, self._base.contract(form)
        return base if free is None else base + free.traces[len(self.forms) - 1]

    def hessian(self) -> Float[Array, "d d"]:
        self._record("hessian")
        free = self._variables
        if free is None:
            return self._base.hessian
        assert free.hessian is not None  # the recording pass saw this ask
        return self._base.hessian + free.hessian


class Variables(eqx.Module):
    """Free variables of a jet, or the derivatives of an equation in them."""

    value: Float[Array, ""]
    grad: Float[Array, " d"]
    traces: tuple[Float[Array, ""], ...]
    hessian: Float[Array, "d d"] | None


class Coefficients(eqx.Module):
    """First-order expansion of an equation in its jet:

    `F(u + v) = residual + c v + b . grad v + sum_k s_k (a_k : Hess v) + A : Hess v + ...`
    """

    residual: Float[Array, ""]
    value: Float[Array, ""]
    grad: Float[Array, " d"]
    traces: tuple[Float[Array, ""], ...]
    forms: tuple[AbstractForm, ...]
    hessian: Float[Array, "d d"] | None

    def quadratic(self, w: Float[Array, "n d"]) -> Float[Array, " n"]:
        """`w' (dF/dHess) w` for every row: the sign of the second-order part along `w`."""
        total = jnp.zeros(w.shape[:-1], w.dtype)
        for scale, form in self._terms():
            total = total + scale * form.quadratic(w)
        return total

    def diagonal(self, dim: int) -> Float[Array, " d"]:
        """The diagonal of `dF/dHess`."""
        total = jnp.zeros(dim)
        for scale, form in self._terms():
            total = total + scale * form.diagonal(dim)
        return total

    def matrix(self, dim: int) -> Float[Array, "d d"]:
        """`dF/dHess`, symmetric."""
        total = jnp.zeros((dim, dim))
        for scale, form in self._terms():
            total = total + scale * jax.vmap(form.apply)(jnp.eye(dim))
        return total

    def _terms(self) -> list[tuple[Array, AbstractForm]]:
        terms = list(zip(self.traces, self.forms, strict=True))
        if self.hessian is not None:
            terms.append((jnp.ones(()), Matrix(self.hessian)))
        return terms


def asks(equation: Equation, x: Float[Array, " d"], jet: Jet) -> tuple[Perturbed, Any]:
    """Run the equation once at `x`: the record of what it asked of `jet`, and what it returned."""
    record = Perturbed(jet)
    with jax.enable_x64(True):
        return record, equation(x, Jet(record, x))


def linearise(equation: Equation, x: Float[Array, " d"], jet: Jet) -> Coefficients:
    """The coefficients of an equation at `x`, linearised at `jet`.

    The equation is differentiated in its jet by reverse mode, once; nothing of size d x d is
    built unless the equation asked for the Hessian.
    """
    record, _ = asks(equation, x, jet)
    zero = jnp.zeros((), x.dtype)
    free = Variables(
        value=zero,
        grad=jnp.zeros_like(x),
        traces=(zero,) * len(record.forms),
        hessian=jnp.zeros((x.size, x.size), x.dtype) if "hessian" in record.asked else None,
    )

    def residual(variables: Variables) -> tuple[Float[Array, ""], tuple[AbstractForm, ...]]:
        source = Perturbed(jet, variables)
        return widely(equation, x, Jet(source, x)), tuple(source.forms)

    value, pullback, forms = jax.vjp(residual, free, has_aux=True)
    (by,) = pullback(jnp.ones_like(value))
    return Coefficients(value, by.value, by.grad, by.traces, forms, by.hessian)
