"""Common slips in a user's functions: what JAX says about them, and the cure in a sentence.

Only errors that JAX or Python raise for the misuse of a point or a jet are translated, with the original as
their cause. An error that a user's function raises itself reaches them as it is.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

_ASKS = "value|grad|laplacian|hessian|along|second|generator"
_BY_TYPE: list[tuple[type[Exception], str]] = [
    (
        jax.errors.TracerBoolConversionError,
        "decides by a value with Python's `if`, `and`, `max` or the like. Points are traced, they have no "
        "values yet: use jnp.where(condition, a, b), jnp.maximum, jnp.minimum",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "calls a function of NumPy or SciPy on a traced point. Use that of jax.numpy: jnp.sin in place of "
        "np.sin",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "makes a plain number of a traced one, as float(), int() and the functions of `math` do. Leave out "
        "the conversion, and use jnp.sin in place of math.sin",
    ),
]
_BY_WORDS: list[tuple[str, str]] = [
    (
        r"'Jet'|\bJet\b",
        "computes with u itself. u is a jet, not a number: write u.value (and u.grad, u.laplacian, ...); the "
        "arguments of an equation are (x, u), in this order",
    ),
    (
        r"(Tracer|Array\w*)'? object is not callable",
        "calls an answer of the jet. u.value, u.grad, u.laplacian and u.hessian are no methods: leave out ()",
    ),
    (
        rf"Tracer.* has no attribute '?({_ASKS})\b",
        "asks the point for derivatives. The arguments of an equation are (x, u), in this order",
    ),
    (
        r"Too many indices|too many indices",
        "indexes a point as if it were a batch. It takes one point of shape (d,): x[0] in place of x[:, 0]",
    ),
]


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the slips that are known into `ValueError`s that say what to write."""
    try:
        yield
    except _BY_TYPE[0][0] as error:
        raise _sentence(what, _BY_TYPE[0][1]) from error
    except _BY_TYPE[1][0] as error:
        raise _sentence(what, _BY_TYPE[1][1]) from error
    except _BY_TYPE[2][0] as error:
        raise _sentence(what, _BY_TYPE[2][1]) from error
    except (TypeError, AttributeError, IndexError) as error:
        for pattern, cure in _BY_WORDS:
            if re.search(pattern, str(error)):
                raise _sentence(what, cure) from error
        raise


def _sentence(what: str, cure: str) -> ValueError:
    return ValueError(f"{what} {cure}.")


def check_returned(what: str, result: Any) -> Any:
    """What a function returned, where it is a number or an array."""
    if result is None:
        raise ValueError(f"{what} returned None. Does it lack a `return`?")
    good = isinstance(result, jax.Array | np.ndarray | np.generic | int | float)
    if not good or isinstance(result, bool):
        raise ValueError(
            f"{what} returned {type(result).__name__}; it must return a number, an array of shape ()."
        )
    return result


def expect_scalar(what: str, function: Callable[..., Any], point: Any, cure: str) -> None:
    """Run a function of a point once, abstractly; raise where it does not return a number."""

    def checked(x: Array) -> Array:
        return jnp.asarray(check_returned(what, function(x)))

    with explained(what):
        result = jax.eval_shape(checked, point)
    if result.shape != ():
        raise ValueError(f"{what} must return a scalar of shape (), got {result.shape}. {cure}")


def check_signature(
    what: str, function: Callable[..., Any], form: str, count: int, *, more: str = ""
) -> None:
    """Raise where a function cannot be called with so many arguments; `more` says what may follow them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Python cannot tell; calling it will
    try:
        signature.bind(*range(count))
    except TypeError as error:
        raise ValueError(
            f"{what} must take {form}{more}; it takes {signature} ({error})."
        ) from None
