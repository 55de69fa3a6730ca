"""Which constant matrices the second-order part of an equation is made of.

    dF/d(Hess u) = sum_k s_k a_k

with numbers `s_k` that may depend on the point and on `u`, and matrices `a_k` that may not. Which of them
depend on what is read off the equation's program, never from samples: a dependence that cancels counts.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._field.form import AbstractForm, Identity, Matrix
from .._field.jet import Equation, Jet, Quadratic
from .._field.linearise import Coefficients, asks, linearise
from .._program.program import dependencies

# More matrices than these make more products than a Jacobian has columns.
_MOST = 4


class SecondOrder(eqx.Module):
    """The terms of the second-order part, by their places in `Coefficients`, sorted into groups.

    All terms of the group `steady` are constant, numbers included, and count as one matrix; the terms of
    any other group share one matrix. The place of a Hessian is the number of the forms.
    """

    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    steady: int | None = eqx.field(static=True)
    laplacian: bool = eqx.field(static=True)  # the Laplacian only
    asked: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, equation: Equation, dim: int) -> "SecondOrder | None":
        """The groups of an equation; None where a matrix varies, or where there are too many of them."""
        seen = _Seen()
        x = np.zeros(dim)
        jet = np.zeros(()), np.zeros(dim), np.zeros(()), np.zeros(dim)
        reach = dependencies(_Parts(equation, seen), x, *jet)
        if "bilaplacian" in seen.asked:
            return None
        scales, rest = reach[: len(seen.forms)], reach[len(seen.forms) :]
        steady, groups, laplacians = list[int](), list[tuple[int, ...]](), list[int]()
        for place, (scale, form) in enumerate(zip(scales, seen.forms, strict=True)):
            count = len(jax.tree.leaves(form))
            leaves, rest = rest[:count], rest[count:]
            if any(leaves):
                return None
            if isinstance(form, Identity):
                laplacians.append(place)
            elif scale:
                groups.append((place,))
            else:
                steady.append(place)
        if rest:  # the equation asks for the Hessian
            if any(rest):
                return None
            steady.append(len(seen.forms))
        only = bool(laplacians) and not steady and not groups
        if laplacians and not only and not any(scales[place] for place in laplacians):
            steady, laplacians = laplacians + steady, []
        groups += [tuple(each) for each in (laplacians, steady) if each]
        if not 0 < len(groups) <= _MOST:
            return None
        last = len(groups) - 1 if steady else None
        return cls(tuple(groups), last, only, tuple(seen.asked))

    def scales(self, at: Coefficients) -> Float[Array, " k"]:
        """The numbers of the groups at a point."""
        one = jnp.ones_like(at.value)
        return jnp.stack(
            [
                one if number == self.steady else sum((at.traces[i] for i in group), 0.0 * one)
                for number, group in enumerate(self.groups)
            ]
        )

    def matrices(self, at: Coefficients) -> "list[list[tuple[Any, AbstractForm]]]":
        """The matrices of the groups, as sums of numbers times forms, from the coefficients at any point."""
        terms = [(scale, form) for scale, form in zip(at.traces, at.forms, strict=True)]
        if at.hessian is not None:
            terms.append((jnp.ones_like(at.value), Matrix(at.hessian)))
        one = jnp.ones_like(at.value)
        return [
            [terms[i] for i in group] if number == self.steady else [(one, terms[group[0]][1])]
            for number, group in enumerate(self.groups)
        ]


class _Seen:
    """What the last run of an equation asked for."""

    def __init__(self) -> None:
        self.forms: tuple[AbstractForm, ...] = ()
        self.asked: list[str] = []


class _Parts:
    """The numbers, the entries of the matrices and the Hessian's coefficient as functions of a jet."""

    def __init__(self, equation: Equation, seen: _Seen):
        self._equation, self._seen = equation, seen

    def __call__(self, x: Any, *jet: Any) -> list[Array]:
        point = Jet(Quadratic(*jet), x)
        self._seen.asked = asks(self._equation, x, point)[0].asked
        at = linearise(self._equation, x, point)
        self._seen.forms = at.forms
        hessian = [] if at.hessian is None else [at.hessian]
        return [*at.traces, *jax.tree.leaves(at.forms), *hessian]


def apply(matrix: "list[tuple[Any, AbstractForm]]", rows: Float[Array, "n d"]) -> Array:
    """`a v` for every row `v`."""
    return _total(matrix, lambda form: rows if isinstance(form, Identity) else _rows(form, rows))


def _rows(form: AbstractForm, rows: Array) -> Array:
    return jax.vmap(form.apply)(rows)


def diagonal(matrix: "list[tuple[Any, AbstractForm]]", x: Float[Array, " d"]) -> Array:
    """The diagonal of `a`."""
    return _total(matrix, lambda form: form.diagonal(x))


def _total(
    matrix: "list[tuple[Any, AbstractForm]]", term: Callable[[AbstractForm], Array]
) -> Array:
    return functools.reduce(operator.add, [scale * term(form) for scale, form in matrix])
