"""Which problem a file belongs to: by the programs of its functions, and by their values at points.

The programs decide: equation, boundary data and `eta`, with every number in them, so that a term which is
silent at all sampled points still counts. Another version of JAX or qpde may write the same function as
another program; there the values alone are compared, and a note says so. The fingerprint holds 16 points
inside and 16 on the boundary, with the values there of `eta`, of the boundary data and of the equation at
given jets; where it differs, it says where and by how much.
"""

import importlib.metadata
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._compiled import compiled
from .._field.jet import Jet, Quadratic
from .._precision import key_from, like, x64
from .._problem.problem import Problem
from .._program.identity import Identity, identity_of
from .damage import SHA256, Misfit

_POINTS = 16
# Entry, its points, what differs in words, which number shows it. The order is that of causes: in another
# domain everything differs.
_ENTRIES = (
    ("eta_inside", "inside", "the domain differs", "the value of eta"),
    ("eta_edge", "edge", "the domain differs", "the value of eta"),
    ("data_edge", "edge", "the boundary values differ", "the boundary function"),
    (
        "data_inside",
        "inside",
        "the extension of the boundary values differs",
        "the boundary function",
    ),
    ("equation", "inside", "the equation differs", "L u for a given jet of u"),
)

# The programs of a problem, in the order of causes, and what differs in words.
_PROGRAMS = {
    "eta": "the domain differs",
    "boundary": "the boundary function differs",
    "equation": "the equation differs",
}
# What the header of a file says of them; the numbers in them are a group of arrays.
PROGRAMS_SCHEMA = {
    "versions": {"qpde": str, "jax": str},
    "structures": dict.fromkeys(_PROGRAMS, SHA256),
}
FINGERPRINT_ARRAYS = {
    **dict.fromkeys(("inside", "edge"), ("f", 2)),
    **{entry[0]: ("f", 1) for entry in _ENTRIES},
}
PROGRAMS_ARRAYS = dict.fromkeys(_PROGRAMS, ("f", 1))


def check_arrays(arrays: dict[str, np.ndarray]) -> None:
    """Raise `Misfit` unless the arrays of a fingerprint belong to the same points."""
    dim = arrays["inside"].shape[1]
    shapes = {"inside": (_POINTS, dim), "edge": (_POINTS, dim)}
    shapes |= dict.fromkeys(arrays.keys() - shapes.keys(), (_POINTS,))
    for name, shape in shapes.items():
        if dim == 0 or arrays[name].shape != shape or arrays[name].dtype != np.float64:
            raise Misfit(f"the fingerprint of its problem has another shape ({name})")


