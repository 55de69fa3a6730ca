"""Programs that are polynomials, by their operations, and programs that are the same."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from .calls import called, has_rule
from .program import lifted

# The degree is that of the operand, or the largest of several.
_LINEAR = frozenset(
    (
        *("add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "broadcast_in_dim", "reshape"),
        *("squeeze", "expand_dims", "transpose", "slice", "rev", "concatenate", "stack", "split"),
        *("pad", "copy", "copy_p", "scatter", "scatter-add", "gather", "dynamic_slice"),
    )
)


def degree(function: Callable[..., Any], x: Any) -> float:
    """The degree of a function of one array as a polynomial; infinite where its program does not show one."""
    program = jax.make_jaxpr(function)(jnp.asarray(x))
    return max(_degrees(program.jaxpr, [1.0]), default=0.0)


def _degrees(program: Jaxpr, inputs: list[float]) -> list[float]:
    known: dict[Any, float] = dict(zip(program.invars, inputs, strict=True))

    def read(atom: Any) -> float:
        return 0.0 if isinstance(atom, Literal) else known.get(atom, 0.0)

    for equation in program.eqns:
        given = [read(atom) for atom in equation.invars]
        inner = called(equation)
        if inner is not None and not has_rule(equation):
            results = _degrees(inner.jaxpr, given)
        else:
            results = [_degree(equation, given)] * len(equation.outvars)
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def _degree(equation: JaxprEqn, given: list[float]) -> float:
    name = equation.primitive.name
    if not any(given):
        return 0.0
    if name in _LINEAR:
        return max(given)
    if name in ("mul", "dot_general"):
        return sum(given)
    if name == "square":
        return 2.0 * given[0]
    if name == "integer_pow" and equation.params["y"] >= 0:
        return equation.params["y"] * given[0]
    if name == "div" and given[1] == 0:
        return given[0]
    if name == "select_n" and given[0] == 0:  # a choice that does not depend on x
        return max(given[1:])
    if name == "convert_element_type" and equation.params["new_dtype"] == jnp.float64:
        return given[0]
    return math.inf


def same_program(first: Callable[..., Any], second: Callable[..., Any], *arguments: Any) -> bool:
    """Whether two functions of the same arguments are the same operations on the same numbers."""
    given = [jnp.asarray(one) for one in arguments]
    (one, numbers), (two, others) = (
        lifted(jax.make_jaxpr(function)(*given)) for function in (first, second)
    )
    if one != two:
        return False
    pairs = zip(numbers, others, strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
