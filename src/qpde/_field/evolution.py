"""The unknown of an evolution problem at one point `x` and one time `t`.

Space-time is a domain with the coordinates `z = (x, t)`. An equation `(x, t, u)` gets the jet in `x` alone,
whose derivatives are those in `x`, and which answers `u.dt` beside them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .form import AbstractForm, with_time
from .jet import Jet, UnknownAsk


class Apart(Jet):
    """A jet in space and time whose derivative in time is a variable of its own.

    As part of the gradient it could not be told apart, in a program, from the derivatives in space.
    """

    def __init__(self, whole: Jet, z: Float[Array, " d"], dt: Float[Array, ""]):
        super().__init__(_Same(whole), z)
        self.in_time = dt


class _Same:
    """The answers of a jet."""

    def __init__(self, whole: Jet):
        self._whole = whole

    def value(self) -> Float[Array, ""]:
        return self._whole.value

    def grad(self) -> Float[Array, " d"]:
        return self._whole.grad

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._whole.contract(form)

    def hessian(self) -> Float[Array, "d d"]:
        return self._whole.hessian


class _InSpace:
    """Answers in the space coordinates, from a jet in space and time."""

    def __init__(self, whole: Jet):
        self._whole = whole

    def value(self) -> Float[Array, ""]:
        return self._whole.value

    def grad(self) -> Float[Array, " d"]:
        return self._whole.grad[:-1]

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        return self._whole.contract(with_time(form))

    def hessian(self) -> Float[Array, "d d"]:
        return self._whole.hessian[:-1, :-1]


class EvolutionJet(Jet):
    """The unknown `u(x, t)`: a jet in `x`, with the derivative in time.

    | ask | answer |
    |---|---|
    | `u.dt` | the derivative in time |
    | `u.value`, `u.grad`, `u.laplacian`, ... | as of a `Jet`, in the coordinates `x` alone |
    """

    def __init__(self, whole: Jet, z: Float[Array, " d"]):
        super().__init__(_InSpace(whole), z[:-1])
        self._whole = whole

    @property
    def whole(self) -> Jet:
        """The jet in space and time."""
        return self._whole

    @property
    def dt(self) -> Float[Array, ""]:
        """The derivative in time."""
        return self._whole.in_time if isinstance(self._whole, Apart) else self._whole.grad[-1]

    def __getattr__(self, name: str) -> Any:
        raise UnknownAsk(
            f"A jet of an evolution problem has no {name!r}. An equation (x, t, u) can ask for u.dt, "
            "u.value, u.grad, u.laplacian, u.hessian, u.along(v), u.second(v), u.trace(a) and "
            "u.generator(drift, sigma), all but the first in x. Equations of second order in time, "
            "such as waves, are not solved."
        )


class InSpaceTime(eqx.Module):
    """An equation `(x, t, u)` as one of the points `z = (x, t)`."""

    function: Callable[..., Any]

    def __call__(self, z: Float[Array, " d"], u: Jet) -> Any:
        return self.function(z[:-1], z[-1], EvolutionJet(u, z))


class OfSpaceTime(eqx.Module):
    """A function `(x, t)` as one of the points `z = (x, t)`."""

    function: Callable[..., Any]

    def __call__(self, z: Float[Array, " d"]) -> Any:
        return self.function(z[:-1], z[-1])
