"""Networks: a description is made before the domain is known; building it gives a field.

`Shallow` (the paper's) and `MLP` are descriptions; `build` draws the parameters. Inputs are scaled to the
domain's enclosing box first, `y = (x - centre) / half`, so that a shifted or stretched domain trains like
the unit one (`normalise=False` leaves them as they are).
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import shown, whole
from .._domain.base import AbstractDomain
from .._domain.grade import Grade
from .._field.base import AbstractField, Autodiff
from .._field.slips import check_signature, expect_scalar
from .._precision import Numbers, number


class Frozen(eqx.Module):
    """An array inside a network that is not trained."""

    array: Numbers = eqx.field(converter=number)


def trainable(network: AbstractField) -> tuple[AbstractField, AbstractField]:
    """Split a network into its trained arrays and the rest; `eqx.combine` joins them again."""
    fixed = Frozen | GradedFrame
    spec = jax.tree.map(eqx.is_inexact_array, network, is_leaf=lambda n: isinstance(n, fixed))
    return eqx.partition(network, spec)


class AbstractNetwork(eqx.Module):
    """A description of a network: what is known before the domain is.

    One of one's own has `build`; an `eqx.Module` from a point to a scalar needs no description.

        >>> class Waves(AbstractNetwork):
        ...     count: int
        ...
        ...     def build(self, domain, *, key):
        ...         return as_field(MyWaves(self.count, domain.dim, key))
    """

    @abstractmethod
    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> AbstractField:
        """Draw the parameters of a network for a domain."""

    def adapt(self, field: Any, start: "Start", *, key: PRNGKeyArray) -> Any:
        """The field that `build` drew, fitted to the residual of the trial function without network."""
        return field


@runtime_checkable
class Start(Protocol):
    """The trial function before there is a network, in float64."""

    def residual(self) -> Callable[[Array], Array]:
        """`L f` as a function of one point."""
        ...

    def points(self, key: PRNGKeyArray, count: int) -> Float[Array, "n d"]:
        """Points of the law that will train the network."""
        ...


@runtime_checkable
class OutputLayer(Protocol):
    """A network that is linear in the coefficients of its last layer."""

    def output_layer(self) -> tuple[Any, ...]:
        """Those coefficients."""
        ...


class Frame(eqx.Module):
    """The change of variables `y = (x - centre) / half` in front of a network."""

    centre: Frozen
    half: Frozen

    @classmethod
    def of(cls, domain: AbstractDomain, normalise: bool) -> "Frame":
        if not normalise:
            return cls(Frozen(np.zeros(domain.dim)), Frozen(np.ones(domain.dim)))
        lower, upper = domain.frame_box
        return cls(Frozen(0.5 * (lower + upper)), Frozen(0.5 * (upper - lower)))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return (x - self.centre.array) / self.half.array

    def all(self, points: np.ndarray) -> np.ndarray:
        """`y` at many points."""
        return (points - self.centre.array) / self.half.array

    def slopes(self, w: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The rows of `w` as gradients in `x`."""
        return w / self.half.array[None, :]

    def derivatives(self, x: Float[Array, " d"]) -> tuple[Array, Array, None]:
        """`y`, the slopes `dy_i / dx_i`, and no second derivatives."""
        return self(x), jnp.asarray(1.0 / self.half.array, x.dtype), None


class GradedFrame(eqx.Module):
    """The change of variables `y = 2 s - 1` with the graded coordinates `s` of a box; it is not trained."""

    grade: Grade

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return 2.0 * self.grade(x) - 1.0

    def all(self, points: np.ndarray) -> np.ndarray:
        """`y` at many points."""
        return np.asarray(jax.vmap(self)(jnp.asarray(points)))

    def derivatives(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """`y`, the slopes `dy_i / dx_i`, and the second derivatives."""
        return self(x), 2.0 * self.grade.slope(x), 2.0 * self.grade.bend(x)


def as_network_field(
    network: Any, domain: AbstractDomain, *, key: PRNGKeyArray, dtype: DTypeLike
) -> AbstractField:
    """The field to train, from a description or from any `eqx.Module` from a point to a scalar."""
    if isinstance(network, AbstractNetwork):
        return network.build(domain, key=key)
    if not isinstance(network, AbstractField):
        if not callable(network) or inspect.isclass(network):
            raise ValueError(
                "network must be qpde.Shallow, qpde.MLP or an eqx.Module from a point (d,) to a "
                f"scalar, got {shown(network)}."
            )
        network = Autodiff(network)
    point, function = jax.ShapeDtypeStruct((domain.dim,), dtype), network.judged_by()
    check_signature("The network", function or network.value, "one point (x)", 1)
    cure = 'With eqx.nn.MLP use out_size="scalar".'
    expect_scalar("The network", function or network.value, point, cure)
    if not jax.tree.leaves(trainable(network)[0]):
        raise ValueError("The network has no floating-point arrays to train.")
    return network


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator on the host: a network is drawn once, which is not worth compiling."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def as_width(width: Any) -> int:
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
        raise ValueError(f"A layer's width is a whole number from 1 up, got {shown(width)}.")
    return whole("A layer's width", width, least=1)
