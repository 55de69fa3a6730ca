"""Bounds of a function over a box, by interval arithmetic on its JAX program.

`enclose(function, (lower, upper))` gives numbers between which the function lies for every argument
between `lower` and `upper`; infinite ends are allowed. Every operation is rounded outwards. A program with an
operation that is not known here raises `Unbounded`.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ._program import called, roughness

# More than any elementary function of XLA is off by, relative to the result.
_ROUNDING = 1e-13


class Unbounded(ValueError):
    """A function that interval arithmetic cannot bound."""


class Span(NamedTuple):
    """Lower and upper ends, arrays of one shape."""

    low: Any
    high: Any


def enclose(function: Callable[..., Any], *boxes: tuple[Any, Any]) -> list[Span]:
    """Bounds of every output of `function` over boxes `(lower, upper)` of its array arguments."""
    return encloser(function, *(np.shape(lower) for lower, _ in boxes))(*boxes)


def encloser(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[..., list[Span]]:
    """A compiled `enclose` for arguments of given shapes, to be called with boxes."""
    with jax.enable_x64(True):
        program = jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes))
    run = jax.jit(lambda ends: _run(program.jaxpr, program.consts, ends))

    def bounds(*boxes: tuple[Any, Any]) -> list[Span]:
        with jax.enable_x64(True):
            spans = run([Span(*(jnp.asarray(end, jnp.float64) for end in box)) for box in boxes])
        return [Span(np.asarray(span.low), np.asarray(span.high)) for span in spans]

    return bounds


def roughness_over(function: Callable[..., Any], *boxes: tuple[Any, Any]) -> list[dict[int, int]]:
    """How the outputs depend on arguments in boxes: `SMOOTH`, `KINK` or `JUMP` (see `_program`)."""
    ends = [Span(*(np.asarray(end, np.float64) for end in box)) for box in boxes]

    def bounds(program: ClosedJaxpr) -> dict[Any, Span]:
        found: dict[Any, Span] = {}
        quiet = np.errstate(all="ignore")  # ends may be infinite
        with jax.enable_x64(True), quiet, contextlib.suppress(Unbounded):
            _run(program.jaxpr, program.consts, ends, found)
        return found

    return roughness(function, *(end.low for end in ends), bounds=bounds)


def _run(
    program: Jaxpr,
    consts: Sequence[Any],
    inputs: Sequence[Span],
    found: dict[Any, Span] | None = None,
) -> list[Span]:
    """The bounds of the outputs; those of every variable are put into `found` where that is given."""
    known: dict[Any, Span] = dict(zip(program.invars, inputs, strict=True))
    known.update({var: Span(c, c) for var, c in zip(program.constvars, consts, strict=True)})
    if found is not None:
        for var, span in known.items():
            before = found.get(var, span)
            found[var] = Span(np.minimum(before.low, span.low), np.maximum(before.high, span.high))
    needed = _needed(program)

    def read(atom: Any) -> Span:
        return Span(atom.val, atom.val) if isinstance(atom, Literal) else known[atom]

    for equation in program.eqns:
        if not needed.intersection(equation.outvars):
            continue
        given = [read(atom) for atom in equation.invars]
        results = _apply(equation, given, found)
        for var, span in zip(equation.outvars, results, strict=True):
            if np.shape(span.low) != getattr(var.aval, "shape", None):
                raise Unbounded(f"Interval arithmetic does not know {equation.primitive.name}.")
            known[var] = span
            if found is not None:  # a program that is called twice has two bounds
                before = found.get(var, span)
                low, high = np.minimum(before.low, span.low), np.maximum(before.high, span.high)
                found[var] = Span(low, high)
    return [read(atom) for atom in program.outvars]


def _needed(program: Jaxpr) -> set[Any]:
    """The variables that the outputs are made of; what nobody needs is not computed."""
    needed = {atom for atom in program.outvars if not isinstance(atom, Literal)}
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            needed.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return needed


def _apply(equation: Any, given: list[Span], found: dict[Any, Span] | None) -> list[Span]:
    name, params = equation.primitive.name, equation.params
    inner = called(equation)
    if inner is not None:
        return _run(inner.jaxpr, inner.consts, given, found)
    if any(_is_real(span) and jnp.result_type(span.low) != jnp.float64 for span in given):
        raise Unbounded("Interval arithmetic is done in float64 only.")
    _refuse_odd(equation, given)
    if all(span.low is span.high for span in given) and (
        name in _STRUCTURAL or not any(_is_real(span) for span in given)
    ):
        # Known exactly, and nothing to round; one object for both ends says so.
        return [Span(value, value) for value in _bind(equation, [span.low for span in given])]
    if name in _STRUCTURAL:
        indices = {"gather": given[1:], "dynamic_slice": given[1:], "scatter": given[1:2]}
        if any(index.low is not index.high for index in indices.get(name, ())):
            raise Unbounded("Interval arithmetic takes fixed indices only.")
        lows, highs = (_bind(equation, [span[i] for span in given]) for i in (0, 1))
        return [Span(low, high) for low, high in zip(lows, highs, strict=True)]
    if name in ("mul", "dot_general") and equation.invars[0] is equation.invars[1]:
        squares = _even(given[0], jnp.square)
        if name == "mul":
            return [_outward(squares)]
        (left, right), (batch, other) = params["dimension_numbers"]
        if left == right and batch == other and len(left) + len(batch) == jnp.ndim(squares.low):
            return [_outward(_total(squares, left))]
    if name in _RISING:
        ends = [_bind(equation, [span])[0] for span in given[0]]
        return [_outward(Span(*_sound(ends)))]
    if name in _RULES:
        return [_outward(_RULES[name](equation, *given))]
    raise Unbounded(f"Interval arithmetic does not know the operation {name}.")


def _refuse_odd(equation: Any, given: list[Span]) -> None:
    """Structural operations that do not rise with their inputs in every case."""
    name = equation.primitive.name
    if all(span.low is span.high for span in given):
        return
    kinds = [jnp.result_type(span.low) for span in given]
    if name in ("and", "or", "not") and any(kind != jnp.bool_ for kind in kinds):
        raise Unbounded(f"Interval arithmetic takes {name} of truth values only.")
    if name == "convert_element_type":
        new = jnp.dtype(equation.params["new_dtype"])
        if new == jnp.bool_ and kinds[0] != jnp.bool_:
            raise Unbounded("Interval arithmetic does not turn numbers into truth values.")


def _is_real(span: Span) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(span.low), jnp.floating))


def _bind(equation: Any, values: list[Any]) -> list[Any]:
    result = equation.primitive.bind(*values, **equation.params)
    return result if equation.primitive.multiple_results else [result]


def _outward(span: Span) -> Span:
    if not _is_real(span):
        return span

    def slack(end: Any) -> Any:
        return jnp.where(jnp.isfinite(end), _ROUNDING * jnp.abs(end) + 1e-300, 0.0)

    return Span(span.low - slack(span.low), span.high + slack(span.high))


def _sound(ends: Sequence[Any]) -> Span:
    """Ends that are not numbers (of inf - inf, of a logarithm below zero) bound nothing."""
    low, high = ends
    if not _is_real(Span(low, high)):
        return Span(low, high)
    return Span(jnp.where(jnp.isnan(low), -jnp.inf, low), jnp.where(jnp.isnan(high), jnp.inf, high))


def _product(a: Any, b: Any) -> Any:
    """`a b`, where zero times infinity is zero: the zero is exact, the infinity is an end."""
    return jnp.where((a == 0) | (b == 0), 0.0, a * b)


def _hull(*candidates: Any) -> Span:
    low, high = candidates[0], candidates[0]
    for candidate in candidates[1:]:
        low, high = jnp.minimum(low, candidate), jnp.maximum(high, candidate)
    return _sound((low, high))


def _mul(equation: Any, a: Span, b: Span) -> Span:
    return _hull(*(_product(x, y) for x in a for y in b))


def _div(equation: Any, a: Span, b: Span) -> Span:
    crosses = (b.low <= 0) & (b.high >= 0)
    safe = Span(jnp.where(crosses, 1.0, b.low), jnp.where(crosses, 1.0, b.high))
    quotient = _hull(*(jnp.where(x == 0, 0.0, x / y) for x in a for y in safe))
    whole = jnp.broadcast_to(crosses, jnp.shape(quotient.low))
    return Span(jnp.where(whole, -jnp.inf, quotient.low), jnp.where(whole, jnp.inf, quotient.high))


def _even(a: Span, function: Callable[[Any], Any]) -> Span:
    """A function that falls up to zero and rises from there."""
    ends = function(a.low), function(a.high)
    inside = (a.low <= 0) & (a.high >= 0)
    least = jnp.minimum(*ends)
    return _sound(
        (
            jnp.where(inside, jnp.minimum(function(jnp.zeros_like(least)), least), least),
            jnp.maximum(*ends),
        )
    )


def _integer_pow(equation: Any, a: Span) -> Span:
    y = equation.params["y"]
    if y < 0:
        one = Span(jnp.ones_like(a.low), jnp.ones_like(a.low))
        return _div(equation, one, _power(a, -y))
    return _power(a, y)


def _power(a: Span, y: int) -> Span:
    if y % 2 == 0:
        return _even(a, lambda x: x**y)
    return Span(a.low**y, a.high**y)


def _pow(equation: Any, a: Span, b: Span) -> Span:
    positive = jnp.broadcast_to(a.low > 0, jnp.broadcast_shapes(jnp.shape(a.low), jnp.shape(b.low)))
    base = Span(jnp.where(a.low > 0, a.low, 1.0), jnp.where(a.low > 0, a.high, 1.0))
    value = _hull(*(x**y for x in base for y in b))
    return Span(jnp.where(positive, value.low, -jnp.inf), jnp.where(positive, value.high, jnp.inf))


def _wave(function: Callable[[Any], Any], top: float) -> Callable[..., Span]:
    """Sine or cosine, whose maxima lie at `top` plus multiples of a turn."""
    turn = 2.0 * math.pi

    def rule(equation: Any, a: Span) -> Span:
        finite = jnp.isfinite(a.low) & jnp.isfinite(a.high)
        low, high = jnp.where(finite, a.low, 0.0), jnp.where(finite, a.high, turn)
        slack = 1e-12 * (1.0 + jnp.abs(low) + jnp.abs(high))  # so that an extremum is not missed

        def meets(at: float) -> Any:
            return jnp.ceil((low - slack - at) / turn) * turn + at <= high + slack

        ends = _hull(function(low), function(high))
        return Span(
            jnp.where(meets(top + math.pi), -1.0, ends.low), jnp.where(meets(top), 1.0, ends.high)
        )

    return rule


def _dot(equation: Any, a: Span, b: Span) -> Span:
    """Midpoints and radii: valid, at most twice as wide as need be; nothing where an end is infinite."""

    def product(x: Any, y: Any) -> Any:
        return equation.primitive.bind(x, y, **equation.params)

    middle = [0.5 * (span.low + span.high) for span in (a, b)]
    radius = [0.5 * (span.high - span.low) for span in (a, b)]
    centre = product(*middle)
    spread = product(jnp.abs(middle[0]), radius[1]) + product(radius[0], jnp.abs(middle[1]))
    spread = spread + product(*radius)
    # A sum of n terms is rounded by at most n units of the sum of sizes.
    size = product(jnp.abs(middle[0]) + radius[0], jnp.abs(middle[1]) + radius[1])
    spread = spread + 1e-15 * (a.low.size + b.low.size) * size
    return _sound((centre - spread, centre + spread))


def _total(a: Span, axes: Sequence[Any]) -> Span:
    axes = tuple(axes)
    count = math.prod(a.low.shape[axis] for axis in axes)
    ends = [jnp.sum(end, axis=axes) for end in a]
    size = jnp.sum(jnp.maximum(jnp.abs(a.low), jnp.abs(a.high)), axis=axes)
    slack = jnp.where(jnp.isfinite(size), 1e-16 * count * size, 0.0)
    return _sound((ends[0] - slack, ends[1] + slack))


def _reduce_prod(equation: Any, a: Span) -> Span:
    for axis in sorted(equation.params["axes"], reverse=True):
        parts = [Span(*(jnp.take(end, i, axis) for end in a)) for i in range(a.low.shape[axis])]
        if len(parts) > 256:
            raise Unbounded("Interval arithmetic takes products of at most 256 numbers.")
        a = parts[0]
        for part in parts[1:]:
            a = _outward(_mul(equation, a, part))
    return a


def _cumprod(equation: Any, a: Span) -> Span:
    axis, reverse = equation.params["axis"], equation.params["reverse"]
    parts = [Span(*(jnp.take(end, i, axis) for end in a)) for i in range(a.low.shape[axis])]
    parts = parts[::-1] if reverse else parts
    for i in range(1, len(parts)):
        parts[i] = _outward(_mul(equation, parts[i - 1], parts[i]))
    parts = parts[::-1] if reverse else parts
    return Span(*(jnp.stack(ends, axis) for ends in zip(*parts, strict=True)))


def _equal(equation: Any, a: Span, b: Span) -> Span:
    sure = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return Span(sure, (a.low <= b.high) & (b.low <= a.high))


def _unequal(equation: Any, a: Span, b: Span) -> Span:
    same = _equal(equation, a, b)
    return Span(~same.high, ~same.low)


def _select(equation: Any, which: Span, *cases: Span) -> Span:
    """The chosen case, or the hull of those that may be chosen."""
    result: Span | None = None
    for i, case in enumerate(cases):
        may = (which.low <= i) & (which.high >= i)
        if not _is_real(case):
            raise Unbounded("Interval arithmetic chooses between real numbers only.")
        low, high = jnp.where(may, case.low, jnp.inf), jnp.where(may, case.high, -jnp.inf)
        result = (
            Span(low, high)
            if result is None
            else Span(jnp.minimum(result.low, low), jnp.maximum(result.high, high))
        )
    assert result is not None  # select_n has at least one case
    return Span(
        jnp.where(result.low > result.high, -jnp.inf, result.low),
        jnp.where(result.low > result.high, jnp.inf, result.high),
    )


def _compare(sure: Callable[[Any, Any], Any], strict_ends: bool) -> Callable[..., Span]:
    """`a > b` and the like as a pair of truth values: surely, possibly."""

    def rule(equation: Any, a: Span, b: Span) -> Span:
        first, second = (a.low, b.high), (a.high, b.low)
        pair = (first, second) if strict_ends else (second, first)
        return Span(sure(*pair[0]), sure(*pair[1]))

    return rule


# Each output entry is one input entry, or rises with all inputs and is not rounded.
_STRUCTURAL = frozenset(
    (
        *(
            "broadcast_in_dim",
            "reshape",
            "squeeze",
            "transpose",
            "slice",
            "concatenate",
            "copy",
            "rev",
        ),
        *("expand_dims", "pad", "convert_element_type", "stop_gradient", "gather", "dynamic_slice"),
        *("scatter",),
        *("iota", "split", "reduce_max", "reduce_min", "max", "min", "clamp", "and", "or"),
        *("floor", "ceil", "round", "sign", "reduce_precision"),
    )
)
_RISING = frozenset(
    (
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log1p",
            "tanh",
            "logistic",
            "cbrt",
            "erf",
            "atan",
            "asin",
        ),
        *("sinh", "asinh", "erf_inv"),
    )
)
_RULES: dict[str, Callable[..., Span]] = {
    "add": lambda e, a, b: _sound((a.low + b.low, a.high + b.high)),
    "add_any": lambda e, a, b: _sound((a.low + b.low, a.high + b.high)),
    "sub": lambda e, a, b: _sound((a.low - b.high, a.high - b.low)),
    "neg": lambda e, a: Span(-a.high, -a.low),
    "not": lambda e, a: Span(~a.high, ~a.low),
    "mul": _mul,
    "div": _div,
    "abs": lambda e, a: _even(a, jnp.abs),
    "square": lambda e, a: _even(a, jnp.square),
    "cosh": lambda e, a: _even(a, jnp.cosh),
    "integer_pow": _integer_pow,
    "pow": _pow,
    "rsqrt": lambda e, a: _sound((jax.lax.rsqrt(a.high), jax.lax.rsqrt(jnp.maximum(a.low, 0.0)))),
    "sqrt": lambda e, a: Span(*(jnp.sqrt(jnp.maximum(end, 0.0)) for end in a)),
    "erfc": lambda e, a: Span(jax.lax.erfc(a.high), jax.lax.erfc(a.low)),
    "sin": _wave(jnp.sin, 0.5 * math.pi),
    "cos": _wave(jnp.cos, 0.0),
    "dot_general": _dot,
    "reduce_sum": lambda e, a: _total(a, e.params["axes"]),
    "reduce_prod": _reduce_prod,
    "cumprod": _cumprod,
    "select_n": _select,
    "eq": _equal,
    "ne": _unequal,
    "gt": _compare(jnp.greater, True),
    "ge": _compare(jnp.greater_equal, True),
    "lt": _compare(jnp.less, False),
    "le": _compare(jnp.less_equal, False),
}
