"""What a JAX program says about a function: what its outputs depend on, and whether smoothly.

Derivatives by automatic differentiation are those almost everywhere: they do not see jumps, and second
derivatives do not see kinks. What is proved from derivatives therefore needs to know of both.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from .calls import SMOOTH_FUNCTIONS, branches, called, has_rule, known_function
from .levels import JUMP as JUMP
from .levels import KINK as KINK
from .levels import SMOOTH as SMOOTH
from .levels import SpanOf, decided, level

# How an output depends on arguments: their numbers, and how rough it is in each.
Levels = dict[int, int]


class Skeleton:
    """A program without its numbers. Two programs that differ in nothing else are equal.

    `places` are the identities of its literals and constants in the order in which `lifted` lists their
    values.
    """

    def __init__(self, program: ClosedJaxpr, key: Hashable, places: list[int]):
        self.program, self.places, self._key = program, places, key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skeleton) and self._key == other._key


def lifted(program: ClosedJaxpr) -> tuple[Skeleton, list[Any]]:
    """A program as a structure and the numbers in it, those of inner programs included."""
    places: list[int] = []
    numbers: list[Any] = []

    def note(place: Any, value: Any) -> Hashable:
        if id(place) not in places:  # one array may stand in several places
            places.append(id(place))
            numbers.append(value)
        kind = jnp.result_type(value)
        return places.index(id(place)), str(kind), np.shape(value)

    def read(closed: ClosedJaxpr) -> Hashable:
        order: dict[Any, int] = {}

        def atom(a: Any) -> Hashable:
            if isinstance(a, Literal):
                return note(a, a.val)
            return order.setdefault(a, len(order))

        head = tuple(note(c, c) for c in closed.consts)
        inputs = tuple(atom(v) for v in (*closed.jaxpr.constvars, *closed.jaxpr.invars))
        lines = []
        for line in closed.jaxpr.eqns:
            inner = called(line)
            # Of an operation that calls a program, the program is all that counts.
            setting = (
                tuple(map(_hashable, sorted(line.params.items()))) if inner is None else read(inner)
            )
            operands = tuple(map(atom, line.invars))
            results = tuple((atom(v), str(v.aval)) for v in line.outvars)
            lines.append((line.primitive, setting, operands, results))
        return head, inputs, tuple(lines), tuple(map(atom, closed.jaxpr.outvars))

    key = read(program)
    return Skeleton(program, key, places), numbers


def _hashable(item: tuple[str, Any]) -> Hashable:
    """A setting of an operation; one that cannot be compared is like nothing but itself."""
    name, value = item
    try:
        hash(value)
    except TypeError:
        return name, id(value)
    return name, value


def dependencies(function: Callable[..., Any], *arguments: Any) -> list[set[int]]:
    """For every output, the numbers of the arguments that it may depend on.

    It looks at the program only, so that a dependence which cancels is reported too.
    """
    return [set(levels) for levels in roughness(function, *arguments)]


def roughness(
    function: Callable[..., Any],
    *arguments: Any,
    bounds: Callable[[ClosedJaxpr], dict[Any, Any]] | None = None,
) -> list[Levels]:
    """For every output, how it depends on each argument: `SMOOTH`, `KINK` or `JUMP`.

    What is not known to be smooth is a `JUMP`: unknown operations, complex numbers, derivative rules of a
    user's own. `bounds` may bound the variables of programs (see `roughness_over`): a root or a quotient
    whose operand keeps away from zero is smooth. Without it every one that depends on an argument is
    suspect.
    """
    program = jax.make_jaxpr(function)(*(jnp.asarray(a) for a in arguments))
    inputs = [{i: SMOOTH} for i in range(len(arguments))]
    found = _walk(program.jaxpr, inputs, _literal)
    # Bounds cost a walk through the numbers, and can only make things smoother.
    if bounds is None or all(rough == SMOOTH for levels in found for rough in levels.values()):
        return found
    spans = bounds(program)

    def span_of(atom: Any) -> Any:
        return _literal(atom) if isinstance(atom, Literal) else spans.get(atom)

    return _walk(program.jaxpr, inputs, span_of)


def _literal(atom: Any) -> Any:
    return (atom.val, atom.val) if isinstance(atom, Literal) else None


def _walk(program: Jaxpr, inputs: Sequence[Levels], span_of: SpanOf) -> list[Levels]:
    known: dict[Any, Levels] = dict(zip(program.invars, inputs, strict=True))

    def read(atom: Any) -> Levels:
        return {} if isinstance(atom, Literal) else known.get(atom, {})

    for equation in program.eqns:
        given = [read(atom) for atom in equation.invars]
        outputs = _outputs(equation, given, span_of)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in program.outvars]


def _outputs(equation: JaxprEqn, given: list[Levels], span_of: SpanOf) -> list[Levels]:
    """The levels of the results of one operation."""
    count, inner = len(equation.outvars), called(equation)
    if has_rule(equation):
        name = known_function(equation)
        if name in SMOOTH_FUNCTIONS:
            return [_joined(given, SMOOTH)] * count
        if name is None:  # its derivatives are what somebody says they are
            return [_joined(given, JUMP)] * count
    if inner is not None:
        return _walk(inner.jaxpr, given, span_of)
    if equation.primitive.name == "scan":
        return _scan(equation, given, span_of)
    ways = branches(equation)
    if ways:
        taken = [_walk(way.jaxpr, given[1:], span_of) for way in ways]
        rows = [_joined(row, SMOOTH) for row in zip(*taken, strict=True)]
        return [_chosen(equation, given[0], row, span_of) for row in rows]
    merged = _joined(given, level(equation, span_of))
    if equation.primitive.name == "select_n":
        merged = _chosen(equation, given[0], merged, span_of)
    return [merged] * count


def _joined(given: Sequence[Levels], least: int) -> Levels:
    """What depends on all of these, at least as roughly as `least`."""
    merged: Levels = {}
    for one in given:
        for index, rough in one.items():
            merged[index] = max(merged.get(index, least), rough)
    return merged


def _chosen(equation: JaxprEqn, choice: Levels, result: Levels, span_of: SpanOf) -> Levels:
    """A choice that depends on an argument leaps, unless bounds show that it is always the same."""
    fixed = decided(span_of(equation.invars[0]))
    return _joined([result, choice if fixed else dict.fromkeys(choice, JUMP)], SMOOTH)


def _scan(equation: JaxprEqn, given: list[Levels], span_of: SpanOf) -> list[Levels]:
    """A loop: what is carried gets rougher from turn to turn, until it does not."""
    body, params = equation.params["jaxpr"].jaxpr, equation.params
    fixed, carried = params["num_consts"], params["num_carry"]
    constants, carry, rows = (
        given[:fixed],
        given[fixed : fixed + carried],
        given[fixed + carried :],
    )
    while True:
        results = _walk(body, [*constants, *carry, *rows], span_of)
        pairs = zip(carry, results[:carried], strict=True)
        wider = [_joined(pair, SMOOTH) for pair in pairs]
        if wider == carry:
            return [*wider, *results[carried:]]
        carry = wider
