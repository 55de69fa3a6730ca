"""What the convergence theory asks of the domain, of `eta` and of the boundary data."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._boundary.coons import Coons
from .._boundary.lift import RoundLift
from .._boundary.miss import Approximation
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._equation.roughness import field_roughness
from .._equation.smoothness import LINES, leap_inside
from .._field.base import Constant
from .._precision import key_from
from .._problem.problem import Problem
from .._problem.trial import Trial
from .finding import Answer, Evidence, Finding
from .residual import POWER, growth

_SAMPLE = 4_096


def boundary_finding(domain: AbstractDomain) -> Finding:
    """Whether the boundary is smooth."""
    name, smooth = "smooth boundary", domain.smooth_boundary
    asks = "The theory asks for three continuous derivatives (C^3)"
    if smooth is not None and smooth.holds:
        return Finding(name, Answer.YES, Evidence.PROVED, f"{smooth.why}.")
    if smooth is not None:
        return Finding(
            name,
            Answer.NO,
            Evidence.PROVED,
            f"{asks}; {smooth.why}.",
            "Nothing, if the result is then checked: qpde.certify does not ask for this. A solution may be "
            "rough at edges and corners, and is approached more slowly there.",
        )
    return Finding(
        name,
        Answer.UNKNOWN,
        Evidence.NONE,
        f"{asks}; {type(domain).__name__} is a domain of your own, whose boundary is not looked at.",
        "Make sure that it has no edges, corners or cusps, or rely on qpde.certify alone.",
    )


def eta_finding(domain: AbstractDomain) -> Finding:
    """Whether `eta` is smooth, positive inside, zero on the boundary with a slope there."""
    name, sloped = "boundary factor eta", domain.sloped_eta
    if sloped is not None and not sloped.holds:
        return Finding(
            name,
            Answer.NO,
            Evidence.PROVED,
            f"{sloped.why}.",
            "Nothing: every smooth function that is zero on two faces has no slope where they meet.",
        )
    least, most, edge, slope = _eta_numbers(domain)
    if sloped is not None:
        return Finding(
            name,
            Answer.YES,
            Evidence.PROVED,
            f"{sloped.why}: smooth, positive inside, zero on the boundary with a slope there (of at least "
            f"{slope:.3g} at {_SAMPLE:,} boundary points).",
        )
    text = (
        f"At {_SAMPLE:,} points inside it lies between {least:.2g} and {most:.3g}; at as many on the "
        f"boundary it is at most {edge:.1g}, with slopes of at least {slope:.3g}."
    )
    rough = field_roughness(domain.eta, domain)
    if not np.isfinite([least, most, edge, slope]).all() or slope * domain.inradius < 1e-6:
        advice = "Choose an eta that leaves the boundary with a slope, like the distance to it."
        return Finding(name, Answer.NO, Evidence.SAMPLED, f"{text} It needs a slope there.", advice)
    if most > 1 + 1e-9:
        return Finding(
            name,
            Answer.NO,
            Evidence.SAMPLED,
            f"{text} It must not exceed 1.",
            "Divide it by its maximum.",
        )
    if rough:
        text += " Its program has operations that can make kinks (abs, max, where, a root at zero)."
        advice = "Write it smoothly: where it has a kink, so has the solution."
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, advice)
    return Finding(name, Answer.YES, Evidence.SAMPLED, f"{text} Its program is smooth.")


@compiled(brief=True)
def _eta_at(domain: AbstractDomain, key: PRNGKeyArray) -> tuple[Array, Array, Array, Array]:
    inside = jax.vmap(domain.eta.value)(domain.sample(key, _SAMPLE))
    points = domain.sample_boundary(jr.fold_in(key, 1), _SAMPLE)
    edge, slopes = jax.vmap(domain.eta.value)(points), jax.vmap(domain.eta.grad)(points)
    return inside.min(), inside.max(), jnp.abs(edge).max(), jnp.linalg.norm(slopes, axis=1).min()


def _eta_numbers(domain: AbstractDomain) -> tuple[float, float, float, float]:
    least, most, edge, slope = _eta_at(domain, key_from(3))
    return float(least), float(most), float(edge), float(slope)


def extension_finding(problem: Problem) -> Finding:
    """Whether the boundary data, as extended inside, have square integrable second derivatives."""
    name, domain = "boundary data inside", problem.domain
    cure = "Write the data smoothly, or extend their boundary values by qpde.lift(g, domain)."
    if field_roughness(problem.boundary, domain):
        leap = leap_inside(problem.boundary.value, domain, 1)
        what = "a jump" if leap is not None and leap.order == 0 else "a kink"
        if leap is not None:
            where = np.array2string(leap.place, precision=3, threshold=6)
            text = f"They have {what}, for example at x = {where}: L f is not square integrable."
            return Finding(name, Answer.NO, Evidence.SAMPLED, text, cure)
        text = (
            "Their program has operations that can make kinks or jumps (abs, max, where, a root at zero); "
            f"bisection on {LINES} random lines found none."
        )
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, cure)
    power = growth(Trial.of(problem, Constant(0.0), exact_boundary=True), domain)
    if not power <= POWER:
        text = (
            f"Towards the boundary L f grows like distance^-{power:.2f} (4,096 points at three distances), "
            "which is not square integrable."
        )
        advice = "If the source term does that, nothing helps; otherwise extend by qpde.lift."
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    if isinstance(problem.boundary, Approximation):
        return _approximated(problem.boundary)
    calm = "Sampled near the boundary, L f does not blow up."
    if isinstance(problem.boundary, Constant):
        text = f"They are the number {float(problem.boundary.number):.4g}."
    elif isinstance(problem.boundary, Coons | RoundLift):
        text = "They are smooth by their program, and qpde.lift keeps second derivatives bounded."
    else:
        text = "They are smooth by their program (no abs, max, where, no root at zero)."
    return Finding(name, Answer.YES, Evidence.PROVED, f"{text} {calm}")


def _approximated(boundary: Approximation) -> Finding:
    """Smooth data in place of those that were given."""
    text = f"They are {boundary!r}."
    advice = (
        "Every bound for the error takes that into account. lift(g, domain, smoothing=...) takes another "
        "amount."
    )
    return Finding("boundary data inside", Answer.YES, Evidence.PROVED, text, advice)
