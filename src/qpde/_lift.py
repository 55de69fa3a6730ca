"""`lift`: an extension of boundary values into the domain, from boundary values only.

A smooth function `p` is fitted to samples of `g` on the boundary; what it misses, `m = g - p`, is
small and is carried inside by a formula that is exact on the boundary. The result is `g` on the
boundary and has bounded second derivatives inside, so that `L Q` is square integrable.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._domain import AbstractDomain, Interval
from ._field import AbstractField, Autodiff
from ._form import Numbers
from ._round import Annulus, Ball, Ellipsoid

# Random ridges beside the polynomial, and boundary samples per fitted coefficient.
_RIDGES, _SAMPLES = 128, 6
# Up to this dimension the polynomial has all products x_i x_j, beyond only the squares.
_PRODUCTS = 16


def lift(g: Callable[..., Any], domain: AbstractDomain, *, seed: int = 0) -> AbstractField:
    """Extend boundary values `g` into a ball, ellipsoid, annulus or interval.

        >>> Problem(domain, equation, boundary=lift(lambda x: jnp.sin(3 * x[0]), domain))

    `g` maps a point `(d,)` of the boundary to a scalar; it is never evaluated elsewhere. The values
    of the extension on the boundary are exact up to rounding.

    - Ball, ellipsoid: `f = p + rho^4 m(projection)`, with `rho` the scaled distance from the centre.
    - Annulus: `f = p + (1 - t) m(inner projection) + t m(outer projection)`.
    - Interval: `f = p +` the line through the values of `m` at the ends.
    """
    patches = {
        Ball: _RoundPatch,
        Ellipsoid: _RoundPatch,
        Annulus: _ShellPatch,
        Interval: _EndsPatch,
    }
    if type(domain) not in patches:
        names = ", ".join(kind.__name__ for kind in patches)
        raise ValueError(
            f"lift knows {names}, not {type(domain).__name__}. Give a function on the closure."
        )
    point = jax.ShapeDtypeStruct((domain.dim,), jnp.float32)
    shape = jax.eval_shape(lambda x: jnp.asarray(g(x)), point).shape
    if shape != ():
        raise ValueError(f"lift takes g from a point (d,) to a scalar of shape (), got {shape}.")
    smooth = _fit(g, domain, seed)
    return Autodiff(_Lift(g, smooth, patches[type(domain)].of(domain)))


class _Features(eqx.Module):
    """`1, y, y_i y_j` and random ridges `tanh(w . y + b)` in the scaled coordinates `y`."""

    centre: Numbers
    half: Numbers
    w: Numbers
    b: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        y = (x - self.centre) / self.half
        if y.size <= _PRODUCTS:
            rows, columns = np.triu_indices(y.size)
            products = y[rows] * y[columns]
        else:
            products = y * y
        ridges = jnp.tanh(self.w @ y + self.b)
        return jnp.concatenate([jnp.ones((1,), y.dtype), y, products, ridges])


class _Smooth(eqx.Module):
    """The fitted smooth function `p`."""

    features: _Features
    weights: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(self.features(x), self.weights)


def _fit(g: Callable[..., Any], domain: AbstractDomain, seed: int) -> _Smooth:
    lower, upper = domain.enclosing_box
    rng = np.random.default_rng(seed)
    features = _Features(
        centre=0.5 * (lower + upper),
        half=0.5 * (upper - lower),
        w=2.0 / np.sqrt(domain.dim) * rng.standard_normal((_RIDGES, domain.dim)),
        b=rng.standard_normal(_RIDGES),
    )
    with jax.enable_x64(True):
        count = features(jnp.asarray(features.centre)).size
        edge = domain.sample_boundary(jr.key(seed), _SAMPLES * count)
        matrix, values = _evaluate(features, g, edge)
    if not np.all(np.isfinite(values)):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    # The samples lie on the boundary only. A combination of features that is small there may be
    # large inside; rcond leaves such combinations out, at the price of a larger mismatch.
    weights = np.linalg.lstsq(np.asarray(matrix), np.asarray(values), rcond=1e-4)[0]
    return _Smooth(features, weights)


@eqx.filter_jit
def _evaluate(features: _Features, g: Callable[..., Any], edge: Array) -> tuple[Array, Array]:
    values = jax.vmap(lambda x: jnp.asarray(g(x), x.dtype))(edge)
    return jax.vmap(features)(edge), values


class _AbstractPatch(eqx.Module):
    """Carries a function on the boundary into a domain."""

    @classmethod
    @abstractmethod
    def of(cls, domain: Any) -> "_AbstractPatch":
        """The patch of a domain."""

    @abstractmethod
    def __call__(self, m: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at `x`, from values of `m` at boundary points."""


class _Lift(eqx.Module):
    """`p + patch(g - p)`."""

    g: Callable[..., Any]
    smooth: _Smooth
    patch: _AbstractPatch

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        def missing(y: Array) -> Array:
            return jnp.asarray(self.g(y), y.dtype) - self.smooth(y)

        return self.smooth(x) + self.patch(missing, x)


class _RoundPatch(_AbstractPatch):
    """`rho^4 m(centre + axes y / rho)`, `y = (x - centre) / axes`, `rho = |y|`."""

    centre: Numbers
    axes: Numbers

    @classmethod
    def of(cls, domain: Any) -> "_RoundPatch":
        lower, upper = domain.enclosing_box
        return cls(0.5 * (lower + upper), 0.5 * (upper - lower))

    def __call__(self, m: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, ""]:
        y = (x - self.centre) / self.axes
        # At the centre the direction is arbitrary and its factor is zero.
        square = jnp.maximum(jnp.sum(y * y), 1e-30)
        return square * square * m(self.centre + self.axes * y * jax.lax.rsqrt(square))


class _ShellPatch(_AbstractPatch):
    """Linear in the radius between the projections on the two spheres."""

    centre: Numbers
    inner: Numbers
    outer: Numbers

    @classmethod
    def of(cls, domain: Any) -> "_ShellPatch":
        return cls(domain.centre, domain.inner, domain.outer)

    def __call__(self, m: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, ""]:
        y = x - self.centre
        r = jnp.sqrt(jnp.sum(y * y))
        t = (r - self.inner) / (self.outer - self.inner)
        inside, outside = self.inner * y / r, self.outer * y / r
        return (1.0 - t) * m(self.centre + inside) + t * m(self.centre + outside)


class _EndsPatch(_AbstractPatch):
    """Linear between the two ends of an interval."""

    lower: Numbers
    upper: Numbers

    @classmethod
    def of(cls, domain: Any) -> "_EndsPatch":
        return cls(*domain.enclosing_box)

    def __call__(self, m: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, ""]:
        t = ((x - self.lower) / (self.upper - self.lower))[0]
        ends = jnp.asarray(self.lower, x.dtype), jnp.asarray(self.upper, x.dtype)
        return (1.0 - t) * m(ends[0]) + t * m(ends[1])
