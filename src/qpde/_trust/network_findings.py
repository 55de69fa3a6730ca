"""What the convergence theory asks of the network, its activation and the sampling law."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._equation.cells import cells
from .._equation.roughness import field_roughness, roughness_level
from .._equation.smoothness import leap_inside, leap_on_line
from .._field.base import AbstractField
from .._network.mlp import DeepField
from .._network.shallow import ShallowField
from .._precision import key_from
from .._problem.measure import AbstractMeasure, Radial, Uniform, Weighted
from .._problem.problem import Problem
from .._program.interval import Unbounded, enclose, roughness_over
from .._program.program import JUMP
from ..activations import AbstractActivation
from .finding import Answer, Evidence, Finding

_SAMPLE = 4_096
_KINDS = ("value", "slope", "second derivative", "third derivative", "fourth derivative")


def network_finding(field: AbstractField) -> Finding:
    """Whether the network is that of the theory."""
    name, theory = "network", "one hidden layer and a factor N^-beta, 1/2 < beta < 1"
    if isinstance(field, ShallowField):
        beta = float(field.beta.array)
        text = f"One hidden layer of {field.width} units with beta = {beta:g}; the theory has {theory}."
        if 0.5 < beta < 1:
            return Finding(name, Answer.YES, Evidence.PROVED, text)
        return Finding(name, Answer.NO, Evidence.PROVED, text, "Use qpde.Shallow(beta=0.75).")
    advice = "Use qpde.Shallow() if you want the theory; other networks may well do better."
    if isinstance(field, DeepField):
        text = f"{len(field.weights) - 1} hidden layers without such a factor; the theory has {theory}."
        return Finding(name, Answer.NO, Evidence.PROVED, text, advice)
    return Finding(
        name,
        Answer.UNKNOWN,
        Evidence.NONE,
        f"A network of your own; the theory has {theory}.",
        advice,
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
            return Finding(name, Answer.YES, Evidence.PROVED, text)
        text = f"{word} is smooth but not bounded, as the theory asks. It may well train."
        return Finding(name, Answer.NO, Evidence.PROVED, text, advice)
    if field_roughness(field, domain):
        leap = leap_inside(field.value, domain, 2)
        if leap is not None:
            text = f"The {_KINDS[leap.order]} of the network leaps inside the domain, as ReLU makes it."
            cure = "Use a smooth activation: second derivatives do not see kinks."
            return Finding(name, Answer.NO, Evidence.SAMPLED, text, cure)
    return Finding(
        name,
        Answer.UNKNOWN,
        Evidence.NONE,
        "The activation of a network of your own is not looked at.",
    )


def _own_activation(activation: AbstractActivation) -> Finding:
    """By its program and at points."""
    name, advice = "activation", "Use qpde.activations.tanh (the default)."

    def derivative(order: int, z: np.ndarray) -> np.ndarray:
        return np.asarray(_derivatives(activation, z))[order]

    for order in range(5):
        leap = leap_on_line(lambda z, k=order: derivative(k, z), -20.0, 20.0)
        if leap is not None:
            what = "It" if order == 0 else f"Its {_KINDS[order]}"
            text = f"{what} leaps near z = {round(leap[0], 6) + 0.0:g}: it is not smooth"
            worse = ", and the equation does not see such kinks" if order <= 1 else ""
            asked = "The theory asks for four bounded derivatives."
            text = f"{text}{worse}. {asked}"
            return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    size = 10.0 ** np.arange(7)
    values = np.abs(np.asarray(_derivatives(activation, np.concatenate([-size, size]))))
    values = values.reshape(5, 2, 7).max(axis=1)
    if not np.all(values[:, 6] <= 10 * (1 + values[:, 3])):
        text = f"It grows to {values[0, 6]:.2g} at |z| = 1e6; the theory asks for a bounded one."
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    if np.ptp(derivative(0, np.linspace(-20, 20, 1_001))) == 0:
        text = "It is constant on (-20, 20)."
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    everywhere = (np.asarray(-np.inf), np.asarray(np.inf))
    smooth = not roughness_over(activation, everywhere)[0].get(0, 0)
    words = "Smooth by its program" if smooth else "No kink was found on (-20, 20)"
    text = f"{words}; values and four derivatives are bounded at the points tried, up to |z| = 1e6."
    return Finding(name, Answer.YES, Evidence.SAMPLED, text)


@compiled(brief=True)
def _derivatives(activation: AbstractActivation, z: Any) -> Float[Array, "5 n"]:
    return jnp.stack(activation.derivatives(z, 4))


def law_finding(measure: AbstractMeasure, problem: Problem) -> Finding:
    """Whether the sampling law has a continuous density, bounded above and away from zero."""
    name, dim = "sampling law", problem.space_dim
    asks = "The theory asks for a continuous density between two positive numbers"
    if problem.domain.follows_paths and isinstance(measure, Uniform):
        text = f"{asks}; points follow a diffusion in the whole space, where there is none."
        return Finding(
            name, Answer.NO, Evidence.PROVED, text, "Nothing: qpde.certify asks for this law."
        )
    if isinstance(measure, Uniform) or (isinstance(measure, Radial) and measure.k == dim):
        return Finding(name, Answer.YES, Evidence.PROVED, "Points are uniform.")
    if isinstance(measure, Radial):
        k, where = float(measure.k), "infinite" if measure.k < dim else "zero"
        text = f"{asks}; that of the radial law k = {k:g} is {where} at the centre."
        if k < 2:
            text += " For k < 2 even the Laplacian is not monotone under it."
            return Finding(
                name, Answer.NO, Evidence.PROVED, text, f"Use uniform points, k = {dim}."
            )
        advice = f"Uniform points are k = {dim}; see below whether the equation is monotone."
        return Finding(name, Answer.NO, Evidence.PROVED, text, advice)
    if not isinstance(measure, Weighted):
        text = f"{asks}; that of {type(measure).__name__} is not known."
        return Finding(
            name, Answer.UNKNOWN, Evidence.NONE, text, "Use qpde.Uniform or qpde.Weighted."
        )
    density: Any = measure.density
    level = roughness_level(density, problem.domain)
    try:
        (span,) = enclose(jax.vmap(density), cells(problem.domain))
        low, high = float(span.low.min()), float(span.high.max())
    except Unbounded:
        low, high = 0.0, np.inf
    if low > 0 and np.isfinite(high):
        text = f"The density lies between {low:.3g} and {high:.3g} (by interval arithmetic)."
        if level < JUMP:
            return Finding(name, Answer.YES, Evidence.PROVED, text)
        text += " Its program has operations that can make jumps."
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, "Write the density smoothly.")
    low, high = _extremes(measure)
    text = f"A search found values from {low:.2g} to {high:.2g} times its mean."
    if low < 1e-6 or high > 1e6:
        return Finding(name, Answer.NO, Evidence.SAMPLED, f"{asks}. {text}", "Use uniform points.")
    return Finding(name, Answer.YES if level < JUMP else Answer.UNKNOWN, Evidence.SAMPLED, text)


def _extremes(measure: Weighted) -> tuple[float, float]:
    """The smallest and largest density over its mean that a search by shrinking steps finds."""
    key, mean, reach = key_from(4), float(measure.mean), np.asarray(measure.domain.inradius)
    low, high = (
        float(_extreme(measure.domain, measure.density, key, reach, sign)) for sign in (-1.0, 1.0)
    )
    return low / mean, high / mean


@compiled
def _extreme(
    domain: AbstractDomain, density: Callable[..., Any], key: PRNGKeyArray, reach: Any, sign: Any
) -> Float[Array, ""]:
    points = domain.sample(key, _SAMPLE)
    start = points[jnp.argmax(sign * jax.vmap(density)(points))]

    def step(i: Any, best: Array) -> Array:
        noise = jr.normal(jr.fold_in(key, i), (512, best.size), best.dtype)
        tried = jnp.concatenate([best[None] + reach * 0.7**i * noise, best[None]])
        values = jnp.where(jax.vmap(domain.contains)(tried), jax.vmap(density)(tried), jnp.nan)
        return tried[jnp.nanargmax(sign * values)]

    return density(jax.lax.fori_loop(0, 60, step, start))
