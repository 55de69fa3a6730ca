"""Bounds of a function over a box, by interval arithmetic on its JAX program.

`enclose(function, (lower, upper))` gives numbers between which the function lies for every argument
between `lower` and `upper`; infinite ends are allowed. Every operation is rounded outwards. A program with an
operation that is not known raises `Unbounded`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from .arithmetic import apply, choose, rises_in_both
from .calls import SMOOTH_FUNCTIONS, branches, called, known_function
from .program import Levels, Skeleton, lifted, roughness
from .spans import Span, anything, sound
from .spans import Unbounded as Unbounded

# Turns of a loop that are taken one by one; longer loops are refused.
_TURNS = 256


def enclose(function: Callable[..., Any], *boxes: tuple[Any, Any]) -> list[Span]:
    """Bounds of every output of `function` over boxes `(lower, upper)` of its array arguments."""
    return encloser(function, *(np.shape(lower) for lower, _ in boxes))(*boxes)


def encloser(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[..., list[Span]]:
    """A compiled `enclose` for arguments of given shapes, to be called with boxes."""
    program = jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes))
    structure, constants = lifted(program)

    def bounds(*boxes: tuple[Any, Any]) -> list[Span]:
        spans = [Span(*(jnp.asarray(end, jnp.float64) for end in box)) for box in boxes]
        found = _bounds(structure, constants, spans)
        return [Span(np.asarray(span.low), np.asarray(span.high)) for span in found]

    return bounds


@functools.partial(jax.jit, static_argnums=0)
def _bounds(structure: Skeleton, constants: list[Any], ends: list[Span]) -> list[Span]:
    """One compiled program serves all functions of one structure, whatever their numbers are."""
    program = structure.program
    walk = _Walk(dict(zip(structure.places, constants, strict=True)))
    found = walk.run(program.jaxpr, walk.constants(program), ends)
    # What may be no number is bounded by nothing.
    return [
        sound(span) if jnp.issubdtype(jnp.result_type(span.low), jnp.floating) else span
        for span in found
    ]


def roughness_over(function: Callable[..., Any], *boxes: tuple[Any, Any]) -> list[Levels]:
    """How the outputs depend on arguments in boxes: `SMOOTH`, `KINK` or `JUMP` (see `roughness`)."""

    def bounds(program: ClosedJaxpr) -> dict[Any, Span]:
        return variable_bounds(program, boxes)

    return roughness(function, *(np.asarray(low, np.float64) for low, _ in boxes), bounds=bounds)


def variable_bounds(program: ClosedJaxpr, boxes: Sequence[tuple[Any, Any]]) -> dict[Any, Span]:
    """The bounds of the variables of a program over boxes of its inputs, as far as they are known."""
    ends = [Span(*(np.asarray(end, np.float64) for end in box)) for box in boxes]
    walk = _Walk(keep=True)
    with np.errstate(all="ignore"):  # ends may be infinite
        walk.run(program.jaxpr, walk.constants(program), ends)
    return walk.found


class _Walk:
    """A walk through a program, operation by operation, with bounds in place of numbers.

    `numbers` take the place of literals and constants, by their identity. With `keep` the bounds of every
    variable are put into `found`, and of what an operation that is not known makes nothing is known;
    without, it raises `Unbounded`.
    """

    def __init__(self, numbers: dict[int, Any] | None = None, keep: bool = False):
        self._numbers, self._keep = numbers or {}, keep
        self.found: dict[Any, Span] = {}

    def constants(self, program: ClosedJaxpr) -> list[Any]:
        return [self._numbers.get(id(c), c) for c in program.consts]

    def run(self, program: Jaxpr, constants: Sequence[Any], inputs: Sequence[Span]) -> list[Span]:
        """The bounds of the outputs."""
        known: dict[Any, Span] = {}

        def note(variables: Sequence[Any], spans: Sequence[Span]) -> None:
            known.update(zip(variables, spans, strict=True))
            if self._keep:  # a program that is called twice has two bounds
                for var, span in zip(variables, spans, strict=True):
                    self.found[var] = _joined(self.found.get(var, span), span)

        def read(atom: Any) -> Span:
            if not isinstance(atom, Literal):
                return known[atom]
            value = self._numbers.get(id(atom), atom.val)
            return Span(value, value)

        note(program.invars, inputs)
        note(program.constvars, [Span(c, c) for c in constants])
        needed = _needed(program)
        for equation in program.eqns:
            if needed.intersection(equation.outvars):
                note(equation.outvars, self._results(equation, [read(a) for a in equation.invars]))
        return [read(atom) for atom in program.outvars]

    def _results(self, equation: JaxprEqn, given: list[Span]) -> list[Span]:
        try:
            results = self._operation(equation, given)
            for var, span in zip(equation.outvars, results, strict=True):
                if np.shape(span.low) != getattr(var.aval, "shape", None):
                    name = equation.primitive.name
                    raise Unbounded(f"Interval arithmetic does not know the operation {name}.")
        except Unbounded:
            if not self._keep:
                raise
            return self._give_up(equation)
        return results

    def _operation(self, equation: JaxprEqn, given: list[Span]) -> list[Span]:
        inner = called(equation)
        if inner is not None and known_function(equation) in SMOOTH_FUNCTIONS:
            function = jaxpr_as_fun(inner)
            return [rises_in_both(lambda a, b: function(a, b)[0], *given)]
        if inner is not None:
            return self.run(inner.jaxpr, self.constants(inner), given)
        if equation.primitive.name == "scan":
            return self._scan(equation, given)
        ways = branches(equation)
        if ways:
            last = len(ways) - 1
            which = Span(*(jnp.clip(end, 0, last) for end in given[0]))
            taken = [self.run(way.jaxpr, self.constants(way), given[1:]) for way in ways]
            return [choose(which, *cases) for cases in zip(*taken, strict=True)]
        return apply(equation, given)

    def _scan(self, equation: JaxprEqn, given: list[Span]) -> list[Span]:
        """A loop, turn by turn."""
        params = equation.params
        fixed, carried, turns = params["num_consts"], params["num_carry"], params["length"]
        if not 0 < turns <= _TURNS:
            raise Unbounded(f"Interval arithmetic takes loops of at most {_TURNS} turns.")
        body, made = params["jaxpr"], []
        constants, carry = given[:fixed], given[fixed : fixed + carried]
        order = range(turns)[::-1] if params["reverse"] else range(turns)
        for turn in order:
            rows = [_row(span, turn) for span in given[fixed + carried :]]
            results = self.run(body.jaxpr, self.constants(body), [*constants, *carry, *rows])
            carry = results[:carried]
            made.append(results[carried:])
        made = made[::-1] if params["reverse"] else made
        return [*carry, *(_stacked(rows) for rows in zip(*made, strict=True))]

    def _give_up(self, equation: JaxprEqn) -> list[Span]:
        """Nothing is known of the results, nor of variables of programs that may not have been entered."""
        for value in equation.params.values():
            for part in value if isinstance(value, list | tuple) else (value,):
                self._forget(getattr(part, "jaxpr", part))
        return [anything(var.aval) for var in equation.outvars]

    def _forget(self, program: Any) -> None:
        if not isinstance(program, Jaxpr):
            return
        for var in (*program.constvars, *program.invars):
            self.found[var] = anything(var.aval)
        for equation in program.eqns:
            self.found.update((var, anything(var.aval)) for var in equation.outvars)
            self._give_up(equation)


def _row(span: Span, turn: int) -> Span:
    """One row of what a loop runs over; exact where it was."""
    if span.low is span.high:
        value = span.low[turn]
        return Span(value, value)
    return Span(span.low[turn], span.high[turn])


def _stacked(rows: Sequence[Span]) -> Span:
    return Span(*(jnp.stack(ends) for ends in zip(*rows, strict=True)))


def _joined(a: Span, b: Span) -> Span:
    return Span(np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _needed(program: Jaxpr) -> set[Any]:
    """The variables that the outputs are made of; what nobody needs is not computed."""
    needed = {atom for atom in program.outvars if not isinstance(atom, Literal)}
    for equation in reversed(program.eqns):
        if needed.intersection(equation.outvars):
            needed.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return needed