@x64()
def programs(problem: Problem) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The programs of a problem for a file: plain values for its header, and the numbers in them."""
    found = _programs(problem)
    words = {
        "versions": _versions(),
        "structures": {name: one.structure for name, one in found.items()},
    }
    return words, {name: one.numbers for name, one in found.items()}


@x64()
def check_programs(
    problem: Problem,
    words: dict[str, Any],
    numbers: dict[str, np.ndarray],
    where: Any,
    *,
    exact: bool = False,
) -> None:
    """Raise `ValueError` where a file belongs to a problem with other programs.

    Numbers may differ by rounding, as they do between machines, unless `exact` asks for the same bits.
    """
    if words["versions"] != _versions():
        there, here = (
            ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
            for versions in (words["versions"], _versions())
        )
        warnings.warn(
            f"{where} was made with {there}; here is {here}. Programs cannot be compared between "
            "versions: the problem was compared at sample points only.",
            stacklevel=3,
        )
        return
    for name, one in _programs(problem).items():
        there, here = numbers[name], one.numbers
        if words["structures"][name] != one.structure or there.shape != here.shape:
            raise ValueError(
                f"{where} belongs to another problem: {_PROGRAMS[name]}. It computes something else, "
                "even if not at the points that were compared."
            )
        same = (there == here) | (np.isnan(there) & np.isnan(here))
        if not exact:
            with np.errstate(invalid="ignore"):
                same |= np.abs(there - here) <= 1e-9 * np.abs(there)
        if not np.all(same):
            worst = int(np.argmin(same))
            raise ValueError(
                f"{where} belongs to another problem: {_PROGRAMS[name]}. The file has the number "
                f"{there[worst]:.17g} where the problem given has {here[worst]:.17g}."
            )


def _programs(problem: Problem) -> dict[str, Identity]:
    dim = problem.dim
    point, scalar = (jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((dim,), ()))

    def equation(x: Array, value: Array, slope: Array, curvature: Array, bend: Array) -> Array:
        jet = Jet(Quadratic(value, slope, curvature, bend), x)
        return like(x, problem.equation(x, jet))

    return {
        "eta": identity_of(problem.factor.value, point),
        "boundary": identity_of(problem.boundary.value, point),
        "equation": identity_of(equation, point, scalar, point, scalar, point),
    }


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("qpde", "jax")}


@x64()
def fingerprint(problem: Problem) -> dict[str, np.ndarray]:
    """The fingerprint of a problem."""
    inside, edge = (np.asarray(part) for part in _points(problem))
    return {"inside": inside, "edge": edge, **_values(problem, inside, edge)}


@x64()
def check_fingerprint(problem: Problem, stored: dict[str, np.ndarray], where: Any) -> None:
    """Raise `ValueError` that names what differs when a file belongs to another problem."""
    dim = stored["inside"].shape[1]
    if dim != problem.dim:
        raise ValueError(
            f"{where} belongs to another problem: its dimension is {dim}, here {problem.dim}."
        )
    here = _values(problem, stored["inside"], stored["edge"])
    for name, place, words, number in _ENTRIES:
        there, now = stored[name], here[name]
        gap = np.where(np.isnan(there) & np.isnan(now), 0.0, np.abs(now - there))
        # Measured by the size of the same quantity inside and on the boundary, where eta is zero up to
        # rounding. Another machine may round differently; another problem differs by more than 1e-9.
        alike = [entry[0] for entry in _ENTRIES if entry[3] == number]
        known = np.abs([values[entry] for values in (stored, here) for entry in alike])
        scale = np.max(known, where=np.isfinite(known), initial=0.0)
        if np.all(gap <= 1e-9 * scale):
            continue
        worst = int(np.argmax(np.where(np.isnan(gap), np.inf, gap)))
        at = np.array2string(stored[place][worst], precision=4, threshold=6)
        raise ValueError(
            f"{where} belongs to another problem: {words}. At x = {at} the file has "
            f"{there[worst]:.9g}, the problem given has {now[worst]:.9g} ({number})."
        )


@compiled(brief=True)
def _points(problem: Problem) -> tuple[Array, Array]:
    inside, edge = jr.split(key_from(16))
    domain = problem.domain
    return domain.sample(inside, _POINTS), domain.sample_boundary(edge, _POINTS)


def _values(problem: Problem, inside: np.ndarray, edge: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(16)
    size, dim = inside.shape
    # Jets with values of order one, positive because an equation may take roots or logarithms.
    jets = Quadratic(
        1.0 + rng.random(size),
        rng.standard_normal((size, dim)),
        rng.standard_normal(size),
        rng.standard_normal((size, dim)),
    )
    values = _evaluate(problem, jets, inside, edge)
    return {name: np.asarray(value) for name, value in values.items()}


@compiled(brief=True)
def _evaluate(problem: Problem, jets: Quadratic, inside: Any, edge: Any) -> dict[str, Array]:
    def equation(x: Array, jet: Quadratic) -> Array:
        return like(x, problem.equation(x, Jet(jet, x)))

    eta, data = problem.factor, problem.boundary
    return {
        "eta_inside": jax.vmap(eta.value)(inside),
        "eta_edge": jax.vmap(eta.value)(edge),
        "data_inside": jax.vmap(data.value)(inside),
        "data_edge": jax.vmap(data.value)(edge),
        "equation": jax.vmap(equation)(inside, jets),
    }
