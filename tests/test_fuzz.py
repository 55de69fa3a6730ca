"""Random programs against samples: bounds that hold, and words about smoothness that are true.

A failure prints the program. `python tests/test_fuzz.py 20000 7` runs as many programs from another seed.
"""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal
from random_programs import SIZE, as_function, box, points, program
from scipy import special

from qpde._precision import x64
from qpde._program import arithmetic, reductions, spans
from qpde._program.calls import called
from qpde._program.interval import _Walk
from qpde._program.program import JUMP, KINK, SMOOTH, _walk
from qpde._program.spans import Span

ROWS = 64
# Single operations by NumPy and SciPy: an independent computation, and nothing to compile.
NUMPY = {
    **{
        name: getattr(np, name) for name in ("abs", "sign", "floor", "ceil", "exp", "exp2", "expm1")
    },
    **{name: getattr(np, name) for name in ("log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "tanh", "square", "nextafter")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh")},
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "rem": np.fmod,
    "neg": np.negative,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "logistic": special.expit,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erfinv,
    "lgamma": special.gammaln,
    "digamma": special.psi,
    "bessel_i0e": special.i0e,
    "bessel_i1e": special.i1e,
    "stop_gradient": lambda x: x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


# NumPy under JAX's names; kinds of numbers are JAX's own affair.
NAMES = types.SimpleNamespace(**vars(np))
NAMES.result_type, NAMES.issubdtype = jnp.result_type, jnp.issubdtype


@pytest.fixture
def quick(monkeypatch):
    """The rules compute with NumPy, whose functions have the same names: a tenth of the time."""
    for module in (arithmetic, reductions, spans):
        monkeypatch.setattr(module, "jnp", NAMES)
    monkeypatch.setattr(arithmetic, "_bind", as_arrays)


def as_arrays(line, given):
    return [np.asarray(result) for result in operation(line, given)]


def evaluate(program, constants, inputs):
    """A program operation by operation; loops and choices are taken apart, so that little is compiled."""
    known = dict(zip([*program.constvars, *program.invars], [*constants, *inputs], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else known[atom]

    for line in program.eqns:
        results = operation(line, list(map(read, line.invars)))
        known.update(zip(line.outvars, results, strict=True))
    return [read(atom) for atom in program.outvars]


def operation(line, given):
    inner, name, params = called(line), line.primitive.name, line.params
    floats = all(np.issubdtype(atom.aval.dtype, np.floating) for atom in line.invars)
    if inner is not None:
        return evaluate(inner.jaxpr, inner.consts, given)
    if name == "scan":
        return turns(params, given)
    if name in NUMPY and floats:
        return [NUMPY[name](*map(np.asarray, given))]
    if name == "div" and floats:
        return [np.divide(*given)]
    if name == "integer_pow" and floats:
        return [np.asarray(given[0]) ** float(params["y"])]
    if name == "select_n" and len(given) == 3 and np.asarray(given[0]).dtype == bool:
        return [np.where(given[0], given[2], given[1])]
    if name == "broadcast_in_dim":
        old, axes = np.asarray(given[0]), params["broadcast_dimensions"]
        shape = [old.shape[axes.index(i)] if i in axes else 1 for i in range(len(params["shape"]))]
        return [np.broadcast_to(old.reshape(shape), params["shape"])]
    if name == "reshape":
        return [np.reshape(given[0], params["new_sizes"])]
    results = line.primitive.bind(*given, **params)
    return results if line.primitive.multiple_results else [results]


def turns(params, given):
    fixed, carried = params["num_consts"], params["num_carry"]
    carry, rows = given[fixed : fixed + carried], []
    order = range(params["length"])
    for turn in reversed(order) if params["reverse"] else order:
        xs = [x[turn] for x in given[fixed + carried :]]
        body = params["jaxpr"]
        out = evaluate(body.jaxpr, body.consts, [*given[:fixed], *carry, *xs])
        carry, made = out[:carried], out[carried:]
        rows.append(made)
    rows = rows[::-1] if params["reverse"] else rows
    return [*carry, *(jnp.stack(row) for row in zip(*rows, strict=True))]


class Case:
    """One random program, for many points at once, with a box and what the library says of it."""

    def __init__(self, seed, number):
        self.rng = np.random.default_rng([seed, number])
        self.lines = program(self.rng)
        self.low, self.high = box(self.rng)
        self.trace(self.rng.normal(size=SIZE), np.array([0.0, 1.0, -1.0]))
        walk = _Walk(keep=True)
        ends = [np.tile(end, (ROWS, 1)) for end in (self.low, self.high)]
        (self.span,) = walk.run(self.program.jaxpr, self.program.consts, [Span(*ends)])

        def span_of(atom):
            return (atom.val, atom.val) if isinstance(atom, Literal) else walk.found.get(atom)

        (levels,) = _walk(self.program.jaxpr, [{0: SMOOTH}], span_of)
        self.level = levels.get(0, SMOOTH)

    def trace(self, *constants):
        function = jax.vmap(as_function(self.lines, constants))
        self.program = jax.make_jaxpr(function)(np.zeros((ROWS, SIZE)))

    def values(self, x):
        return np.asarray(evaluate(self.program.jaxpr, self.program.consts, [x])[0])

    def line(self, start, end, first, last):
        """Values on a part of a line."""
        share = np.linspace(first, last, ROWS)[:, None]
        low, high = np.minimum(start, end), np.maximum(start, end)
        return self.values(np.clip(start + share * (end - start), low, high))

    def leap(self, start, end):
        """The order of a derivative that leaps on a line, 0 for the function itself, or None.

        Divided differences on a grid; where one changes most the grid is made finer, twice. What is
        smooth changes by a twentieth each time; a leap stays. Differences below rounding do not count.
        """
        whole = self.line(start, end, 0.0, 1.0)
        if np.max(np.abs(whole)) > 1e3:
            return None  # too steep for this grid to tell a bend from a kink
        for order in range(3 if self.level == SMOOTH else 1):
            first, last, values, changes, steps = 0.0, 1.0, whole, [], whole
            for turn in range(3):
                width = (last - first) / (ROWS - 1)
                noise = 1e-12 * np.max(np.abs(values)) / width**order
                steps = np.abs(np.diff(values, n=order + 1, axis=0)) / width**order
                where = int(np.argmax(np.max(steps, axis=1)))
                changes.append(float(np.max(steps)) - noise)
                first, last = first + where * width, first + (where + order + 1) * width
                if turn < 2:
                    values = self.line(start, end, first, last)
            if not np.all(np.isfinite(changes)):
                return order
            # A leap stands alone on the last grid; rounding of a steep function is everywhere.
            alone = np.max(steps, axis=1) > 20 * np.median(np.max(steps, axis=1))
            if changes[2] > 0.3 * max(changes[0], changes[1]) + 1e-6 and np.any(alone):
                return order
        return None


def judged(seed, number):
    """What is wrong with what is said of one program, or None; and its level."""
    with x64(), np.errstate(all="ignore"):
        case = Case(seed, number)
        values = case.values(points(case.rng, case.low, case.high, ROWS))
        low, high = (np.asarray(part) for part in case.span)
        finite = np.isfinite(low) & np.isfinite(high)
        # nan ends promise nothing; infinite ones do not promise a number.
        held = np.isnan(low) | ((low <= values) & (values <= high)) | (~finite & np.isnan(values))
        what = None
        if not np.all(held):
            row = int(np.argmin(np.all(held, axis=1)))
            what = f"bounds {low[row]} {high[row]}, values {values[row]}"
        elif case.level < JUMP and np.all(finite):
            order = case.leap(*points(case.rng, case.low, case.high, 2))
            what = None if order is None else f"level {case.level}, derivative {order} leaps"
        if what is not None:
            what = f"{number}: {what}\nbox {case.low} {case.high}\n{case.lines}\n{case.program}"
        return what, case.level


@pytest.mark.daily("200")
@pytest.mark.parametrize("count", [200, 1_000])
def test_random_programs(quick, count):
    found = [judged(1, number) for number in range(count)]
    assert [what for what, _ in found if what is not None] == []
    levels = [level for _, level in found]
    # The check is worth something: each word is said often.
    for level, least in ((SMOOTH, 150), (KINK, 50), (JUMP, 150)):
        assert levels.count(level) > least * count / 1_000


@pytest.mark.parametrize(
    ("lines", "order"),
    [
        ([("not less", 2, 0)], 0),
        ([("relu", 2)], 1),
        ([("relu", 2), ("square", 3)], 2),
    ],
)
def test_the_check_itself_sees_leaps(quick, lines, order):
    """Had the library called them smooth."""
    with x64(), np.errstate(all="ignore"):
        case = Case(1, 0)
        case.lines, case.level = [("sub", 2, 0), *((n, *(i + 1 for i in o)) for n, *o in lines)], 0
        case.trace(np.full(SIZE, 0.1234), np.zeros(SIZE))
        assert case.leap(np.full(SIZE, -0.7), np.full(SIZE, 0.9)) == order


if __name__ == "__main__":
    count, seed = (int(word) for word in sys.argv[1:])
    for module in (arithmetic, reductions, spans):
        setattr(module, "jnp", NAMES)  # noqa: B010
    arithmetic._bind = as_arrays
    wrong = [what for what, _ in (judged(seed, number) for number in range(count)) if what]
    print("\n\n".join(wrong), f"\n{len(wrong)} of {count} programs wrong")
