"""`Shallow`: the network of the paper, one hidden layer with all derivatives in closed form."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations
from .._arguments import flag, real
from .._domain.base import AbstractDomain
from .._field.base import SourcedField
from .._field.form import AbstractForm
from .._precision import Numbers, fitting
from ..activations import AbstractActivation
from .aligned import AT_ONCE, POINTS, aligned_weights
from .base import AbstractNetwork, Frame, Frozen, Start, as_width, generator


class Shallow(AbstractNetwork):
    """One hidden layer: `S(x) = N^-beta sum_i c_i sigma(w_i . y + b_i)`.

    Initially `c ~ U[-amplitude, amplitude]`, `w ~ N(0, scale^2 I)`, `b ~ N(0, 1)`. The paper has
    `scale = amplitude = 1`; the default `1 / sqrt(d)` of `scale` trains much better in high
    dimension, because the Laplacian carries `|w|^2`. `beta` lies in (1/2, 1) in the theory.
    `GaussNewton` wants `c` of order `1 / sqrt(N)`: `beta=0.5, amplitude=0.06` for 256 units.

    With `polynomial=True` the trained polynomial `a_0 + a_1 . y + a_2 |y|^2`, zero at the start,
    stands beside the hidden layer: it takes over what a hidden layer learns worst. With
    `aligned=0.5` half of the weights `w` start along gradients of `L f` (see `_network/aligned.py`), which
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
        self.width = as_width(width)
        self.activation = activations.as_activation(activation)
        self.beta = real("beta", beta)
        self.scale = None if scale is None else real("scale", scale, above=0.0)
        self.normalise = flag("normalise", normalise)
        self.polynomial = flag("polynomial", polynomial)
        if not 0.0 <= self.beta <= 1.0:
            raise ValueError(f"beta lies between 0 and 1 (the theory: 1/2 < beta < 1), got {beta}.")
        self.amplitude = real("amplitude", amplitude, above=0.0)
        for name, share in (("aligned", aligned), ("axes", axes)):
            if not 0.0 <= real(name, share) <= 1.0:
                raise ValueError(f"{name} is a share between 0 and 1, got {share}.")
        if aligned + axes > 1.0:
            raise ValueError(f"aligned and axes are shares of one whole, got {aligned} and {axes}.")
        self.aligned, self.axes = float(aligned), float(axes)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "ShallowField":
        rng, dim = generator(key), domain.dim
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
            frame=Frame.of(domain, self.normalise),
            activation=self.activation,
            polynomial=Polynomial.zero(dim) if self.polynomial else None,
        )

    def adapt(self, field: "ShallowField", start: Start, *, key: PRNGKeyArray) -> "ShallowField":
        """With `aligned`, some hidden weights along gradients of `L f` (see `_network/aligned.py`)."""
        count = round(self.aligned * self.width)
        if count == 0:
            return field
        # Its spread needs many points, and gradients as many as units: in so many dimensions no more.
        points = start.points(
            key, fitting(max(count, POINTS), len(field.w), least=count, numbers=AT_ONCE)
        )
        new = aligned_weights(field.w, field.frame.half.array, start.residual(), points, key, count)
        return eqx.tree_at(lambda f: f.w, field, jnp.asarray(new, field.w.dtype))


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
    frame: Frame
    activation: AbstractActivation
    polynomial: Polynomial | None = None

    @property
    def width(self) -> int:
        """The number of hidden units."""
        return self.c.shape[0]

    def judged_by(self) -> Callable[..., Any] | None:
        return None if activations.known_smooth(self.activation) else self.value

    def output_layer(self) -> tuple[Any, ...]:
        p = self.polynomial
        return (self.c,) if p is None else (self.c, p.constant, p.slope, p.curvature)

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.at(x).bilaplacian()

    def laplacian_grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.at(x).laplacian_grad()

    def at(self, x: Float[Array, " d"]) -> "ShallowAt":
        return ShallowAt(self, x)


class ShallowAt:
    """A shallow network at one point: all answers come from one evaluation of the activation."""

    def __init__(
        self, field: ShallowField, x: Float[Array, " d"], inner: Float[Array, " n"] | None = None
    ):
        """`inner` is `y @ w`, where that is known."""
        self._slopes = field.frame.slopes(field.w.T)
        self._c = field.factor.array * field.c
        self._frame, self._y = field.frame, field.frame(x)
        self._inner = self._y @ field.w if inner is None else inner
        z = self._z = self._inner + field.b
        self._activation = field.activation
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
        diagonal = form.diagonal(self._y) / self._frame.half.array**2
        return hidden + 2.0 * p.curvature * jnp.sum(diagonal)

    def bilaplacian(self) -> Float[Array, ""]:
        """`N^-beta sum c |w|^4 s4(z)`, with the fourth derivative of the activation; the polynomial has
        none.
        """
        fourth = self._activation.derivatives(self._z, 4)[4]
        return jnp.dot(fourth, self._c * jnp.square(jnp.sum(self._slopes**2, axis=1)))

    def laplacian_grad(self) -> Float[Array, " d"]:
        third = self._activation.derivatives(self._z, 3)[3]
        return (third * self._c * jnp.sum(self._slopes**2, axis=1)) @ self._slopes

    def hessian(self) -> Float[Array, "d d"]:
        hidden = (self._slopes.T * (self._c * self._s2)[None, :]) @ self._slopes
        p = self._polynomial
        if p is None:
            return hidden
        return hidden + jnp.diag(2.0 * p.curvature / self._frame.half.array**2)
