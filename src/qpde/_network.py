"""Networks: `Shallow` (the paper's) and `MLP` describe them; building one gives a field.

A description is made before the domain is known; `build` draws the parameters. Inputs are scaled to
the domain's enclosing box first, `y = (x - centre) / half`, so that a shifted or stretched domain
trains like the unit one (`normalise=False` leaves them as they are).
"""

import itertools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from . import activations
from ._domain import AbstractDomain
from ._field import AbstractField, Autodiff, SourcedField
from ._form import AbstractForm, Numbers
from .activations import AbstractActivation


class Frozen(eqx.Module):
    """An array inside a network that is not trained."""

    array: Numbers = eqx.field(converter=lambda v: np.asarray(v, np.float64))


def trainable(network: AbstractField) -> tuple[AbstractField, AbstractField]:
    """Split a network into its trained arrays and the rest; `eqx.combine` joins them again."""
    spec = jax.tree.map(eqx.is_inexact_array, network, is_leaf=lambda n: isinstance(n, Frozen))
    return eqx.partition(network, spec)


class AbstractNetwork(eqx.Module):
    """A description of a network."""

    @abstractmethod
    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> AbstractField:
        """Draw the parameters of a network for a domain."""


class Shallow(AbstractNetwork):
    """One hidden layer: `S(x) = N^-beta sum_i c_i sigma(w_i . y + b_i)`.

    Initially `c ~ U[-amplitude, amplitude]`, `w ~ N(0, scale^2 I)`, `b ~ N(0, 1)`. The paper has
    `scale = amplitude = 1`; the default `1 / sqrt(d)` of `scale` trains much better in high
    dimension, because the Laplacian carries `|w|^2`. `beta` lies in (1/2, 1) in the theory.
    `GaussNewton` wants `c` of order `1 / sqrt(N)`: `beta=0.5, amplitude=0.06` for 256 units.

    With `polynomial=True` the trained polynomial `a_0 + a_1 . y + a_2 |y|^2`, zero at the start,
    stands beside the hidden layer: it takes over what a hidden layer learns worst. With
    `aligned=0.5` half of the weights `w` start along gradients of `L f` (see `_aligned`), which is what
    finds a solution that varies along a few directions only. With `axes=0.25` a quarter of the units
    looks along one coordinate each, with `w_i ~ N(0, 4)` and `c = 0`: sums of functions of single
    coordinates are common where coordinates mean something, and random directions hardly find them.

        >>> Shallow(256, activation=activations.sigmoid, beta=0.99, scale=1.0)
    """

    width: int = eqx.field(static=True)
    activation: AbstractActivation
    beta: Numbers
    scale: Numbers | None
    normalise: bool = eqx.field(static=True)
    polynomial: bool = eqx.field(static=True)
    amplitude: Numbers
    aligned: float = eqx.field(static=True)
    axes: float = eqx.field(static=True)

    def __init__(
        self,
        width: int = 256,
        *,
        activation: Any = activations.tanh,
        beta: float = 0.75,
        scale: float | None = None,
        normalise: bool = True,
        polynomial: bool = False,
        amplitude: float = 1.0,
        aligned: float = 0.0,
        axes: float = 0.0,
    ):
        self.width = _width(width)
        self.activation = activations.as_activation(activation)
        self.beta = np.asarray(beta, np.float64)
        self.scale = None if scale is None else np.asarray(scale, np.float64)
        self.normalise, self.polynomial = normalise, polynomial
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta lies between 0 and 1 (the theory: 1/2 < beta < 1), got {beta}.")
        if scale is not None and not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be a positive number, got {scale}.")
        if not (np.isfinite(amplitude) and amplitude > 0):
            raise ValueError(f"amplitude must be a positive number, got {amplitude}.")
        for name, share in (("aligned", aligned), ("axes", axes)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} is a share between 0 and 1, got {share}.")
        if aligned + axes > 1.0:
            raise ValueError(f"aligned and axes are shares of one whole, got {aligned} and {axes}.")
        self.amplitude = np.asarray(amplitude, np.float64)
        self.aligned, self.axes = float(aligned), float(axes)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "ShallowField":
        rng, dim = _generator(key), domain.dim
        scale = 1.0 / np.sqrt(dim) if self.scale is None else self.scale
        c = self.amplitude * rng.uniform(-1.0, 1.0, self.width)
        w = scale * rng.standard_normal((dim, self.width))
        b = rng.standard_normal(self.width)
        if count := round(self.axes * self.width):  # the last columns; the first may be aligned
            w[:, -count:] = 0.0
            along = np.arange(count)
            w[along % dim, self.width - count + along] = 2.0 * rng.standard_normal(count)
            # Silent until they are needed: where they are not, unlearning them takes many steps.
            c[-count:] = 0.0
        return ShallowField(
            c=jnp.asarray(c),
            w=jnp.asarray(w),
            b=jnp.asarray(b),
            factor=Frozen(self.width ** -float(self.beta)),
            beta=Frozen(self.beta),
            frame=_Frame.of(domain, self.normalise),
            activation=self.activation,
            polynomial=Polynomial.zero(dim) if self.polynomial else None,
        )


