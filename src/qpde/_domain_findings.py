"""What the convergence theory asks of the domain, of `eta` and of the boundary data."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ._domain import AbstractDomain, Box, Interval
from ._enclosure import roughness_over
from ._field import AbstractField, Constant
from ._finding import Finding, Verdict
from ._form import fresh
from ._leap import LINES, leap_inside
from ._problem import Problem
from ._residual import POWER, growth
from ._round import Annulus, Ball, Ellipsoid
from ._trial import Trial

_SAMPLE = 4_096


def boundary_finding(domain: AbstractDomain) -> Finding:
    """Whether the boundary is smooth."""
    name = "smooth boundary"
    if isinstance(domain, Box | Interval | Ball | Ellipsoid | Annulus) and domain.dim == 1:
        return Finding(
            name, Verdict.YES, "proved", "In one dimension the boundary is a few points."
        )
    if isinstance(domain, Ball | Ellipsoid | Annulus):
        kind = {Ball: "A sphere", Ellipsoid: "An ellipsoid", Annulus: "A pair of spheres"}[
            type(domain)
        ]
        return Finding(name, Verdict.YES, "proved", f"{kind} is smooth of every order.")
    asks = "The theory asks for three continuous derivatives (C^3)"
    if isinstance(domain, Box):
        return Finding(
            name,
            Verdict.NO,
            "proved",
            f"{asks}; a box is not C^3 where its faces meet.",
            "Nothing, if the result is then checked: qpde.certify does not ask for this. A solution may be "
            "rough at edges and corners, and is approached more slowly there.",
        )
    return Finding(
        name,
        Verdict.UNKNOWN,
        "",
        f"{asks}; {type(domain).__name__} is a domain of your own, whose boundary is not looked at.",
        "Make sure that it has no edges, corners or cusps, or rely on qpde.certify alone.",
    )


def eta_finding(domain: AbstractDomain) -> Finding:
    """Whether `eta` is smooth, positive inside, zero on the boundary with a slope there."""
    name = "boundary factor eta"
    if isinstance(domain, Box) and domain.dim > 1:
        power = 2 * -(-domain.dim // 8)
        return Finding(
            name,
            Verdict.NO,
            "proved",
            f"eta = prod (1 - y_i^{power}) is smooth, positive inside and zero on the boundary, but its "
            "slope is zero where two faces meet.",
            "Nothing: every smooth function that is zero on two faces has no slope where they meet.",
        )
    least, most, edge, slope = _eta_numbers(domain)
    if isinstance(domain, Ball | Ellipsoid | Annulus | Box | Interval):
        return Finding(
            name,
            Verdict.YES,
            "proved",
            "It is a formula: smooth, positive inside, zero on the boundary with a slope there (of at least "
            f"{slope:.3g} at {_SAMPLE:,} boundary points).",
        )
    text = (
        f"At {_SAMPLE:,} points inside it lies between {least:.2g} and {most:.3g}; at as many on the "
        f"boundary it is at most {edge:.1g}, with slopes of at least {slope:.3g}."
    )
    rough = roughness_level(domain.eta.value, domain)
    if not np.isfinite([least, most, edge, slope]).all() or slope * domain.inradius < 1e-6:
        advice = "Choose an eta that leaves the boundary with a slope, like the distance to it."
        return Finding(name, Verdict.NO, "sampled", f"{text} It needs a slope there.", advice)
    if most > 1 + 1e-9:
        return Finding(
            name,
            Verdict.NO,
            "sampled",
            f"{text} It must not exceed 1.",
            "Divide it by its maximum.",
        )
    if rough:
        text += " Its program has operations that can make kinks (abs, max, where, a root at zero)."
        advice = "Write it smoothly: where it has a kink, so has the solution."
        return Finding(name, Verdict.UNKNOWN, "", text, advice)
    return Finding(name, Verdict.YES, "sampled", f"{text} Its program is smooth.")


@eqx.filter_jit
def _eta_at(domain: AbstractDomain, key: Any) -> tuple[Array, Array, Array, Array]:
    inside = jax.vmap(domain.eta.value)(domain.sample(key, _SAMPLE))
    points = domain.sample_boundary(jr.fold_in(key, 1), _SAMPLE)
    edge, slopes = jax.vmap(domain.eta.value)(points), jax.vmap(domain.eta.grad)(points)
    return inside.min(), inside.max(), jnp.abs(edge).max(), jnp.linalg.norm(slopes, axis=1).min()


def _eta_numbers(domain: AbstractDomain) -> tuple[float, float, float, float]:
    with jax.enable_x64(True):
        least, most, edge, slope = _eta_at(fresh(domain), jr.key(3, impl="threefry2x32"))
    return float(least), float(most), float(edge), float(slope)


def roughness_level(function: Any, domain: AbstractDomain) -> int:
    """How rough the program of a function of a point is."""
    return roughness_over(function, domain.enclosing_box)[0].get(0, 0)


def extension_finding(problem: Problem) -> Finding:
    """Whether the boundary data, as extended inside, have square integrable second derivatives."""
    name, domain = "boundary data inside", fresh(problem.domain)
    data: Any = getattr(problem.boundary, "g", problem.boundary)  # what a lift extends
    data = getattr(data, "function", data.value if isinstance(data, AbstractField) else data)
    lifted = hasattr(problem.boundary, "g")
    cure = "Write the data smoothly, or extend their boundary values by qpde.lift(g, domain)."
    if not isinstance(problem.boundary, Constant) and roughness_level(data, domain):
        leap = leap_inside(fresh(problem.boundary).value, domain, 1)
        what = "a jump" if leap is not None and leap.order == 0 else "a kink"
        if leap is not None:
            where = np.array2string(leap.place, precision=3, threshold=6)
            text = f"They have {what}, for example at x = {where}: L f is not square integrable."
            return Finding(name, Verdict.NO, "sampled", text, cure)
        text = (
            "Their program has operations that can make kinks or jumps (abs, max, where, a root at zero); "
            f"bisection on {LINES} random lines found none."
        )
        return Finding(name, Verdict.UNKNOWN, "", text, cure)
    with jax.enable_x64(True):
        power = growth(Trial.of(problem, Constant(0.0), exact_boundary=True), domain)
    if not power <= POWER:
        text = (
            f"Towards the boundary L f grows like distance^-{power:.2f} (4,096 points at three distances), "
            "which is not square integrable."
        )
        advice = "If the source term does that, nothing helps; otherwise extend by qpde.lift."
        return Finding(name, Verdict.NO, "sampled", text, advice)
    calm = "Sampled near the boundary, L f does not blow up."
    if isinstance(problem.boundary, Constant):
        text = f"They are the number {float(problem.boundary.number):.4g}."
    elif lifted:
        text = "They are smooth by their program, and qpde.lift keeps second derivatives bounded."
    else:
        text = "They are smooth by their program (no abs, max, where, no root at zero)."
    return Finding(name, Verdict.YES, "proved", f"{text} {calm}")
