"""Interval arithmetic of sums and products over many entries.

A sum of `n` terms, in whatever order, is rounded by at most `n` units of the sum of sizes, which may be far
more than relative to a result that cancels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from .spans import Span, Unbounded, may_be_no_number, never_negative, outward, undefined

# Twice the largest relative error of one sum or product.
_UNIT = 2.3e-16
_FACTORS = 256


def product(a: Any, b: Any) -> Any:
    """`a b`, where zero times infinity is zero: the zero is exact, the infinity is an end."""
    return jnp.where((a == 0) | (b == 0), 0.0, a * b)


def times(a: Span, b: Span) -> Span:
    """The corners; an operand that may be no number makes none of the product, also beside a zero."""
    corners = [product(x, y) for x in a for y in b]
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = jnp.minimum(low, corner), jnp.maximum(high, corner)
    result = never_negative(outward(Span(low, high)), (a.low >= 0) & (b.low >= 0))
    return undefined(result, may_be_no_number(a, b))


def _with_slack(a: Span, summed: Callable[[Any], Any], count: int) -> Span:
    """Sums of ends, rounded outwards by what sums of so many terms may be off."""
    slack = [_UNIT * (count + 2) * summed(jnp.abs(end)) + 1e-300 for end in a]
    return Span(summed(a.low) - slack[0], summed(a.high) + slack[1])


def total(a: Span, axes: Sequence[Any]) -> Span:
    axes = tuple(axes)
    count = math.prod(a.low.shape[axis] for axis in axes)
    result = _with_slack(a, lambda end: jnp.sum(end, axis=axes), count)
    return never_negative(result, jnp.all(a.low >= 0, axis=axes))


def running_total(equation: JaxprEqn, a: Span) -> Span:
    """`cumsum`."""
    axis, params = equation.params["axis"], equation.params

    def add_up(end: Any) -> Any:
        return equation.primitive.bind(end, **params)

    result = _with_slack(a, add_up, a.low.shape[axis])
    return never_negative(result, jnp.all(a.low >= 0, axis=axis, keepdims=True))


def scatter_add(equation: JaxprEqn, a: Span, where: Span, more: Span) -> Span:
    """Sums into places that are fixed."""

    def put(operand: Any, updates: Any) -> Any:
        return equation.primitive.bind(operand, where.low, updates, **equation.params)

    share = _UNIT * (more.low.size + 3)
    pairs = list(zip(a, more, strict=True))
    slack = [share * put(jnp.abs(x), jnp.abs(y)) + 1e-300 for x, y in pairs]
    return Span(put(*pairs[0]) - slack[0], put(*pairs[1]) + slack[1])


def dot(equation: JaxprEqn, a: Span, b: Span) -> Span:
    """Midpoints and radii: valid, at most twice as wide as need be; no numbers where an end is infinite."""

    def dotted(x: Any, y: Any) -> Any:
        return equation.primitive.bind(x, y, **equation.params)

    middle = [0.5 * (span.low + span.high) for span in (a, b)]
    radius = [0.5 * (span.high - span.low) for span in (a, b)]
    centre = dotted(*middle)
    spread = dotted(jnp.abs(middle[0]), radius[1]) + dotted(radius[0], jnp.abs(middle[1]))
    spread = spread + dotted(*radius)
    size = dotted(jnp.abs(middle[0]) + radius[0], jnp.abs(middle[1]) + radius[1])
    # Midpoints and radii are rounded too, by less than a sum of as many terms as there are entries.
    spread = spread + 1e-15 * (a.low.size + b.low.size) * size
    return outward(Span(centre - spread, centre + spread))


def whole_product(equation: JaxprEqn, a: Span) -> Span:
    """`reduce_prod`."""
    for axis in sorted(equation.params["axes"], reverse=True):
        parts = _along(a, int(axis))
        if not parts:
            raise Unbounded("Interval arithmetic takes no product of nothing.")
        a = parts[0]
        for part in parts[1:]:
            a = times(a, part)
    return a


def running_product(equation: JaxprEqn, a: Span) -> Span:
    """`cumprod`."""
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    parts = _along(a, int(axis))
    parts = parts[::-1] if reverse else parts
    for i in range(1, len(parts)):
        parts[i] = times(parts[i - 1], parts[i])
    parts = parts[::-1] if reverse else parts
    return Span(*(jnp.stack(ends, axis) for ends in zip(*parts, strict=True)))


def _along(a: Span, axis: int) -> list[Span]:
    if a.low.shape[axis] > _FACTORS:
        raise Unbounded(f"Interval arithmetic takes products of at most {_FACTORS} numbers.")
    before = (slice(None),) * axis
    return [Span(a.low[(*before, i)], a.high[(*before, i)]) for i in range(a.low.shape[axis])]
