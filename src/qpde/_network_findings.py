"""What the convergence theory asks of the network, its activation and the sampling law."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from . import activations
from ._domain import AbstractDomain
from ._domain_findings import roughness_level
from ._enclosure import Unbounded, enclose, roughness_over
from ._field import AbstractField
from ._finding import Finding, Verdict
from ._form import fresh
from ._leap import leap_inside, leap_on_line
from ._measure import AbstractMeasure, Radial, Uniform, Weighted
from ._network import DeepField, ShallowField
from ._operator import cells
from ._problem import Problem
from ._program import JUMP
from .activations import AbstractActivation

_SAMPLE = 4_096
_KINDS = ("value", "slope", "second derivative", "third derivative", "fourth derivative")


def network_finding(field: AbstractField) -> Finding:
    """Whether the network is that of the theory."""
    name, theory = "network", "one hidden layer and a factor N^-beta, 1/2 < beta < 1"
    if isinstance(field, ShallowField):
        beta = float(field.beta.array)
        text = f"One hidden layer of {field.width} units with beta = {beta:g}; the theory has {theory}."
        if 0.5 < beta < 1:
            return Finding(name, Verdict.YES, "proved", text)
        return Finding(name, Verdict.NO, "proved", text, "Use qpde.Shallow(beta=0.75).")
    advice = "Use qpde.Shallow() if you want the theory; other networks may well do better."
    if isinstance(field, DeepField):
        text = f"{len(field.weights) - 1} hidden layers without such a factor; the theory has {theory}."
        return Finding(name, Verdict.NO, "proved", text, advice)
    return Finding(
        name, Verdict.UNKNOWN, "", f"A network of your own; the theory has {theory}.", advice
    )


_ACTIVATIONS = {
    activations.Tanh: True,
    activations.Sigmoid: True,
    activations.Erf: True,
    activations.Sin: True,
    activations.Softplus: False,
    activations.Gelu: False,
}


def activation_finding(field: AbstractField, domain: AbstractDomain) -> Finding:
    """Whether the activation is bounded, with four bounded derivatives, and not constant."""
    name, advice = "activation", "Use qpde.activations.tanh (the default)."
    if isinstance(field, ShallowField | DeepField):
        kind = type(field.activation)
        if kind not in _ACTIVATIONS:
            return _own_activation(field.activation)
        word = kind.__name__.lower()
        if _ACTIVATIONS[kind]:
            text = f"{word} is bounded and smooth, with bounded derivatives, and not constant."
            return Finding(name, Verdict.YES, "proved", text)
        text = f"{word} is smooth but not bounded, as the theory asks. It may well train."
        return Finding(name, Verdict.NO, "proved", text, advice)
    if roughness_level(field.value, domain):
        leap = leap_inside(field.value, domain, 2)
        if leap is not None:
            text = f"The {_KINDS[leap.order]} of the network leaps inside the domain, as ReLU makes it."
            cure = "Use a smooth activation: second derivatives do not see kinks."
            return Finding(name, Verdict.NO, "sampled", text, cure)
    return Finding(
        name, Verdict.UNKNOWN, "", "The activation of a network of your own is not looked at."
    )


def _own_activation(activation: AbstractActivation) -> Finding:
    """By its program and at points."""
    name, advice = "activation", "Use qpde.activations.tanh (the default)."

    @jax.jit
    def all_of(z: Array) -> Array:
        return jnp.stack(activation.derivatives(z, 4))

    def derivative(order: int, z: np.ndarray) -> np.ndarray:
        return np.asarray(all_of(jnp.asarray(z)))[order]

    with jax.enable_x64(True):
        for order in range(5):
            leap = leap_on_line(lambda z, k=order: derivative(k, z), -20.0, 20.0)
            if leap is not None:
                what = "It" if order == 0 else f"Its {_KINDS[order]}"
                text = f"{what} leaps near z = {round(leap[0], 6) + 0.0:g}: it is not smooth"
                worse = ", and the equation does not see such kinks" if order <= 1 else ""
                asked = "The theory asks for four bounded derivatives."
                return Finding(name, Verdict.NO, "sampled", f"{text}{worse}. {asked}", advice)
        size = 10.0 ** np.arange(7)
        values = np.abs(np.asarray(all_of(jnp.asarray(np.concatenate([-size, size])))))
        values = values.reshape(5, 2, 7).max(axis=1)
        spread = np.ptp(derivative(0, np.linspace(-20, 20, 1_001)))
    if not np.all(values[:, 6] <= 10 * (1 + values[:, 3])):
        text = f"It grows to {values[0, 6]:.2g} at |z| = 1e6; the theory asks for a bounded one."
        return Finding(name, Verdict.NO, "sampled", text, advice)
    if spread == 0:
        return Finding(name, Verdict.NO, "sampled", "It is constant on (-20, 20).", advice)
    everywhere = (np.asarray(-np.inf), np.asarray(np.inf))
    smooth = not roughness_over(activation, everywhere)[0].get(0, 0)
    words = "Smooth by its program" if smooth else "No kink was found on (-20, 20)"
    text = f"{words}; values and four derivatives are bounded at the points tried, up to |z| = 1e6."
    return Finding(name, Verdict.YES, "sampled", text)


def law_finding(measure: AbstractMeasure, problem: Problem) -> Finding:
    """Whether the sampling law has a continuous density, bounded above and away from zero."""
    name, dim = "sampling law", problem.dim
    asks = "The theory asks for a continuous density between two positive numbers"
    if isinstance(measure, Uniform) or (isinstance(measure, Radial) and measure.k == dim):
        return Finding(name, Verdict.YES, "proved", "Points are uniform.")
    if isinstance(measure, Radial):
        k, where = float(measure.k), "infinite" if measure.k < dim else "zero"
        text = f"{asks}; that of the radial law k = {k:g} is {where} at the centre."
        if k < 2:
            text += " For k < 2 even the Laplacian is not monotone under it."
            return Finding(name, Verdict.NO, "proved", text, f"Use uniform points, k = {dim}.")
        advice = f"Uniform points are k = {dim}; see below whether the equation is monotone."
        return Finding(name, Verdict.NO, "proved", text, advice)
    if not isinstance(measure, Weighted):
        text = f"{asks}; that of {type(measure).__name__} is not known."
        return Finding(name, Verdict.UNKNOWN, "", text, "Use qpde.Uniform or qpde.Weighted.")
    density: Any = measure.density
    level = roughness_level(density, problem.domain)
    try:
        (span,) = enclose(jax.vmap(density), cells(problem))
        low, high = float(span.low.min()), float(span.high.max())
    except Unbounded:
        low, high = 0.0, np.inf
    if low > 0 and np.isfinite(high):
        text = f"The density lies between {low:.3g} and {high:.3g} (by interval arithmetic)."
        if level < JUMP:
            return Finding(name, Verdict.YES, "proved", text)
        text += " Its program has operations that can make jumps."
        return Finding(name, Verdict.UNKNOWN, "", text, "Write the density smoothly.")
    low, high = _extremes(measure)
    text = f"A search found values from {low:.2g} to {high:.2g} times its mean."
    if low < 1e-6 or high > 1e6:
        return Finding(name, Verdict.NO, "sampled", f"{asks}. {text}", "Use uniform points.")
    return Finding(name, Verdict.YES if level < JUMP else Verdict.UNKNOWN, "sampled", text)


def _extremes(measure: Weighted) -> tuple[float, float]:
    """The smallest and largest density over its mean that a search by shrinking steps finds."""
    domain, density = fresh(measure.domain), measure.density

    @eqx.filter_jit
    def search(key: Any, sign: Any) -> Array:
        points = domain.sample(key, _SAMPLE)
        start = points[jnp.argmax(sign * jax.vmap(density)(points))]

        def step(i: Any, best: Array) -> Array:
            noise = jr.normal(jr.fold_in(key, i), (512, best.size), best.dtype)
            tried = jnp.concatenate([best[None] + domain.inradius * 0.7**i * noise, best[None]])
            values = jnp.where(jax.vmap(domain.contains)(tried), jax.vmap(density)(tried), jnp.nan)
            return tried[jnp.nanargmax(sign * values)]

        return density(jax.lax.fori_loop(0, 60, step, start))

    with jax.enable_x64(True):
        key = jr.key(4, impl="threefry2x32")
        low, high = (float(search(key, jnp.asarray(sign))) for sign in (-1.0, 1.0))
    return low / float(measure.mean), high / float(measure.mean)
