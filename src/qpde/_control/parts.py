"""Drift, sigma, cost and discount of a control problem: what they must return."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._field.slips import check_returned, explained
from .._precision import like

# What JAX says about arrays that do not fit each other.
_SHAPES = re.compile("shape|dimension|broadcast|size", re.IGNORECASE)


def shape_of(what: str, function: Callable[..., Any], *at: Any) -> tuple[int, ...]:
    """The shape of what a function of arrays returns; nothing is computed but its program."""

    def checked(*given: Any) -> Any:
        found = function(*given)
        if isinstance(found, list | tuple):
            return like(given[0], found)
        return jnp.asarray(check_returned(what, found))

    with explained(what):
        try:
            return jax.eval_shape(checked, *at).shape
        except (TypeError, ValueError) as error:
            known = isinstance(error, jax.errors.JAXTypeError) or str(error).startswith(what)
            if known or not _SHAPES.search(str(error)):
                raise
            sizes = " and ".join(str(tuple(part.shape)) for part in at)
            raise ValueError(
                f"{what} cannot be computed at arrays of shape {sizes}, the point and then the action: "
                f"{str(error).splitlines()[0]} Check the number of components of the actions."
            ) from error


def expect_shape(what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse another shape."""
    if found != expected:
        raise ValueError(f"{what} must have shape {expected}, got {found}.")
