"""Pairs of ends between which numbers lie, and what is common to all rules of interval arithmetic.

A lower end is never `+inf` and an upper one never `-inf`, so that sums of them are numbers. An end that is
infinite bounds nothing. Ends that are no numbers (nan) say more: the value itself may be none (the root of a
negative number, a pole), so that no comparison of it is certain either.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

# More than most elementary functions of XLA are off by, relative to the result; measured in
# `tests/test_enclosure.py`.
_ROUNDING = 1e-13
_LESS_ACCURATE = {
    "exp2": 1e-12,
    "sinh": 1e-12,
    "cosh": 1e-12,
    "log1p": 1e-12,
    "atanh": 1e-12,
    "erf_inv": 1e-8,
}


class Unbounded(ValueError):
    """A function that interval arithmetic cannot bound."""


class Span(NamedTuple):
    """Lower and upper ends, arrays of one shape."""

    low: Any
    high: Any


def is_real(span: Span) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(span.low), jnp.floating))


def is_exact(span: Span) -> bool:
    """Whether one object stands for both ends: a number that is known, and nothing was rounded."""
    return span.low is span.high


def anything(aval: Any) -> Span:
    """What is always true of a variable."""
    shape, kind = aval.shape, aval.dtype
    if kind == jnp.bool_:
        return Span(np.zeros(shape, bool), np.ones(shape, bool))
    if jnp.issubdtype(kind, jnp.integer):
        limits = np.iinfo(kind)
        return Span(np.full(shape, limits.min, kind), np.full(shape, limits.max, kind))
    nothing = np.full(shape, np.nan)
    return Span(nothing, nothing.copy())


def outward(span: Span, name: str = "") -> Span:
    """Rounded outwards, by what an operation may be off."""
    share = _LESS_ACCURATE.get(name, _ROUNDING)
    slack = [share * jnp.abs(end) + 1e-300 for end in span]
    return Span(span.low - slack[0], span.high + slack[1])


def sound(ends: Sequence[Any]) -> Span:
    """Ends of `inf - inf` and the like bound nothing."""
    low, high = ends
    return Span(jnp.where(jnp.isnan(low), -jnp.inf, low), jnp.where(jnp.isnan(high), jnp.inf, high))


def may_be_no_number(*spans: Span) -> Any:
    """Where one of some operands may be no number."""
    bad: Any = False
    for span in spans:
        if is_real(span):
            bad = bad | jnp.isnan(span.low) | jnp.isnan(span.high)
    return bad


def overflows(result: Span, *given: Span) -> Any:
    """Where finite operands make an infinite end, as at a pole."""
    finite: Any = True
    for span in given:
        finite = finite & jnp.isfinite(span.low) & jnp.isfinite(span.high)
    return finite & (jnp.isinf(result.low) | jnp.isinf(result.high))


def undefined(span: Span, where: Any) -> Span:
    """The same, but no numbers at some places."""
    return Span(jnp.where(where, jnp.nan, span.low), jnp.where(where, jnp.nan, span.high))


def never_negative(span: Span, where: Any) -> Span:
    """The same, but not below zero at some places, where that is certain."""
    if where is False:
        return span
    if where is True:
        return Span(jnp.maximum(span.low, 0.0), span.high)
    return Span(jnp.where(where, jnp.maximum(span.low, 0.0), span.low), span.high)


def hull(*candidates: Any) -> Span:
    low, high = candidates[0], candidates[0]
    for candidate in candidates[1:]:
        low, high = jnp.minimum(low, candidate), jnp.maximum(high, candidate)
    return sound((low, high))
