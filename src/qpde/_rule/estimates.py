"""Second derivatives estimated from a few coordinates (see `_field/sampled.py`), as a rule asks for them."""

from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import whole
from .._equation.operator import is_affine_in_second
from .._field.sampled import Sampling
from .._network.shallow import ShallowField
from .._precision import key_from
from .._problem.problem import Problem
from .._problem.trial import Trial
from .batch import Batch

# Draws at held-out points, where a rule has one, and their key.
_HELD_OUT, _KEY = 4, 0xD4A5


def as_draws(draws: Any) -> int | None:
    """A checked number of coordinates to draw."""
    if draws is None:
        return None
    if whole("draws", draws, least=2) % 2:
        raise ValueError(
            f"draws is an even number, because two halves of it are independent, got {draws}."
        )
    return int(draws)


def check_draws(problem: Problem) -> None:
    """Refuse equations whose residual would be biased or would need more than traces."""
    asked = [ask for ask in ("hessian", "bilaplacian") if ask in problem.asks]
    if asked:
        raise ValueError(
            f"This equation asks for u.{asked[0]}; draws= estimates second-order traces only. Write the "
            "equation with u.laplacian, u.trace(a) or u.generator(drift, sigma), or leave draws= out."
        )
    if not is_affine_in_second(problem.domain, problem.equation):
        raise ValueError(
            "This equation is not affine in the second derivatives of u, so that L Q from estimates of them "
            "would be biased. Leave draws= out."
        )


def check_network(trial: Trial, draws: int | None) -> None:
    """Refuse networks whose Laplacian costs one pass in any dimension."""
    if draws is not None and isinstance(trial.network, ShallowField):
        raise ValueError(
            "A Shallow network has its second derivatives in closed form, which cost one pass in any "
            "dimension: leave draws= out."
        )


def halves(
    trial: Trial, x: Float[Array, " d"], key: PRNGKeyArray, draws: int
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """`Q` and two independent estimates of `L Q` at a point, each from half of the draws."""
    first, second = jr.split(key)
    value, residual = trial.sampled(Sampling(first, draws // 2)).value_and_residual(x)
    return value, residual, trial.sampled(Sampling(second, draws // 2)).residual(x)


def estimated(trial: Trial, batch: Batch, draws: int) -> tuple[Array, Array, Array]:
    """`Q` and two independent estimates of `L Q` at the points of a batch."""
    keys = jr.split(jr.fold_in(batch.key, 1), len(batch.points))
    return jax.vmap(lambda x, key: halves(trial, x, key, draws))(batch.points, keys)


def held_out(
    trial: Trial, points: Float[Array, "n d"], draws: int
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Two independent estimates of `L Q` at points, from more draws, always the same."""
    keys = jr.split(key_from(0, _KEY), len(points))

    def pair(x: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        return halves(trial, x, key, _HELD_OUT * draws)[1:]

    return jax.vmap(pair)(points, keys)
