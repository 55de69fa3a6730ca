"""Users' functions as a problem holds them: the same program is the same function, parameters are arguments.

Compiled programs are kept by the functions in them. Functions are told apart by their programs here, not by
their objects: a lambda that a loop makes anew each time does not compile again, and its programs are not kept
once for every turn.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._field.base import AbstractField
from .._field.jet import Jet, Quadratic
from .._precision import Numbers, like
from .._program.identity import Identity, identity_of, pure_identity


class Function:
    """A user's function that is equal to every other one with the same program and numbers."""

    def __init__(self, function: Callable[..., Any], key: tuple[str, ...]):
        self.function, self._key = function, key

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.function(*given, **named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.function)


class Bound(eqx.Module):
    """A function with the parameters that it names, which are arrays: other values compile nothing."""

    function: Callable[..., Any] = eqx.field(static=True)
    values: dict[str, Numbers]

    def __call__(self, x: Any, *jet: Any) -> Any:
        return self.function(x, *jet, **{name: like(x, v) for name, v in self.values.items()})


def checked_parameters(parameters: Any) -> dict[str, np.ndarray]:
    """Parameters by name as NumPy float64 arrays."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise ValueError(
            f'parameters is a dict such as {{"k": 3.0}}, got {type(parameters).__name__}.'
        )
    found = {}
    for name, value in parameters.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"A parameter's name is a name in Python, got {name!r}.")
        try:
            array = np.array(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"The parameter {name} must be a number or an array of numbers, got {value!r}."
            ) from None
        if not np.all(np.isfinite(array)) or np.iscomplexobj(np.asarray(value)):
            raise ValueError(f"The parameter {name} must be real and finite, got {value!r}.")
        found[name] = array
    return found


def with_parameters(
    function: Any, parameters: Mapping[str, np.ndarray], taken: set[str], first: int
) -> Any:
    """The function with those parameters that its signature names after its `first` arguments.

    `taken` learns which they are.
    """
    if not parameters or not callable(function) or isinstance(function, AbstractField):
        return function
    try:
        signature = list(inspect.signature(function).parameters.values())[first:]
    except (TypeError, ValueError):
        return function
    everything = any(one.kind is one.VAR_KEYWORD for one in signature)
    usable = {
        one.name for one in signature if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    named = {name: v for name, v in parameters.items() if everything or name in usable}
    taken.update(named)
    return Bound(function, named) if named else function


def recognised(what: str, function: Any, dim: int, *, jet: bool = False) -> Any:
    """A function of a point, or of a point and a jet, told apart by its program; impure ones raise."""
    inner = function.function if isinstance(function, Bound) else function
    if not callable(function) or isinstance(inner, eqx.Module):
        if callable(function) and not isinstance(function, AbstractField):
            _identity(what, function, dim, jet, "float64")
        return function
    values = function.values if isinstance(function, Bound) else {}
    keys = []
    for dtype in ("float64", "float32"):  # a function may look at the precision of its point
        found = _identity(what, inner, dim, jet, dtype, values)
        if found.opaque:
            return function  # with a derivative rule or a callback, which only its own object has
        keys.append(found.digest)
    kept = Function(inner, (what, *keys))
    return Bound(kept, function.values) if isinstance(function, Bound) else kept


def _identity(
    what: str,
    function: Callable[..., Any],
    dim: int,
    jet: bool,
    dtype: str,
    values: Mapping[str, np.ndarray] | None = None,
) -> Identity:
    point, scalar = (jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in ((dim,), ()))
    names = list(values or {})
    given = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(dtype)) for v in (values or {}).values()]
    rest = (scalar, point, scalar, point) if jet else ()

    def call(x: Any, *others: Any) -> Any:
        parts, numbers = others[: len(rest)], others[len(rest) :]
        unknown = (Jet(Quadratic(*parts), x),) if jet else ()
        return function(x, *unknown, **dict(zip(names, numbers, strict=True)))

    if dtype == "float64":
        return pure_identity(what, call, point, *rest, *given)
    with np.errstate(over="ignore"):  # numbers that float32 does not have
        return identity_of(call, point, *rest, *given)
