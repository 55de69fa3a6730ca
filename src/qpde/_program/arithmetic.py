"""Interval arithmetic, operation by operation: bounds of a result from bounds of its operands.

Every operation is rounded outwards. One that is not known here raises `Unbounded`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from .levels import loses_digits
from .reductions import (
    dot,
    running_product,
    running_total,
    scatter_add,
    times,
    total,
    whole_product,
)
from .spans import (
    Span,
    Unbounded,
    hull,
    is_exact,
    is_real,
    may_be_no_number,
    never_negative,
    outward,
    overflows,
    undefined,
)


def apply(equation: JaxprEqn, given: list[Span]) -> list[Span]:
    """Bounds of the results of one operation."""
    name = equation.primitive.name
    _refuse_kinds(equation, given)
    if loses_digits(equation):
        raise Unbounded(f"Interval arithmetic takes {name} with all digits only.")
    if all(map(is_exact, given)) and (name in _STRUCTURAL or not any(map(is_real, given))):
        # Known exactly, and nothing to round; one object for both ends says so.
        return [Span(value, value) for value in _bind(equation, [span.low for span in given])]
    if any(is_real(span) and jnp.result_type(span.low) != jnp.float64 for span in given):
        raise Unbounded("Interval arithmetic is done in float64 only.")
    _refuse_odd(equation, given)
    if name in _STRUCTURAL:
        given = [_sortable(equation, given[0])] if name == "sort" else given
        lows, highs = (_bind(equation, [span[i] for span in given]) for i in (0, 1))
        return [Span(low, high) for low, high in zip(lows, highs, strict=True)]
    if not all(map(is_real, given)) and name not in _ANY_KIND:
        raise Unbounded(f"Interval arithmetic does not take {name} of varying whole numbers.")
    if name in ("mul", "dot_general") and equation.invars[0] is equation.invars[1]:
        square = _squares(equation, given[0])
        if square is not None:
            return [square]
    if name in _WHOLE:
        return [_WHOLE[name](equation, *given)]
    if name in _RISING or name in _FALLING:
        ends = [_bind(equation, [end])[0] for end in given[0]]
        result = Span(*ends) if name in _RISING else Span(*ends[::-1])
        if (
            name in _PARTIAL
        ):  # beyond the function's domain, or at a pole, one end makes no number of it
            result = undefined(result, may_be_no_number(result) | overflows(result, *given))
    elif name in _RULES:
        result = _RULES[name](equation, *given)
        if name in _FORGETTING:
            result = undefined(result, may_be_no_number(*given))
    else:
        raise Unbounded(f"Interval arithmetic does not know the operation {name}.")
    result = result if name in _UNROUNDED else outward(result, name)
    return [never_negative(result, _is_never_negative(equation, given))]


def _is_never_negative(equation: JaxprEqn, given: list[Span]) -> Any:
    """Where a result is not negative for certain, whatever rounding says."""
    name = equation.primitive.name
    if name in ("add", "add_any"):
        return (given[0].low >= 0) & (given[1].low >= 0)
    if name == "div":
        return (given[0].low >= 0) & (given[1].low > 0)
    if name == "pow":
        return given[0].low >= 0
    if name == "integer_pow":
        even = equation.params["y"] % 2 == 0
        return even | (given[0].low > 0) | ((given[0].low == 0) & (equation.params["y"] > 0))
    return name in _NEVER_NEGATIVE


def _refuse_kinds(equation: JaxprEqn, given: list[Span]) -> None:
    """Complex numbers have no order."""
    for atom in (*equation.invars, *equation.outvars):
        kind = getattr(atom.aval, "dtype", None)
        if kind is None or jnp.issubdtype(kind, jnp.complexfloating):
            raise Unbounded("Interval arithmetic does not take complex numbers.")


_INDICES = {
    "gather": slice(1, None),
    "dynamic_slice": slice(1, None),
    "dynamic_update_slice": slice(2, None),
    "scatter": slice(1, 2),
    "scatter-add": slice(1, 2),
}


def _refuse_odd(equation: JaxprEqn, given: list[Span]) -> None:
    """Operations that are known for some operands only."""
    name = equation.primitive.name
    kinds = [jnp.result_type(span.low) for span in given]
    if name in _INDICES and not all(map(is_exact, given[_INDICES[name]])):
        raise Unbounded("Interval arithmetic takes fixed indices only.")
    if name in _LOGICAL and any(kind != jnp.bool_ for kind in kinds):
        raise Unbounded(f"Interval arithmetic takes {name} of truth values only.")
    if name == "sort" and len(given) > 1:
        raise Unbounded("Interval arithmetic sorts one array alone.")
    if name == "convert_element_type":
        new = jnp.dtype(equation.params["new_dtype"])
        if kinds[0] != jnp.bool_ and not jnp.issubdtype(new, jnp.floating):
            raise Unbounded("Interval arithmetic does not turn varying numbers into whole ones.")


def _sortable(equation: JaxprEqn, a: Span) -> Span:
    """What is no number is sorted to the end, where it need not belong."""
    if not is_real(a):
        return a
    axis = equation.params["dimension"]
    return undefined(a, jnp.any(may_be_no_number(a), axis=axis, keepdims=True))


def _bind(equation: JaxprEqn, values: list[Any]) -> list[Any]:
    result = equation.primitive.bind(*values, **equation.params)
    return result if equation.primitive.multiple_results else [result]


def _squares(equation: JaxprEqn, a: Span) -> Span | None:
    """A product of something with itself, entry by entry or summed."""
    squares = never_negative(outward(_even(a, jnp.square)), True)
    if equation.primitive.name == "mul":
        return squares
    (left, right), (batch, other) = equation.params["dimension_numbers"]
    whole = len(left) + len(batch) == jnp.ndim(squares.low)
    # The result has its axes in the order of `batch`.
    if left == right and batch == other == tuple(sorted(batch)) and whole:
        return total(squares, left)
    return None


def _div(equation: JaxprEqn, a: Span, b: Span) -> Span:
    crosses = (b.low <= 0) & (b.high >= 0)
    safe = Span(jnp.where(crosses, 1.0, b.low), jnp.where(crosses, 1.0, b.high))
    quotient = hull(*(jnp.where(x == 0, 0.0, x / y) for x in a for y in safe))
    whole = jnp.broadcast_to(crosses, jnp.shape(quotient.low))
    return undefined(quotient, whole)  # a pole


def _even(a: Span, function: Callable[[Any], Any]) -> Span:
    """A function that falls up to zero and rises from there."""
    ends = function(a.low), function(a.high)
    inside = (a.low <= 0) & (a.high >= 0)
    least = jnp.minimum(*ends)
    bottom = jnp.minimum(function(jnp.zeros_like(least)), least)
    return Span(jnp.where(inside, bottom, least), jnp.maximum(*ends))


def _integer_pow(equation: JaxprEqn, a: Span) -> Span:
    y = equation.params["y"]
    if y < 0:
        one = jnp.ones_like(a.low)
        return undefined(_div(equation, Span(one, one), _power(a, -y)), may_be_no_number(a))
    return _power(a, y)


def _power(a: Span, y: int) -> Span:
    """A power by squaring, which is rounded `y` times."""
    result = _even(a, lambda x: x**y) if y % 2 == 0 else Span(a.low**y, a.high**y)
    slack = [3e-16 * y * jnp.abs(end) for end in result]
    result = Span(result.low - slack[0], result.high + slack[1])
    return never_negative(result, (y % 2 == 0) | (a.low >= 0))


def _pow(equation: JaxprEqn, a: Span, b: Span) -> Span:
    shape = jnp.broadcast_shapes(jnp.shape(a.low), jnp.shape(b.low))
    a, b = (Span(*(jnp.broadcast_to(end, shape) for end in span)) for span in (a, b))
    base = Span(jnp.where(a.low > 0, a.low, 1.0), jnp.where(a.low > 0, a.high, 1.0))
    value = hull(*(x**y for x in base for y in b))
    # From zero on, positive powers rise; elsewhere there is a pole.
    most, rises = jnp.maximum(jnp.maximum(a.high, 0.0) ** b.low, a.high**b.high), b.low > 0
    from_zero = undefined(Span(jnp.zeros_like(most), most), ~rises)
    # A whole number as the power: a polynomial, also of negative numbers.
    whole = (b.low == b.high) & (b.low >= 0) & (b.low == jnp.round(b.low))
    sizes = _even(a, jnp.abs)
    even = Span(sizes.low**b.low, sizes.high**b.low)
    odd = Span(*(jnp.sign(end) * jnp.abs(end) ** b.low for end in a))
    is_even = jnp.mod(b.low, 2.0) == 0
    result = Span(*(jnp.where(a.low > 0, *pair) for pair in zip(value, from_zero, strict=True)))
    result = undefined(result, a.low < 0)
    entire = Span(*(jnp.where(is_even, *pair) for pair in zip(even, odd, strict=True)))
    return Span(*(jnp.where(whole, *pair) for pair in zip(entire, result, strict=True)))


def _wave(function: Callable[[Any], Any], top: float) -> Callable[..., Span]:
    """Sine or cosine, whose maxima lie at `top` plus multiples of a turn."""
    turn = 2.0 * math.pi

    def rule(equation: JaxprEqn, a: Span) -> Span:
        finite = jnp.isfinite(a.low) & jnp.isfinite(a.high)
        low, high = jnp.where(finite, a.low, 0.0), jnp.where(finite, a.high, turn)
        slack = 1e-12 * (1.0 + jnp.abs(low) + jnp.abs(high))  # so that an extremum is not missed

        def meets(at: float) -> Any:
            return jnp.ceil((low - slack - at) / turn) * turn + at <= high + slack

        ends = hull(function(low), function(high))
        return Span(
            jnp.where(meets(top + math.pi), -1.0, ends.low), jnp.where(meets(top), 1.0, ends.high)
        )

    return rule


def _tan(equation: JaxprEqn, a: Span) -> Span:
    """Rising between its poles."""
    slack = 1e-12 * (1.0 + jnp.abs(a.low) + jnp.abs(a.high))
    first = jnp.floor((a.low - slack) / math.pi + 0.5)
    between = (first == jnp.floor((a.high + slack) / math.pi + 0.5)) & (slack < 1e-3)
    ends = [jnp.tan(jnp.where(between, end, 0.0)) for end in a]
    return undefined(Span(*ends), ~between)


def _atan2(equation: JaxprEqn, y: Span, x: Span) -> Span:
    """Away from the ray on which it leaps, the angles of a box lie between those of its corners."""
    corners = hull(*(jnp.arctan2(v, h) for v in y for h in x))
    away = (x.low > 0) | (y.low > 0) | (y.high < 0)
    return Span(
        jnp.where(away, corners.low, -math.pi - 1e-12),
        jnp.where(away, corners.high, math.pi + 1e-12),
    )


def rises_in_both(function: Callable[[Any, Any], Any], a: Span, b: Span) -> Span:
    """A function such as `logaddexp`, whose rounding is relative to its larger operand.

    That is at most one larger in size than the result.
    """
    ends = [function(x, y) for x, y in zip(a, b, strict=True)]
    slack = [1e-13 * (2.0 + jnp.abs(end)) for end in ends]
    return Span(ends[0] - slack[0], ends[1] + slack[1])


def _equal(equation: JaxprEqn, a: Span, b: Span) -> Span:
    sure = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return Span(sure, ((a.low <= b.high) & (b.low <= a.high)) | may_be_no_number(a, b))


def _unequal(equation: JaxprEqn, a: Span, b: Span) -> Span:
    same = _equal(equation, a, b)
    return Span(~same.high, ~same.low)


def choose(which: Span, *cases: Span) -> Span:
    """The chosen case, or the hull of those that may be chosen."""
    result: Span | None = None
    for i, case in enumerate(cases):
        may = (which.low <= i) & (which.high >= i)
        if not is_real(case):
            raise Unbounded("Interval arithmetic chooses between real numbers only.")
        low, high = jnp.where(may, case.low, jnp.inf), jnp.where(may, case.high, -jnp.inf)
        result = (
            Span(low, high)
            if result is None
            else Span(jnp.minimum(result.low, low), jnp.maximum(result.high, high))
        )
    assert result is not None  # there is at least one case
    return undefined(result, result.low > result.high)


def _compare(sure: Callable[[Any, Any], Any], strict_ends: bool) -> Callable[..., Span]:
    """`a > b` and the like as a pair of truth values: surely, possibly."""

    def rule(equation: JaxprEqn, a: Span, b: Span) -> Span:
        first, second = (a.low, b.high), (a.high, b.low)
        pair = (first, second) if strict_ends else (second, first)
        return Span(sure(*pair[0]), sure(*pair[1]) | may_be_no_number(a, b))

    return rule


_LOGICAL = frozenset(("and", "or", "not", "reduce_and", "reduce_or"))
# Each output entry is one input entry, or rises with all inputs and is not rounded.
_STRUCTURAL = frozenset(
    (
        *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "rev"),
        *("concatenate", "stack", "unstack", "split", "tile", "pad", "copy", "copy_p", "iota"),
        *("gather", "dynamic_slice", "dynamic_update_slice", "scatter", "convert_element_type"),
        *("stop_gradient", "optimization_barrier", "name", "reduce_precision"),
        *("max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "sort"),
        *("floor", "ceil", "round", "sign", "and", "or", "reduce_and", "reduce_or"),
    )
)
_RISING = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "cbrt", "erf", "erf_inv"),
        *("atan", "asin", "sinh", "asinh", "acosh", "atanh", "sqrt"),
    )
)
_FALLING = frozenset(("erfc", "acos", "rsqrt"))
_PARTIAL = frozenset(("log", "log1p", "sqrt", "rsqrt", "asin", "acos", "acosh", "atanh", "erf_inv"))
# Their rules can make numbers of what is none.
_FORGETTING = frozenset(("div", "pow", "sin", "cos", "atan2"))
_NEVER_NEGATIVE = frozenset(
    (
        *("exp", "exp2", "logistic", "abs", "square", "cosh", "sqrt", "rsqrt", "erfc"),
        *("acos", "acosh"),
    )
)
_COMPARISONS: dict[str, Callable[..., Span]] = {
    "eq": _equal,
    "ne": _unequal,
    "gt": _compare(jnp.greater, True),
    "ge": _compare(jnp.greater_equal, True),
    "lt": _compare(jnp.less, False),
    "le": _compare(jnp.less_equal, False),
    "not": lambda e, a: Span(~a.high, ~a.low),
}
# Rules that round, and look for operands that are no numbers, themselves.
_WHOLE: dict[str, Callable[..., Span]] = {
    **_COMPARISONS,
    "mul": lambda e, a, b: times(a, b),
    "dot_general": dot,
    "reduce_sum": lambda e, a: total(a, e.params["axes"]),
    "reduce_prod": whole_product,
    "cumsum": running_total,
    "cumprod": running_product,
    "scatter-add": scatter_add,
    "select_n": lambda e, which, *cases: choose(which, *cases),
}
_ANY_KIND = frozenset(("select_n", "scatter-add", *_COMPARISONS))
_UNROUNDED = frozenset(("neg", "abs"))
_RULES: dict[str, Callable[..., Span]] = {
    "add": lambda e, a, b: Span(a.low + b.low, a.high + b.high),
    "add_any": lambda e, a, b: Span(a.low + b.low, a.high + b.high),
    "sub": lambda e, a, b: Span(a.low - b.high, a.high - b.low),
    "neg": lambda e, a: Span(-a.high, -a.low),
    "div": _div,
    "abs": lambda e, a: _even(a, jnp.abs),
    "square": lambda e, a: _even(a, jnp.square),
    "cosh": lambda e, a: _even(a, jnp.cosh),
    "integer_pow": _integer_pow,
    "pow": _pow,
    "sin": _wave(jnp.sin, 0.5 * math.pi),
    "cos": _wave(jnp.cos, 0.0),
    "tan": _tan,
    "atan2": _atan2,
}
