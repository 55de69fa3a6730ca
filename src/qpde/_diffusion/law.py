"""How a diffusion moves, given the noise that drives it.

With `r` the time since its start and `A = L L'`,

    dX = b dr + sqrt(2) L dW                              Gaussian: constant `b` and `L`;
    dX_i = X_i (mu_i dr + sqrt(2) (L dW)_i)               log-normal: constant `mu` and `L`;
    dX = b(X, t) dr + sqrt(2) L(X, t) dW                  any other, by the steps of Euler and Maruyama.

The first two have exact steps of any length: `X_{r+h}` has exactly its law given `X_r`. The last is right in
the limit of short steps only. A step is a function of standard normal numbers `N = W(h) / sqrt(h)`, so that
integrals against the same Brownian motion can be made along a path: `scatter(x, t, N) sqrt(h)` is the part
of the increment that has no mean.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._precision import Numbers, key_from

# Added to a time under a root, so that it has a derivative at zero.
_TINY = 1e-30


class AbstractLaw(eqx.Module):
    """A diffusion in R^d. All functions are of one point `(d,)` and one vector of noise `(k,)`."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether steps of any length have the right law."""

    @property
    @abstractmethod
    def noises(self) -> int:
        """The number of independent Brownian motions."""

    @abstractmethod
    def step(self, x: Float[Array, " d"], t: Any, h: Any, noise: Float[Array, " k"]) -> Array:
        """Where it is after the time `h`, from `x` at the time `t` (of the equation, not since its start)."""

    @abstractmethod
    def scatter(self, x: Float[Array, " d"], t: Any, noise: Float[Array, " k"]) -> Array:
        """`sqrt(2) L(x, t) noise`: the part of an increment without a mean, for `h = 1`."""

    @abstractmethod
    def quadratic(self, x: Float[Array, " d"], t: Any, w: Float[Array, "... d"]) -> Array:
        """`w' A w` for every row of `w`."""

    @abstractmethod
    def box(self, start: np.ndarray, end: float, deviations: float) -> tuple[Numbers, Numbers]:
        """A box that it leaves up to the time `end` by so many deviations only."""

    def closure(self, space: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        """The part of a box in which it stays."""
        return space

    def reaches(self, x: Float[Array, " d"]) -> Any:
        """Whether it may get to `x`."""
        return True

    def stretch(self, x: Float[Array, " d"]) -> Any:
        """1.0 where a step has the derivative `I` in its start, `c(x)` where it has `diag(c(x) step)`."""
        return 1.0


class Gaussian(AbstractLaw):
    """Constant coefficients: `X = x + drift h + sqrt(2 h) factor N`."""

    drift: Numbers
    factor: Numbers

    @property
    def exact(self) -> bool:
        return True

    @property
    def isotropic(self) -> float | None:
        """`a` where `A = a I`, the same in all directions."""
        matrix = np.asarray(self.factor @ self.factor.T)
        a, dim = float(matrix[0, 0]), len(matrix)
        return a if np.allclose(matrix, a * np.eye(dim), rtol=1e-12, atol=0.0) else None

    @property
    def noises(self) -> int:
        return self.factor.shape[1]

    def step(self, x: Float[Array, " d"], t: Any, h: Any, noise: Float[Array, " k"]) -> Array:
        drift, factor = (jnp.asarray(part, x.dtype) for part in (self.drift, self.factor))
        return x + h * drift + jnp.sqrt(2.0 * h + _TINY) * (factor @ noise)

    def scatter(self, x: Float[Array, " d"], t: Any, noise: Float[Array, " k"]) -> Array:
        return jnp.sqrt(2.0) * (jnp.asarray(self.factor, x.dtype) @ noise)

    def quadratic(self, x: Float[Array, " d"], t: Any, w: Float[Array, "... d"]) -> Array:
        return jnp.sum(jnp.square(w @ jnp.asarray(self.factor, x.dtype)), axis=-1)

    def box(self, start: np.ndarray, end: float, deviations: float) -> tuple[Numbers, Numbers]:
        spread = np.sqrt(2.0 * end * np.sum(self.factor**2, axis=1))
        middle = start + 0.5 * end * self.drift
        reach = deviations * spread + 0.5 * end * np.abs(self.drift)
        reach = np.where(reach > 0, reach, 1.0)
        return middle - reach, middle + reach


class LogNormal(AbstractLaw):
    """Coefficients of prices: `b_i = rate_i x_i`, `A_ij = x_i x_j (L L')_ij`, on positive coordinates."""

    rate: Numbers
    factor: Numbers

    @property
    def exact(self) -> bool:
        return True

    @property
    def noises(self) -> int:
        return self.factor.shape[1]

    @property
    def logs(self) -> Gaussian:
        """The law of the logarithms."""
        return Gaussian(self.rate - (self.factor**2).sum(axis=1), self.factor)

    def step(self, x: Float[Array, " d"], t: Any, h: Any, noise: Float[Array, " k"]) -> Array:
        return x * jnp.exp(self.logs.step(jnp.zeros_like(x), t, h, noise))

    def scatter(self, x: Float[Array, " d"], t: Any, noise: Float[Array, " k"]) -> Array:
        return x * self.logs.scatter(x, t, noise)

    def quadratic(self, x: Float[Array, " d"], t: Any, w: Float[Array, "... d"]) -> Array:
        return self.logs.quadratic(x, t, w * jnp.broadcast_to(x, w.shape))

    def box(self, start: np.ndarray, end: float, deviations: float) -> tuple[Numbers, Numbers]:
        low, high = self.logs.box(np.log(start), end, deviations)
        return np.exp(np.maximum(low, -300.0)), np.exp(np.minimum(high, 300.0))

    def closure(self, space: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
        return np.maximum(space[0], 0.0), space[1]

    def reaches(self, x: Float[Array, " d"]) -> Any:
        return jnp.all(x > 0)

    def stretch(self, x: Float[Array, " d"]) -> Any:
        return 1.0 / x


class EulerMaruyama(AbstractLaw):
    """Any coefficients, in steps that are frozen at their beginning: not the exact law.

    `coefficients(x, t)` gives the drift and the matrix `A`, or the number `s` where `A = s I`.
    """

    coefficients: Callable[..., Any]
    dim: int = eqx.field(static=True)

    @property
    def exact(self) -> bool:
        return False

    @property
    def noises(self) -> int:
        return self.dim

    def step(self, x: Float[Array, " d"], t: Any, h: Any, noise: Float[Array, " k"]) -> Array:
        drift, _ = self.coefficients(x, t)
        return x + h * drift + jnp.sqrt(h) * self.scatter(x, t, noise)

    def scatter(self, x: Float[Array, " d"], t: Any, noise: Float[Array, " k"]) -> Array:
        _, second = self.coefficients(x, t)
        if second.ndim == 0:
            return jnp.sqrt(jnp.maximum(2.0 * second, 0.0)) * noise
        values, vectors = jnp.linalg.eigh(2.0 * second)
        return vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * noise)

    def quadratic(self, x: Float[Array, " d"], t: Any, w: Float[Array, "... d"]) -> Array:
        _, second = self.coefficients(x, t)
        if second.ndim == 0:
            return second * jnp.sum(w * w, axis=-1)
        return jnp.sum((w @ second) * w, axis=-1)

    def box(self, start: np.ndarray, end: float, deviations: float) -> tuple[Numbers, Numbers]:
        places = np.asarray(_spread_out(self, start, np.asarray(end)))
        middle, spread = places.mean(axis=(0, 1)), places.std(axis=(0, 1))
        last = places[:, -1].std(axis=0)
        reach = np.abs(middle - start) + deviations * np.maximum(spread, last)
        reach = np.where(reach > 0, reach, 1.0)
        return middle - reach, middle + reach


@compiled(brief=True)
def _spread_out(law: AbstractLaw, start: Any, end: Any) -> Array:
    starts = jnp.broadcast_to(jnp.asarray(start), (_PILOT, len(start)))
    return simulated(law, key_from(0), starts, jnp.linspace(0.0, end, _PILOT_STEPS + 1))[0]


_PILOT, _PILOT_STEPS = 1_024, 32


def simulated(
    law: AbstractLaw,
    key: PRNGKeyArray,
    starts: Float[Array, "n d"],
    times: Float[Array, " m"],
    *,
    forward: bool = True,
) -> tuple[Float[Array, "n m d"], Float[Array, "n _ k"]]:
    """Paths from `starts` at `times[0]`, seen at all `times`, and the standard normal noise of every step.

    `times` are those of the equation, rising where the diffusion runs forward (terminal data) and falling
    where it does not (initial data: `forward=False`). Places of an exact law have exactly their joint law;
    others are made in one step from a time to the next. `noise[:, i]` is that between `times[i]` and
    `times[i + 1]`, for `sqrt(|times[i + 1] - times[i]|)` times it the increment of the Brownian motion.
    """
    sign = 1.0 if forward else -1.0
    count = starts.shape[0]

    def move(x: Array, given: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        number, t, h = given
        noise = jr.normal(jr.fold_in(key, number), (count, law.noises), x.dtype)
        moved = jax.vmap(lambda x, n: law.step(x, t, h, n))(x, noise)
        return moved, (moved, noise)

    steps = sign * jnp.diff(times)
    numbers = jnp.arange(len(steps))
    _, (places, noise) = jax.lax.scan(move, starts, (numbers, times[:-1], steps))
    whole = jnp.concatenate([starts[None], places])
    return jnp.swapaxes(whole, 0, 1), jnp.swapaxes(noise, 0, 1)
