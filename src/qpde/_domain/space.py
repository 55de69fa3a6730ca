"""The whole space, and the space-time of a diffusion that starts from one of its points."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._field.base import AbstractField, Constant
from .._precision import Numbers
from .base import FORMULA, AbstractDomain, Fact, Times, as_dimension, as_point, short
from .cylinder import Growing
from .eigenvalue import Eigenvalue
from .random import normal, uniform

# Half the width of the frame of a network, in deviations of the diffusion at its end.
_DEVIATIONS = 3.0
# A normal variable is beyond so many deviations once in 10^500 times.
_NEVER = 50.0


class Space(AbstractDomain):
    """The whole of R^dim, for evolution problems whose solution is wanted at `start`.

        >>> Space(100)
        Space(100)

    Points are drawn by the law of the diffusion that the equation generates, from `start` on: see
    `Problem`. Without time there is no such law, and a problem on it is refused.
    """

    start: Numbers

    def __init__(self, dim: int, *, start: Any = 0.0):
        self.start = as_point("start", start, as_dimension(dim))

    def __repr__(self) -> str:
        start = f", start={short(self.start)}" if np.any(self.start) else ""
        return f"Space({self.dim}{start})"

    @property
    def dim(self) -> int:
        return self.start.size

    @property
    def is_whole_space(self) -> bool:
        return True

    @property
    def eta(self) -> AbstractField:
        return Constant(1.0)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        return np.full(self.dim, -np.inf), np.full(self.dim, np.inf)

    @property
    def centre(self) -> Numbers:
        return self.start

    @property
    def inradius(self) -> float:
        return math.inf

    @property
    def log_volume(self) -> float:
        return math.inf

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        return Eigenvalue(0.0, "none: the whole space")

    @property
    def convex(self) -> bool:
        return True

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.full((), jnp.inf, x.dtype)

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        raise ValueError(_TIMELESS)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        raise ValueError(_TIMELESS)


_TIMELESS = (
    "The whole space has no uniform points. Give time=T with initial=u0 or terminal=g: points are then drawn "
    "by the law of a diffusion from Space(dim, start=x0)."
)


class Paths(AbstractDomain):
    """Space-time of the whole space, with points `(X_t, t)` of a diffusion from `space.start`.

    `X = start + drift r + sqrt(2 r) factor N` after the time `r`, with standard normal `N`: exactly the law
    of `dX = drift dr + sqrt(2) factor dW`. It starts opposite to the data: at `t = 0` with terminal data
    (`backward`), at `t = end` with initial ones, for which it runs back in time. Made by `Problem`.
    """

    space: Space
    end: Numbers
    drift: Numbers
    factor: Numbers
    backward: bool = eqx.field(static=True)

    def __repr__(self) -> str:
        return f"{self.space!r} x (0, {self.end:g})"

    @property
    def times(self) -> Times | None:
        return Times(self.end, self.backward)

    @property
    def start(self) -> np.ndarray:
        """The point of space-time from which the diffusion starts."""
        return np.append(self.space.start, 0.0 if self.backward else self.end)

    @property
    def dim(self) -> int:
        return self.space.dim + 1

    @property
    def eta(self) -> AbstractField:
        return Growing(Constant(1.0), self.end, self.backward)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        lower, upper = self.space.enclosing_box
        return np.append(lower, 0.0), np.append(upper, float(self.end))

    @property
    def frame_box(self) -> tuple[Numbers, Numbers]:
        return self._box(_DEVIATIONS)

    @property
    def wide_box(self) -> tuple[Numbers, Numbers]:
        """A box which the diffusion leaves once in 10^500 times."""
        return self._box(_NEVER)

    def _box(self, deviations: float) -> tuple[Numbers, Numbers]:
        spread = np.sqrt(2.0 * self.end * np.sum(self.factor**2, axis=1))
        middle = self.space.start + 0.5 * self.end * self.drift
        reach = deviations * spread + 0.5 * self.end * np.abs(self.drift)
        reach = np.where(reach > 0, reach, 1.0)
        return np.append(middle - reach, 0.0), np.append(middle + reach, float(self.end))

    @property
    def centre(self) -> Numbers:
        return np.append(self.space.start, 0.5 * self.end)

    @property
    def inradius(self) -> float:
        return float(self.end)

    @property
    def log_volume(self) -> float:
        return math.inf

    @property
    def first_eigenvalue(self) -> Eigenvalue:
        return self.space.first_eigenvalue

    @property
    def spatial(self) -> AbstractDomain:
        return self.space

    @property
    def pivot(self) -> Numbers | None:
        matrix = np.asarray(self.factor @ self.factor.T)
        alike = np.allclose(matrix, matrix[0, 0] * np.eye(self.space.dim), rtol=1e-12, atol=0.0)
        return self.space.start if alike and not np.any(self.drift) else None

    @property
    def follows_paths(self) -> bool:
        return True

    @property
    def smooth_boundary(self) -> Fact | None:
        return Fact(True, "It is the slice on which data are given")

    @property
    def sloped_eta(self) -> Fact | None:
        return FORMULA

    def distance(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """To the slice of the data; negative outside the time interval."""
        age = self.end - x[-1] if self.backward else x[-1]
        return jnp.where(age <= self.end, age, self.end - age)

    def law(self, key: PRNGKeyArray, run: Float[Array, "n 1"]) -> Float[Array, "n d"]:
        """`X` after the times `run`."""
        shape = (run.shape[0], self.space.dim)
        noise = normal(uniform(key, shape, run.dtype)) @ jnp.asarray(self.factor, run.dtype).T
        return self.space.start[None] + run * self.drift[None] + jnp.sqrt(2.0 * run) * noise

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        space, time = jr.split(key)
        run = self.end * uniform(time, (n, 1), dtype)
        t = run if self.backward else self.end - run
        return jnp.concatenate([self.law(space, run), t], axis=1)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        """On the slice of the data, by the law of the diffusion when it gets there."""
        run = jnp.full((n, 1), 1.0, jnp.zeros((), dtype).dtype) * self.end
        t = run if self.backward else jnp.zeros_like(run)
        return jnp.concatenate([self.law(key, run), t], axis=1)
