"""Ten evolution problems with chosen solutions, for `certificates.py`; sources make the equations true."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import qpde
from qpde import zoo


class _Known:
    """What an equation asks of a function of `x` and `t` that is known."""

    def __init__(self, function: Callable[..., Any], x: Any, t: Any):
        self.value, self.dt = function(x, t), jax.grad(function, argnums=1)(x, t)
        self.grad, self.hessian = jax.grad(function)(x, t), jax.hessian(function)(x, t)
        self.laplacian = jnp.trace(self.hessian)

    def along(self, v: Any) -> Any:
        """`v . grad`."""
        return jnp.dot(v, self.grad)

    def trace(self, a: Any) -> Any:
        """`a : Hess`."""
        return jnp.sum(a * self.hessian)


def _manufactured(
    name: str, domain: Any, equation: Any, *, time: float = 0.5, backward: bool = False
) -> qpde.Problem:
    """The solution `eta (1 + sin(2 x_1 + t) / 2)`, for an equation without its source."""

    def exact(x: Any, t: Any) -> Any:
        return domain.eta.value(x) * (1.0 + 0.5 * jnp.sin(2.0 * x[0] + t))

    def whole(x: Any, t: Any, u: Any) -> Any:
        return equation(x, t, u) - equation(x, t, _Known(exact, x, t))

    data: Any = {"terminal" if backward else "initial": lambda x: exact(x, time * backward)}
    return qpde.Problem(domain, whole, time=time, exact=exact, name=name, **data)


def problems() -> Iterator[qpde.Problem]:
    """All ten: Lipschitz and not, forward and backward, one matrix and varying ones, short and long."""
    for dim in (1, 3, 10):
        yield zoo.heat_ball(dim)
    skew = np.eye(4) + 0.5 * np.ones((4, 4))
    interval, square = qpde.Interval(0.0, 1.0), qpde.Box(0.0, [1.0, 1.0])
    yield _manufactured("growing", interval, lambda x, t, u: u.laplacian + 20 * u.value - u.dt)
    yield _manufactured(
        "Allen-Cahn", square, lambda x, t, u: u.laplacian + u.value - u.value**3 - u.dt
    )
    yield _manufactured("drift", qpde.Ball(3), lambda x, t, u: u.laplacian - u.along(x) - 2 * u.dt)
    yield _manufactured("one matrix", qpde.Ball(4), lambda x, t, u: u.trace(skew) - u.dt)
    yield _manufactured(
        "backward",
        qpde.Ball(2),
        lambda x, t, u: 0.5 * u.laplacian - t * u.value + u.dt,
        backward=True,
    )
    yield _manufactured(
        "varying",
        qpde.Ball(2),
        lambda x, t, u: (1 + 0.5 * jnp.sum(x * x)) * (1 + t) * u.laplacian - u.dt,
    )
    yield _manufactured(
        "long", qpde.Ball(5), lambda x, t, u: u.laplacian + 4 * jnp.sin(u.value) - u.dt, time=4.0
    )
