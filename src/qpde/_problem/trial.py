"""The trial function `Q = S eta + f`: one point in, one number out."""

import functools
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float

from .._domain.eta import AbstractRadial
from .._field.base import AbstractField, by_value
from .._field.jet import Equation, Jet, Product, Sum
from .._precision import Numbers, like
from .problem import Problem


@runtime_checkable
class Towards(Protocol):
    """A source that has a cheap way to `(x - centre) . grad S`."""

    def towards(self, centre: Any) -> Float[Array, ""]: ...


class Trial(eqx.Module):
    """A network in the form that a problem asks for.

    With `exact_boundary`, `Q = S eta + f` has the right boundary values whatever the network `S` is;
    without, `Q = S` and the boundary is left to a penalty.
    """

    network: AbstractField
    eta: AbstractField
    boundary: AbstractField
    equation: Equation
    orientation: Numbers
    exact_boundary: bool = eqx.field(static=True)

    @classmethod
    def of(cls, problem: Problem, network: AbstractField, *, exact_boundary: bool) -> "Trial":
        """The trial function of a problem with a given network."""
        return cls(
            network=network,
            eta=problem.domain.eta,
            boundary=problem.boundary,
            equation=problem.equation,
            orientation=problem.orientation,
            exact_boundary=exact_boundary,
        )

    def with_network(self, network: AbstractField) -> "Trial":
        """The same trial function around another network."""
        return eqx.tree_at(lambda t: t.network, self, network)

    def by_values(self) -> "Trial":
        """The same function, with no derivative taken from a closed form that is not this library's."""
        parts = self.network, self.eta, self.boundary
        return eqx.tree_at(
            lambda t: (t.network, t.eta, t.boundary), self, tuple(map(by_value, parts))
        )

    def jet(self, x: Float[Array, " d"]) -> Jet:
        """The jet of `Q` at `x`."""
        source, eta = self.network.at(x), self.eta
        network = Jet(source, x)
        if not self.exact_boundary:
            return network

        cross = None
        if isinstance(eta, AbstractRadial) and isinstance(source, Towards):
            cross = functools.partial(_towards, eta, source, x)
        product = Jet(Product(Jet(eta.at(x), x), network, cross), x)
        return Jet(Sum(product, Jet(self.boundary.at(x), x)), x)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`Q(x)`."""
        return self.jet(x).value

    def residual(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`L Q(x)`, oriented so that its second-order part is positive."""
        return self.value_and_residual(x)[1]

    def value_and_residual(
        self, x: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """`Q(x)` and `L Q(x)` from one jet, so that they share what they have in common."""
        jet = self.jet(x)
        return jet.value, self.orientation * like(x, self.equation(x, jet))


def _towards(eta: AbstractRadial, source: Towards, x: Float[Array, " d"]) -> Float[Array, ""]:
    """`grad eta . grad S`."""
    return eta.slope(x) * source.towards(eta.centre)
