"""How rough a field may be over a domain, from the program that its author names."""

from collections.abc import Callable
from typing import Any

from .._domain.base import AbstractDomain
from .._field.base import AbstractField
from .._program.interval import roughness_over


def field_roughness(field: AbstractField, domain: AbstractDomain) -> int:
    """How rough a field may be over the domain: `SMOOTH`, `KINK` or `JUMP`.

    Its program is looked at over the domain's box, or over the boxes that the field says it is made of.
    """
    return roughness_in(field, domain.enclosing_box)


def roughness_in(field: AbstractField, box: tuple[Any, Any]) -> int:
    """The same over a box."""
    program = field.judged_by()
    if program is None:
        return 0
    return max(rough_on(program, one) for one in field.judged_on() or (box,))


def roughness_level(function: Callable[..., Any], domain: AbstractDomain) -> int:
    """How rough the program of a function of a point is over the domain's box."""
    return rough_on(function, domain.enclosing_box)


def rough_on(function: Callable[..., Any], box: tuple[Any, Any]) -> int:
    """How rough the program of a function of a point is over a box."""
    return roughness_over(function, box)[0].get(0, 0)
