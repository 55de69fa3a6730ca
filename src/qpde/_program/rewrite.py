"""Programs with some of their operations replaced."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array

from .calls import called

# What stands for an operation: a function of its number among those replaced, itself, and its operands.
Rule = Callable[[int, JaxprEqn, list[Any]], Any]


def rewritten(
    function: Callable[..., Any], arguments: Sequence[Any], names: Collection[str], rule: Rule
) -> Any:
    """The scalar `function(*arguments)`, with `rule` in place of the operations of the given names."""
    program = jax.make_jaxpr(function)(*arguments)
    (result,) = _run(program, list(arguments), names, rule, iter(range(10**9)))
    return result


def operations(program: Jaxpr, names: Collection[str]) -> Iterator[JaxprEqn]:
    """The operations of the given names, in the order in which `rewritten` meets them."""
    for equation in program.eqns:
        inner = called(equation)
        if inner is not None:
            yield from operations(inner.jaxpr, names)
        elif equation.primitive.name in names:
            yield equation


def bind(equation: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The results of an operation as it is."""
    result = equation.primitive.bind(*values, **equation.params)
    return list(result) if equation.primitive.multiple_results else [result]


def pairwise(pair: Callable[[Array, Array], Array], equation: JaxprEqn, a: Array) -> Array:
    """What a reduction over axes does, from a function of two."""
    for axis in sorted(equation.params["axes"], reverse=True):
        a = jnp.moveaxis(a, axis, 0)
        while a.shape[0] > 1:
            half, odd = divmod(a.shape[0], 2)
            pairs = pair(a[:half], a[half : 2 * half])
            a = jnp.concatenate([pairs, a[2 * half :]]) if odd else pairs
        a = a[0]
    return a


def _run(
    program: ClosedJaxpr,
    inputs: list[Any],
    names: Collection[str],
    rule: Rule,
    numbers: Iterator[int],
) -> list[Any]:
    known = dict(zip(program.jaxpr.invars, inputs, strict=True))
    known.update(zip(program.jaxpr.constvars, program.consts, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for equation in program.jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        inner = called(equation)
        if inner is not None:
            results = _run(inner, values, names, rule, numbers)
        elif equation.primitive.name in names:
            results = [rule(next(numbers), equation, values)]
        else:
            results = bind(equation, values)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.jaxpr.outvars]