class MLP(AbstractNetwork):
    """A network with hidden layers of the given widths and a linear output.

    >>> MLP([256, 256], activation=activations.tanh)
    """

    widths: tuple[int, ...] = eqx.field(static=True)
    activation: AbstractActivation
    normalise: bool = eqx.field(static=True)

    def __init__(
        self, widths: Any = (64, 64), *, activation: Any = activations.tanh, normalise: bool = True
    ):
        self.widths = tuple(_width(width) for width in widths)
        if not self.widths:
            raise ValueError("An MLP needs at least one hidden layer, for example MLP([64, 64]).")
        self.activation = activations.as_activation(activation)
        self.normalise = normalise

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "DeepField":
        sizes = (domain.dim, *self.widths, 1)
        rng = _generator(key)
        weights = [
            jnp.asarray(rng.standard_normal((fan_out, fan_in)) / np.sqrt(fan_in))
            for fan_in, fan_out in itertools.pairwise(sizes)
        ]
        return DeepField(
            weights=weights,
            biases=[jnp.zeros(n) for n in sizes[1:]],
            frame=_Frame.of(domain, self.normalise),
            activation=self.activation,
        )


class _Frame(eqx.Module):
    """The change of variables `y = (x - centre) / half` in front of a network."""

    centre: Frozen
    half: Frozen

    @classmethod
    def of(cls, domain: AbstractDomain, normalise: bool) -> "_Frame":
        if not normalise:
            return cls(Frozen(np.zeros(domain.dim)), Frozen(np.ones(domain.dim)))
        lower, upper = domain.enclosing_box
        return cls(Frozen(0.5 * (lower + upper)), Frozen(0.5 * (upper - lower)))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return (x - self.centre.array) / self.half.array

    def slopes(self, w: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """The rows of `w` as gradients in `x`."""
        return w / self.half.array[None, :]


class Polynomial(eqx.Module):
    """`p(y) = constant + slope . y + curvature |y|^2` in the coordinates of a frame."""

    constant: Float[Array, ""]
    slope: Float[Array, " d"]
    curvature: Float[Array, ""]

    @classmethod
    def zero(cls, dim: int) -> "Polynomial":
        return cls(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(()))

    def value(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        return self.constant + jnp.dot(self.slope, y) + self.curvature * jnp.dot(y, y)

    def grad(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """The gradient in `y`."""
        return self.slope + 2.0 * self.curvature * y


class ShallowField(SourcedField):
    """The network of `Shallow` with its parameters. All derivatives are closed forms:

    `grad S = N^-beta sum c s'(z) w`, `a : Hess S = N^-beta sum c s''(z) (w' a w)`; the Laplacian
    costs one forward pass in any dimension.
    """

    c: Float[Array, " n"]
    w: Float[Array, "d n"]  # a column a unit: its gradient is `x' z`, which is the faster product
    b: Float[Array, " n"]
    factor: Frozen
    beta: Frozen
    frame: _Frame
    activation: AbstractActivation
    polynomial: Polynomial | None = None

    @property
    def width(self) -> int:
        """The number of hidden units."""
        return self.c.shape[0]

    def at(self, x: Float[Array, " d"]) -> "Units":
        return Units(self, x)


class Units:
    """A shallow network at one point: all answers come from one evaluation of the activation."""

    def __init__(self, field: ShallowField, x: Float[Array, " d"]):
        self._slopes = field.frame.slopes(field.w.T)
        self._c = field.factor.array * field.c
        self._frame, self._y = field.frame, field.frame(x)
        self._inner = self._y @ field.w
        z = self._inner + field.b
        # Derivatives that nobody asks for are removed by the compiler.
        self._s, self._s1, self._s2 = field.activation.derivatives(z, 2)
        self._polynomial = field.polynomial

    def value(self) -> Float[Array, ""]:
        hidden = jnp.dot(self._s, self._c)
        p = self._polynomial
        return hidden if p is None else hidden + p.value(self._y)

    def grad(self) -> Float[Array, " d"]:
        hidden = (self._c * self._s1) @ self._slopes
        p = self._polynomial
        return hidden if p is None else hidden + p.grad(self._y) / self._frame.half.array

    def towards(self, centre: Numbers) -> Float[Array, ""]:
        """`grad S . (x - centre)`, from `w . y` as it was computed before."""
        offset = self._frame.centre.array - centre
        hidden = jnp.dot(self._s1 * (self._inner + self._slopes @ offset), self._c)
        p = self._polynomial
        if p is None:
            return hidden
        return hidden + jnp.dot(p.grad(self._y), self._y + offset / self._frame.half.array)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        hidden = jnp.dot(self._s2, self._c * form.quadratic(self._slopes))
        p = self._polynomial
        if p is None:
            return hidden
        diagonal = form.diagonal(self._y.size) / self._frame.half.array**2
        return hidden + 2.0 * p.curvature * jnp.sum(diagonal)

    def hessian(self) -> Float[Array, "d d"]:
        hidden = (self._slopes.T * (self._c * self._s2)[None, :]) @ self._slopes
        p = self._polynomial
        if p is None:
            return hidden
        return hidden + jnp.diag(2.0 * p.curvature / self._frame.half.array**2)


class DeepField(AbstractField):
    """The network of `MLP` with its parameters.

    `a : Hess` is carried from layer to layer with the Jacobian: through `h = s(z)`,
    `tr h = s'(z) tr z + s''(z) (J a J')_ii`. Memory and time are linear in the dimension (in the
    number of columns, for a factor).
    """

    weights: list[Float[Array, "_ _"]]
    biases: list[Float[Array, " _"]]
    frame: _Frame
    activation: AbstractActivation

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        h = self.frame(x)
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = self.activation(w @ h + b)
        return jnp.dot(self.weights[-1][0], h) + self.biases[-1][0]

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jax.grad(self.value)(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        z = self.weights[0] @ self.frame(x) + self.biases[0]
        jacobian, form = form.seed(self.frame.slopes(self.weights[0]))
        jacobian = jacobian.T  # a row a direction: over all points this is one product of matrices
        trace = jnp.zeros_like(z)
        for w, b in zip(self.weights[1:], self.biases[1:], strict=True):
            s, s1, s2 = self.activation.derivatives(z, 2)
            trace = w @ (s1 * trace + s2 * form.quadratic(jacobian.T))
            jacobian = (s1[None, :] * jacobian) @ w.T
            z = w @ s + b
        return trace[0]

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(jax.grad(self.value))(x)


def as_network_field(
    network: Any, domain: AbstractDomain, *, key: PRNGKeyArray, dtype: Any
) -> AbstractField:
    """The field to train, from a description or from any `eqx.Module` from a point to a scalar."""
    if isinstance(network, AbstractNetwork):
        return network.build(domain, key=key)
    if not isinstance(network, AbstractField):
        if not callable(network):
            raise ValueError(
                "network must be qpde.Shallow, qpde.MLP or an eqx.Module from a point (d,) to a "
                f"scalar, got {type(network).__name__}."
            )
        network = Autodiff(network)
    point = jax.ShapeDtypeStruct((domain.dim,), dtype)
    shape = jax.eval_shape(getattr(network, "function", network.value), point).shape
    if shape != ():
        raise ValueError(
            f"The network maps a point ({domain.dim},) to shape {shape}; it must return a scalar "
            'of shape (). With eqx.nn.MLP use out_size="scalar".'
        )
    if not jax.tree.leaves(trainable(network)[0]):
        raise ValueError("The network has no floating-point arrays to train.")
    return network


def cast(tree: Any, dtype: Any) -> Any:
    """The tree with its JAX arrays of floating point in another precision."""

    def one(leaf: Any) -> Any:
        floating = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(one, tree)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    """A generator on the host: a network is drawn once, which is not worth compiling."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def _width(width: Any) -> int:
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
        raise ValueError(f"A layer's width is a whole number from 1 up, got {width!r}.")
    return int(width)
