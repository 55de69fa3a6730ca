"""Pairs of conditions, for equations of fourth order."""

from typing import Any

import equinox as eqx

from .._domain.base import AbstractDomain
from .._domain.squared import Cosines, Sines, squared
from .._field.base import AbstractField


class Clamped(eqx.Module):
    """`u = f` and `du/dn = df/dn` on the boundary: `Q = S eta^2 + f`.

        >>> Problem(Ball(3), lambda x, u: 1 - u.bilaplacian, boundary=Clamped())

    `data` is a number or a smooth function on the closure of the domain with the right values and the right
    normal derivatives.
    """

    data: Any = 0.0

    def factor(self, domain: AbstractDomain) -> AbstractField:
        """What multiplies the network."""
        return squared(domain.eta)

    def coordinates(self, domain: AbstractDomain) -> Cosines | None:
        """The coordinates that the network sees, where they are not `x` itself."""
        return None


class SimplySupported(eqx.Module):
    """`u = f` and `Lap u = Lap f` on the faces of a box.

    `Q = prod sin(pi t_i) S(cos(pi t)) + f`, with `t` from 0 to 1 across the box: each term of a sine series
    is such a product, and each such product has zero value and Laplacian on the faces. `data` is a number or
    a smooth function on the closure with the right values and the right Laplacian.
    """

    data: Any = 0.0

    def factor(self, domain: AbstractDomain) -> AbstractField:
        """What multiplies the network."""
        return Sines(*self._sides(domain))

    def coordinates(self, domain: AbstractDomain) -> Cosines:
        """The coordinates that the network sees."""
        return Cosines(*self._sides(domain))

    def _sides(self, domain: AbstractDomain) -> tuple[Any, Any]:
        if not domain.fills_box:
            raise ValueError(
                f"SimplySupported is for boxes, got {domain!r}. Elsewhere take qpde.Clamped(), or solve two "
                "equations of second order, -Lap w = r and -Lap u = w, one after the other."
            )
        lower, upper = domain.enclosing_box
        return lower, upper - lower


Conditions = Clamped | SimplySupported
