"""Activation functions with derivatives of every order in closed form.

`tanh.derivatives(z, 2)` gives `(s, s', s'')` from one evaluation of `tanh`. Offered: `sigmoid`,
`tanh`, `sin`, `gelu`, `softplus`, `erf`; any other elementwise JAX function is wrapped in
`Elementwise` and differentiated automatically.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy.polynomial import Polynomial


class AbstractActivation(eqx.Module):
    """A smooth elementwise function."""

    @abstractmethod
    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        """`(s(z), s'(z), ..., s^(order)(z))`."""

    def __call__(self, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
        return self.derivatives(z, 0)[0]


def _iterate(step: Callable[[Polynomial], Polynomial], count: int) -> Iterator[Polynomial]:
    """`count` polynomials, starting from 1, each made from the last."""
    p = Polynomial([1.0])
    for _ in range(count):
        yield p
        p = step(p)


def _horner(p: Polynomial, z: Float[Array, "*s"]) -> Float[Array, "*s"]:
    total = jnp.full_like(z, p.coef[-1])
    for coefficient in p.coef[-2::-1]:
        total = total * z + float(coefficient)
    return total


def _logistic(s: Array, rate: Polynomial, order: int) -> tuple[Array, ...]:
    """Derivatives of a function with `s' = rate(s)`: `s^(k) = rate(s) R_k(s)`, `R_1 = 1`,
    `R_{k+1} = R_k' rate + rate' R_k`.
    """
    if order == 0:
        return (s,)
    first = _horner(rate, s)
    chain = _iterate(lambda r: r.deriv() * rate + rate.deriv() * r, order)
    return (s, *(first * _horner(r, s) for r in chain))


def _gaussian(z: Array, bell: Array, rate: float, count: int) -> tuple[Array, ...]:
    """`bell = C exp(-rate z^2 / 2)` and its derivatives, `count` in all."""
    slope = Polynomial([0.0, -rate])
    return tuple(bell * _horner(r, z) for r in _iterate(lambda r: r.deriv() + slope * r, count))


class Tanh(AbstractActivation):
    """`tanh z`."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        return _logistic(jnp.tanh(z), Polynomial([1.0, 0.0, -1.0]), order)


class Sigmoid(AbstractActivation):
    """`1 / (1 + exp(-z))`, the paper's activation."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        # As a tanh, which compiles to a polynomial quotient, in place of an exponential.
        s = 0.5 * jnp.tanh(0.5 * z) + 0.5
        return _logistic(s, Polynomial([0.0, 1.0, -1.0]), order)


class Softplus(AbstractActivation):
    """`log(1 + exp z)`."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        value = jax.nn.softplus(z)
        return (value,) if order == 0 else (value, *sigmoid.derivatives(z, order - 1))


class Sin(AbstractActivation):
    """`sin z`."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        s = jnp.sin(z)
        if order == 0:
            return (s,)
        c = jnp.cos(z)
        return tuple((s, c, -s, -c)[k % 4] for k in range(order + 1))


class Erf(AbstractActivation):
    """The error function."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        s = jax.lax.erf(z)
        if order == 0:
            return (s,)
        return (s, *_gaussian(z, 1.1283791670955126 * jnp.exp(-z * z), 2.0, order))


class Gelu(AbstractActivation):
    """`z Phi(z)` with the normal distribution function, exact (not the tanh approximation)."""

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        cdf = 0.5 * (1.0 + jax.lax.erf(z * 0.7071067811865476))
        if order == 0:
            return (z * cdf,)
        bell = 0.3989422804014327 * jnp.exp(-0.5 * z * z)
        phi = (cdf, *_gaussian(z, bell, 1.0, order))
        # Leibniz: (z Phi)^(k) = z Phi^(k) + k Phi^(k-1).
        return (z * cdf, *(z * phi[k] + k * phi[k - 1] for k in range(1, order + 1)))


class Elementwise(AbstractActivation):
    """Any elementwise JAX function, differentiated by forward mode."""

    function: Callable[..., Any]

    def derivatives(self, z: Float[Array, "*s"], order: int) -> tuple[Float[Array, "*s"], ...]:
        chain, f = [self.function], self.function
        for _ in range(order):
            f = _derivative(f)
            chain.append(f)
        return tuple(jnp.asarray(g(z), z.dtype) for g in chain)


def _derivative(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda z: jax.jvp(f, (z,), (jnp.ones_like(z),))[1]


tanh, sigmoid, softplus, sin, erf, gelu = Tanh(), Sigmoid(), Softplus(), Sin(), Erf(), Gelu()
BY_NAME: dict[str, AbstractActivation] = {
    "tanh": tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "sin": sin,
    "erf": erf,
    "gelu": gelu,
}


def known_smooth(activation: AbstractActivation) -> bool:
    """Whether it is one of those above, whose formulas are smooth; the rest are judged by their programs."""
    return type(activation) in {type(ours) for ours in BY_NAME.values()}


def as_activation(thing: Any) -> AbstractActivation:
    """An activation from one of ours or from an elementwise function."""
    if isinstance(thing, AbstractActivation):
        return thing
    if callable(thing):
        return Elementwise(thing)
    raise ValueError(
        f"An activation is one of qpde.activations or an elementwise function, got {thing!r}."
    )
