"""The diffusion that a linear equation generates: `A : Hess + b . grad`, killed at the rate `c >= 0`."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .exit_time import exit_time
from .operator import Operator, Structure

# By how much a killing rate that is negative by rounding alone may make weights grow before a walk leaves.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Generator:
    """What random walks must know of a linear operator, all of it from the operator's program.

    `scalar` is `s` where `A = s I` with one number `s` and there is no drift; `killing` is `c` where that
    is one number; `matrix` is `A` where it is one matrix; each is None elsewhere. `definite`: `A` is proved
    to be positive. `proved`: so is `c >= 0`, where that matters. `largest_trace` and `largest_drift` bound
    `tr A` and `|b|` where they are constant and are taken from random points elsewhere: they set the length
    of time steps.
    """

    operator: Operator
    scalar: float | None
    killing: float | None
    matrix: np.ndarray | None
    definite: bool
    proved: bool
    largest_trace: float
    largest_drift: float

    @classmethod
    def of(cls, operator: Operator) -> "Generator":
        """Raise `ValueError` unless the operator is linear, with `c >= 0` where walks may take any time."""
        _refuse_nonlinear(operator)
        steady = "A" not in operator.varies
        matrix = operator.constant(operator.second) if steady and not operator.isotropic else None
        scalar = None
        if steady and not operator.has_drift:
            scalar = _multiple(operator.constant(operator.second))
        ellipticity = operator.ellipticity()
        killing = None if "c" in operator.varies else float(operator.constant(operator.killing))
        return cls(
            operator=operator,
            scalar=scalar,
            killing=killing,
            matrix=matrix,
            definite=ellipticity.proved and ellipticity.value > 0,
            # Up to a horizon weights may grow.
            proved=operator.domain.times is not None or _refuse_growth(operator, killing),
            largest_trace=_largest(operator, _MinusTrace(operator), steady),
            largest_drift=_largest(operator, _MinusSpeed(operator), "b" not in operator.varies),
        )

    @property
    def on_spheres(self) -> bool:
        """Whether a walk can go from sphere to sphere, without time steps."""
        return self.scalar is not None and self.killing is not None


def _largest(operator: Operator, minus: Callable[[Array], Array], constant: bool) -> float:
    """The largest value of a coefficient whose opposite is `minus`; sampled unless it is constant."""
    return -float(operator.constant(minus) if constant else operator.sampled(minus).value)


def _multiple(second: np.ndarray) -> float | None:
    """`s` where a constant `A` is `s I`."""
    if second.ndim == 0:
        return float(second)
    s = float(second[0, 0])
    return s if np.array_equal(second, s * np.eye(len(second))) else None


class _MinusTrace(eqx.Module):
    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return -self.operator.trace(x)


class _MinusSpeed(eqx.Module):
    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        drift = self.operator.drift(x)
        return -jnp.sqrt(jnp.sum(drift * drift))


def _refuse_nonlinear(operator: Operator) -> None:
    if operator.order == 4:
        raise ValueError(
            "This equation is of fourth order, whose solutions are no means over random walks. For an error "
            "bound use qpde.certify(solution)."
        )
    if operator.structure is Structure.LINEAR:
        return
    if operator.structure is Structure.SEMILINEAR:
        what = "its derivative with respect to u changes with u"
    elif operator.jumps:
        what = "it may jump as u changes"
    else:
        what = "its derivative with respect to the derivatives of u changes with u"
    raise ValueError(
        f"This equation is not linear: {what}. A mean over random walks represents the solutions of "
        "equations that are affine in u and its derivatives only, because the walks must not depend on the "
        "unknown. For an error bound of a nonlinear problem use qpde.certify(solution)."
    )


def _refuse_growth(operator: Operator, killing: float | None) -> bool:
    """Whether `c >= 0` is proved; a negative rate, at any point that was looked at, is refused."""
    if killing is not None:
        least, proved = killing, True
    else:
        bound = operator.least(operator.killing)
        least, proved = bound.value, bound.proved and bound.value >= 0
        if not proved:
            # Interval arithmetic over one big box can be far off; points say what may be true.
            least = operator.sampled(operator.killing).value
    if least < 0 and not -least * exit_time(operator).value <= _ROUNDING:
        raise ValueError(
            f"This equation multiplies u by {-least:.3g} > 0 somewhere, c = {least:.3g} < 0 in "
            "A : Hess u + b . grad u - c u + r = 0. Walks would then grow in weight, and their mean need "
            "not exist. Only c >= 0 is supported; check the sign of the term in u."
        )
    return proved
