"""The trial function `Q = S eta + f`: one point in, one number out."""

import dataclasses
import functools
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float

from .._domain.eta import AbstractRadial
from .._domain.squared import Cosines, Moved
from .._field.base import AbstractField, by_value
from .._field.form import AbstractForm
from .._field.jet import At, Equation, Jet, Product, Source, Sum
from .._field.sampled import Sampled, Sampling
from .._network.moved import MovedShallowAt
from .._network.shallow import ShallowField
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
    coordinates: Cosines | None = None  # those of the network, where they are not x itself
    sampling: Sampling | None = None  # of the network's second derivatives, in training

    @classmethod
    def of(cls, problem: Problem, network: AbstractField, *, exact_boundary: bool) -> "Trial":
        """The trial function of a problem with a given network."""
        return cls(
            network=network,
            eta=problem.factor,
            boundary=problem.boundary,
            equation=problem.equation,
            orientation=problem.orientation,
            exact_boundary=exact_boundary,
            coordinates=problem.conditions and problem.conditions.coordinates(problem.domain),
        )

    def with_network(self, network: AbstractField) -> "Trial":
        """The same trial function around another network."""
        return eqx.tree_at(lambda t: t.network, self, network)

    def sampled(self, sampling: Sampling) -> "Trial":
        """The same function, the second-order traces of whose network are estimates."""
        return dataclasses.replace(self, sampling=sampling)

    def by_values(self) -> "Trial":
        """The same function, with no derivative taken from a closed form that is not this library's."""
        parts = self.network, self.eta, self.boundary
        return eqx.tree_at(
            lambda t: (t.network, t.eta, t.boundary), self, tuple(map(by_value, parts))
        )

    def jet(self, x: Float[Array, " d"]) -> Jet:
        """The jet of `Q` at `x`."""
        if not self.exact_boundary:
            return Jet(self._source(self.network, x), x)
        return Jet(Sum(self.part(x, self.network), Jet(self.boundary.at(x), x)), x)

    def part(self, x: Float[Array, " d"], network: AbstractField) -> Jet:
        """The jet of `S eta` at `x`, for any network."""
        source, eta, cross = self._source(network, x), self.eta, None
        if isinstance(eta, AbstractRadial) and isinstance(source, Towards):
            cross = functools.partial(_towards, eta, source, x)
        return Jet(Product(Jet(eta.at(x), x), Jet(source, x), cross), x)

    def _source(self, network: AbstractField, x: Float[Array, " d"]) -> Source:
        source = self._exact(network, x)
        return source if self.sampling is None else Sampled(source, self.sampling, x)

    def _exact(self, network: AbstractField, x: Float[Array, " d"]) -> Source:
        if self.coordinates is not None and type(network) is ShallowField:
            return MovedShallowAt(network, self.coordinates, x)
        if self.coordinates is not None:
            return At(Moved(network, self.coordinates), x)
        source = network.at(x)
        # Derivatives of fourth order that a source does not know are taken of its field.
        return source if hasattr(source, "bilaplacian") else _Fourth(source, network, x)

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


class _Fourth:
    """A source of second order, with derivatives of fourth order by those of its field."""

    def __init__(self, source: Source, field: AbstractField, x: Float[Array, " d"]):
        self._source, self._field, self._x = source, field, x

    def __getattr__(self, name: str) -> Any:
        # What only some sources know, such as `towards`.
        return getattr(self._source, name)

    def value(self) -> Float[Array, ""]:
        return self._source.value()

    def grad(self) -> Float[Array, " d"]:
        return self._source.grad()

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._source.trace(form)

    def hessian(self) -> Float[Array, "d d"]:
        return self._source.hessian()

    def bilaplacian(self) -> Float[Array, ""]:
        return self._field.bilaplacian(self._x)

    def laplacian_grad(self) -> Float[Array, " d"]:
        return self._field.laplacian_grad(self._x)


def _towards(eta: AbstractRadial, source: Towards, x: Float[Array, " d"]) -> Float[Array, ""]:
    """`grad eta . grad S`."""
    return eta.slope(x) * source.towards(eta.centre)
