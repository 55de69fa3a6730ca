"""The whole space, and the space-time of a diffusion that starts from one of its points."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._diffusion.law import AbstractLaw, Gaussian
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
# Steps of a path whose law is not known.
STEPS = 64


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

    `X` is moved by `law`, in one step where that is exact, else in 64. It starts opposite to the data: at
    `t = 0` with terminal data (`backward`), at `t = end` with initial ones, for which it runs back in time.
    Made by `Problem`.
    """

    space: Space
    end: Numbers
    law: AbstractLaw
    box: tuple[Numbers, Numbers]
    wide: tuple[Numbers, Numbers]
    backward: bool = eqx.field(static=True)

    def __init__(self, space: Space, end: Any, law: AbstractLaw, backward: bool):
        self.space, self.end, self.law, self.backward = space, end, law, backward
        self.box = law.box(np.asarray(space.start), float(end), _DEVIATIONS)
        self.wide = law.box(np.asarray(space.start), float(end), _NEVER)

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
    def in_space(self) -> AbstractDomain:
        return self.space

    @property
    def dim(self) -> int:
        return self.space.dim + 1

    @property
    def eta(self) -> AbstractField:
        return Growing(Constant(1.0), self.end, self.backward)

    @property
    def enclosing_box(self) -> tuple[Numbers, Numbers]:
        lower, upper = self.law.closure(self.space.enclosing_box)
        return np.append(lower, 0.0), np.append(upper, float(self.end))

    @property
    def frame_box(self) -> tuple[Numbers, Numbers]:
        return np.append(self.box[0], 0.0), np.append(self.box[1], float(self.end))

    @property
    def wide_box(self) -> tuple[Numbers, Numbers]:
        """A box which the diffusion leaves once in 10^500 times (where its law is Gaussian or log-normal)."""
        return np.append(self.wide[0], 0.0), np.append(self.wide[1], float(self.end))

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
        law = self.law
        alike = isinstance(law, Gaussian) and law.isotropic is not None and not np.any(law.drift)
        return self.space.start if alike else None

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
        """To the slice of the data; negative outside the time interval, and where the law never is."""
        age = self.end - x[-1] if self.backward else x[-1]
        inside = jnp.where(age <= self.end, age, self.end - age)
        return jnp.where(self.law.reaches(x[:-1]), inside, -jnp.inf)

    def after(self, key: PRNGKeyArray, run: Float[Array, "n 1"]) -> Float[Array, "n d"]:
        """`X` after the times `run`."""
        count, law = run.shape[0], self.law
        start = jnp.broadcast_to(jnp.asarray(self.space.start, run.dtype), (count, self.space.dim))
        steps = 1 if law.exact else STEPS
        h = run[:, 0] / steps

        def move(x: Array, number: Array) -> tuple[Array, None]:
            noise = normal(uniform(jr.fold_in(key, number), (count, law.noises), run.dtype))
            t = number * h if self.backward else self.end - number * h
            return jax.vmap(law.step)(x, t, h, noise), None

        if law.exact:
            noise = normal(uniform(key, (count, law.noises), run.dtype))
            return jax.vmap(lambda x, h, n: law.step(x, 0.0, h, n))(start, h, noise)
        return jax.lax.scan(move, start, jnp.arange(steps))[0]

    def sample(self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float) -> Float[Array, "n d"]:
        space, time = jr.split(key)
        run = self.end * uniform(time, (n, 1), dtype)
        t = run if self.backward else self.end - run
        return jnp.concatenate([self.after(space, run), t], axis=1)

    def sample_boundary(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> Float[Array, "n d"]:
        """On the slice of the data, by the law of the diffusion when it gets there."""
        run = jnp.full((n, 1), 1.0, jnp.zeros((), dtype).dtype) * self.end
        t = run if self.backward else jnp.zeros_like(run)
        return jnp.concatenate([self.after(key, run), t], axis=1)
