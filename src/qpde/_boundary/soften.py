"""Kinks of a program rounded off.

`max(a, b)` becomes `(a + b + sqrt((a - b)^2 + e^2)) / 2`, which is at least the maximum and at most `e / 2`
above it; `min`, `abs`, `clamp` and the largest of many likewise, and `sqrt(a)` becomes `sqrt(a + e^2)` where
`a` may vanish. Operations whose kink lies outside the domain, by bounds for their operands, stay.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jaxtyping import Array, Float

from .._program.calls import called
from .._program.interval import variable_bounds
from .._program.rewrite import bind, operations, pairwise, rewritten
from .._program.spans import Span, Unbounded

# What is done with an operation: one operand is always its result; it stays; it is rounded off.
FIRST, SECOND, KEPT, ROUNDED = 0, 1, 2, 3

KINKED = frozenset(("max", "min", "abs", "clamp", "reduce_max", "reduce_min", "sqrt"))


def softened(
    g: Callable[..., Any],
    x: Float[Array, " d"],
    choices: Sequence[int],
    widths: Float[Array, " k"] | Sequence[Any],
    size: Callable[[Any, Any], Array] | None = None,
) -> Float[Array, ""]:
    """`g(x)`, with every kink of its program treated as chosen and rounded off by its width.

    `size(t, width)` is what becomes of `|t|`; by default `sqrt(t^2 + width^2)`.
    """
    rounded = _roundings(_size if size is None else size)

    def rule(number: int, equation: JaxprEqn, values: list[Any]) -> Any:
        if choices[number] == ROUNDED:
            return rounded[equation.primitive.name](equation, widths[number], *values)
        if choices[number] == KEPT:
            return bind(equation, values)[0]
        if equation.primitive.name == "abs":
            return values[0] if choices[number] == FIRST else -values[0]
        return values[choices[number]]

    return rewritten(g, (x,), KINKED, rule)


def gaps(g: Callable[..., Any], x: Float[Array, " d"]) -> list[Array]:
    """For every kink of the program of `g`, the numbers that vanish where it is, at `x`."""
    found: list[Array] = []

    def rule(number: int, equation: JaxprEqn, values: list[Any]) -> Any:
        name, result = equation.primitive.name, bind(equation, values)
        if name in ("max", "min"):
            found.append(jnp.asarray(values[0] - values[1]))
        elif name == "sqrt":
            found.append(jnp.asarray(result[0]))
        else:
            found.append(jnp.asarray(values[1] if name == "clamp" else values[0]))
        return result[0]

    rewritten(g, (x,), KINKED, rule)
    return found


def choose(g: Callable[..., Any], box: tuple[Any, Any]) -> tuple[int, ...]:
    """For every kink of the program, whether it lies outside the box, and what the result then is."""
    program = jax.make_jaxpr(g)(jnp.asarray(box[0], float))
    spans = variable_bounds(program, [box])
    return tuple(_choice(equation, spans) for equation in operations(program.jaxpr, KINKED))


def _choice(equation: JaxprEqn, spans: dict[Any, Span]) -> int:
    ends = [_ends(atom, spans) for atom in equation.invars]
    if any(end is None for end in ends):
        return ROUNDED
    name, (low, high) = equation.primitive.name, ends[0]  # type: ignore[misc]
    if name == "sqrt":
        return KEPT if np.all(low > 0) else ROUNDED
    if name == "abs":
        return FIRST if np.all(low >= 0) else SECOND if np.all(high <= 0) else ROUNDED
    if name not in ("max", "min"):
        return ROUNDED
    other_low, other_high = ends[1]  # type: ignore[misc]
    if np.all(low >= other_high):
        return FIRST if name == "max" else SECOND
    if np.all(high <= other_low):
        return SECOND if name == "max" else FIRST
    return ROUNDED


def _ends(atom: Any, spans: dict[Any, Span]) -> tuple[np.ndarray, np.ndarray] | None:
    if isinstance(atom, Literal):
        return np.asarray(atom.val), np.asarray(atom.val)
    if atom not in spans:
        return None
    return np.asarray(spans[atom].low), np.asarray(spans[atom].high)


def _size(t: Any, width: Any) -> Array:
    """`|t|` without its kink, at most `width` above it."""
    return jnp.sqrt(t * t + width * width)


def _roundings(size: Callable[[Any, Any], Array]) -> dict[str, Callable[..., Array]]:
    """What becomes of every operation with a kink, where `|t|` becomes `size(t, width)`."""

    def largest(equation: JaxprEqn, width: Any, a: Any, b: Any) -> Array:
        return 0.5 * (a + b + size(a - b, width))

    def smallest(equation: JaxprEqn, width: Any, a: Any, b: Any) -> Array:
        return 0.5 * (a + b - size(a - b, width))

    def clamp(equation: JaxprEqn, width: Any, low: Any, x: Any, high: Any) -> Array:
        return smallest(equation, width, largest(equation, width, x, low), high)

    return {
        "max": largest,
        "min": smallest,
        "abs": lambda e, width, a: size(a, 0.5 * width),
        "clamp": clamp,
        "reduce_max": _reduced(largest),
        "reduce_min": _reduced(smallest),
        "sqrt": lambda e, width, a: jnp.sqrt(a + width * width),
    }


def _reduced(pair: Callable[..., Array]) -> Callable[..., Array]:
    """The largest or smallest of many, two by two."""

    def rule(equation: JaxprEqn, width: Any, a: Any) -> Array:
        return pairwise(lambda one, two: pair(equation, width, one, two), equation, a)

    return rule


def deviation(
    g: Callable[..., Any],
    box: tuple[Any, Any],
    choices: Sequence[int],
    widths: Sequence[float],
) -> float:
    """A bound for `|softened g - g|` over a box; `Unbounded` where an operation on the way is not known.

    Every number of the program is followed with a bound for its change: a rounding adds at most half a
    width, the rest of the operations pass changes on by their Lipschitz constants over the bounds of
    their operands.
    """
    program = jax.make_jaxpr(g)(jnp.asarray(box[0], float))
    spans = variable_bounds(program, [box])
    (result,) = _changes(
        program.jaxpr, [np.zeros(np.shape(box[0]))], spans, choices, widths, iter(range(10**9))
    )
    found = float(np.max(result))
    if not math.isfinite(found):
        raise Unbounded("The change by a rounding has no finite bound.")
    return found * (1.0 + 1e-9)


def _changes(
    program: Jaxpr,
    inputs: list[np.ndarray],
    spans: dict[Any, Span],
    choices: Sequence[int],
    widths: Sequence[float],
    numbers: Iterator[int],
) -> list[np.ndarray]:
    known: dict[Any, np.ndarray] = dict(zip(program.invars, inputs, strict=True))

    def read(atom: Any) -> np.ndarray:
        return known.get(atom, np.zeros(())) if not isinstance(atom, Literal) else np.zeros(())

    for equation in program.eqns:
        shapes = [np.shape(atom.aval) for atom in equation.invars]  # type: ignore[arg-type]
        given = [np.broadcast_to(read(a), s) for a, s in zip(equation.invars, shapes, strict=True)]
        inner = called(equation)
        if inner is not None:
            results = _changes(inner.jaxpr, given, spans, choices, widths, numbers)
        elif equation.primitive.name in KINKED:
            number = next(numbers)
            width = widths[number] if choices[number] == ROUNDED else 0.0
            results = [_kinked(equation, given, width, spans)]
        elif not any(np.any(change) for change in given):
            results = [np.zeros(np.shape(var.aval)) for var in equation.outvars]  # type: ignore[arg-type]
        else:
            results = _passed_on(equation, given, spans)
        known.update(zip(equation.outvars, map(np.asarray, results), strict=True))
    return [read(atom) for atom in program.outvars]


def _kinked(
    equation: JaxprEqn, given: list[np.ndarray], width: float, spans: dict[Any, Span]
) -> Any:
    name, largest = equation.primitive.name, np.maximum.reduce(np.broadcast_arrays(*given))
    if name == "sqrt":
        low = np.maximum(_least(equation.invars[0], spans), 0.0)
        # sqrt(a + change + width^2) - sqrt(a), largest where a is least; and downwards.
        change = given[0] + width * width
        up = np.sqrt(low + change) - np.sqrt(low)
        down = np.sqrt(low) - np.sqrt(np.maximum(low - given[0], 0.0))
        return np.maximum(np.maximum(up, down), np.sqrt(np.where(low < given[0], given[0], 0.0)))
    if name in ("reduce_max", "reduce_min"):
        axes = tuple(equation.params["axes"])
        rounds = sum(math.ceil(math.log2(max(given[0].shape[axis], 1))) for axis in axes)
        return np.max(given[0], axis=axes) + 0.5 * width * rounds
    return largest + (width if name == "clamp" else 0.5 * width)


# Operations that pick, move or add up entries; a change of an entry moves with it.
_MOVING = frozenset(
    (
        *("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "concatenate", "copy"),
        *("rev", "expand_dims", "reduce_sum"),
    )
)
# Lipschitz constants on the whole line.
_LIPSCHITZ = {
    "sin": 1.0,
    "cos": 1.0,
    "tanh": 1.0,
    "atan": 1.0,
    "logistic": 0.25,
    "neg": 1.0,
    "erf": 2.0 / math.sqrt(math.pi),
}


def _passed_on(equation: JaxprEqn, given: list[np.ndarray], spans: dict[Any, Span]) -> list[Any]:
    name = equation.primitive.name
    if name in _MOVING:
        return [np.asarray(value) for value in bind(equation, [jnp.asarray(v) for v in given])]
    if name in ("add", "add_any", "sub"):
        return [given[0] + given[1]]
    if name in _LIPSCHITZ:
        return [_LIPSCHITZ[name] * given[0]]
    size = [_largest(atom, spans) for atom in equation.invars]
    if name == "mul":
        return [given[0] * size[1] + size[0] * given[1] + given[0] * given[1]]
    if name == "dot_general":
        pairs = ((given[0], size[1]), (size[0], given[1]), (given[0], given[1]))
        parts = [bind(equation, [jnp.asarray(a), jnp.asarray(b)])[0] for a, b in pairs]
        return [np.asarray(sum(parts)) * (1 + 1e-12)]
    if name == "div" and not np.any(given[1]):
        low, high = _bounds(equation.invars[1], spans)
        least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        with np.errstate(divide="ignore", invalid="ignore"):
            return [np.where(given[0] == 0, 0.0, given[0] / least)]
    if name == "exp":
        return [np.exp(_bounds(equation.invars[0], spans)[1] + given[0]) * given[0]]
    if name in ("square", "integer_pow"):
        power = 2 if name == "square" else equation.params["y"]
        if power >= 1:
            return [power * (size[0] + given[0]) ** (power - 1) * given[0]]
    raise Unbounded(f"How {name} passes on a change is not known.")


def _bounds(atom: Any, spans: dict[Any, Span]) -> tuple[np.ndarray, np.ndarray]:
    ends = _ends(atom, spans)
    if ends is None:
        raise Unbounded("A number of the program has no bounds.")
    return ends


def _largest(atom: Any, spans: dict[Any, Span]) -> np.ndarray:
    low, high = _bounds(atom, spans)
    return np.broadcast_to(np.maximum(np.abs(low), np.abs(high)), np.shape(atom.aval))


def _least(atom: Any, spans: dict[Any, Span]) -> np.ndarray:
    return _bounds(atom, spans)[0]
