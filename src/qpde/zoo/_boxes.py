"""Linear equations on boxes. The data that are not constant are extended from boundary values only.

There the formula of the data is the solution itself: evaluated inside, it would give the answer away.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._boundary.lift import lift
from .._domain.base import as_dimension
from .._domain.box import Box
from .._field.jet import Jet
from .._problem.problem import Problem
from ._linear import Laplace
from ._recipe import recorded


class _SineEquation(eqx.Module):
    """`Lap u + d pi^2 prod sin(pi x_i)`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian + x.size * math.pi**2 * _sines(x)


def _sines(x: Float[Array, " d"]) -> Float[Array, ""]:
    return jnp.prod(jnp.sin(math.pi * x))


@recorded
def poisson_sine(dim: int = 5) -> Problem:
    """Poisson's equation on the unit box with a product of sines.

    `Lap u + d pi^2 prod sin(pi x_i) = 0` in (0, 1)^d, `u = 0` on the boundary, `u = prod sin(pi x_i)`.
    """
    return Problem(
        domain=Box(0.0, 1.0, dim=dim),
        equation=_SineEquation(),
        exact=_sines,
        name="poisson_sine",
    )


class _Cosines(eqx.Module):
    """`sum cos(pi x_i)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(jnp.cos(math.pi * x))


class _CosinesEquation(eqx.Module):
    """`Lap u + pi^2 sum cos(pi x_i)`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian + math.pi**2 * jnp.sum(jnp.cos(math.pi * x))


@recorded
def cube_cosines(dim: int = 5) -> Problem:
    """Poisson's equation on the unit box with a sum of cosines.

    `Lap u + pi^2 sum cos(pi x_i) = 0` in (0, 1)^d, `u = sum cos(pi x_i)`, extended from boundary values.

    Source: Mueller and Zeinhofer, Achieving high accuracy with PINNs via energy natural gradient descent,
    ICML 2023; Dangel, Mueller and Zeinhofer, Kronecker-factored approximate curvature for
    physics-informed neural networks, NeurIPS 2024.
    """
    domain, exact = Box(0.0, 1.0, dim=dim), _Cosines()
    return Problem(
        domain=domain,
        equation=_CosinesEquation(),
        boundary=lift(exact, domain),
        exact=exact,
        name="cube_cosines",
    )


class _Products(eqx.Module):
    """`x_1 x_2 + x_3 x_4 + ...`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(x[0::2], x[1::2])


@recorded
def cube_products(dim: int = 10) -> Problem:
    """Laplace's equation on the unit box with a sum of products of neighbours.

    `Lap u = 0` in (0, 1)^d, `u = x_1 x_2 + x_3 x_4 + ...`, d even, extended from boundary values.

    Source: E and Yu, The deep Ritz method, Communications in Mathematics and Statistics 6 (2018).
    Taken up by Dangel, Mueller and Zeinhofer (see `cube_cosines`) and by Nam, Berner and Anandkumar (see
    `committor`).
    """
    if as_dimension(dim) % 2:
        raise ValueError(f"cube_products is defined in even dimensions, got {dim}.")
    domain, exact = Box(0.0, 1.0, dim=dim), _Products()
    return Problem(
        domain=domain,
        equation=Laplace(),
        boundary=lift(exact, domain),
        exact=exact,
        name="cube_products",
    )


class _Norm(eqx.Module):
    """`|x|^2`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(x * x)


class _NormEquation(eqx.Module):
    """`Lap u - 2 d`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian - 2.0 * x.size


@recorded
def cube_norm(dim: int = 100) -> Problem:
    """Poisson's equation on the unit box with a constant source.

    `Lap u - 2 d = 0` in (0, 1)^d, `u = |x|^2`, extended from boundary values.

    Source: E and Yu, The deep Ritz method, Communications in Mathematics and Statistics 6 (2018).
    """
    domain, exact = Box(0.0, 1.0, dim=dim), _Norm()
    return Problem(
        domain=domain,
        equation=_NormEquation(),
        boundary=lift(exact, domain),
        exact=exact,
        name="cube_norm",
    )


class _Ridge(eqx.Module):
    """`m^2 + sin m`, `m` the mean of the coordinates."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        m = jnp.mean(x)
        return m * m + jnp.sin(m)


class _RidgeEquation(eqx.Module):
    """`Lap u - (2 - sin m) / d`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian - (2.0 - jnp.sin(jnp.mean(x))) / x.size


@recorded
def mean_ridge(dim: int = 100) -> Problem:
    """Poisson's equation on a box with a function of the mean of the coordinates.

    `Lap u - (2 - sin m) / d = 0` in (-1, 1)^d with `m = (x_1 + ... + x_d) / d`, `u = m^2 + sin m`, extended
    from boundary values.

    Source: Cen and Zou, Deep finite volume method for partial differential equations, Journal of
    Computational Physics 517 (2024); numbers of PDENNEval, IJCAI 2024.
    """
    domain, exact = Box(-1.0, 1.0, dim=dim), _Ridge()
    return Problem(
        domain=domain,
        equation=_RidgeEquation(),
        boundary=lift(exact, domain),
        exact=exact,
        name="mean_ridge",
    )
