"""What a JAX program says about a function: what its outputs depend on, and whether smoothly.

Derivatives by automatic differentiation are those almost everywhere: they do not see jumps, and second
derivatives do not see kinks. What is proved from derivatives therefore needs to know of both.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

SMOOTH, KINK, JUMP = 0, 1, 2

# Operations that call a program of the same inputs and outputs.
_CALLS = frozenset(
    (
        *("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"),
        *("custom_vjp_call_jaxpr", "remat", "checkpoint", "custom_lin"),
    )
)
_KINKS = frozenset(
    (
        *("abs", "max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "sort"),
        *("top_k", "reduce_window_max"),
    )
)
_JUMPS = frozenset(
    (
        *(
            "sign",
            "floor",
            "ceil",
            "round",
            "rem",
            "argmax",
            "argmin",
            "stop_gradient",
            "nextafter",
        ),
        *(
            "gt",
            "ge",
            "lt",
            "le",
            "eq",
            "ne",
            "is_finite",
            "cond",
            "while",
            "scan",
            "pure_callback",
        ),
        *("io_callback", "and", "or", "not", "xor", "shift_left", "custom_root", "linear_solve"),
    )
)
# Not smooth, or not even continuous, where the operand with this number vanishes.
_SINGULAR = {"sqrt": 0, "rsqrt": 0, "cbrt": 0, "log": 0, "pow": 0, "div": 1, "integer_pow": 0}


def called(equation: Any) -> ClosedJaxpr | None:
    """The program that an equation of a program calls, where it does nothing else."""
    if equation.primitive.name not in _CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(name)
        if isinstance(inner, ClosedJaxpr):
            return inner
        if isinstance(inner, Jaxpr):
            return ClosedJaxpr(inner, ())
    return None


def dependencies(function: Callable[..., Any], *arguments: Any) -> list[set[int]]:
    """For every output, the numbers of the arguments that it may depend on.

    It looks at the program only, so that a dependence which cancels is reported too.
    """
    return [set(levels) for levels in roughness(function, *arguments)]


def roughness(
    function: Callable[..., Any],
    *arguments: Any,
    bounds: Callable[[ClosedJaxpr], dict[Any, Any]] | None = None,
) -> list[dict[int, int]]:
    """For every output, how it depends on each argument: `SMOOTH`, `KINK` or `JUMP`.

    `bounds` may bound programs (see `_enclosure`): a root or a quotient whose operand keeps away from zero
    is smooth. Without it every root and quotient of something that depends on an argument is suspect.
    """
    with jax.enable_x64(True):
        program = jax.make_jaxpr(function)(*(jnp.asarray(a) for a in arguments))
    inputs = [{i: SMOOTH} for i in range(len(arguments))]
    found = _walk(program.jaxpr, inputs)
    # Bounds cost a walk through the numbers, and can only make things smoother.
    if bounds is None or all(level == SMOOTH for levels in found for level in levels.values()):
        return found
    return _walk(program.jaxpr, inputs, bounds(program))


def _walk(
    program: Jaxpr, inputs: Sequence[dict[int, int]], spans: Any = None
) -> list[dict[int, int]]:
    known: dict[Any, dict[int, int]] = dict(zip(program.invars, inputs, strict=True))

    def read(atom: Any) -> dict[int, int]:
        return {} if isinstance(atom, Literal) else known.get(atom, {})

    for equation in program.eqns:
        given = [read(atom) for atom in equation.invars]
        inner = called(equation)
        if inner is not None and len(inner.jaxpr.invars) == len(given):
            outputs = _walk(inner.jaxpr, given, spans)
        else:
            level = _level(equation, spans)
            merged: dict[int, int] = {}
            for one in given:
                for index, rough in one.items():
                    merged[index] = max(merged.get(index, SMOOTH), rough, level)
            if equation.primitive.name == "select_n":
                for index in given[0]:  # a choice that depends on an argument
                    merged[index] = JUMP
            outputs = [merged] * len(equation.outvars)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in program.outvars]


def _level(equation: Any, spans: Any) -> int:
    name = equation.primitive.name
    if name in _JUMPS:
        return JUMP
    if name in _KINKS:
        return KINK
    if name == "convert_element_type":
        real = jnp.issubdtype(equation.params["new_dtype"], jnp.floating)
        return SMOOTH if real else JUMP
    if name in _SINGULAR:
        operand = equation.invars[_SINGULAR[name]]
        if isinstance(operand, Literal) or (name == "integer_pow" and equation.params["y"] > 0):
            return SMOOTH
        if spans is not None and operand in spans and not _meets_zero(spans[operand]):
            return SMOOTH
        return JUMP if name == "div" else KINK
    return SMOOTH


def _meets_zero(span: Any) -> bool:
    low, high = (np.asarray(end) for end in span)
    return bool(np.any((low <= 0) & (high >= 0)) or np.any(np.isnan(low) | np.isnan(high)))
