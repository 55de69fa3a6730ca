"""`Pairs`: polynomials of single coordinates, and of pairs of coordinates that interact.

    S = a_0 + sum_i sum_k c_ik h_k(t_i) + sum_(i,j) sum_(k,l) e_ijkl h_k(t_i) h_l(t_j),

`1 <= k, l` and `k + l <= n`, with `t` the coordinates divided by their spread and `h_k` the polynomials of
Hermite, `h_k' = sqrt(k) h_(k-1)`, which are orthonormal for normal `t`: what one coordinate of a ball in many
dimensions is, nearly. All coefficients are of the output layer: `VariableProjection` finds them by least
squares. The pairs that a problem needs are seen in the second derivatives of `L f` (`_solve/growth.py`).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._arguments import whole
from .._domain.base import AbstractDomain, drawn
from .._field.base import SourcedField
from .._field.form import AbstractForm, Identity
from .base import AbstractNetwork, Frame, Frozen


class Pairs(AbstractNetwork):
    """Polynomials up to a degree in single coordinates and in pairs of them.

        >>> Pairs(degree=2)                           # all pairs: a full quadratic form
        >>> Pairs([(0, 1), (1, 2), (2, 3)], degree=4)  # a chain

    **Arguments**

    - `pairs`: pairs of coordinates, each of two different ones; all by default.
    - `degree`: of the polynomials, from 1.
    """

    pairs: tuple[tuple[int, int], ...] | None = eqx.field(static=True)
    degree: int = eqx.field(static=True)

    def __init__(self, pairs: Any = None, *, degree: int = 2):
        self.degree = whole("degree", degree, least=1, most=20)
        self.pairs = None if pairs is None else _checked(pairs)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "PairsField":
        dim = domain.dim
        if self.pairs is None:
            pairs = np.stack(np.triu_indices(dim, 1), axis=1)
        else:
            pairs = np.asarray(self.pairs, np.int32).reshape(-1, 2)
            if pairs.size and np.max(pairs) >= dim:
                raise ValueError(
                    f"Coordinates are counted from 0 to {dim - 1}, got the pair "
                    f"{tuple(map(int, pairs[np.argmax(np.max(pairs, axis=1))]))}."
                )
        points = np.asarray(drawn(domain, jr.fold_in(key, 1), 2_048))
        return PairsField.empty(domain, pairs, self.degree, points)


def _checked(pairs: Any) -> tuple[tuple[int, int], ...]:
    cure = (
        "pairs is a list such as [(0, 1), (1, 2)]: two different coordinates each, counted from 0"
    )
    try:
        rows = [tuple(pair) for pair in pairs]
    except TypeError:
        raise ValueError(f"{cure}; got {pairs!r}.") from None
    for row in rows:
        if len(row) != 2 or row[0] == row[1]:
            raise ValueError(f"{cure}; got {row!r}.")
    return tuple(tuple(sorted(whole("A coordinate", i) for i in row)) for row in rows)  # pyright: ignore


class PairsField(SourcedField):
    """The network of `Pairs` with its coefficients; all derivatives are closed forms."""

    constant: Float[Array, ""]
    c: Float[Array, "d n"]
    e: Float[Array, "p m"]
    pairs: Int[Array, "p 2"]
    spread: Frozen
    frame: Frame

    @classmethod
    def empty(
        cls, domain: AbstractDomain, pairs: np.ndarray, degree: int, points: np.ndarray
    ) -> "PairsField":
        """The network that is zero, for coordinates that are spread like those of the points."""
        frame = Frame.of(domain, True)
        y = (points - frame.centre.array) / frame.half.array
        spread = np.maximum(np.sqrt(np.mean(y * y, axis=0)), 1e-300)
        return cls(
            constant=jnp.zeros(()),
            c=jnp.zeros((domain.dim, degree)),
            e=jnp.zeros((len(pairs), len(_powers(degree)))),
            pairs=jnp.asarray(pairs, jnp.int32),
            spread=Frozen(spread),
            frame=frame,
        )

    @property
    def degree(self) -> int:
        """The largest degree."""
        return self.c.shape[1]

    def higher(self) -> "PairsField":
        """The network that is zero, of the next degree."""
        n = self.degree + 1
        return eqx.tree_at(
            lambda f: (f.constant, f.c, f.e),
            self,
            (
                jnp.zeros(()),
                jnp.zeros((self.c.shape[0], n)),
                jnp.zeros((self.e.shape[0], len(_powers(n)))),
            ),
        )

    def judged_by(self) -> Callable[..., Any] | None:
        return None

    def output_layer(self) -> tuple[Any, ...]:
        return self.constant, self.c, self.e

    def at(self, x: Float[Array, " d"]) -> "PairsAt":
        return PairsAt(self, x)


def _powers(degree: int) -> np.ndarray:
    """The degrees `(k, l)` in the two coordinates of a pair."""
    rows = [(k, n - k) for n in range(2, degree + 1) for k in range(1, n)]
    return np.asarray(rows, np.int64).reshape(-1, 2)


class PairsAt:
    """Polynomials of pairs at one point. Derivatives that nobody asks for are removed by the compiler."""

    def __init__(self, field: PairsField, x: Float[Array, " d"]):
        self._f = field
        n = field.degree
        slope = 1.0 / (field.frame.half.array * field.spread.array)
        t = field.frame(x) / field.spread.array
        values = [jnp.ones_like(t), t]
        for k in range(1, n):
            values.append((t * values[k] - k**0.5 * values[k - 1]) / (k + 1) ** 0.5)
        h = jnp.stack(values[: n + 1], axis=1)  # (d, n + 1)
        roots = np.sqrt(np.arange(n + 1.0)).astype(h.dtype)
        derived = [h]
        for _ in range(4):  # h_k' = sqrt(k) h_(k-1)
            derived.append(jnp.pad(derived[-1][:, :-1], ((0, 0), (1, 0))) * roots[None, :])
        self._h = tuple((slope**k)[:, None] * each for k, each in enumerate(derived))

    def _pair(self, i: int, j: int) -> Float[Array, " p"]:
        """The sums over degrees, derived i times in a pair's first coordinate and j times in its second."""
        powers = _powers(self._f.degree)
        first, second = self._f.pairs[:, 0], self._f.pairs[:, 1]
        left, right = self._h[i][first][:, powers[:, 0]], self._h[j][second][:, powers[:, 1]]
        return jnp.sum(self._f.e * left * right, axis=1)

    def _single(self, i: int) -> Float[Array, " d"]:
        return jnp.sum(self._f.c * self._h[i][:, 1:], axis=1)

    def _along_axes(self, i: int) -> Float[Array, " d"]:
        """The i-th derivative along every axis."""
        pairs = self._f.pairs
        along = self._single(i).at[pairs[:, 0]].add(self._pair(i, 0))
        return along.at[pairs[:, 1]].add(self._pair(0, i))

    def value(self) -> Float[Array, ""]:
        return self._f.constant + jnp.sum(self._single(0)) + jnp.sum(self._pair(0, 0))

    def grad(self) -> Float[Array, " d"]:
        return self._along_axes(1)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        if isinstance(form, Identity):
            return jnp.sum(self._along_axes(2))
        return form.contract(self.hessian())

    def hessian(self) -> Float[Array, "d d"]:
        mixed, (first, second) = self._pair(1, 1), self._f.pairs.T
        whole = jnp.diag(self._along_axes(2))
        return whole.at[first, second].add(mixed).at[second, first].add(mixed)

    def laplacian_grad(self) -> Float[Array, " d"]:
        pairs = self._f.pairs
        slope = self._along_axes(3).at[pairs[:, 0]].add(self._pair(1, 2))
        return slope.at[pairs[:, 1]].add(self._pair(2, 1))

    def bilaplacian(self) -> Float[Array, ""]:
        return jnp.sum(self._along_axes(4)) + 2.0 * jnp.sum(self._pair(2, 2))
