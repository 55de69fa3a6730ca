"""Data that depend on one random number, carried by a Gaussian or log-normal diffusion.

In coordinates `y` (those of space, or their logarithms) in which the diffusion is Gaussian, let `M` be a
linear function of `y`, or the largest or smallest of independent ones. After the time `s` each of them is
normal, with mean `mu_i` and deviation `sd_i`, and for data `h(M)`

    E h(max) = h(high) - int h'(v) prod_i Phi((v - mu_i) / sd_i) dv,
    E h(min) = h(low)  + int h'(v) prod_i Phi((mu_i - v) / sd_i) dv,

up to `high` and from `low`, beyond which the product is one or zero up to rounding. The integrand is smooth
between the kinks of `h`: a rule of Gauss and Legendre on each part gives the integral to rounding. Every
product solves the equation of the diffusion, and so does the sum. Derivatives are those of the products.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float

from .._compiled import compiled
from .._diffusion.law import AbstractLaw, Gaussian, LogNormal
from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, in_space, without_time
from .._precision import Numbers, like

# Nodes between two kinks, and deviations beyond which nothing is integrated. The product of many numbers
# falls within a deviation over `sqrt(2 log(many))`, and so many more nodes are taken.
_NODES, _MANY, _REACH = 48, 64.0, 8.0
# The least time, so that its root has a derivative.
_TINY = 1e-24
# Random points at which data are compared with a function of one number, and by how much they may be off.
_SEEN, _SAME = 4_096, 1e-9
# Places at which a slope is looked at for jumps, and by how much one stands out of its neighbours.
_PLACES, _STANDS_OUT, _HALVINGS = 4_001, 20.0, 48


class OfOneNumber(AbstractField):
    """`E h(M)` at the points `(x, t)`; `rows @ y` are the numbers whose largest or smallest is `M`."""

    profile: Callable[[Array], Array]  # h
    rows: Numbers
    drift: Numbers  # of every number
    spread: Numbers  # deviation of every number after the time 1
    kinks: Numbers
    end: Numbers
    logs: bool = eqx.field(static=True)
    largest: bool = eqx.field(static=True)
    backward: bool = eqx.field(static=True)

    def judged_by(self) -> None:
        """It is smooth at all times before the data: its programs are those of this file."""
        return

    def _law(self, z: Array) -> tuple[Array, Array, Array, float]:
        """Means, deviations, the time since the data and its derivative in `t`."""
        s, sign = (self.end - z[-1], -1.0) if self.backward else (z[-1], 1.0)
        s = jnp.maximum(s, _TINY)  # a sum the compiler might contract with the difference
        y = jnp.log(z[:-1]) if self.logs else z[:-1]
        mean = jnp.asarray(self.rows, z.dtype) @ y + s * jnp.asarray(self.drift, z.dtype)
        return mean, jnp.sqrt(s) * jnp.asarray(self.spread, z.dtype), s, sign

    def _rule(self, mean: Array, deviation: Array) -> tuple[Array, Array, Array]:
        """Nodes and weights, which count as numbers, and the end at which `M` never is."""
        wide = jnp.max(deviation)
        reach = (_REACH + wide) * wide
        middle = jnp.max(mean) if self.largest else jnp.min(mean)
        low, high = middle - reach, middle + reach
        inner = jnp.clip(jnp.asarray(self.kinks, mean.dtype), low, high)
        edges = jax.lax.stop_gradient(jnp.concatenate([low[None], inner, high[None]]))
        many = math.sqrt(2.0 * math.log(self.rows.shape[0]))
        at, weight = np.polynomial.legendre.leggauss(max(_NODES, math.ceil(_MANY * many)))
        half = 0.5 * (edges[1:] - edges[:-1])[:, None]
        nodes = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * jnp.asarray(at, mean.dtype)[None]
        weights = half * jnp.asarray(weight, mean.dtype)[None]
        return nodes.reshape(-1), weights.reshape(-1), edges[-1] if self.largest else edges[0]

    def _terms(self, mean: Array, deviation: Array) -> tuple[Array, Array, Array, Array]:
        """The value beyond all, `+-weight h'(v) product` at every node, and `a` and `phi / Phi` of all."""
        nodes, weights, outside = self._rule(mean, deviation)
        sign = 1.0 if self.largest else -1.0
        a = sign * (nodes[:, None] - mean[None]) / deviation[None]
        logs = log_ndtr(a)
        hazard = jnp.exp(-0.5 * a * a - 0.5 * np.log(2.0 * np.pi) - logs)
        slope = jax.vmap(jax.grad(lambda v: like(v, self.profile(v))))(nodes)
        terms = -sign * weights * slope * jnp.exp(jnp.sum(logs, axis=1))
        return like(mean, self.profile(outside)), terms, a, hazard

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        mean, deviation, _, _ = self._law(x)
        beyond, terms, _, _ = self._terms(mean, deviation)
        return beyond + jnp.sum(terms)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        mean, deviation, s, sign = self._law(x)
        _, terms, a, hazard = self._terms(mean, deviation)
        by_mean = self._by_mean(hazard, deviation)
        first = terms @ by_mean
        by_root = terms @ (-a * hazard / deviation[None])
        in_time = jnp.dot(first, jnp.asarray(self.drift, x.dtype)) + jnp.dot(
            by_root, 0.5 * jnp.asarray(self.spread, x.dtype) / jnp.sqrt(s)
        )
        slope = first @ jnp.asarray(self.rows, x.dtype)
        slope = slope / x[:-1] if self.logs else slope
        return jnp.append(slope, sign * in_time)

    def _by_mean(self, hazard: Array, deviation: Array) -> Array:
        """The derivative of every logarithm of `Phi` in its mean."""
        return (-1.0 if self.largest else 1.0) * hazard / deviation[None]

    def _curvature(self, x: Array) -> Array:
        """Second derivatives in space."""
        mean, deviation, _, _ = self._law(x)
        _, terms, a, hazard = self._terms(mean, deviation)
        by_mean, rows = self._by_mean(hazard, deviation), jnp.asarray(self.rows, x.dtype)
        bent = terms @ (-hazard * (a + hazard) / jnp.square(deviation)[None])
        second = by_mean.T @ (terms[:, None] * by_mean) + jnp.diag(bent)
        second = rows.T @ second @ rows
        if not self.logs:
            return second
        slope = (terms @ by_mean) @ rows
        over = 1.0 / x[:-1]
        return over[:, None] * (second - jnp.diag(slope)) * over[None]

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not in_space(form):
            return Autodiff(self.value).trace(x, form)
        return without_time(form, x[:-1])[0].contract(self._curvature(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        mixed = jax.jacfwd(self.grad)(x)
        return mixed.at[:-1, :-1].set(self._curvature(x)).at[:-1, -1].set(mixed[-1, :-1])


class Profile(eqx.Module):
    """The data along a line: `h(v) = g(x)` where the number is `v`, with `y = middle + v along`."""

    data: AbstractField
    middle: Numbers
    along: Numbers
    logs: bool = eqx.field(static=True)

    def __call__(self, v: Array) -> Array:
        y = jnp.asarray(self.middle, v.dtype) + v * jnp.asarray(self.along, v.dtype)
        return self.data.value(jnp.exp(y) if self.logs else y)


def of_one_number(
    data: AbstractField, law: AbstractLaw, start: np.ndarray, end: Any, backward: bool
) -> OfOneNumber | None:
    """Data of one linear function or of the largest or smallest coordinate, carried by the law.

    None where they are not, as 4,096 random points show, or where the law is not known. Where one number is
    the largest or smallest of several, these must be independent.
    """
    if not isinstance(law, Gaussian | LogNormal):
        return None
    logs = isinstance(law, LogNormal)
    gaussian = law.logs if isinstance(law, LogNormal) else law
    middle = np.log(start) if logs else np.asarray(start)
    matrix = 2.0 * gaussian.factor @ gaussian.factor.T
    wide = np.sqrt(float(end) * np.maximum(np.diag(matrix), 1e-12 * np.max(np.diag(matrix))))
    rng = np.random.default_rng(1)
    y = (
        middle
        + float(end) * gaussian.drift
        + 2.0 * wide * rng.standard_normal((_SEEN, len(middle)))
    )
    values, slopes = (np.asarray(part) for part in _looked_at(data, y, logs))
    found = _ridge(data, middle, slopes, logs)
    choices: list[tuple[Any, ...]] = [] if found is None else [(*found, True)]
    if np.array_equal(matrix, np.diag(np.diag(matrix))) and np.ptp(middle) >= 0:
        same = Profile(data, np.zeros_like(middle), np.ones_like(middle), logs)
        choices += [(same, np.eye(len(middle)), largest) for largest in (True, False)]
    for profile, rows, largest in choices:
        numbers = y @ rows.T
        number = numbers.max(axis=1) if largest else numbers.min(axis=1)
        size = max(float(np.max(np.abs(values))), 1e-300)
        if np.max(np.abs(np.asarray(_along(profile, number)) - values)) > _SAME * size:
            continue
        spread = np.sqrt(np.einsum("ij,jk,ik->i", rows, matrix, rows))
        if not np.all(spread > 0):
            continue
        reach = 1.5 * np.ptp(number)
        kinks = kinks_of(profile, number.min() - reach, number.max() + reach)
        if kinks is None:
            return None
        return OfOneNumber(
            profile, rows, rows @ gaussian.drift, spread, kinks, end, logs, largest, backward
        )
    return None


def _ridge(
    data: AbstractField, middle: np.ndarray, slopes: np.ndarray, logs: bool
) -> tuple[Profile, np.ndarray] | None:
    """The direction along which alone the data change, as their slopes show."""
    sizes = np.linalg.norm(slopes, axis=1)
    if not np.all(np.isfinite(sizes)) or not np.any(sizes > 0):
        return None
    direction = slopes[np.argmax(sizes)] / np.max(sizes)
    off = slopes - (slopes @ direction)[:, None] * direction[None]
    if np.max(np.abs(off)) > _SAME * np.max(sizes):
        return None
    base = middle - (middle @ direction) * direction
    return Profile(data, base, direction, logs), direction[None]


def kinks_of(profile: Callable[[Array], Array], low: float, high: float) -> np.ndarray | None:
    """Where the slope of a function of one number jumps, to rounding; None where its value does."""
    places = np.linspace(low, high, _PLACES)
    slope, values = np.asarray(_slopes(profile, places)), np.asarray(_along(profile, places))
    steepest = np.maximum(np.abs(slope[1:]), np.abs(slope[:-1]))
    most = 2.0 * np.diff(places) * steepest + 1e-9 * max(float(np.max(np.abs(values))), 1e-300)
    if not np.all(np.isfinite(slope)) or np.any(np.abs(np.diff(values)) > most):
        return None
    change = np.abs(np.diff(slope))
    usual = np.median(np.sort(change)[: max(1, int(0.9 * len(change)))])
    floor = 1e-9 * max(float(np.max(np.abs(slope))), 1e-300)
    found = []
    for i in np.flatnonzero(change > _STANDS_OUT * usual + floor):
        left, right, jump = places[i], places[i + 1], change[i]
        for _ in range(_HALVINGS):
            middle = 0.5 * (left + right)
            at = np.asarray(_slopes(profile, np.array([left, middle, right])))
            left, right = (
                (left, middle) if abs(at[1] - at[0]) > abs(at[2] - at[1]) else (middle, right)
            )
            jump = max(abs(at[1] - at[0]), abs(at[2] - at[1]))
        if jump > 0.5 * change[i]:
            found.append(0.5 * (left + right))
    return np.array(found)


@compiled(brief=True)
def _looked_at(data: AbstractField, y: Any, logs: bool) -> tuple[Array, Array]:
    def value(y: Array) -> Array:
        return data.value(jnp.exp(y) if logs else y)

    return jax.vmap(value)(y), jax.vmap(jax.grad(value))(y)


@compiled(brief=True)
def _along(profile: Callable[[Array], Array], numbers: Any) -> Array:
    return jax.vmap(profile)(numbers)


@compiled(brief=True)
def _slopes(profile: Callable[[Array], Array], numbers: Any) -> Array:
    return jax.vmap(jax.grad(lambda v: like(v, profile(v))))(numbers)
