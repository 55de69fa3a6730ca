"""The coefficients of an equation: its derivatives in what it asks of the jet.

A recording jet lists the asks; the equation is then differentiated in free variables that are added to the
answers. Nothing of size d x d is built unless the equation itself asks for the Hessian.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._precision import like
from .form import AbstractForm, Identity, Matrix, Spatial
from .jet import Equation, Jet


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
        self._record("laplacian" if isinstance(form, Identity | Spatial) else "trace")
        self.forms.append(form)
        free, base = self._variables, self._base.contract(form)
        return base if free is None else base + free.traces[len(self.forms) - 1]

    def bilaplacian(self) -> Float[Array, ""]:
        self._record("bilaplacian")
        free = self._variables
        return self._base.bilaplacian if free is None else self._base.bilaplacian + free.bilaplacian

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
    bilaplacian: Float[Array, ""]


class Coefficients(eqx.Module):
    """First-order expansion of an equation in its jet:

    `F(u + v) = residual + c v + b . grad v + sum_k s_k (a_k : Hess v) + A : Hess v + e Lap^2 v + ...`
    """

    residual: Float[Array, ""]
    value: Float[Array, ""]
    grad: Float[Array, " d"]
    traces: tuple[Float[Array, ""], ...]
    forms: tuple[AbstractForm, ...]
    hessian: Float[Array, "d d"] | None
    bilaplacian: Float[Array, ""]

    def quadratic(self, w: Float[Array, "n d"]) -> Float[Array, " n"]:
        """`w' (dF/dHess) w` for every row: the sign of the second-order part along `w`."""
        total = jnp.zeros(w.shape[:-1], w.dtype)
        for scale, form in self._terms():
            total = total + scale * form.quadratic(w)
        return total

    def diagonal(self) -> Float[Array, " d"]:
        """The diagonal of `dF/dHess`."""
        total = jnp.zeros_like(self.grad)
        for scale, form in self._terms():
            total = total + scale * form.diagonal(total)
        return total

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`(dF/dHess) v`."""
        total = jnp.zeros_like(v)
        for scale, form in self._terms():
            total = total + scale * form.apply(v)
        return total

    def matrix(self) -> Float[Array, "d d"]:
        """`dF/dHess`, symmetric."""
        identity = jnp.eye(self.grad.size, dtype=self.grad.dtype)
        total = jnp.zeros_like(identity)
        for scale, form in self._terms():
            total = total + scale * jax.vmap(form.apply)(identity)
        return total

    def _terms(self) -> list[tuple[Array, AbstractForm]]:
        terms = list(zip(self.traces, self.forms, strict=True))
        if self.hessian is not None:
            terms.append((jnp.ones_like(self.value), Matrix(self.hessian)))
        return terms


def asks(equation: Equation, x: Float[Array, " d"], jet: Jet) -> tuple[Perturbed, Any]:
    """Run the equation once at `x`: the record of what it asked of `jet`, and what it returned."""
    record = Perturbed(jet)
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
        bilaplacian=zero,
    )

    def residual(variables: Variables) -> tuple[Float[Array, ""], tuple[AbstractForm, ...]]:
        source = Perturbed(jet, variables)
        return like(x, equation(x, Jet(source, x))), tuple(source.forms)

    value, pullback, forms = jax.vjp(residual, free, has_aux=True)
    (by,) = pullback(jnp.ones_like(value))
    return Coefficients(value, by.value, by.grad, by.traces, forms, by.hessian, by.bilaplacian)
