"""How smooth single operations are: a list of what is known. What is not in it counts as a jump.

Programs are read as formulas of real numbers, so that the rounding of float64 is no roughness; rounding to
fewer digits is a step, and counts as one.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jax.lax import Precision

SMOOTH, KINK, JUMP = 0, 1, 2
# Bounds `(low, high)` of an operand or a result, or None where there are none.
SpanOf = Callable[[Any], Any]

# Smooth wherever their operands are numbers. Indices are integers, and an integer that depends on a real
# number was made by a jump.
_SMOOTH = frozenset(
    (
        *("add", "add_any", "sub", "mul", "neg", "square", "dot_general", "conv_general_dilated"),
        *("reduce_sum", "reduce_prod", "reduce_window_sum", "cumsum", "cumprod", "cumlogsumexp"),
        *("exp", "exp2", "expm1", "sin", "cos", "sinh", "cosh", "tanh", "atan", "asinh"),
        *("logistic", "erf", "erfc"),
        *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev"),
        *("concatenate", "stack", "unstack", "split", "tile", "pad", "copy", "copy_p", "iota"),
        *("gather", "dynamic_slice", "dynamic_update_slice", "scatter", "scatter-add"),
        *("scatter_add", "scatter-mul", "scatter_mul", "select_n", "optimization_barrier"),
        *("name", "device_put", "sharding_constraint"),
        # Of truth values, which are made by comparisons: constant where those are.
        *("and", "or", "not", "xor", "reduce_and", "reduce_or"),
    )
)
# Steps: constant where bounds show only one value.
_STEPS = frozenset(
    ("sign", "floor", "ceil", "round", "gt", "ge", "lt", "le", "eq", "ne", "is_finite")
)
# Continuous, and smooth between their kinks.
_KINKS = frozenset(("reduce_max", "reduce_min", "cummax", "cummin", "reduce_window_max"))
# Smooth inside an interval of the operand; at its ends a kink (a root) or a pole.
_INSIDE: dict[str, tuple[float, float, int]] = {
    "sqrt": (0.0, np.inf, KINK),
    "asin": (-1.0, 1.0, KINK),
    "acos": (-1.0, 1.0, KINK),
    "acosh": (1.0, np.inf, KINK),
    "rsqrt": (0.0, np.inf, JUMP),
    "log": (0.0, np.inf, JUMP),
    "log1p": (-1.0, np.inf, JUMP),
    "atanh": (-1.0, 1.0, JUMP),
    "erf_inv": (-1.0, 1.0, JUMP),
    "lgamma": (0.0, np.inf, JUMP),
    "digamma": (0.0, np.inf, JUMP),
}


def level(equation: JaxprEqn, span_of: SpanOf) -> int:
    """How rough the results of one operation are in operands that are smooth: `SMOOTH`, `KINK`, `JUMP`."""
    name = equation.primitive.name
    kinds = [getattr(atom.aval, "dtype", None) for atom in (*equation.invars, *equation.outvars)]
    if any(kind is None or jnp.issubdtype(kind, jnp.complexfloating) for kind in kinds):
        return JUMP  # branch cuts, and derivatives that are not those of the real functions
    if loses_digits(equation):
        return JUMP
    if name in _SMOOTH:
        return SMOOTH
    if name in _STEPS:
        return SMOOTH if decided(span_of(equation.outvars[0])) else JUMP
    if name in _KINKS:
        return KINK
    if name in _INSIDE:
        return _of_inside(span_of(equation.invars[0]), *_INSIDE[name])
    rule = _RULES.get(name)
    return JUMP if rule is None else rule(equation, span_of)


def loses_digits(equation: JaxprEqn) -> bool:
    """Whether an operation is asked to compute with fewer digits than its operands have."""
    wanted, operands = equation.params.get("preferred_element_type"), equation.invars
    if wanted is not None and any(getattr(a.aval, "dtype", None) != wanted for a in operands):
        return True
    precision = equation.params.get("precision")
    pair = precision if isinstance(precision, tuple) else (precision,)
    if any(part not in (None, Precision.HIGHEST, Precision.DEFAULT) for part in pair):
        return True
    return equation.params.get("accuracy") is not None


def decided(span: Any) -> bool:
    """Whether bounds leave one value only."""
    return span is not None and bool(np.all(np.asarray(span[0]) == np.asarray(span[1])))


def _always(span: Any, test: Callable[[Any, Any], Any]) -> bool:
    """Whether a test of lower and upper ends holds for all entries; ends that are no numbers fail it."""
    return span is not None and bool(np.all(test(np.asarray(span[0]), np.asarray(span[1]))))


def _apart_from_zero(span: Any) -> bool:
    return _always(span, lambda low, high: (low > 0) | (high < 0))


def _of_inside(span: Any, least: float, most: float, edge: int) -> int:
    if _always(span, lambda low, high: (low > least) & (high < most if most < np.inf else True)):
        return SMOOTH
    if _always(span, lambda low, high: (low >= least) & (high <= most)):
        return edge
    return JUMP  # not even a number everywhere


def _away(index: int, otherwise: int) -> Callable[[JaxprEqn, SpanOf], int]:
    """Smooth where one operand keeps away from zero."""

    def rule(equation: JaxprEqn, span_of: SpanOf) -> int:
        return SMOOTH if _apart_from_zero(span_of(equation.invars[index])) else otherwise

    return rule


def _integer_pow(equation: JaxprEqn, span_of: SpanOf) -> int:
    return SMOOTH if equation.params["y"] >= 0 else _away(0, JUMP)(equation, span_of)


def _pow(equation: JaxprEqn, span_of: SpanOf) -> int:
    base, power = (span_of(atom) for atom in equation.invars)
    if _always(base, lambda low, high: low > 0):
        return SMOOTH
    if decided(power) and _always(power, lambda low, high: (low >= 0) & (low == np.round(low))):
        return SMOOTH  # a polynomial
    if _always(base, lambda low, high: low >= 0) and _always(power, lambda low, high: low > 0):
        return KINK
    return JUMP


def _larger(equation: JaxprEqn, span_of: SpanOf) -> int:
    a, b = (span_of(atom) for atom in equation.invars)
    if a is None or b is None:
        return KINK
    apart = (np.asarray(a[0]) > np.asarray(b[1])) | (np.asarray(b[0]) > np.asarray(a[1]))
    return SMOOTH if np.all(apart) else KINK


def _clamp(equation: JaxprEqn, span_of: SpanOf) -> int:
    least, x, most = (span_of(atom) for atom in equation.invars)
    # Where the ends may cross, JAX's derivatives are not those of the function.
    if least is None or most is None:
        return JUMP
    if not np.all(np.asarray(least[1]) <= np.asarray(most[0])):
        return JUMP
    if x is None:
        return KINK
    inside = (np.asarray(x[0]) > np.asarray(least[1])) & (np.asarray(x[1]) < np.asarray(most[0]))
    return SMOOTH if np.all(inside) else KINK


def _sort(equation: JaxprEqn, span_of: SpanOf) -> int:
    return KINK if len(equation.invars) == 1 else JUMP  # what is carried along leaps


def _tan(equation: JaxprEqn, span_of: SpanOf) -> int:
    def between_poles(low: Any, high: Any) -> Any:
        first, last = np.floor(low / np.pi + 0.5 - 1e-9), np.floor(high / np.pi + 0.5 + 1e-9)
        return (np.abs(low) < 1e6) & (np.abs(high) < 1e6) & (first == last)

    return SMOOTH if _always(span_of(equation.invars[0]), between_poles) else JUMP


def _atan2(equation: JaxprEqn, span_of: SpanOf) -> int:
    """The angle leaps on the ray of negative `x`."""
    y, x = (span_of(atom) for atom in equation.invars)
    if y is None or x is None:
        return JUMP
    beside = (np.asarray(y[0]) > 0) | (np.asarray(y[1]) < 0)
    return SMOOTH if np.all(beside | (np.asarray(x[0]) > 0)) else JUMP


def _convert(equation: JaxprEqn, span_of: SpanOf) -> int:
    old, new = equation.invars[0].aval.dtype, equation.params["new_dtype"]  # pyright: ignore
    if decided(span_of(equation.outvars[0])):
        return SMOOTH
    if not jnp.issubdtype(old, jnp.floating):
        return SMOOTH if new != jnp.bool_ or old == jnp.bool_ else JUMP
    wider = jnp.issubdtype(new, jnp.floating) and jnp.finfo(new).bits >= jnp.finfo(old).bits
    return SMOOTH if wider and jnp.finfo(new).nmant >= jnp.finfo(old).nmant else JUMP


_RULES: dict[str, Callable[[JaxprEqn, SpanOf], int]] = {
    "abs": _away(0, KINK),
    "cbrt": _away(0, KINK),
    "bessel_i0e": _away(0, KINK),
    "bessel_i1e": _away(0, KINK),
    "div": _away(1, JUMP),
    "integer_pow": _integer_pow,
    "pow": _pow,
    "max": _larger,
    "min": _larger,
    "clamp": _clamp,
    "sort": _sort,
    "tan": _tan,
    "atan2": _atan2,
    "convert_element_type": _convert,
}
